//! Requests through the controller's front door, and the backends that answer them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use equipoise_netns::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::probe;

/// Clients. Each sends its next request [`PAUSE`] after the response to the one before.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(20);
/// Time from request to response in a backend.
const SERVICE: Duration = Duration::from_millis(20);
/// Time after which a client gives a request up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request head that a backend reads.
const HEAD_MAX: usize = 8192;

/// Clients of a front door. They end when this is dropped.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
}

impl Traffic {
    pub(crate) fn start(host: &Host, door: SocketAddr) -> Result<Traffic> {
        let shared = Arc::new(Shared::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = Arc::clone(&shared);
        let thread = host.spawn_thread(move || {
            let clients = LocalSet::new();
            for _ in 0..CLIENTS {
                clients.spawn_local(client(door, Arc::clone(&local)));
            }
            runtime.block_on(clients);
        });
        Ok(Traffic { shared, thread: Some(thread) })
    }

    /// Requests answered with 200 so far.
    pub(crate) fn answered(&self) -> u64 {
        self.shared.answered.load(Relaxed)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

async fn client(door: SocketAddr, shared: Arc<Shared>) {
    while !shared.stop.load(Relaxed) {
        if let Ok(Ok(true)) = timeout(PATIENCE, probe::get(door)).await {
            shared.answered.fetch_add(1, Relaxed);
        }
        sleep(PAUSE).await;
    }
}

/// A backend: answers each request after [`SERVICE`].
pub(crate) async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(session(stream));
    }
}

async fn session(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while head.len() < HEAD_MAX && stream.read_buf(&mut head).await? > 0 {
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            sleep(SERVICE).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
    }
    Ok(())
}

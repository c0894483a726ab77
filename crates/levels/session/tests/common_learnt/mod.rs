//! Backends of tests of learned limits, over HTTP/1.1 and over HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use equipoise_session::config::Upstream;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

pub(crate) const SLOTS: usize = 4;
pub(crate) const LARGE: usize = 256 << 10;
pub(crate) const UPLOAD: usize = 6;

/// A backend that serves any number of connections with one thread.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Requests that have arrived.
    arrived: AtomicUsize,
    /// Set when held requests may end.
    released: watch::Sender<bool>,
    slots: Semaphore,
    /// Requests at `/work`, in a slot or waiting for one.
    working: AtomicUsize,
    /// Additional time in a slot for each request in or beyond the slots.
    slowdown: Duration,
}

impl Backend {
    /// A backend of a pool with this kind of sessions.
    pub(crate) fn start(mode: Upstream) -> Backend {
        Backend::with_slowdown(mode, Duration::ZERO)
    }

    pub(crate) fn with_slowdown(mode: Upstream, slowdown: Duration) -> Backend {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it can be set");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            arrived: AtomicUsize::new(0),
            released: watch::Sender::new(false),
            slots: Semaphore::new(SLOTS),
            working: AtomicUsize::new(0),
            slowdown,
        });
        let serving = shared.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let listener = TcpListener::from_std(listener).expect("it is a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    match mode {
                        Upstream::Http2 => drop(tokio::spawn(serve_http2(stream, serving.clone()))),
                        _ => drop(tokio::spawn(serve(stream, serving.clone()))),
                    }
                }
            });
        });
        Backend { address, shared }
    }

    pub(crate) fn arrived(&self) -> usize {
        self.shared.arrived.load(SeqCst)
    }

    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }
}

impl Shared {
    /// Waits until held requests may end.
    async fn release(&self) -> Option<()> {
        self.released.subscribe().wait_for(|it| *it).await.ok().map(drop)
    }

    /// The body of a response that begins when it is complete.
    async fn body(&self, target: &str) -> Option<String> {
        Some(match target {
            "/poll" => {
                self.release().await?;
                "poll".to_owned()
            }
            "/large" => "x".repeat(LARGE),
            "/work" => {
                let working = self.working.fetch_add(1, SeqCst) + 1;
                let slot = self.slots.acquire().await.ok()?;
                let more = working.saturating_sub(SLOTS) as u32;
                tokio::time::sleep(Duration::from_millis(20) + more * self.slowdown).await;
                drop(slot);
                self.working.fetch_sub(1, SeqCst);
                "worked".to_owned()
            }
            _ => "short".to_owned(),
        })
    }
}

/// Serves the requests of one connection, until it closes or fails.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut input = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = input.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut input).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(input.drain(..end).collect()).ok()?;
        shared.arrived.fetch_add(1, SeqCst);
        let answer = answer(&mut stream, &head, &mut input, &shared).await?;
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn answer(
    stream: &mut TcpStream,
    head: &str,
    input: &mut Vec<u8>,
    shared: &Shared,
) -> Option<String> {
    let target = head.split(' ').nth(1)?;
    Some(match target {
        "/events" => {
            let first = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n";
            stream.write_all(first.as_bytes()).await.ok()?;
            shared.release().await?;
            "5\r\nlast\n\r\n0\r\n\r\n".to_owned()
        }
        "/tunnel" => {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                          Upgrade: websocket\r\n\r\n";
            stream.write_all(switch.as_bytes()).await.ok()?;
            loop {
                let mut bytes = [0; 64];
                let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
                stream.write_all(&bytes[..count]).await.ok()?;
            }
        }
        "/upload" => {
            while input.len() < UPLOAD {
                if stream.read_buf(input).await.ok()? == 0 {
                    return None;
                }
            }
            input.drain(..UPLOAD);
            ok("uploaded")
        }
        target => ok(&shared.body(target).await?),
    })
}

/// Serves the streams of one connection, until it closes or fails.
async fn serve_http2(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(mut frames) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = frames.accept().await {
        shared.arrived.fetch_add(1, SeqCst);
        tokio::spawn(answer_stream(request, respond, shared.clone()));
    }
}

async fn answer_stream(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
) -> Option<()> {
    let body = match request.uri().path() {
        "/events" => {
            let mut events = respond.send_response(Response::new(()), false).ok()?;
            events.send_data("first\n".into(), false).ok()?;
            shared.release().await?;
            return events.send_data("last\n".into(), true).ok();
        }
        "/upload" => {
            let mut body = request.into_body();
            let mut read = 0;
            while read < UPLOAD {
                read += body.data().await?.ok()?.len();
            }
            "uploaded".to_owned()
        }
        target => shared.body(target).await?,
    };
    let response = Response::builder().header("content-length", body.len()).body(()).ok()?;
    respond.send_response(response, false).ok()?.send_data(body.into(), true).ok()
}

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

use crate::{PATIENCE, ReservedPort, free_port};

/// Counters of an [`Acceptor`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Of them open now.
    pub open: u64,
    /// Most open at once.
    pub open_max: u64,
    /// Bytes read from all of them.
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    counts: Counts,
    streams: HashMap<u64, TcpStream>,
}

/// Counts and streams of an acceptor, and a bell that rings when they change.
#[derive(Default)]
pub(crate) struct Connections {
    state: Mutex<State>,
    changed: Condvar,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.lock().counts.bytes += bytes as u64;
        self.changed.notify_all();
    }

    fn opened(&self, stream: &TcpStream) -> u64 {
        let mut state = self.lock();
        let id = state.counts.accepted;
        state.counts.accepted += 1;
        state.counts.open += 1;
        state.counts.open_max = state.counts.open_max.max(state.counts.open);
        if let Ok(stream) = stream.try_clone() {
            state.streams.insert(id, stream);
        }
        self.changed.notify_all();
        id
    }

    /// Drops our copy of the stream: the connection's thread must be the last to hold the socket,
    /// or closing it would not reach the peer.
    fn forget(&self, id: u64) {
        self.lock().streams.remove(&id);
    }

    fn closed(&self) {
        self.lock().counts.open -= 1;
        self.changed.notify_all();
    }
}

type Serve = dyn Fn(TcpStream, u64, &Connections) + Send + Sync;

/// A listener on a reserved loopback port, one thread per connection; stops and starts again.
pub struct Acceptor {
    port: ReservedPort,
    connections: Arc<Connections>,
    serve: Arc<Serve>,
    running: Mutex<Option<(TcpListener, JoinHandle<()>)>>,
}

/// Tells the connection's end even if its thread panics.
struct Open<'a>(&'a Connections, u64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
        self.0.closed();
    }
}

impl Acceptor {
    pub(crate) fn start(
        serve: impl Fn(TcpStream, u64, &Connections) + Send + Sync + 'static,
    ) -> Acceptor {
        let acceptor = Acceptor {
            port: free_port(),
            connections: Arc::default(),
            serve: Arc::new(serve),
            running: Mutex::new(None),
        };
        acceptor.restart();
        acceptor
    }

    /// Where it listens, or did.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its counts now.
    pub fn counts(&self) -> Counts {
        self.connections.lock().counts
    }

    /// Waits until `condition` holds of the counts; `false` if it did not within [`PATIENCE`].
    pub fn wait(&self, mut condition: impl FnMut(&Counts) -> bool) -> bool {
        let state = self.connections.lock();
        let waited = self
            .connections
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !condition(&state.counts));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Listens again after [`Acceptor::stop`] or [`Acceptor::refuse`]; nothing if it does already.
    pub fn restart(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return;
        }
        let listener = self.port.listen();
        let ours = listener.try_clone().expect("a descriptor is free");
        let (connections, serve) = (self.connections.clone(), self.serve.clone());
        let thread = thread::spawn(move || accept_all(&ours, &connections, &serve));
        *running = Some((listener, thread));
    }

    /// Refuses new connections; those that are open stay.
    pub fn refuse(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((listener, thread)) = running {
            // Shutting a listening socket down is what wakes a thread that sleeps in accept.
            let _ = SockRef::from(&listener).shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }

    /// Closes the connections that are open; new ones are still accepted.
    pub fn close_open(&self) {
        for stream in self.connections.lock().streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Simulates the death of the process: refuses connections, and closes open ones.
    pub fn stop(&self) {
        self.refuse();
        self.close_open();
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_all(listener: &TcpListener, connections: &Arc<Connections>, serve: &Arc<Serve>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // Out of file descriptors, in a test that wants that: the samples recover too.
            Err(_) => {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let id = connections.opened(&stream);
        let (connections, serve) = (connections.clone(), serve.clone());
        thread::spawn(move || {
            let open = Open(&connections, id);
            serve(stream, id, &connections);
            drop(open);
        });
    }
}

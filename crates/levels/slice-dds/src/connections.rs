//! A worker's connections to controllers. The kernel closes them when the process ends, so the
//! controller notices that at once.
//!
//! For each controller that announces itself, a thread connects, sends the worker's id and waits.
//! The controller sends nothing, so the thread causes no load. If the connection ends while the
//! worker is alive, the thread connects again at once, and the controller sees that the worker is
//! alive. Without a connection only the lease counts. No error here can end a worker.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use equipoise_basics::{Waits, lock};
use equipoise_dds::Guid;
use equipoise_slice::Incarnation;
use rustix::net::sockopt;

use crate::hello::{Hello, Listens, Nonce};

/// Time after which a controller without a new announcement is forgotten.
const FORGET: Duration = Duration::from_secs(15);
/// Limit of controllers with a connection.
const CONTROLLERS_MAX: usize = 16;
/// Limit of the addresses of one controller that are tried.
const ADDRESSES_MAX: usize = 16;
const CONNECT: Duration = Duration::from_secs(1);
const WRITE: Duration = Duration::from_secs(1);
/// Pause between two attempts. It doubles, up to `RETRY_MAX`, while no connection lasts.
const RETRY: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The connections. A drop closes them, when the worker has ended.
#[derive(Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    participant: Guid,
    state: Mutex<State>,
    /// Signals that the worker has ended, or that a controller has announced itself.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    incarnation: Incarnation,
    ended: bool,
    controllers: BTreeMap<Nonce, Candidate>,
}

/// A controller that has announced itself.
#[derive(Debug)]
struct Candidate {
    listens: Listens,
    heard: Instant,
    stream: Option<TcpStream>,
}

impl Connections {
    pub(crate) fn new(incarnation: Incarnation, participant: Guid) -> Self {
        let state = State { incarnation, ended: false, controllers: BTreeMap::new() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self(Arc::new(Shared { participant, state, changed }))
    }

    /// Handles an announcement of a controller.
    pub(crate) fn heard(&self, listens: Listens) {
        let mut state = self.0.state();
        let (nonce, heard) = (listens.nonce, Instant::now());
        if let Some(known) = state.controllers.get_mut(&nonce) {
            (known.listens, known.heard) = (listens, heard);
            return self.0.changed.notify_all();
        }
        if state.controllers.len() >= CONTROLLERS_MAX {
            return tracing::debug!("too many controllers announce themselves; ignoring one");
        }
        state.controllers.insert(nonce, Candidate { listens, heard, stream: None });
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("slice-connect".into());
        if let Err(error) = thread.spawn(move || shared.keep(nonce)) {
            state.controllers.remove(&nonce);
            tracing::debug!(%error, "cannot start a thread for the connection to a controller");
        }
    }

    /// Handles a new incarnation of the worker in the same process.
    pub(crate) fn reborn(&self, incarnation: Incarnation) {
        let mut state = self.0.state();
        if state.incarnation == incarnation {
            return;
        }
        state.incarnation = incarnation;
        let hello = Hello { incarnation, participant: self.0.participant };
        for (nonce, candidate) in &mut state.controllers {
            if let Some(stream) = &mut candidate.stream
                && stream.write_all(&hello.encode(*nonce)).is_err()
            {
                // The connection's thread connects again.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        for candidate in state.controllers.values() {
            if let Some(stream) = &candidate.stream {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The loop of a thread: keeps a connection to a controller, until the controller is silent or
    /// the worker has ended.
    fn keep(&self, nonce: Nonce) {
        let mut waits = Waits::new(RETRY, RETRY_MAX);
        loop {
            let Some(listens) = self.wanted(nonce) else { return };
            let connected = Instant::now();
            if let Some(stream) = connect(&listens) {
                self.hold(nonce, stream);
                // A connection that has lasted is replaced at once.
                if connected.elapsed() >= RETRY_MAX {
                    waits.succeeded();
                    continue;
                }
            }
            let state = self.state();
            let goes_on = |state: &mut State| !state.ended;
            drop(self.changed.wait_timeout_while(state, waits.failed(), goes_on));
        }
    }

    /// The addresses of the controller, if a connection is still wanted. Forgets a silent
    /// controller.
    fn wanted(&self, nonce: Nonce) -> Option<Listens> {
        let mut state = self.state();
        let known = state.controllers.get(&nonce).filter(|it| it.heard.elapsed() < FORGET);
        let listens = known.map(|it| it.listens.clone()).filter(|_| !state.ended);
        if listens.is_none() {
            state.controllers.remove(&nonce);
        }
        listens
    }

    /// Sends the first frame, and waits until the connection ends.
    fn hold(&self, nonce: Nonce, mut stream: TcpStream) {
        {
            let mut state = self.state();
            let hello = Hello { incarnation: state.incarnation, participant: self.participant };
            // Under the lock, so that the incarnation cannot change in between.
            let said = stream.write_all(&hello.encode(nonce)).and_then(|()| stream.try_clone());
            let (Ok(clone), false) = (said, state.ended) else { return };
            let Some(candidate) = state.controllers.get_mut(&nonce) else { return };
            candidate.stream = Some(clone);
        }
        // The controller sends nothing; a read returns when the connection ends.
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|read| read > 0) {}
        if let Some(candidate) = self.state().controllers.get_mut(&nonce) {
            candidate.stream = None;
        }
        tracing::debug!("a connection to a controller ended");
    }
}

fn connect(listens: &Listens) -> Option<TcpStream> {
    let mut addresses = listens.addresses.iter().take(ADDRESSES_MAX);
    let stream = addresses.find_map(|it| TcpStream::connect_timeout(it, CONNECT).ok())?;
    bound_silence(&stream).is_ok().then_some(stream)
}

/// Ends the connection within two minutes after the controller's machine has vanished.
fn bound_silence(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    Ok(sockopt::set_tcp_keepcnt(stream, 3)?)
}

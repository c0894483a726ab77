//! Connections of workers to a controller candidate: accepts them, bounds their number and follows
//! the worker's incarnations.
//!
//! The candidate announces addresses and a nonce on the control topic. A connection without that
//! nonce is not from a worker: it is counted and closed, and is no evidence about any worker. The
//! protocol decides what a closed connection means
//! ([`equipoise_slice::controller::Connection`]). Candidates that do not lead follow connections,
//! too, so that the next leader knows which workers have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use equipoise_admission::{Admission, Limits, Pass, bound_silence, source};
use equipoise_dds::Guid;
use equipoise_slice::{Incarnation, WorkerId};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use equipoise_slice_dds::Stream;
use equipoise_slice_dds::leader::{FRAME, Hello, Listens, Nonce};

const LIMITS: Limits = Limits {
    connections_max: 4096,
    unproven_max: 64,
    unproven_by_source_max: 16,
    // One connection per incarnation, and earlier ones that ended unnoticed.
    by_member_max: 8,
};
/// Longest time until a new connection has named its worker.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// A connection ends when the peer's machine does not answer for this long. Such an end is no
/// evidence about the worker.
const SILENCE: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example when the process has no free descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// Limit of queued events of connections.
const EVENTS_MAX: usize = 1024;
/// Limit of closed connections that are remembered.
const CLOSED_MAX: usize = 1024;

/// A change of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// Number of the connection, unique in this candidate.
    number: u64,
    incarnation: Incarnation,
    participant: Guid,
    end: Option<End>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Closed by the peer's kernel, or by a device on the way.
    Closed,
    /// Closed by this side or by a failure of the network, or now of another incarnation: no
    /// evidence about the worker.
    Void,
}

/// A change of the connections of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Connected(Incarnation),
    Disconnected(Incarnation),
    /// Its last connection ended, which is no evidence about the worker.
    Without(Incarnation),
}

/// The connections of a candidate. A drop closes them.
#[derive(Debug)]
pub(super) struct Connections {
    listens: Option<Listens>,
    events: mpsc::Receiver<Event>,
    lives: Lives,
    _accepting: JoinSet<()>,
}

/// Connections by incarnation.
#[derive(Debug, Default)]
struct Lives {
    open: BTreeMap<Incarnation, BTreeSet<u64>>,
    /// Incarnations without a connection since the last one was closed, and their participants.
    closed: BTreeMap<Incarnation, Guid>,
}

impl Connections {
    /// Accepts connections on the interfaces of `stream`. A `port` of 0 is any free port; `None`
    /// accepts no connection. Must be called inside a tokio runtime. An address that cannot be
    /// bound is logged; without any address only leases detect lost workers.
    pub(super) fn listen(stream: &Stream, port: Option<u16>, strangers: &Arc<AtomicU64>) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let mut accepting = JoinSet::new();
        let listens = port.and_then(|port| {
            let nonce = nonce().inspect_err(|error| tracing::warn!(%error, "cannot create a nonce: this controller accepts no connections of workers")).ok()?;
            let admission = Admission::new(LIMITS);
            let mut addresses = Vec::new();
            for address in stream.dds.addresses() {
                match bind(SocketAddr::new(address, port)) {
                    Ok((listener, at)) => {
                        let strangers = strangers.clone();
                        let door = Door { nonce, admission: admission.clone(), strangers };
                        accepting.spawn(accept(listener, door, sender.clone()));
                        addresses.push(at);
                    }
                    Err(error) => tracing::warn!(
                        %address, port, %error,
                        "workers cannot connect to this controller at this address: their deaths may be detected only by their leases"
                    ),
                }
            }
            (!addresses.is_empty()).then_some(Listens { nonce, addresses })
        });
        Self { listens, events, lives: Lives::default(), _accepting: accepting }
    }

    /// The announcement to workers. `None`: it accepts no connections.
    pub(super) fn listens(&self) -> Option<&Listens> {
        self.listens.as_ref()
    }

    /// The next change. Safe to cancel.
    pub(super) async fn change(&mut self) -> Change {
        loop {
            let Some(event) = self.events.recv().await else { return std::future::pending().await };
            if let Some(change) = self.lives.follow(event) {
                return change;
            }
        }
    }

    /// The present state of all connections, for a new leader.
    pub(super) fn now(&self) -> Vec<Change> {
        let open = self.lives.open.keys().map(|incarnation| Change::Connected(*incarnation));
        open.chain(self.lives.closed.keys().map(|incarnation| Change::Disconnected(*incarnation)))
            .collect()
    }

    /// Handles the loss of `incarnation`. Returns its participant if its connection had closed.
    pub(super) fn lost(&mut self, incarnation: Incarnation) -> Option<Guid> {
        self.lives.closed.remove(&incarnation)
    }
}

impl Lives {
    fn follow(&mut self, event: Event) -> Option<Change> {
        let Event { number, incarnation, participant, end } = event;
        let Some(end) = end else {
            self.closed.remove(&incarnation);
            self.open.entry(incarnation).or_default().insert(number);
            return Some(Change::Connected(incarnation));
        };
        let open = self.open.get_mut(&incarnation)?;
        open.remove(&number);
        if !open.is_empty() {
            // It has another connection.
            return None;
        }
        self.open.remove(&incarnation);
        match end {
            End::Void => Some(Change::Without(incarnation)),
            End::Closed => {
                if self.closed.len() >= CLOSED_MAX {
                    self.closed.pop_first();
                }
                self.closed.insert(incarnation, participant);
                Some(Change::Disconnected(incarnation))
            }
        }
    }
}

/// State shared by the tasks that accept and serve connections.
#[derive(Debug, Clone)]
struct Door {
    nonce: Nonce,
    admission: Admission<IpAddr, WorkerId>,
    /// Connections that named no worker, and those beyond the limits.
    strangers: Arc<AtomicU64>,
}

impl Door {
    fn count_stranger(&self) {
        self.strangers.fetch_add(1, Relaxed);
    }
}

fn nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Nonce(bytes))
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, at))
}

async fn accept(listener: TcpListener, door: Door, events: mpsc::Sender<Event>) {
    let (mut serving, mut number) = (JoinSet::new(), 0_u64);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Tasks that have ended are removed.
            Some(_) = serving.join_next() => continue,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "failed to accept a connection");
                sleep(RETRY).await;
                continue;
            }
        };
        let Ok((pass, _)) = door.admission.enter(source(from.ip())) else {
            door.count_stranger();
            continue;
        };
        // Unique among all listeners: the low bits are the listener's port.
        number += 1;
        let number = (number << 16) | u64::from(listener.local_addr().map_or(0, |at| at.port()));
        bound_silence(&stream, SILENCE);
        serving.spawn(serve(stream, pass, number, door.clone(), events.clone()));
    }
}

/// Follows one connection to its end. After the end of the candidate its events have no receiver.
async fn serve(
    mut stream: TcpStream,
    mut pass: Pass<IpAddr, WorkerId>,
    number: u64,
    door: Door,
    events: mpsc::Sender<Event>,
) {
    let first = tokio::select! {
        first = timeout(HELLO_PATIENCE, hello(&mut stream, door.nonce)) => first.ok(),
        () = pass.evicted() => None,
    };
    let Some(Ok(mut known)) = first else {
        return door.count_stranger();
    };
    if pass.prove(&known.incarnation.worker).is_err() {
        return door.count_stranger();
    }
    let tell = async |of: Hello, end| {
        let Hello { incarnation, participant } = of;
        let _ = events.send(Event { number, incarnation, participant, end }).await;
    };
    tell(known, None).await;
    loop {
        match hello(&mut stream, door.nonce).await {
            Ok(next) if next.incarnation.worker == known.incarnation.worker => {
                tell(known, Some(End::Void)).await;
                known = next;
                tell(known, None).await;
            }
            Err(End::Closed) => return tell(known, Some(End::Closed)).await,
            Ok(_) | Err(End::Void) => {
                door.count_stranger();
                return tell(known, Some(End::Void)).await;
            }
        }
    }
}

/// The next frame, or how the connection ended.
async fn hello(stream: &mut TcpStream, nonce: Nonce) -> Result<Hello, End> {
    let mut frame = [0; FRAME];
    match stream.read_exact(&mut frame).await {
        Ok(_) => Hello::decode(&frame, nonce).map_err(|_| End::Void),
        // The kernel closes the sockets of a process when it ends: in order, or with a reset.
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Err(End::Closed),
            _ => Err(End::Void),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, incarnation: u64, end: Option<End>) -> Event {
        let incarnation = Incarnation { worker: WorkerId(7), number: incarnation };
        Event { number, incarnation, participant: Guid([incarnation.number as u8; 16]), end }
    }

    #[test]
    fn an_incarnation_is_disconnected_when_its_last_connection_closes() {
        let mut lives = Lives::default();
        let incarnation = |number| Incarnation { worker: WorkerId(7), number };
        let closed = Some(End::Closed);
        assert_eq!(lives.follow(event(1, 1, None)), Some(Change::Connected(incarnation(1))));
        // It connects again before the end of the first connection is noticed.
        assert_eq!(lives.follow(event(2, 1, None)), Some(Change::Connected(incarnation(1))));
        assert_eq!(lives.follow(event(1, 1, closed)), None);
        assert_eq!(lives.follow(event(2, 1, closed)), Some(Change::Disconnected(incarnation(1))));
        assert_eq!(lives.closed.get(&incarnation(1)), Some(&Guid([1; 16])));
        // Connected again: its death must not be announced.
        assert_eq!(lives.follow(event(3, 1, None)), Some(Change::Connected(incarnation(1))));
        assert!(lives.closed.is_empty());
        // A new incarnation on the same connection.
        assert_eq!(
            lives.follow(event(3, 1, Some(End::Void))),
            Some(Change::Without(incarnation(1)))
        );
        assert_eq!(lives.follow(event(3, 2, None)), Some(Change::Connected(incarnation(2))));
        // An unknown incarnation.
        assert_eq!(lives.follow(event(9, 5, closed)), None);
        for number in 0..2 * CLOSED_MAX as u64 {
            lives.follow(event(number, 10 + number, None));
            lives.follow(event(number, 10 + number, closed));
        }
        assert_eq!(lives.closed.len(), CLOSED_MAX);
    }
}

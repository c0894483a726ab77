//! The connections to the peers, each in a thread of its own.
//!
//! A balancer connects to every peer and sends its flows; peers send theirs over connections that
//! they open. A message is sent when the previous one is acknowledged, so a slow peer holds one
//! message of memory, and delays no other thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use socket2::{Domain, Socket, Type};

use super::channel::{Channel, PeerError};
use super::status::{ExchangeStatus, Peer, PeerState, State};
use crate::clock::monotonic_ns;
use crate::config::{FleetConfig, FleetSecret};
use crate::control::{Ack, Collected, Control, FleetMessage, Position};
use crate::own_address::is_own;
use crate::privileges::{Capabilities, give_up};

/// Maximum time for a connection, a handshake, or an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which an empty message shows that the balancer is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Pause after a connection failed.
const RETRY: Duration = Duration::from_secs(1);
/// Pause before the next attempt at a peer that is this balancer itself.
const RETRY_SELF: Duration = Duration::from_secs(60);
/// Interval at which waiting threads see that they have to stop.
const STOP_POLL: Duration = Duration::from_millis(250);
/// Connections that have not authenticated yet.
const STRANGERS_MAX: usize = 32;
/// Connections of peers.
const INCOMING_MAX: usize = 2 * FleetConfig::PEERS_MAX;

/// Access to the control side, which another thread owns.
pub trait Tables: Clone + Send + 'static {
    /// Runs `question` on the control side's thread; `None`: it has stopped.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Option<R>;

    /// Reports a change of a peer's connection.
    fn report(&self, peer: SocketAddr, state: &PeerState);
}

/// State of all threads.
struct Shared {
    config: FleetConfig,
    secret: FleetSecret,
    node: u64,
    stops: AtomicBool,
    /// Number of the last news.
    news: Mutex<u64>,
    bell: Condvar,
    strangers: AtomicUsize,
    state: Mutex<State>,
}

/// A running exchange. Dropping it ends its threads within some seconds.
pub struct Exchange {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Listens, and connects to the peers. `secret` authenticates and encrypts the connections. The
    /// control side must [share](Control::share).
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(
        config: FleetConfig,
        secret: FleetSecret,
        tables: impl Tables,
    ) -> io::Result<Exchange> {
        let mut node = [0; 8];
        aws_lc_rs::rand::fill(&mut node).map_err(|_| io::Error::other("no random numbers"))?;
        let peers = vec![Peer::default(); config.peers.len()];
        let shared = Arc::new(Shared {
            node: u64::from_be_bytes(node),
            stops: AtomicBool::new(false),
            news: Mutex::new(0),
            bell: Condvar::new(),
            strangers: AtomicUsize::new(0),
            state: Mutex::new(State { peers, ..State::default() }),
            config,
            secret,
        });
        let exchange = Exchange { shared: Arc::clone(&shared) };
        for index in 0..shared.config.peers.len() {
            let (shared, tables) = (Arc::clone(&shared), tables.clone());
            spawn("fleet-out", move || shared.send_to(index, &tables))?;
        }
        spawn("fleet-listen", move || shared.listen(&tables))?;
        Ok(exchange)
    }

    /// Wakes the senders if `news` is another number than the last time.
    pub fn ring(&self, news: u64) {
        let mut last = lock(&self.shared.news);
        if *last != news {
            *last = news;
            self.shared.bell.notify_all();
        }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &FleetConfig {
        &self.shared.config
    }

    /// Returns the status. `asks` is the number of the control side's last request for all flows.
    pub fn status(&self, asks: u64) -> ExchangeStatus {
        lock(&self.shared.state).status(&self.shared.config.peers, asks)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.shared.stops.store(true, Relaxed);
        // A thread that is about to wait holds the lock.
        drop(lock(&self.shared.news));
        self.shared.bell.notify_all();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        give_up(Capabilities::ALL);
        work();
    };
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// End of a connection that is no failure.
enum Ended {
    /// The address is this balancer's.
    Own,
    /// The exchange or the control side has stopped.
    Stopped,
}

/// Whether no connection came within the socket's time.
fn is_over(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl Shared {
    fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Waits for other news than `seen`, or for a time.
    fn wait(&self, seen: Option<u64>, time: Duration) {
        let end = Instant::now() + time;
        let mut news = lock(&self.news);
        while !self.stops() && seen.is_none_or(|seen| *news == seen) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.bell.wait_timeout(news, left);
            news = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Peer)) {
        change(&mut lock(&self.state).peers[index]);
    }

    fn set_state(&self, index: usize, after: PeerState, tables: &impl Tables) {
        let before = std::mem::replace(&mut lock(&self.state).peers[index].state, after.clone());
        if before != after {
            tables.report(self.config.peers[index], &after);
        }
    }

    /// Sends flows to a peer until the exchange stops.
    fn send_to(&self, index: usize, tables: &impl Tables) {
        let mut known = (0, Position::default());
        while !self.stops() {
            if self.is_self(index) {
                self.set_state(index, PeerState::Own, tables);
                self.wait(None, RETRY_SELF);
                continue;
            }
            let pause = match self.converse(index, &mut known, tables) {
                Ok(Ended::Stopped) => return,
                Ok(Ended::Own) => {
                    self.set_state(index, PeerState::Own, tables);
                    RETRY_SELF
                }
                Err(error) => {
                    self.set_state(index, PeerState::Failed(error.to_string()), tables);
                    RETRY
                }
            };
            self.change(index, |peer| peer.has_all = false);
            self.wait(None, pause);
        }
    }

    /// Whether the address of a peer is that of this balancer. Other addresses that lead here are
    /// recognized by the answer.
    fn is_self(&self, index: usize) -> bool {
        let (peer, listen) = (self.config.peers[index], self.config.listen);
        let is_any = listen.ip().is_unspecified() && peer.port() == listen.port();
        peer == listen || is_any && is_own(peer.ip())
    }

    /// Sends flows over one connection. `known`: the node and its position.
    fn converse(
        &self,
        index: usize,
        known: &mut (u64, Position),
        tables: &impl Tables,
    ) -> Result<Ended, PeerError> {
        let peer = self.config.peers[index];
        let mut channel = Channel::call(peer, &self.secret, self.node, TIMEOUT)?;
        if channel.node == self.node {
            return Ok(Ended::Own);
        }
        if channel.node != known.0 {
            // Another process, which knows nothing.
            *known = (channel.node, Position::default());
        }
        self.change(index, |peer| peer.node = Some(channel.node));
        self.set_state(index, PeerState::Connected, tables);
        while !self.stops() {
            let seen = *lock(&self.news);
            let from = known.1.clone();
            let collected = tables.ask(move |control| control.collect(&from, Instant::now()));
            let Some(Collected { message, mut position, more }) = collected else {
                return Ok(Ended::Stopped);
            };
            let bytes = message.encode();
            channel.send(&bytes)?;
            let ack = Ack::decode(&channel.receive()?)?;
            position.asked = ack.asks;
            let has_all = !more && position.swept >= position.asked;
            known.1 = position;
            self.change(index, |peer| {
                peer.has_all = has_all;
                peer.flows_sent += message.flows.len() as u64;
                peer.bytes_sent += bytes.len() as u64;
                peer.unplaced += u64::from(ack.unplaced);
                peer.full += u64::from(ack.full);
            });
            if has_all {
                self.wait(Some(seen), HEARTBEAT);
            }
        }
        Ok(Ended::Stopped)
    }

    /// Accepts connections until the exchange stops.
    fn listen(self: &Arc<Self>, tables: &impl Tables) {
        let mut listener = None;
        while !self.stops() {
            let Some(open) = &listener else {
                // A process that this one replaces may still have the address.
                listener = bind(self.config.listen).ok();
                let address = listener.as_ref().and_then(|it| it.local_addr().ok());
                lock(&self.state).listens = address;
                if listener.is_none() {
                    self.wait(None, STOP_POLL);
                }
                continue;
            };
            // Without a connection, this fails when the socket's time is over.
            match open.accept() {
                Ok((stream, from)) => self.admit(stream, from.ip().to_canonical(), tables),
                Err(error) if is_over(&error) => {}
                // Such as too many open files.
                Err(_) => self.wait(None, STOP_POLL),
            }
        }
    }

    /// Answers a connection. Strangers leave places for connections from addresses of peers.
    fn admit(self: &Arc<Self>, stream: TcpStream, from: IpAddr, tables: &impl Tables) {
        let is_peer = self.config.peers.iter().any(|it| it.ip() == from);
        let most = if is_peer { 2 * STRANGERS_MAX } else { STRANGERS_MAX };
        if self.strangers.fetch_add(1, Relaxed) >= most {
            self.strangers.fetch_sub(1, Relaxed);
            lock(&self.state).refused += 1;
            return;
        }
        let (shared, tables) = (Arc::clone(self), tables.clone());
        let started = spawn("fleet-in", move || {
            let channel = Channel::answer(stream, &shared.secret, shared.node, TIMEOUT);
            shared.strangers.fetch_sub(1, Relaxed);
            match channel {
                Ok(channel) if channel.node == shared.node => {}
                Ok(channel) => shared.receive_from(channel, &tables),
                Err(_) => lock(&shared.state).refused += 1,
            }
        });
        if started.is_err() {
            self.strangers.fetch_sub(1, Relaxed);
        }
    }

    /// Receives flows until the connection ends.
    fn receive_from(&self, mut channel: Channel, tables: &impl Tables) {
        {
            let mut state = lock(&self.state);
            if state.incoming.values().map(|(open, _)| open).sum::<usize>() >= INCOMING_MAX {
                state.refused += 1;
                return;
            }
            state.incoming.entry(channel.node).or_default().0 += 1;
        }
        // The peer connects again, and notes the reason.
        let _ = self.receive_all(&mut channel, tables);
        let mut state = lock(&self.state);
        if let Some((open, _)) = state.incoming.get_mut(&channel.node) {
            *open -= 1;
            if *open == 0 {
                state.incoming.remove(&channel.node);
            }
        }
    }

    fn receive_all(&self, channel: &mut Channel, tables: &impl Tables) -> Result<(), PeerError> {
        while !self.stops() {
            let message = FleetMessage::decode(&channel.receive()?)?;
            let swept = message.swept;
            let Some(ack) = tables
                .ask(move |control| control.take_in(&message, Instant::now(), monotonic_ns()))
            else {
                return Ok(());
            };
            if let Some((_, known)) = lock(&self.state).incoming.get_mut(&channel.node) {
                *known = swept;
            }
            channel.send(&ack.encode())?;
        }
        Ok(())
    }
}

/// A listening socket with a time for `accept`.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_read_timeout(Some(STOP_POLL))?;
    socket.bind(&address.into())?;
    socket.listen(64)?;
    Ok(socket.into())
}

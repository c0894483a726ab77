//! The clients of a UDP front door: their addresses, backends and last datagrams.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_handover::UdpClient;
use slab::Slab;
use socket2::{Domain, Type};

use super::batch::Ends;
use super::queue;
use super::ready::ReadySet;
use crate::access_log::{self, FlowLine};
use crate::door::{Door, DoorGuard};
use crate::handover::GivenClient;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::snapshot::Snapshot;
use crate::socket::open_below;
use crate::worker::{ClientHashes, Pick, TaskGuard, Worker};

/// A client address may be forged until it has sent a datagram this long after its first one. Until
/// then it makes room for new ones. An answer proves nothing, since a forged address gets one, too.
const PROOF: Duration = Duration::from_secs(1);

/// A client address that has sent a single datagram and had no answer is forgotten after this long.
/// So is one that is silent for this long while new ones are turned away.
const PROBATION: Duration = Duration::from_secs(10);

/// A client address that has sent something.
pub(super) struct Client {
    pub(super) ends: Ends,
    /// None after its backend has failed, until its next datagram.
    pub(super) upstream: Option<Upstream>,
    /// The backend that has failed it.
    pub(super) avoid: Option<u32>,
    pub(super) heard: Instant,
    first_heard: Instant,
    /// Whether it has sent a datagram [`PROOF`] after its first one.
    is_proven: bool,
    /// Datagrams that it has sent, and those that were sent to it.
    requests: u64,
    pub(super) responses: u64,
    /// Tells it from others that had its place.
    number: u64,
    bytes_in: u64,
    pub(super) bytes_out: u64,
    logged_since: Option<Instant>,
    _open: DoorGuard,
    _task: TaskGuard,
}

impl Client {
    /// Takes note of datagrams that it has sent.
    pub(super) fn sends(&mut self, datagrams: usize, bytes: u64, now: Instant) {
        self.heard = now;
        self.is_proven |= now.saturating_duration_since(self.first_heard) >= PROOF;
        self.requests += datagrams as u64;
        self.bytes_in += bytes;
    }

    /// Silence after which the client is removed.
    fn patience(&self, idle: Duration, is_crowded: bool) -> Duration {
        let is_single = self.requests <= 1 && self.responses == 0;
        if is_single || is_crowded { idle.min(PROBATION) } else { idle }
    }

    /// Whether it has had all the answers that it gets, at so many to each datagram.
    pub(super) fn is_answered(&self, responses: Option<u32>) -> bool {
        responses.is_some_and(|each| self.responses >= self.requests.saturating_mul(each.into()))
    }
}

/// The virtual client: a connected socket of this client's own.
pub(super) struct Upstream {
    socket: OwnedFd,
    pub(super) lease: Lease,
    token: u64,
}

impl Upstream {
    /// Opens one over a descriptor below `line`.
    fn open(
        lease: Lease,
        ready: &ReadySet,
        token: u64,
        line: RawFd,
    ) -> Result<Upstream, (Lease, Reason)> {
        let connect = || -> io::Result<OwnedFd> {
            let mut failure = io::Error::from(io::ErrorKind::NotFound);
            for address in lease.backend().datagram_addresses() {
                let socket = open_below(line, Domain::for_address(address), Type::DGRAM);
                match socket.and_then(|socket| socket.connect(&address.into()).map(|()| socket)) {
                    Ok(socket) => {
                        let socket = OwnedFd::from(socket);
                        ready.add(&socket, token)?;
                        return Ok(socket);
                    }
                    Err(error) => failure = equipoise_health::more_telling(failure, error),
                }
            }
            Err(failure)
        };
        match connect() {
            Ok(socket) => {
                lease.stats().sessions_opened.add(1);
                lease.stats().sessions_open.add(1);
                lease.stats().requests.add(1);
                Ok(Upstream { socket, lease, token })
            }
            Err(error) => {
                let reason = crate::upstream::connect_failure(&error);
                Err((lease, reason))
            }
        }
    }

    /// Takes a connected socket over from a predecessor.
    fn adopt(lease: Lease, socket: OwnedFd, ready: &ReadySet, token: u64) -> io::Result<Upstream> {
        ready.add(&socket, token)?;
        lease.stats().sessions_open.add(1);
        Ok(Upstream { socket, lease, token })
    }

    /// Counts the replies that its queue had no room for; once, when it is given up.
    fn count_overflow(&self, door: &Door) {
        let lost = u64::from(queue::overflowed(self.fd()));
        door.stats(|stats| stats.drops[Reason::DatagramDropped as usize].add(lost));
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.lease.stats().sessions_open.sub(1);
    }
}

/// The clients of one front door on one thread.
pub(super) struct Clients {
    worker: Rc<Worker>,
    door: Rc<Door>,
    by_ends: HashMap<Ends, usize>,
    all: Slab<Client>,
    sockets_opened: u32,
    added: u64,
    /// Unproven clients, the oldest first: number and place. Some were proven or removed since the
    /// last sweep.
    newcomers: VecDeque<(u64, usize)>,
    /// A new client was turned away since the last sweep.
    is_crowded: bool,
}

impl Clients {
    pub(super) fn new(worker: Rc<Worker>, door: Rc<Door>) -> Clients {
        Clients {
            worker,
            door,
            by_ends: HashMap::new(),
            all: Slab::new(),
            sockets_opened: 0,
            added: 0,
            newcomers: VecDeque::new(),
            is_crowded: false,
        }
    }

    /// Takes clients over from a predecessor, with their backends in `snapshot`. A client without
    /// its backend there gets another one with its next datagram.
    pub(super) fn adopt(
        &mut self,
        given: Vec<GivenClient>,
        snapshot: &Rc<Arc<Snapshot>>,
        ready: &ReadySet,
    ) {
        let now = Instant::now();
        let ago = |ms: u64| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
        for (client, socket) in given {
            let ends = Ends { peer: client.peer, local: client.local };
            if self.by_ends.contains_key(&ends) {
                continue;
            }
            self.added += 1;
            let entry = self.all.vacant_entry();
            let at = entry.key();
            self.sockets_opened = self.sockets_opened.wrapping_add(1);
            let token = u64::from(self.sockets_opened) << 32 | at as u64;
            let lease = client.upstream.as_ref().and_then(|(pool, address)| {
                let pool = snapshot.pools.iter().position(|view| *view.name == **pool)?;
                let backends = &snapshot.pools[pool].backends;
                let slot = backends.iter().position(|backend| backend.address == *address)?;
                Lease::acquire(snapshot, pool, slot, self.worker.index)
            });
            let upstream = lease
                .zip(socket)
                .and_then(|(lease, socket)| Upstream::adopt(lease, socket, ready, token).ok());
            if !client.is_proven {
                self.newcomers.push_back((self.added, at));
            }
            let first_heard = ago(client.first_heard_ms);
            entry.insert(Client {
                ends,
                upstream,
                avoid: None,
                heard: ago(client.heard_ms),
                first_heard,
                is_proven: client.is_proven,
                requests: client.requests,
                responses: client.responses,
                number: self.added,
                bytes_in: client.bytes_in,
                bytes_out: client.bytes_out,
                logged_since: client.is_logged.then_some(first_heard),
                _open: self.door.enter(),
                _task: self.worker.task(),
            });
            self.by_ends.insert(ends, at);
        }
    }

    /// Gives all clients to a successor.
    pub(super) fn give(&mut self) -> Vec<GivenClient> {
        let now = Instant::now();
        let ms = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
        self.by_ends.clear();
        let mut given = Vec::with_capacity(self.all.len());
        for client in self.all.drain() {
            // The kernel keeps the socket's queue for the successor. Without descriptors the client
            // gets another backend.
            let upstream = client.upstream.as_ref();
            let socket = upstream.and_then(|upstream| upstream.socket.try_clone().ok());
            let backend = upstream.filter(|_| socket.is_some()).map(|upstream| {
                let (pool, backend) = (upstream.lease.pool(), upstream.lease.backend());
                (pool.name.to_string(), backend.address)
            });
            given.push((
                UdpClient {
                    peer: client.ends.peer,
                    local: client.ends.local,
                    upstream: backend,
                    heard_ms: ms(client.heard),
                    first_heard_ms: ms(client.first_heard),
                    is_proven: client.is_proven,
                    requests: client.requests,
                    responses: client.responses,
                    bytes_in: client.bytes_in,
                    bytes_out: client.bytes_out,
                    is_logged: client.logged_since.is_some(),
                },
                socket,
            ));
        }
        given
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The client with these ends, new if it has to be; it need not have a backend yet. Where there
    /// is no more room the oldest client that is not proven goes.
    ///
    /// # Errors
    /// Why there can be no new one.
    pub(super) fn find_or_add(&mut self, ends: Ends, now: Instant) -> Result<usize, Reason> {
        if let Some(at) = self.by_ends.get(&ends) {
            return Ok(*at);
        }
        if self.door.closing.get() {
            return Err(Reason::ShuttingDown);
        }
        let view = self.door.view();
        if !view.config.access.allows(ends.peer.ip()) {
            return Err(Reason::SourceDenied);
        }
        let limit = view.config.limits.connections_max;
        if self.all.len() >= limit.min(self.worker.lines.get().udp_clients_max) && !self.evict(None)
        {
            self.is_crowded = true;
            return Err(Reason::TooManyClients);
        }
        self.added += 1;
        let at = self.all.insert(Client {
            ends,
            upstream: None,
            avoid: None,
            heard: now,
            first_heard: now,
            is_proven: false,
            requests: 0,
            responses: 0,
            number: self.added,
            bytes_in: 0,
            bytes_out: 0,
            logged_since: access_log::is_sampled(&self.worker, &self.door).then_some(now),
            _open: self.door.enter(),
            _task: self.worker.task(),
        });
        self.by_ends.insert(ends, at);
        self.newcomers.push_back((self.added, at));
        Ok(at)
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Client {
        &mut self.all[at]
    }

    /// The client with a current socket of this token.
    pub(super) fn by_token(&mut self, token: u64) -> Option<usize> {
        let at = (token & u64::from(u32::MAX)) as usize;
        let upstream = self.all.get(at)?.upstream.as_ref()?;
        (upstream.token == token).then_some(at)
    }

    /// Gives the client a backend, unless it has one.
    ///
    /// # Errors
    /// Why it can have none.
    pub(super) fn ensure_upstream(&mut self, at: usize, ready: &ReadySet) -> Result<(), Reason> {
        let client = &self.all[at];
        if client.upstream.is_some() {
            return Ok(());
        }
        let avoid = client.avoid;
        let hashes = ClientHashes::new(client.ends.peer, self.door.view().config.listen);
        let lease = loop {
            match self.worker.pick(&self.door, &hashes, avoid) {
                Pick::Free(lease) => break lease,
                // Clients that may be forged make room.
                Pick::Full(full) if !full.awaits_backend() && self.evict(Some(at)) => {}
                // A datagram is not worth a wait: its client sends again, or has given up.
                Pick::Full(_) => {
                    self.is_crowded = true;
                    return Err(Reason::QueueFull);
                }
                Pick::NoBackend => return Err(Reason::NoBackend),
            }
        };
        // Events of a closed socket must not be taken for those of its successor.
        self.sockets_opened = self.sockets_opened.wrapping_add(1);
        let token = u64::from(self.sockets_opened) << 32 | at as u64;
        let mut opened = Upstream::open(lease, ready, token, self.line());
        while let Err((lease, Reason::OutOfResources)) = opened {
            opened = match self.evict(Some(at)) {
                true => Upstream::open(lease, ready, token, self.line()),
                false => {
                    self.is_crowded = true;
                    return Err(Reason::OutOfResources);
                }
            };
        }
        let client = &mut self.all[at];
        match opened {
            Ok(upstream) => {
                client.upstream = Some(upstream);
                Ok(())
            }
            Err((lease, reason)) => {
                client.avoid = Some(lease.backend().id);
                self.worker.backend_failed(&lease, reason);
                Err(reason)
            }
        }
    }

    /// The first descriptor that a client's socket must not have now.
    fn line(&self) -> RawFd {
        self.worker.lines.get().datagrams(self.all.len())
    }

    /// Removes the oldest client that is not proven, except the one in `keep`. Returns false if
    /// there is none.
    fn evict(&mut self, keep: Option<usize>) -> bool {
        let mut kept = None;
        let mut evicted = false;
        while let Some((number, at)) = self.newcomers.pop_front() {
            let is_it = |client: &Client| client.number == number && !client.is_proven;
            if !self.all.get(at).is_some_and(is_it) {
                continue;
            }
            if keep == Some(at) {
                kept = Some((number, at));
                continue;
            }
            self.end(at, Some(Reason::ClientEvicted));
            evicted = true;
            break;
        }
        if let Some(kept) = kept {
            self.newcomers.push_front(kept);
        }
        evicted
    }

    /// Takes the client's backend away because it has failed.
    pub(super) fn backend_failed(&mut self, at: usize, reason: Reason) {
        let client = &mut self.all[at];
        if let Some(upstream) = client.upstream.take() {
            upstream.count_overflow(&self.door);
            client.avoid = Some(upstream.lease.backend().id);
            self.worker.backend_failed(&upstream.lease, reason);
        }
    }

    /// Forgets the clients that were idle for too long, and those of backends that were set down.
    pub(super) fn sweep(&mut self, now: Instant, idle: Duration) {
        let Clients { newcomers, all, .. } = self;
        newcomers.retain(|(number, at)| {
            all.get(*at).is_some_and(|client| client.number == *number && !client.is_proven)
        });
        let is_crowded = mem::take(&mut self.is_crowded);
        self.remove(|client| {
            let cut = client.upstream.as_ref().is_some_and(|upstream| upstream.lease.is_cut());
            if cut {
                return Some(Some(Reason::BackendRemoved));
            }
            let patience = client.patience(idle, is_crowded);
            (now.saturating_duration_since(client.heard) >= patience).then_some(None)
        });
    }

    /// Forgets all clients.
    pub(super) fn cut(&mut self, reason: Reason) {
        self.remove(|_| Some(Some(reason)));
    }

    /// Removes a client. `reason` is set if it had not finished.
    pub(super) fn end(&mut self, at: usize, reason: Option<Reason>) {
        let client = self.all.remove(at);
        self.by_ends.remove(&client.ends);
        count_end(&self.worker, &self.door, &client, reason);
    }

    /// Forgets the clients for which `end` says how they ended.
    fn remove(&mut self, end: impl Fn(&Client) -> Option<Option<Reason>>) {
        let Clients { worker, door, by_ends, all, .. } = self;
        all.retain(|_, client| {
            let Some(reason) = end(client) else { return true };
            by_ends.remove(&client.ends);
            count_end(worker, door, client, reason);
            false
        });
    }
}

fn count_end(worker: &Worker, door: &Door, client: &Client, reason: Option<Reason>) {
    if let Some(upstream) = &client.upstream {
        upstream.count_overflow(door);
    }
    if let Some(reason) = reason {
        door.dropped(reason);
        if let Some(upstream) = &client.upstream {
            worker.backend_failed(&upstream.lease, reason);
        }
    }
    log(worker, door, client, reason);
}

fn log(worker: &Worker, door: &Door, client: &Client, end: Option<Reason>) {
    let Some(since) = client.logged_since else { return };
    let upstream = client.upstream.as_ref();
    let line = FlowLine {
        client: client.ends.peer,
        lease: upstream.map(|upstream| &upstream.lease),
        took: since.elapsed(),
        bytes_in: client.bytes_in,
        bytes_out: client.bytes_out,
        queued: None,
        reason: end,
        extensions: None,
    };
    line.write(worker, door, "udp_client");
}

//! The clients of a UDP front door: who they are, which backend each has, when it was last heard of.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use slab::Slab;
use socket2::{Domain, Socket, Type};

use super::batch::Ends;
use super::queue;
use super::ready::ReadySet;
use crate::access_log::{self, FlowLine};
use crate::door::{Door, DoorGuard};
use crate::lease::Lease;
use crate::reason::Reason;
use crate::worker::{ClientHashes, TaskGuard, Worker};

/// A client address that has sent something.
pub(super) struct Client {
    pub(super) ends: Ends,
    /// None after its backend has failed, until its next datagram.
    pub(super) upstream: Option<Upstream>,
    /// The backend that has failed it.
    pub(super) avoid: Option<u32>,
    pub(super) heard: Instant,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    logged_since: Option<Instant>,
    _open: DoorGuard,
    _task: TaskGuard,
}

/// The virtual client: a connected socket of this client's own.
pub(super) struct Upstream {
    socket: OwnedFd,
    pub(super) lease: Lease,
    token: u64,
}

impl Upstream {
    fn open(lease: Lease, ready: &ReadySet, token: u64) -> Result<Upstream, (Lease, Reason)> {
        let connect = || -> io::Result<OwnedFd> {
            let address = lease.backend().address;
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), None)?;
            socket.connect(&address.into())?;
            let socket = OwnedFd::from(socket);
            ready.add(&socket, token)?;
            Ok(socket)
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
}

impl Clients {
    pub(super) fn new(worker: Rc<Worker>, door: Rc<Door>) -> Clients {
        let (by_ends, all) = (HashMap::new(), Slab::new());
        Clients { worker, door, by_ends, all, sockets_opened: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The client with these ends, new if it has to be; it need not have a backend yet.
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
        if self.all.len() >= self.door.view().config.limits.connections_max {
            return Err(Reason::TooManyClients);
        }
        let at = self.all.insert(Client {
            ends,
            upstream: None,
            avoid: None,
            heard: now,
            bytes_in: 0,
            bytes_out: 0,
            logged_since: access_log::is_sampled(&self.worker, &self.door).then_some(now),
            _open: self.door.enter(),
            _task: self.worker.task(),
        });
        self.by_ends.insert(ends, at);
        Ok(at)
    }

    pub(super) fn get(&mut self, at: usize) -> &mut Client {
        &mut self.all[at]
    }

    /// The client whose present socket has this token.
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
        let client = &mut self.all[at];
        if client.upstream.is_some() {
            return Ok(());
        }
        let hashes = ClientHashes::new(client.ends.peer, self.door.view().config.listen);
        let lease = self.worker.pick(&self.door, &hashes, client.avoid);
        let lease = lease.ok_or(Reason::NoBackend)?;
        // Events of a socket that was closed meanwhile must not be taken for its successor's.
        self.sockets_opened = self.sockets_opened.wrapping_add(1);
        let token = u64::from(self.sockets_opened) << 32 | at as u64;
        match Upstream::open(lease, ready, token) {
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

    /// Takes the client's backend away because it has failed.
    pub(super) fn backend_failed(&mut self, at: usize, reason: Reason) {
        let client = &mut self.all[at];
        if let Some(upstream) = client.upstream.take() {
            upstream.count_overflow(&self.door);
            client.avoid = Some(upstream.lease.backend().id);
            self.worker.backend_failed(&upstream.lease, reason);
        }
    }

    /// Forgets the clients that were last heard of `idle` ago or earlier, and those whose backend was
    /// set down.
    pub(super) fn sweep(&mut self, now: Instant, idle: Duration) {
        self.remove(|client| {
            let cut = client.upstream.as_ref().is_some_and(|upstream| upstream.lease.is_cut());
            if cut {
                Some(Some(Reason::BackendRemoved))
            } else {
                (now.saturating_duration_since(client.heard) >= idle).then_some(None)
            }
        });
    }

    /// Forgets all clients.
    pub(super) fn cut(&mut self, reason: Reason) {
        self.remove(|_| Some(Some(reason)));
    }

    /// Forgets the clients for which `end` says how they ended.
    fn remove(&mut self, end: impl Fn(&Client) -> Option<Option<Reason>>) {
        let Clients { worker, door, by_ends, all, .. } = self;
        all.retain(|_, client| {
            let Some(reason) = end(client) else { return true };
            by_ends.remove(&client.ends);
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
            false
        });
    }
}

fn log(worker: &Worker, door: &Door, client: &Client, end: Option<Reason>) {
    let Some(since) = client.logged_since else { return };
    let upstream = client.upstream.as_ref();
    let line = FlowLine {
        front_door: &door.view().config.name,
        client: client.ends.peer,
        backend: upstream.map(|upstream| &*upstream.lease.backend().name),
        took: since.elapsed(),
        bytes_in: client.bytes_in,
        bytes_out: client.bytes_out,
        end,
    };
    access_log::write(worker, door, &line);
}

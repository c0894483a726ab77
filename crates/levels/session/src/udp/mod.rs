//! UDP front doors: a virtual client of a backend for every client address.
//!
//! One task per door and thread owns the listening socket and all client sockets. Per turn it
//! receives up to a batch of datagrams from the listening socket and sends them on, client by
//! client. Then it reads the client sockets with replies, and sends the replies of all clients with
//! one system call. There is no task, timer or buffer per client.

mod batch;
mod clients;
mod queue;
mod ready;

pub(crate) use batch::Batch;
pub(crate) use queue::prepare;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use equipoise_core::Generation;
use tokio::io::unix::AsyncFd;

use crate::deadline::Deadline;
use crate::door::Door;
use crate::handover::GivenClients;
use crate::reason::Reason;
use crate::worker::{Phase, Worker};
use batch::BATCH;
use clients::Clients;
use ready::ReadySet;

/// How often clients are looked over for those that are idle.
const SWEEP: Duration = Duration::from_secs(1);

/// When the door has closed, a client that has been silent for this long is taken to have finished.
const QUIET: Duration = Duration::from_secs(1);

/// Batches in one turn of the task, so that others get theirs.
const ROUNDS: usize = 8;

/// Replies taken from one client socket before the next has its turn.
const REPLIES_IN_A_ROW: usize = 8;

/// Serves a UDP door's listening socket, with its index in its group, until the door closes and its
/// clients have finished, or until a successor takes them.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    door: Rc<Door>,
    (index, socket): (usize, Arc<OwnedFd>),
) -> io::Result<()> {
    door.udp_tasks.set(door.udp_tasks.get() + 1);
    let overflowed = queue::overflowed(socket.as_raw_fd());
    let mut server = Server {
        index,
        deadline: Deadline::of_this_task(&worker.deadlines).await,
        listener: crate::socket::watch_shared(socket)?,
        ready: ReadySet::new()?,
        clients: Clients::new(worker.clone(), door.clone()),
        sweeping: false,
        overflowed,
        generation: worker.snapshot().generation,
        worker,
        door,
    };
    let address = server.door.view().config.listen;
    if let Some((snapshot, given)) = server.worker.take_given(address, index) {
        server.clients.adopt(given, &snapshot, &server.ready);
    }
    let served = poll_fn(|cx| server.poll(cx)).await;
    server.door.udp_tasks.set(server.door.udp_tasks.get() - 1);
    served
}

struct Server {
    /// Index of the listening socket in its group.
    index: usize,
    worker: Rc<Worker>,
    door: Rc<Door>,
    listener: AsyncFd<Arc<OwnedFd>>,
    ready: ReadySet,
    clients: Clients,
    deadline: Deadline,
    /// Whether the deadline is set.
    sweeping: bool,
    /// Datagrams that the listening socket's queue had no room for, as far as they are counted.
    overflowed: u32,
    /// Of the snapshot when backends were last looked over.
    generation: Generation,
}

impl Server {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.worker.phase.get() == Phase::Cutting {
            self.count_overflow();
            self.clients.cut(Reason::ShuttingDown);
            return Poll::Ready(Ok(()));
        }
        let successor = self.door.giving.borrow_mut().pop();
        if let Some(successor) = successor {
            self.count_overflow();
            let given = GivenClients { socket: self.index, clients: self.clients.give() };
            // Without a receiver the process stops at once.
            let _ = successor.send(given);
            return Poll::Ready(Ok(()));
        }
        let generation = self.worker.snapshot().generation;
        if self.deadline.is_past() || self.generation != generation {
            self.generation = generation;
            self.sweep();
        }
        let worker = self.worker.clone();
        let mut batch =
            worker.datagrams.get_or_init(|| Box::new(RefCell::new(Batch::new()))).borrow_mut();
        for _ in 0..ROUNDS {
            let forth = self.take_from_clients(cx, &mut batch)?;
            let back = self.take_from_backends(cx, &mut batch)?;
            if forth.is_pending() && back.is_pending() {
                if self.door.closing.get() && self.clients.is_empty() {
                    self.count_overflow();
                    return Poll::Ready(Ok(()));
                }
                self.see_to_sweeping();
                return Poll::Pending;
            }
        }
        self.see_to_sweeping();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Clients are looked over again and again while there are any.
    fn see_to_sweeping(&mut self) {
        if self.sweeping == self.clients.is_empty() {
            self.sweeping = !self.sweeping;
            if self.sweeping {
                self.deadline.set(Instant::now(), SWEEP);
            } else {
                self.deadline.clear();
            }
        }
    }

    fn sweep(&mut self) {
        self.count_overflow();
        let now = Instant::now();
        let mut idle = self.door.view().config.timeouts.idle;
        if self.door.closing.get() {
            idle = idle.min(QUIET);
        }
        self.clients.sweep(now, idle);
        self.deadline.set(now, SWEEP);
        self.sweeping = true;
    }

    fn take_from_clients(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
    ) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.listener.poll_read_ready(cx))?;
        let received = match batch.receive_with_ends(self.listener.as_raw_fd(), 0..BATCH) {
            Ok(received) => received,
            Err(error) => {
                // Other errors are of single datagrams.
                if error.kind() == io::ErrorKind::WouldBlock {
                    guard.clear_ready();
                }
                return Poll::Ready(Ok(()));
            }
        };
        if received < BATCH {
            guard.clear_ready();
        }
        let now = Instant::now();
        let mut at = 0;
        while at < received {
            let ends = batch.ends(at);
            let run = (at..received).take_while(|place| batch.ends(*place) == ends).count();
            self.forward(batch, at..at + run, now);
            at += run;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends datagrams of one client to its backend; those that cannot be sent are counted.
    fn forward(&mut self, batch: &mut Batch, mut places: Range<usize>, now: Instant) {
        let client = match self.clients.find_or_add(batch.ends(places.start), now) {
            Ok(client) => client,
            Err(reason) => return self.lost(places.len(), reason),
        };
        let bytes = batch.bytes(places.clone());
        self.clients.get(client).sends(places.len(), bytes, now);
        self.door.stats(|stats| stats.bytes_in.add(bytes));
        let mut repicked = false;
        while !places.is_empty() {
            if let Err(reason) = self.clients.ensure_upstream(client, &self.ready) {
                if reason.blames_backend() && !std::mem::replace(&mut repicked, true) {
                    continue;
                }
                return self.lost(places.len(), reason);
            }
            let Some(upstream) = &self.clients.get(client).upstream else { return };
            match batch.send(upstream.fd(), places.clone()) {
                Ok(sent) => {
                    let sent = places.start..places.start + sent;
                    places.start = sent.end;
                    upstream.lease.stats().bytes_out.add(batch.bytes(sent));
                }
                Err(error) => match failure_of_backend(&error) {
                    // An error of an earlier datagram; this one has not been sent.
                    Some(reason) if !std::mem::replace(&mut repicked, true) => {
                        self.clients.backend_failed(client, reason);
                    }
                    failure => {
                        if let Some(reason) = failure {
                            self.clients.backend_failed(client, reason);
                        }
                        self.lost(1, Reason::DatagramDropped);
                        places.start += 1;
                    }
                },
            }
        }
        if self.clients.get(client).is_answered(self.door.view().config.responses) {
            self.clients.end(client, None);
        }
    }

    fn take_from_backends(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
    ) -> Poll<io::Result<()>> {
        let Server { ready, clients, listener, door, .. } = self;
        ready.poll(cx, |tokens| {
            let now = Instant::now();
            let mut replies = Replies { batch, held: 0, listener: listener.as_raw_fd(), door };
            let mut drained = true;
            for token in tokens {
                if let Some(client) = clients.by_token(token) {
                    drained &= replies.take(clients, client, now);
                }
            }
            replies.send();
            drained
        })
    }

    fn count_overflow(&mut self) {
        let overflowed = queue::overflowed(self.listener.as_raw_fd());
        let more = overflowed.wrapping_sub(std::mem::replace(&mut self.overflowed, overflowed));
        self.lost(more as usize, Reason::DatagramDropped);
    }

    fn lost(&self, datagrams: usize, reason: Reason) {
        self.door.stats(|stats| stats.drops[reason as usize].add(datagrams as u64));
    }
}

/// Replies on their way to clients.
struct Replies<'a> {
    batch: &'a mut Batch,
    held: usize,
    listener: std::os::fd::RawFd,
    door: &'a Door,
}

impl Replies<'_> {
    /// Takes replies for a client; returns whether there are no more.
    fn take(&mut self, clients: &mut Clients, at: usize, now: Instant) -> bool {
        if self.held + REPLIES_IN_A_ROW > BATCH {
            self.send();
        }
        let client = clients.get(at);
        let Some(upstream) = &client.upstream else { return true };
        let places = self.held..self.held + REPLIES_IN_A_ROW;
        let mut received = self.batch.receive(upstream.fd(), places.clone());
        let failure = received.as_ref().err().and_then(failure_of_backend);
        if failure.is_some() {
            // The kernel returns errors first, whatever has been received before.
            received = self.batch.receive(upstream.fd(), places);
        }
        let received = match received {
            Ok(received) => received,
            // Of a single datagram; there may be others behind it.
            Err(error) if failure.is_none() && error.kind() != io::ErrorKind::WouldBlock => {
                return false;
            }
            Err(_) => 0,
        };
        let mut is_answered = false;
        if received > 0 {
            let places = self.held..self.held + received;
            let bytes = self.batch.bytes(places.clone());
            upstream.lease.stats().bytes_in.add(bytes);
            upstream.lease.backend().live.succeeded();
            client.bytes_out += bytes;
            client.heard = now;
            client.responses += received as u64;
            is_answered = client.is_answered(self.door.view().config.responses);
            self.batch.address(places, client.ends);
            self.held += received;
        }
        if is_answered {
            clients.end(at, None);
            return true;
        }
        if let Some(reason) = failure {
            clients.backend_failed(at, reason);
        }
        received < REPLIES_IN_A_ROW
    }

    /// Sends the held datagrams. Datagrams that the listening socket does not accept are lost and
    /// counted.
    fn send(&mut self) {
        let mut places = 0..self.held;
        while !places.is_empty() {
            match self.batch.send_to_ends(self.listener, places.clone()) {
                Ok(sent) => {
                    let sent = places.start..places.start + sent;
                    places.start = sent.end;
                    let bytes = self.batch.bytes(sent);
                    self.door.stats(|stats| stats.bytes_out.add(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.door.dropped(Reason::DatagramDropped);
                    places.start += 1;
                }
            }
        }
        self.held = 0;
    }
}

/// The failure of the backend by an error on a client socket: ICMP reported that it is not there.
fn failure_of_backend(error: &io::Error) -> Option<Reason> {
    match error.raw_os_error()? {
        libc::ECONNREFUSED => Some(Reason::ConnectRefused),
        libc::EHOSTUNREACH
        | libc::ENETUNREACH
        | libc::EHOSTDOWN
        | libc::ENETDOWN
        | libc::ENOPROTOOPT
        | libc::EPROTO => Some(Reason::ConnectFailed),
        _ => None,
    }
}

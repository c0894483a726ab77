//! A thread that serves datagrams.

use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use socket2::Socket;

use super::batch::Batch;
use super::clock::Clock;
use super::{LOOK, Shared, lock};
use crate::Reason;
use crate::respond::{Published, Responder};
use crate::stats::{Shard, Transport};

/// Number of batches between publications of the busiest resolvers.
const TELL_TOP: u64 = 1024;

/// The thread's copy of the shared state.
struct View {
    version: u64,
    published: Arc<Published>,
    sockets: Arc<Vec<Arc<Socket>>>,
}

impl View {
    fn of(shared: &Shared, thread: usize) -> View {
        let version = shared.version.load(Ordering::Acquire);
        let state = lock(&shared.state);
        View {
            version,
            published: Arc::clone(&state.published),
            sockets: Arc::clone(&state.datagrams[thread]),
        }
    }

    /// Copies the shared state if it changed. Takes the lock only then.
    #[inline]
    fn refresh(&mut self, shared: &Shared, thread: usize) {
        if shared.version.load(Ordering::Acquire) != self.version {
            *self = View::of(shared, thread);
        }
    }
}

/// Answers queries until the engine stops.
///
/// A panic loses only the batch in which it happened. The thread must go on: its sockets stay open
/// and the kernel keeps assigning them a part of the queries.
pub(super) fn run(shared: &Shared, thread: usize) {
    while !shared.stopping() {
        let mut worker = Worker {
            shared,
            thread,
            responder: Responder::new(thread, rand::random()),
            batch: Batch::new(),
            batches: 0,
            under_way: 0,
            clock: Clock::new(shared.started),
            view: View::of(shared, thread),
        };
        // Unwind safety: shared state is atomic or replaced as a whole under its lock. The worker
        // is rebuilt.
        let answered = catch_unwind(AssertUnwindSafe(|| worker.answer_until_stopped()));
        if answered.is_err() {
            shared.shards[thread].dropped(Reason::Panicked, worker.under_way);
            tracing::error!(
                thread,
                datagrams = worker.under_way,
                "dns: a defect: answering panicked; its datagrams are lost, and the thread goes on"
            );
        }
    }
}

struct Worker<'w> {
    shared: &'w Shared,
    thread: usize,
    responder: Responder,
    batch: Batch,
    batches: u64,
    /// Number of datagrams in the batch that is being answered.
    under_way: u64,
    clock: Clock,
    view: View,
}

impl Worker<'_> {
    fn answer_until_stopped(&mut self) {
        let mut sockets = Arc::clone(&self.view.sockets);
        while !self.shared.stopping() {
            match sockets.as_slice() {
                [only] => self.turn(only, true),
                all => {
                    let ready = ready(all);
                    if ready.is_empty() {
                        self.tell_top();
                    }
                    for socket in ready {
                        self.turn(socket, false);
                    }
                }
            }
            self.view.refresh(self.shared, self.thread);
            if !Arc::ptr_eq(&sockets, &self.view.sockets) {
                sockets = Arc::clone(&self.view.sockets);
            }
        }
    }

    /// Receives, answers and sends one batch.
    fn turn(&mut self, socket: &Socket, wait: bool) {
        let received = match self.batch.receive(socket.as_raw_fd(), wait) {
            Ok(received) => received,
            Err(error) => {
                let nothing =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                if !nothing {
                    // For example an ICMP error for an earlier answer. There is nothing to do, but
                    // the thread must not spin.
                    tracing::debug!(%error, "dns: receiving");
                    std::thread::yield_now();
                }
                self.tell_top();
                return;
            }
        };
        self.under_way = received as u64;
        let began = Instant::now();
        // A snapshot that was published before the query arrived must apply to its answer.
        self.view.refresh(self.shared, self.thread);
        let stats = &self.shared.shards[self.thread];
        let now = self.clock.at(began);
        for place in 0..received {
            let datagram = self.batch.datagram(place);
            let (client, why_not) = match datagram.peer {
                Some((_, 0)) | None => (None, Reason::SourcePort),
                Some(_) if datagram.cut => (None, Reason::TooLong),
                Some((client, _)) => (Some(client), Reason::TooShort),
            };
            let Some(client) = client else {
                stats.dropped(why_not, 1);
                continue;
            };
            let from = (client, Transport::Udp);
            let answer = self.responder.respond(
                &self.view.published,
                stats,
                from,
                now,
                datagram.query,
                datagram.answer,
            );
            if let Ok(length) = answer {
                if self.responder.is_logged(&self.view.published) {
                    self.shared.log(stats, from, &datagram.answer[..length]);
                }
                self.batch.answer(place, length);
            }
        }
        let failed = self.batch.send(socket.as_raw_fd());
        self.under_way = 0;
        self.account(stats, received as u64, failed, began);
    }

    fn account(&mut self, stats: &Shard, received: u64, failed: u64, began: Instant) {
        if failed > 0 {
            stats.dropped(Reason::SendFailed, failed);
        }
        stats.took(began.elapsed(), received);
        self.batches += 1;
        if self.batches.is_multiple_of(TELL_TOP) || received < 2 {
            self.tell_top();
        }
    }

    /// Publishes the busiest resolvers if they changed.
    fn tell_top(&mut self) {
        // Skips this time if a reader holds the lock.
        if self.responder.has_new_top
            && let Ok(mut told) = self.shared.tops[self.thread].try_lock()
        {
            told.clone_from(&self.responder.top);
            self.responder.has_new_top = false;
        }
    }
}

/// Waits for datagrams and returns the sockets that have some.
fn ready(sockets: &[Arc<Socket>]) -> Vec<&Arc<Socket>> {
    let asked = |socket: &Arc<Socket>| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut asked: Vec<_> = sockets.iter().map(asked).collect();
    // SAFETY: the pointer and the length are those of the vector.
    let found = unsafe {
        libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, LOOK.as_millis() as libc::c_int)
    };
    if found <= 0 {
        return Vec::new();
    }
    sockets
        .iter()
        .zip(&asked)
        .filter(|(_, asked)| asked.revents != 0)
        .map(|(socket, _)| socket)
        .collect()
}

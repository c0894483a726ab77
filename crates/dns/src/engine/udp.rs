//! A thread of datagrams.

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

/// The busiest resolvers are told to who asks for them every so many batches.
const TELL_TOP: u64 = 1024;

/// What a thread has of what is shared.
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

    /// Takes what was published meanwhile. Only then is there a lock.
    #[inline]
    fn refresh(&mut self, shared: &Shared, thread: usize) {
        if shared.version.load(Ordering::Acquire) != self.version {
            *self = View::of(shared, thread);
        }
    }
}

/// Answers until the engine stops.
///
/// A panic costs the batch in which it happened: the thread's sockets stay open and the kernel goes on giving it its part of the
/// queries, so that a thread that ended would lose them all.
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
        // What is shared are atomics, and what locks guard is replaced whole; the worker itself is made anew.
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
    /// Datagrams of the batch that is being answered.
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
                    // Such as an ICMP error for an earlier answer: nothing to do about it, but not in a tight loop.
                    tracing::debug!(%error, "dns: receiving");
                    std::thread::yield_now();
                }
                self.tell_top();
                return;
            }
        };
        self.under_way = received as u64;
        let began = Instant::now();
        // What was published before the query came has to hold for its answer.
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

    /// Tells who asks most, if that is another than was told.
    fn tell_top(&mut self) {
        // Whoever reads it now gets the one before.
        if self.responder.has_new_top
            && let Ok(mut told) = self.shared.tops[self.thread].try_lock()
        {
            told.clone_from(&self.responder.top);
            self.responder.has_new_top = false;
        }
    }
}

/// Those that have something, after waiting a while for it.
fn ready(sockets: &[Arc<Socket>]) -> Vec<&Arc<Socket>> {
    let asked = |socket: &Arc<Socket>| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut asked: Vec<_> = sockets.iter().map(asked).collect();
    // SAFETY: the kernel writes to as many elements as the vector has.
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

//! Replies to clients.
//!
//! The thread that has processed an item writes its reply at once. While DDS accepts no reply
//! (`outlet.rs`), replies wait for a separate thread, and the worker continues with other items. An
//! item is not finished while its reply waits.
//!
//! The worker keeps written replies for some time. A client that was cut off or paused publishes
//! its item again, and receives the same reply.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_dds::{Error, Waker};
use equipoise_slice::transport::{Started, Task};
use equipoise_slice::{Item, Writer};

use crate::drops::{DropCounts, DropReason};
use crate::form::Form;
use crate::payload::Payload;
use crate::worker::outlet::Sent;
use crate::worker::outlets::{Outlets, Taken};

/// Limit of the bytes of kept replies. The oldest go first, and each goes after
/// [`equipoise_slice::Config::remember`].
const KEPT_BYTES: usize = 64 << 20;
/// Limit of the bytes of waiting replies. Beyond it a thread that has processed an item waits, too.
const WAITING_BYTES: usize = 64 << 20;
/// Memory of a reply in addition to its bytes: the tables, which double when they grow, and the
/// allocator's overhead.
const OVERHEAD: usize = 200;

/// The identity of an item.
type Name = (Writer, u64);
type Cdr = Arc<[u8]>;

/// Sends replies to clients.
#[derive(Debug)]
pub(super) struct Replies {
    outlets: Outlets,
    form: Form,
    waker: Waker,
    drops: Arc<DropCounts>,
    kept: Mutex<Kept>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Replies that were sent recently.
#[derive(Debug, Default)]
struct Kept {
    by_item: HashMap<Name, Cdr>,
    /// Each with the time when it was first sent.
    in_order: VecDeque<(Instant, Name)>,
    bytes: usize,
}

/// Replies that DDS has not accepted yet.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    names: HashSet<Name>,
    bytes: usize,
    /// Items with replies that DDS has accepted since the last call of [`Replies::taken`].
    taken: Vec<Started<Payload>>,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    name: Name,
    cdr: Cdr,
    taken: Taken,
    /// The item that is finished by this reply. `None`: the item was finished before.
    started: Option<Started<Payload>>,
}

/// The thread that writes waiting replies. A drop ends it.
#[derive(Debug)]
pub(super) struct Writing {
    replies: Arc<Replies>,
    thread: Option<JoinHandle<()>>,
}

impl Replies {
    pub(super) fn new(
        outlets: Outlets,
        form: Form,
        waker: Waker,
        drops: Arc<DropCounts>,
    ) -> Arc<Self> {
        let (kept, queue, changed) = Default::default();
        Arc::new(Self { outlets, form, waker, drops, kept, queue, changed })
    }

    /// Starts the thread that writes waiting replies.
    pub(super) fn start(self: &Arc<Self>) -> Result<Writing, Error> {
        let replies = self.clone();
        let thread = std::thread::Builder::new().name("slice-replies".into());
        let thread = thread.spawn(move || replies.write_waiting()).map_err(|_| Error::Thread)?;
        Ok(Writing { replies: self.clone(), thread: Some(thread) })
    }

    /// Serialization of items and replies.
    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    /// Counts a drop.
    pub(super) fn count(&self, reason: DropReason) {
        self.drops.count(reason);
    }

    /// Counts new incompatible readers. `known`: their number so far.
    pub(super) fn count_incompatible(&self, known: &mut u32) -> Result<(), Error> {
        let met = self.outlets.incompatible()?;
        let new = met.count.saturating_sub(*known);
        if new > 0 {
            *known = met.count;
            tracing::warn!(
                new,
                "a reader of replies is incompatible, and receives none: {}",
                met.why
            );
            self.drops.add(DropReason::IncompatibleReader, new.into());
        }
        Ok(())
    }

    /// Sends the reply to a processed item. `false`: the reply waits, and [`Replies::taken`] will
    /// return the item when it has been sent.
    pub(super) fn send(&self, started: &Started<Payload>, cdr: Vec<u8>) -> bool {
        let Task::Execute(item) = &started.task else { return true };
        let (name, cdr) = ((item.writer, item.position), Arc::<[u8]>::from(cdr));
        self.kept().keep(Instant::now(), name, cdr.clone());
        // While replies wait, later ones do not wait again for the same client.
        let is_next = self.queue().waiting.is_empty();
        let mut taken = Taken::default();
        if is_next && self.is_written(&cdr, &mut taken) {
            return true;
        }
        self.drops.count(DropReason::ReplyLate);
        let mut queue = self.queue();
        while queue.bytes >= WAITING_BYTES && !queue.closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.push(Waiting { name, cdr, taken, started: Some(started.clone()) });
        self.changed.notify_all();
        false
    }

    /// Sends the reply to an item again that arrived again after its reply, if the reply is still
    /// kept.
    pub(super) fn send_again(&self, item: &Item<Payload>) {
        let name = (item.writer, item.position);
        let Some(cdr) = self.kept().by_item.get(&name).cloned() else { return };
        let mut queue = self.queue();
        // Without space now, the client publishes the item once more.
        if queue.bytes < WAITING_BYTES && !queue.names.contains(&name) {
            queue.push(Waiting { name, cdr, taken: Taken::default(), started: None });
            self.changed.notify_all();
        }
    }

    /// Forgets replies that were sent longer ago than `keep`. Returns whether there were any.
    pub(super) fn forget(&self, keep: Duration) -> bool {
        self.kept().forget(Instant::now(), keep)
    }

    /// Items with replies that waited and have now been sent.
    pub(super) fn taken(&self) -> Vec<Started<Payload>> {
        std::mem::take(&mut self.queue().taken)
    }

    /// Number of waiting replies, plus 1 while a bypassed client has not accepted the replies that
    /// are kept for it. It would lose them if the worker ended.
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting.len() + usize::from(self.outlets.is_passing())
    }

    fn write_waiting(&self) {
        loop {
            let queue = self.queue();
            let idle = |queue: &mut Queue| {
                queue.waiting.is_empty() && !queue.closed && !self.outlets.is_passing()
            };
            let queue = self.changed.wait_while(queue, idle);
            let queue = queue.unwrap_or_else(PoisonError::into_inner);
            if queue.closed {
                return;
            }
            let next = queue.waiting.front().map(|first| (first.cdr.clone(), first.taken));
            drop(queue);
            if self.write_next(next) {
                self.queue().pop();
                self.changed.notify_all();
                self.waker.wake();
            } else if self.outlets.is_passing() {
                self.outlets.look();
            }
        }
    }

    /// Writes the first waiting reply, if there is one. `false`: it still waits.
    fn write_next(&self, next: Option<(Cdr, Taken)>) -> bool {
        let Some((cdr, mut taken)) = next else { return false };
        let is_written = self.is_written(&cdr, &mut taken);
        if let Some(first) = self.queue().waiting.front_mut() {
            first.taken = taken;
        }
        is_written
    }

    /// `false`: DDS does not accept it now.
    fn is_written(&self, cdr: &[u8], taken: &mut Taken) -> bool {
        match self.outlets.write(cdr, taken) {
            Ok(Sent::Usual) => true,
            Ok(Sent::Late) => false,
            Ok(Sent::Beside) => {
                self.drops.count(DropReason::ReplyBeside);
                // The thread has to notice the end of the bypass. Under the lock, because the
                // thread may be about to wait.
                let queue = self.queue();
                self.changed.notify_all();
                drop(queue);
                true
            }
            Err(error) => {
                // DDS will never accept it.
                self.drops.count(DropReason::ReplyRefused);
                tracing::debug!(%error, "DDS refused a reply");
                true
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

impl Kept {
    fn keep(&mut self, now: Instant, name: Name, cdr: Cdr) {
        self.bytes += cost(&cdr);
        match self.by_item.insert(name, cdr) {
            Some(before) => self.bytes -= cost(&before),
            None => self.in_order.push_back((now, name)),
        }
        while self.bytes > KEPT_BYTES {
            self.forget_oldest();
        }
    }

    fn forget(&mut self, now: Instant, keep: Duration) -> bool {
        let before = self.in_order.len();
        while self.in_order.front().is_some_and(|(at, _)| now.duration_since(*at) >= keep) {
            self.forget_oldest();
        }
        let some = self.in_order.len() < before;
        if some && self.in_order.is_empty() {
            *self = Self::default();
        }
        some
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.in_order.pop_front() {
            self.bytes -= self.by_item.remove(&oldest).map_or(0, |cdr| cost(&cdr));
        }
    }
}

impl Queue {
    fn push(&mut self, reply: Waiting) {
        self.bytes += cost(&reply.cdr);
        self.names.insert(reply.name);
        self.waiting.push_back(reply);
    }

    fn pop(&mut self) {
        let Some(reply) = self.waiting.pop_front() else { return };
        self.bytes -= cost(&reply.cdr);
        self.names.remove(&reply.name);
        self.taken.extend(reply.started);
    }
}

fn cost(cdr: &Cdr) -> usize {
    cdr.len() + OVERHEAD
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.replies.queue().closed = true;
        self.replies.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It waits for DDS for a short time at most.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_slice::Group;

    fn name(position: u64) -> Name {
        (Writer { group: Group::BASE, id: 1 }, position)
    }

    #[test]
    fn the_oldest_replies_go_when_there_is_no_room() {
        let mut kept = Kept::default();
        let megabyte = || Cdr::from(vec![0; 1 << 20]);
        for position in 0..200 {
            kept.keep(Instant::now(), name(position), megabyte());
            // Once more: it is counted once.
            kept.keep(Instant::now(), name(position), megabyte());
        }
        assert_eq!((kept.by_item.len(), kept.in_order.len()), (63, 63));
        assert!(kept.by_item.contains_key(&name(199)) && !kept.by_item.contains_key(&name(136)));
        assert_eq!(kept.bytes, 63 * ((1 << 20) + OVERHEAD));
        kept.keep(Instant::now(), name(1000), Cdr::from(vec![0; KEPT_BYTES]));
        assert_eq!(
            (kept.by_item.len(), kept.bytes),
            (0, 0),
            "one that is larger than all the room"
        );
    }

    #[test]
    fn replies_are_kept_for_their_time_and_no_room_is_kept_after_it() {
        let (mut kept, begun, second) = (Kept::default(), Instant::now(), Duration::from_secs(1));
        for position in 0..200_000 {
            kept.keep(begun, name(position), Cdr::from(vec![0; 8]));
        }
        kept.keep(begun + second, name(200_000), Cdr::from(vec![0; 8]));
        assert!(!kept.forget(begun + second, 2 * second), "none is old enough");
        assert!(kept.forget(begun + 2 * second, 2 * second));
        assert_eq!((kept.by_item.len(), kept.bytes), (1, 8 + OVERHEAD));
        assert!(kept.forget(begun + 3 * second, 2 * second));
        assert_eq!((kept.by_item.capacity(), kept.in_order.capacity(), kept.bytes), (0, 0, 0));
    }
}

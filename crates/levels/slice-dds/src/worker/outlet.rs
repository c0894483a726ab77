//! The writers of one topic of replies. A reliable writer waits while one of its readers lacks half
//! a megabyte. One writer serves all clients, so one paused client would hold up the replies to all
//! others. It would do so until the lease expires that *it* announced: 10 s for a program with
//! default settings.
//!
//! So there is a second writer, *beside* the first. Cyclone DDS never blocks a writer that keeps
//! only the last few samples of each instance (`ddsi_endpoint.c`, "aggressive keep last"), and
//! repeats these samples until they are acknowledged. A client that has accepted nothing for
//! [`STALLED`] is bypassed: replies go to the second writer, which still has them when the client
//! continues. The memory for this is bounded here, by bytes and by the number of samples of one
//! instance, so that the second writer discards none.
//!
//! The first writer waits for a client that is only slow: a writer that keeps the last few samples
//! would flood it. Replies keep their order if no packet is lost: the first writer is used again
//! after both writers have all acknowledgements.
//!
//! Alternatives:
//!
//! - The second writer alone: no limit would keep workers from writing more than the network
//!   carries, so packets would be lost and repeated.
//! - A larger high-water mark (`Internal/Watermarks/WhcHigh`): it applies to all writers of the
//!   process, and so to clients' items.
//! - A partition for each client: as many writers as workers times clients, without a gain for
//!   plain readers such as those of ROS 2.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_dds::items::Reply;
use equipoise_dds::{Error, Incompatible, Qos, Topic, Writer as DdsWriter};
use equipoise_slice::Group;

use crate::stream::{is_late, item_qos};
use crate::worker::renewed::Renewed;

/// Longest time that a writer of replies waits for its readers.
const BLOCKING_MAX: Duration = Duration::from_millis(10);
/// A client that has made the first writer wait for this long is bypassed.
const STALLED: Duration = Duration::from_millis(50);
/// Limit of the bytes of replies that are kept for bypassed clients.
const BESIDE_BYTES: usize = 64 << 20;
/// Memory of DDS for a reply in addition to its bytes.
const OVERHEAD: usize = 512;
/// Limit of replies of one id, for all clients, because they use the same ids.
const DEPTH_KEYED: u32 = 16;
/// Replies without a key are all of one instance: as many as the limit of bytes allows.
const DEPTH_KEYLESS: u32 = (BESIDE_BYTES / OVERHEAD) as u32;
/// Interval between checks whether bypassed clients accept replies again.
const LOOK: Duration = Duration::from_millis(50);

/// The writers of one topic of replies.
#[derive(Debug)]
pub(super) struct Outlet {
    first: Renewed,
    beside: Renewed,
    state: Mutex<State>,
    /// Copies of `state` that a thread reads without the lock, for each reply.
    blocked: AtomicBool,
    passing: AtomicBool,
    bounds: Bounds,
}

/// How a reply was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Through the first writer, to all.
    Usual,
    /// Through the second writer, because a client accepts nothing.
    Beside,
    /// Not written now.
    Late,
}

#[derive(Debug, Default)]
struct State {
    /// The time since which the first writer has accepted nothing.
    blocked: Option<Instant>,
    /// While a client is bypassed: the replies that the second writer keeps.
    beside: Option<Kept>,
}

/// Replies that the second writer has to keep. Each may be unacknowledged.
#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    by_key: HashMap<i64, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    bytes: usize,
    depth: u32,
}

impl Kept {
    /// Whether there is space for a reply. If so, counts it.
    fn add(&mut self, key: i64, bytes: usize, bounds: Bounds) -> bool {
        let of_key = self.by_key.entry(key).or_default();
        let has_room = *of_key < bounds.depth && self.bytes + bytes <= bounds.bytes;
        if has_room {
            *of_key += 1;
            self.bytes += bytes;
        }
        has_room
    }
}

impl Outlet {
    /// `keyed`: replies have a key, their id. `user_data`: user data of the writers.
    pub(super) fn new(topic: &Topic, keyed: bool, user_data: &[u8]) -> Result<Self, Error> {
        let usual = item_qos(Group::BASE, user_data.to_vec());
        let usual = Qos { blocking_max: BLOCKING_MAX, ..usual };
        let depth = if keyed { DEPTH_KEYED } else { DEPTH_KEYLESS };
        let beside = Qos { keep_last: Some(depth), ..usual.clone() };
        Ok(Self {
            first: Renewed::new(topic, usual, keyed)?,
            beside: Renewed::new(topic, beside, keyed)?,
            state: Mutex::default(),
            blocked: AtomicBool::new(false),
            passing: AtomicBool::new(false),
            bounds: Bounds { bytes: BESIDE_BYTES, depth },
        })
    }

    /// Writes a reply if DDS accepts it. Waits for [`BLOCKING_MAX`] at most.
    ///
    /// # Errors
    /// An error of DDS because of which it will never accept the reply.
    pub(super) fn write(&self, cdr: &[u8]) -> Result<Sent, Error> {
        if self.is_passing()
            && let Some(kept) = &mut self.state().beside
        {
            return self.write_beside(kept, cdr);
        }
        match self.first.write(cdr) {
            Ok(()) => {
                if self.blocked.load(Relaxed) {
                    let mut state = self.state();
                    state.blocked = None;
                    self.blocked.store(false, Relaxed);
                }
                Ok(Sent::Usual)
            }
            Err(error) if is_late(&error) => self.write_late(cdr),
            Err(error) => Err(error),
        }
    }

    /// Handles a reply that the first writer did not accept in time.
    fn write_late(&self, cdr: &[u8]) -> Result<Sent, Error> {
        let mut state = self.state();
        let since = *state.blocked.get_or_insert_with(Instant::now);
        self.blocked.store(true, Relaxed);
        if state.beside.is_none() && since.elapsed() < STALLED {
            return Ok(Sent::Late);
        }
        state.blocked = None;
        self.passing.store(true, Relaxed);
        self.write_beside(state.beside.get_or_insert_default(), cdr)
    }

    fn write_beside(&self, kept: &mut Kept, cdr: &[u8]) -> Result<Sent, Error> {
        let key = match self.bounds.depth {
            DEPTH_KEYED => Reply::decode(cdr).map_or(0, |reply| reply.id),
            _ => 0,
        };
        if !kept.add(key, cdr.len() + OVERHEAD, self.bounds) {
            return Ok(Sent::Late);
        }
        self.beside.write(cdr).map(|()| Sent::Beside)
    }

    /// The writer of replies while every client accepts them.
    pub(super) fn writer(&self) -> Arc<DdsWriter> {
        self.first.writer()
    }

    /// Incompatible readers of replies.
    pub(super) fn incompatible(&self) -> Result<Incompatible, Error> {
        self.first.incompatible()
    }

    /// Whether a client is bypassed.
    pub(super) fn is_passing(&self) -> bool {
        self.passing.load(Relaxed)
    }

    /// Waits for a moment until bypassed clients accept replies again, or have ended.
    pub(super) fn look(&self) {
        // Threads may write at the same time: such replies go to clients that accept them.
        let caught_up = [&self.first, &self.beside]
            .into_iter()
            .all(|writer| writer.wait_for_acknowledgements(LOOK).is_ok());
        if caught_up {
            self.state().beside = None;
            self.passing.store(false, Relaxed);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_kept_for_bypassed_clients_are_bounded_by_bytes_and_key() {
        let bounds = Bounds { bytes: 100, depth: 2 };
        let mut kept = Kept::default();
        assert!(kept.add(7, 10, bounds) && kept.add(7, 10, bounds));
        assert!(!kept.add(7, 10, bounds), "the writer would let the first one go");
        assert!(kept.add(8, 80, bounds));
        assert!(!kept.add(9, 1, bounds));
        assert_eq!(kept.bytes, 100);
    }
}

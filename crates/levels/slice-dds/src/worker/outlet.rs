//! Where replies go out. One writer serves all clients; a reliable writer waits while one of its readers lacks half a megabyte,
//! and so a client that stands still would hold up the replies to all others, until the lease that *it* announced is over: 10 s
//! for a program that says nothing of it.
//!
//! So there is a second writer, *beside* the first. Cyclone DDS never has a writer wait that keeps the last few of each instance
//! (`ddsi_endpoint.c`, "aggressive keep last"), and what it keeps it repeats until it is acknowledged. Who takes nothing for
//! [`STALLED`] is passed by through that one, and finds its replies there when it goes on. What is kept so is bounded here: by
//! bytes, and by how many of one instance the writer keeps, so that it lets none go.
//!
//! A client that is only slow is waited for: a writer that keeps the last few floods it. Replies keep their order when no packet is
//! lost: the first writer is back when both have been acknowledged.
//!
//! | instead | because |
//! |---|---|
//! | the second writer alone | nothing would keep workers from writing more than a network takes: packets are lost, and repeated |
//! | a larger high-water mark (`Internal/Watermarks/WhcHigh`) | it is one for all writers of the process, and so for clients' items |
//! | a partition for each client | as many writers as workers times clients, and nothing gained for plain readers, ROS 2's among them |

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

/// A writer of replies waits so long for its readers.
const BLOCKING_MAX: Duration = Duration::from_millis(10);
/// A client that has had the first writer wait for this long is passed by.
const STALLED: Duration = Duration::from_millis(50);
/// Bytes of replies that may be kept for those who are passed by.
const BESIDE_BYTES: usize = 64 << 20;
/// What DDS keeps of a reply beside its bytes.
const OVERHEAD: usize = 512;
/// Of one id, whoever asked: clients number their items alike.
const DEPTH_KEYED: u32 = 16;
/// Where replies have no key, all are of one instance: as many as there is room for.
const DEPTH_KEYLESS: u32 = (BESIDE_BYTES / OVERHEAD) as u32;
/// Between two looks at whether who was passed by takes replies again.
const LOOK: Duration = Duration::from_millis(50);

/// The writers of replies.
#[derive(Debug)]
pub(super) struct Outlet {
    first: Renewed,
    beside: Renewed,
    state: Mutex<State>,
    /// As `state` says, for those who would rather not wait for it: each reply asks.
    blocked: AtomicBool,
    passing: AtomicBool,
    bounds: Bounds,
}

/// How a reply went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// To all.
    Usual,
    /// Past a client that takes nothing.
    Beside,
    /// Not at all, now.
    Late,
}

#[derive(Debug, Default)]
struct State {
    /// Since when the first writer has taken nothing.
    blocked: Option<Instant>,
    /// Somebody is passed by; what the second writer keeps for it.
    beside: Option<Kept>,
}

/// What the second writer has to keep, of which each of these may be unacknowledged.
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
    /// Whether there is room for a reply; counts it then.
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
    /// `keyed`: replies have a key, their id. `user_data`: of the writers.
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

    /// Writes a reply, as far as DDS takes it. Waits for [`BLOCKING_MAX`] at most.
    ///
    /// # Errors
    /// What DDS will never take.
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

    /// The first writer has not taken it.
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

    /// The writer that replies go through while every client takes them.
    pub(super) fn writer(&self) -> Arc<DdsWriter> {
        self.first.writer()
    }

    /// Readers of replies that it has met and does not reach.
    pub(super) fn incompatible(&self) -> Result<Incompatible, Error> {
        self.first.incompatible()
    }

    /// Whether somebody is passed by.
    pub(super) fn is_passing(&self) -> bool {
        self.passing.load(Relaxed)
    }

    /// Waits for a moment until who was passed by takes replies again, or is gone.
    pub(super) fn look(&self) {
        // What is written meanwhile is for those who keep up.
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
    fn what_is_kept_for_who_is_passed_by_is_bounded_by_bytes_and_by_key() {
        let bounds = Bounds { bytes: 100, depth: 2 };
        let mut kept = Kept::default();
        assert!(kept.add(7, 10, bounds) && kept.add(7, 10, bounds));
        assert!(!kept.add(7, 10, bounds), "the writer would let the first one go");
        assert!(kept.add(8, 80, bounds));
        assert!(!kept.add(9, 1, bounds));
        assert_eq!(kept.bytes, 100);
    }
}

//! When a peer announced its room.
//!
//! A peer's permits are limited to those that this node holds and those that the peer announced
//! ([`equipoise_core::delegation`]), so that a peer without room is not picked. A refusal counts
//! neither as a failure nor as demand.
//!
//! An announcement ages. Once it is [`ASK_AGAIN`] old, one request may ask a peer with no known
//! room; the response brings the next announcement.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The age of an announcement from which on one request may ask a peer without room.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// The age of an announcement from which on a report counts more.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// When a peer's room was announced. The room itself is the limit of its permits.
#[derive(Debug)]
pub(crate) struct PeerRoom {
    epoch: Instant,
    /// Of the last announcement or question, in milliseconds after `epoch`, plus 1; 0: none yet.
    announced_ms: AtomicU64,
}

impl PeerRoom {
    pub(crate) fn new() -> PeerRoom {
        PeerRoom { epoch: Instant::now(), announced_ms: AtomicU64::new(0) }
    }

    /// Notes an announcement.
    pub(crate) fn announced(&self, now: Instant) {
        self.announced_ms.store(self.stamp(now), Relaxed);
    }

    /// Whether the peer has announced its room, or was asked for it.
    pub(crate) fn is_known(&self) -> bool {
        self.announced_ms.load(Relaxed) > 0
    }

    /// Whether a request may ask the peer though it has no room, or none that is known. Then no
    /// other may for a while.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        let last = self.announced_ms.load(Relaxed);
        self.age(last, now).is_none_or(|age| age >= ASK_AGAIN)
            && self.announced_ms.compare_exchange(last, self.stamp(now), Relaxed, Relaxed).is_ok()
    }

    /// Whether no response has announced anything for a while.
    pub(crate) fn is_old(&self, now: Instant) -> bool {
        let last = self.announced_ms.load(Relaxed);
        self.age(last, now).is_none_or(|age| age >= REPORT_AFTER)
    }

    fn stamp(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_millis() as u64 + 1
    }

    fn age(&self, stamp: u64, now: Instant) -> Option<Duration> {
        let age = Duration::from_millis(self.stamp(now).saturating_sub(stamp));
        (stamp > 0).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_asks_a_peer_without_an_announcement_and_the_next_one_later() {
        let room = PeerRoom::new();
        let start = room.epoch;
        assert!(room.may_ask(start) && !room.may_ask(start));
        assert!(!room.may_ask(start + ASK_AGAIN - Duration::from_millis(1)));
        assert!(room.may_ask(start + ASK_AGAIN));
        room.announced(start + ASK_AGAIN * 2);
        assert!(!room.may_ask(start + ASK_AGAIN * 2));
        assert!(room.may_ask(start + ASK_AGAIN * 3));
    }

    #[test]
    fn a_response_counts_more_than_a_report_while_it_is_new() {
        let room = PeerRoom::new();
        assert!(room.is_old(room.epoch));
        room.announced(room.epoch);
        assert!(
            !room.is_old(room.epoch + REPORT_AFTER / 2) && room.is_old(room.epoch + REPORT_AFTER)
        );
    }
}

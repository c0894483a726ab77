//! The room of peers, and its announcement.
//!
//! ```text
//! Equipoise-Room: N      response to a delegated request: the free permits once the request is over
//! Equipoise-Room: asked  delegated request: without room it is handed back at once, and waits where its client arrived
//! Equipoise-Room: wait N delegated request: without room within N milliseconds it is handed back
//! ```
//!
//! Neither reaches applications or clients, and fields of that name from applications and clients
//! are dropped. A peer's permits are limited to those that this node holds and those that the peer
//! announced, so that a peer without room is not picked. A refusal comes back with
//! `Equipoise-Delegated: undone`, and counts neither as a failure nor as demand.
//!
//! An announcement ages. Once it is [`ASK_AGAIN`] old, one request may ask a peer with no known
//! room; the response brings the next announcement.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The header field. Nodes without it neither send it nor pass on a request for it.
pub(crate) const ROOM_FIELD: &str = "equipoise-room";

/// The field's value in a delegated request that may not wait.
const ASKED: &[u8] = b"asked";

/// Before the milliseconds that another may wait.
const WAIT: &[u8] = b"wait ";

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

/// Writes the line with the longest time that a delegated request may wait for room.
pub(crate) fn write_question(may_wait: Duration, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Equipoise-Room: ");
    match u64::try_from(may_wait.as_millis()).unwrap_or(u64::MAX) {
        0 => out.extend_from_slice(ASKED),
        wait_ms => {
            out.extend_from_slice(WAIT);
            out.extend_from_slice(itoa::Buffer::new().format(wait_ms).as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The longest time that a delegated request may wait for room, if it states one.
pub(crate) fn read_question(value: &[u8]) -> Option<Duration> {
    if value == ASKED {
        return Some(Duration::ZERO);
    }
    let wait_ms = std::str::from_utf8(value.strip_prefix(WAIT)?).ok()?;
    wait_ms.parse().ok().map(Duration::from_millis)
}

/// Writes the line of an announcement.
pub(crate) fn write_room(free: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Equipoise-Room: ");
    out.extend_from_slice(itoa::Buffer::new().format(free).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The number of an announcement, if it is one.
pub(crate) fn announced_room(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.parse().ok()
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

    #[test]
    fn a_question_says_how_long_the_request_may_wait() {
        for wait_ms in [0, 1, 250, u64::MAX] {
            let (wait, mut line) = (Duration::from_millis(wait_ms), Vec::new());
            write_question(wait, &mut line);
            let value =
                line.strip_prefix(b"Equipoise-Room: ").and_then(|it| it.strip_suffix(b"\r\n"));
            assert_eq!(read_question(value.unwrap()), Some(wait));
        }
        for other in [&b""[..], b"wait", b"wait ", b"wait -1", b"wait 1 s", b"7", b"Asked"] {
            assert_eq!(read_question(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_room_is_a_number_or_none() {
        let rows: [(&[u8], _); 5] =
            [(b"7", Some(7)), (b"0", Some(0)), (b"asked", None), (b"-1", None), (b"", None)];
        for (value, room) in rows {
            assert_eq!(announced_room(value), room);
        }
    }
}

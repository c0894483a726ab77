//! The header fields that nodes send each other. Neither reaches applications or clients, and those
//! from applications and clients are dropped.
//!
//! ```text
//! Equipoise-Delegated: NODE TAG  delegated request: its marker
//! Equipoise-Delegated: undone    response: this node could not serve the request, and the peer may serve it elsewhere
//! Equipoise-Room: N              response to a delegated request: the free permits once the request is over
//! Equipoise-Room: asked          delegated request: without room it is handed back at once, and waits where its client arrived
//! Equipoise-Room: wait N         delegated request: without room within N milliseconds it is handed back
//! ```

use std::time::Duration;

/// The field of a marker. Its length differs from that of every other field that the proxy reads.
pub const DELEGATED_FIELD: &str = "equipoise-delegated";

/// Its value in a response to a peer.
pub const UNDONE: &str = "undone";

/// The field of room. Nodes without it neither send it nor pass on a request for it.
pub const ROOM_FIELD: &str = "equipoise-room";

/// The field's value in a delegated request that may not wait.
const ASKED: &[u8] = b"asked";

/// Before the milliseconds that another may wait.
const WAIT: &[u8] = b"wait ";

/// Writes the line with the longest time that a delegated request may wait for room.
pub fn write_question(may_wait: Duration, out: &mut Vec<u8>) {
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
pub fn read_question(value: &[u8]) -> Option<Duration> {
    if value == ASKED {
        return Some(Duration::ZERO);
    }
    let wait_ms = std::str::from_utf8(value.strip_prefix(WAIT)?).ok()?;
    wait_ms.parse().ok().map(Duration::from_millis)
}

/// Writes the line of an announcement.
pub fn write_room(free: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Equipoise-Room: ");
    out.extend_from_slice(itoa::Buffer::new().format(free).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The number of an announcement, if it is one.
pub fn announced_room(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_wait_time_reads_back_and_invalid_values_are_rejected() {
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
    fn only_a_non_negative_number_announces_room() {
        let rows: [(&[u8], _); 5] =
            [(b"7", Some(7)), (b"0", Some(0)), (b"asked", None), (b"-1", None), (b"", None)];
        for (value, room) in rows {
            assert_eq!(announced_room(value), room);
        }
    }
}

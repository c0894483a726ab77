//! Frames of a client that belong to no request: PING, SETTINGS, PRIORITY, GOAWAY, those of unknown
//! types, and more RST_STREAM than requests.
//!
//! `h2` answers or ignores them without a bound, and shows none of them. So they are counted where
//! it reads.

use std::time::Instant;

/// A client may send this many at once; beyond that it loses the connection.
const FRAMES_MAX: u64 = 10_000;

/// Frames a second that a client may send without end.
const FRAMES_PER_S: u64 = 100;

/// Bytes sent to the client for which it may send a further frame. gRPC clients send a PING for
/// each DATA to measure the connection. The shortest message and the answer to the PING have 31.
const SENT_PER_FRAME: u64 = 32;

/// Bytes of a frame in front of its payload (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;

/// Bytes before the first frame (section 3.4).
const PREFACE_BYTES: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// The number of such frames, less those that are permitted.
pub(super) struct ControlFrames {
    /// The start of a frame, as far as it has been read.
    head: [u8; HEAD_BYTES],
    head_read: usize,
    /// Bytes to the next frame.
    left: usize,
    count: u64,
    /// Requests that the client may still take back.
    requests: u64,
    /// When the count was last lowered, and the bytes that had been sent to the client then.
    lowered: (Instant, u64),
}

impl ControlFrames {
    /// Of a connection of which nothing has been read.
    pub(super) fn new(now: Instant) -> ControlFrames {
        let (head, head_read, left) = ([0; HEAD_BYTES], 0, PREFACE_BYTES);
        ControlFrames { head, head_read, left, count: 0, requests: 0, lowered: (now, 0) }
    }

    /// Counts the frames in the next bytes of the connection.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = self.left.min(bytes.len());
                self.left -= count;
                bytes = &bytes[count..];
                continue;
            }
            let count = (HEAD_BYTES - self.head_read).min(bytes.len());
            self.head[self.head_read..self.head_read + count].copy_from_slice(&bytes[..count]);
            self.head_read += count;
            bytes = &bytes[count..];
            if self.head_read == HEAD_BYTES {
                let [high, middle, low, kind, ..] = self.head;
                self.head_read = 0;
                self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.note(kind);
            }
        }
    }

    fn note(&mut self, kind: u8) {
        match kind {
            HEADERS => self.requests += 1,
            // Requests that are taken back are counted elsewhere.
            RST_STREAM if self.requests > 0 => self.requests -= 1,
            DATA | WINDOW_UPDATE | CONTINUATION => {}
            _ => self.count += 1,
        }
    }

    /// Whether the client loses its connection. `sent`: bytes sent to it, ever.
    pub(super) fn are_too_many(&mut self, now: impl FnOnce() -> Instant, sent: u64) -> bool {
        if self.count <= FRAMES_MAX {
            return false;
        }
        let (now, (since, sent_then)) = (now(), self.lowered);
        let passed = now.saturating_duration_since(since).as_secs_f64();
        let by_time = (passed * FRAMES_PER_S as f64) as u64;
        let by_bytes = (sent - sent_then) / SENT_PER_FRAME;
        self.count = self.count.saturating_sub(by_time + by_bytes);
        self.lowered = (now, sent);
        self.count > FRAMES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PRIORITY: u8 = 2;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const PRIORITY_UPDATE: u8 = 0x10;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        // A payload that could be taken for frames.
        let payload = [0, 0, 0, PING, 0, 0, 0, 0, 0].into_iter().cycle().take(payload);
        [length[1], length[2], length[3], kind, 0, 0, 0, 0, 1].into_iter().chain(payload).collect()
    }

    #[test]
    fn control_frames_are_counted_at_any_read_boundary() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let control = [(SETTINGS, 0), (PING, 8), (PRIORITY, 5), (PRIORITY_UPDATE, 20), (0xff, 300)];
        let others = [(DATA, 0), (HEADERS, 50), (RST_STREAM, 4), (WINDOW_UPDATE, 4)];
        let more = [(GOAWAY, 8), (CONTINUATION, 70_000), (PING, 8), (RST_STREAM, 4)];
        let frames = control.into_iter().chain(others).chain(more);
        let bytes =
            frames.fold(preface, |all, (kind, payload)| [all, frame(kind, payload)].concat());
        for piece in [1, 2, 8, 9, 10, 17, 100, bytes.len()] {
            let mut frames = ControlFrames::new(Instant::now());
            bytes.chunks(piece).for_each(|piece| frames.read(piece));
            assert_eq!(frames.count, 8, "{piece} bytes at a time");
        }
    }

    /// Of a client that sends `frames` every second, and is sent `bytes`, for an hour.
    fn loses_connection(frames: u64, bytes: u64) -> bool {
        let begin = Instant::now();
        let mut control = ControlFrames::new(begin);
        (1..3600).any(|second| {
            control.count += frames;
            control.are_too_many(|| begin + Duration::from_secs(second), second * bytes)
        })
    }

    #[test]
    fn control_frames_beyond_the_rate_and_byte_allowance_are_too_many() {
        let begin = Instant::now();
        let mut control = ControlFrames::new(begin);
        control.count = FRAMES_MAX;
        assert!(!control.are_too_many(|| begin, 0));
        control.count += 1;
        assert!(control.are_too_many(|| begin, 0));
        assert!(!control.are_too_many(|| begin, SENT_PER_FRAME));
        assert!(!loses_connection(FRAMES_PER_S, 0));
        assert!(loses_connection(2 * FRAMES_PER_S, 0));
        // A message of 5 bytes and a PING for each.
        let (message, pong) = (HEAD_BYTES as u64 + 5 + 1, HEAD_BYTES as u64 + 8);
        assert!(!loses_connection(5000, 5000 * (message + pong)));
        // The answers alone do not pay for the PINGs.
        assert!(loses_connection(5000, 5000 * pong));
    }
}

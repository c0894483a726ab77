//! Responses to requests that were sent again elsewhere, behind a late one.

use crate::buffer::Buffer;
use crate::http::edits::ResponseEdits;
use crate::http::head::HeadScanner;
use crate::http::pump::{Pump, Shape};
use crate::http::request::RequestHead;
use crate::http::response::{HEAD_BYTES_MAX, NodeFields, Reply, read_response};

use super::task::LARGE_BYTES;

/// Reads responses and discards them, so that their session can be used again.
pub(super) struct Behind {
    /// Responses still to come.
    left: usize,
    /// A request like theirs: none has a body or asks for a response without one.
    request: RequestHead,
    scanner: HeadScanner,
    body: Option<Pump>,
    discarded: Vec<u8>,
}

/// Why the session cannot be used again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// A response cannot be framed beyond doubt.
    Malformed,
    /// It closes, or its response is large.
    Over,
}

impl Behind {
    pub(super) fn new(request: RequestHead, left: usize) -> Behind {
        let scanner = HeadScanner::default();
        Behind { left, request, scanner, body: None, discarded: Vec::new() }
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Discards what has come of the responses. Bytes are left over only after the last of them.
    ///
    /// # Errors
    /// If a response is large, cannot be framed beyond doubt, or is the last of its session.
    pub(super) fn discard(&mut self, input: &mut Option<Buffer>) -> Result<(), Unusable> {
        while self.left > 0 {
            let Some(bytes) = input.as_mut().filter(|input| !input.is_empty()) else { break };
            let body = match &mut self.body {
                Some(body) => body,
                None => match self.head(bytes)? {
                    Some(body) => self.body.insert(body),
                    None => break,
                },
            };
            let drained = body.drain_into(input, &mut self.discarded);
            drained.map_err(|_| Unusable::Malformed)?;
            self.discarded.clear();
            if body.left_at_least() > LARGE_BYTES {
                return Err(Unusable::Over);
            }
            if body.is_done() {
                self.body = None;
                self.left -= 1;
            }
        }
        Ok(())
    }

    /// Reads the head of a response. Returns its body, if the head is whole and not interim.
    fn head(&mut self, input: &mut Buffer) -> Result<Option<Pump>, Unusable> {
        let request = &self.request;
        let reply = Reply {
            request,
            close: false,
            via: None,
            edits: ResponseEdits::default(),
            node_fields: NodeFields::Removed,
        };
        loop {
            let head = read_response(input, &mut self.scanner, &reply, &mut self.discarded);
            self.discarded.clear();
            let Some(head) = head.map_err(|_| Unusable::Malformed)? else {
                if input.is_full() {
                    input.grow(HEAD_BYTES_MAX + 1);
                }
                return Ok(None);
            };
            input.consume(head.bytes);
            self.scanner = HeadScanner::default();
            if head.is_doubtful {
                return Err(Unusable::Malformed);
            }
            if !head.is_interim() && !head.keep_alive {
                return Err(Unusable::Over);
            }
            if !head.is_interim() {
                let shape = Shape::of_response(head.framing, request);
                return Ok(Some(Pump::new(head.framing, shape, None)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use equipoise_core::load::RequestClass;

    use super::*;
    use crate::buffer::Buffers;
    use crate::http::head::Framing;
    use crate::http::request::Marker;

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    fn behind(left: usize) -> Behind {
        let request = RequestHead {
            bytes: 0,
            is_head: false,
            is_idempotent: true,
            http10: false,
            keep_alive: true,
            framing: Framing::EMPTY,
            expects_continue: false,
            upgrade: false,
            route: None,
            grpc: None,
            class: RequestClass::default(),
            is_check: false,
            marker: Marker::None,
            may_wait: None,
        };
        Behind::new(request, left)
    }

    fn input(bytes: &[u8]) -> Option<Buffer> {
        let mut buffer = Rc::new(Buffers::default()).take();
        buffer.space()[..bytes.len()].copy_from_slice(bytes);
        buffer.filled(bytes.len());
        Some(buffer)
    }

    #[test]
    fn superseded_responses_are_discarded_at_any_read_boundary() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
        let all = [OK, chunked, interim, OK, "HTTP/1.1 204 No\r\n\r\n"].concat();
        for size in [1, 7, 50, all.len()] {
            let mut behind = behind(4);
            let mut unread = Vec::new();
            for piece in all.as_bytes().chunks(size) {
                let mut input = input(&[&unread[..], piece].concat());
                assert_eq!(behind.discard(&mut input), Ok(()));
                unread = input.map(|input| input.to_vec()).unwrap_or_default();
            }
            assert_eq!((behind.left(), &unread[..]), (0, &b""[..]), "in pieces of {size}");
        }
    }

    #[test]
    fn bytes_after_the_last_discarded_response_stay_unread() {
        let mut input = input(&[OK, OK, "x"].concat().into_bytes());
        let mut behind = behind(2);
        assert_eq!(behind.discard(&mut input), Ok(()));
        assert_eq!((behind.left(), input.as_deref()), (0, Some(&b"x"[..])));
    }

    #[test]
    fn a_session_that_ends_or_is_faulty_is_not_used_again() {
        for (response, why) in [
            ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", Unusable::Over),
            ("HTTP/1.1 200 OK\r\n\r\nbytes", Unusable::Over),
            ("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", Unusable::Over),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx", Unusable::Malformed),
            ("HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok", Unusable::Malformed),
            ("SSH-2.0-OpenSSH_9.2p1\r\n\r\n", Unusable::Malformed),
        ] {
            let found = behind(2).discard(&mut input(response.as_bytes()));
            assert_eq!(found, Err(why), "{response}");
        }
    }
}

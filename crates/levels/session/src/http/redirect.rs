//! Redirects from clear-text front doors to https.

use std::future::poll_fn;
use std::time::Instant;

use super::attempt::Outgoing;
use super::connection::{After, ClientConnection};
use super::exchange::Reached;
use crate::reason::Reason;
use crate::stats::count_status;

/// Requests for a token below this path are served, and not redirected: an authority that issues
/// certificates asks here, without TLS (RFC 8555, section 8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

impl ClientConnection {
    /// The answer to a request that has to come over https; `None`: it is served here.
    pub(super) fn redirection(&self, outgoing: &Outgoing) -> Option<Result<Vec<u8>, Reason>> {
        let port = self.door.view().config.redirect?;
        let request = RequestLine::of(&outgoing.first)?;
        if request.is_challenge() {
            return None;
        }
        let close = !outgoing.head.keep_alive || !outgoing.upload.is_done() || self.is_closing();
        Some(request.moved(port, close).ok_or(Reason::RequestHost))
    }

    /// Sends the redirect.
    pub(super) async fn redirect(&mut self, answer: &[u8], outgoing: &Outgoing) -> Reached {
        let status = if answer.starts_with(b"HTTP/1.1 301") { 301 } else { 308 };
        self.door.stats(|stats| count_status(&stats.responses, status));
        self.arm(Instant::now(), self.door.view().config.timeouts.idle);
        let mut sent = 0;
        let result = poll_fn(|cx| self.poll_send(cx, answer, &mut sent)).await;
        let close = !outgoing.head.keep_alive || !outgoing.upload.is_done() || self.is_closing();
        let after = match result {
            Ok(()) if close => After::Close,
            Ok(()) => After::KeepAlive,
            Err(reason) => {
                self.dropped(reason);
                After::Abort
            }
        };
        Reached { after, status, ended: Instant::now(), counted: false }
    }
}

/// The parts of a checked request that its new place depends on.
#[derive(Debug, PartialEq, Eq)]
struct RequestLine<'a> {
    method: &'a [u8],
    /// Origin form, or `*`.
    target: &'a [u8],
    /// Of `Host`; empty if a client of HTTP/1.0 sent none.
    host: &'a [u8],
}

impl<'a> RequestLine<'a> {
    /// Reads them from a head as it goes to backends, which begins with request line and `Host`.
    fn of(head: &'a [u8]) -> Option<RequestLine<'a>> {
        let mut lines = head.split(|byte| *byte == b'\r');
        let mut words = lines.next()?.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let host = lines.next()?.strip_prefix(b"\nHost: ")?;
        Some(RequestLine { method, target, host })
    }

    /// Whether it asks for the answer to a challenge, which is one segment of base64url.
    fn is_challenge(&self) -> bool {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        self.target.strip_prefix(CHALLENGES).is_some_and(|token| token.iter().all(is_token))
    }

    /// The answer; `None` if the request names no host.
    fn moved(&self, port: u16, close: bool) -> Option<Vec<u8>> {
        let name = match self.host.iter().rposition(|byte| *byte == b':') {
            // The last colon of an IPv6 address stands within brackets.
            Some(colon) if !self.host[colon..].contains(&b']') => &self.host[..colon],
            _ => self.host,
        };
        if name.is_empty() {
            return None;
        }
        // 308 keeps the method and the body; clients have known 301 for longer.
        let is_safe = matches!(self.method, b"GET" | b"HEAD");
        let status: &[u8] =
            if is_safe { b"301 Moved Permanently" } else { b"308 Permanent Redirect" };
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let target = if self.target == b"*" { b"" } else { self.target };
        let close: &[u8] = if close { b"Connection: close\r\n" } else { b"" };
        let parts: [&[u8]; 9] = [
            b"HTTP/1.1 ",
            status,
            b"\r\nLocation: https://",
            name,
            port.as_bytes(),
            target,
            b"\r\nContent-Length: 0\r\n",
            close,
            b"\r\n",
        ];
        Some(parts.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(method: &str, target: &str, host: &str, port: u16) -> Option<String> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
        let request = RequestLine::of(head.as_bytes()).expect("a head");
        request.moved(port, false).map(|it| String::from_utf8(it).expect("text"))
    }

    #[test]
    fn the_host_and_the_target_are_kept_and_the_port_is_that_of_https() {
        for (method, target, host, port, expected) in [
            ("GET", "/", "a.example", 443, "301 Moved Permanently https://a.example/"),
            (
                "HEAD",
                "/x?y=1",
                "a.example:80",
                443,
                "301 Moved Permanently https://a.example/x?y=1",
            ),
            ("POST", "/", "a.example", 8443, "308 Permanent Redirect https://a.example:8443/"),
            (
                "PUT",
                "/",
                "[2001:db8::1]:8080",
                443,
                "308 Permanent Redirect https://[2001:db8::1]/",
            ),
            ("GET", "/", "[2001:db8::1]", 443, "301 Moved Permanently https://[2001:db8::1]/"),
            ("OPTIONS", "*", "a.example", 443, "308 Permanent Redirect https://a.example"),
        ] {
            let answer = moved(method, target, host, port).expect("a host");
            let (status, rest) = answer.split_once("\r\nLocation: ").expect("a location");
            let status = status.strip_prefix("HTTP/1.1 ").expect("a status");
            let location = rest.split("\r\n").next().expect("a line");
            assert_eq!(format!("{status} {location}"), expected);
        }
        assert_eq!(moved("GET", "/", "", 443), None);
        assert_eq!(moved("GET", "/", ":80", 443), None);
    }
}

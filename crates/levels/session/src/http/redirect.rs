//! Redirects from clear-text front doors to https.

use std::time::Instant;

use super::attempt::Outgoing;
use super::challenge;
use super::connection::{After, ClientConnection};
use super::exchange::Reached;
use crate::config::FrontDoor;
use crate::reason::Reason;
use crate::stats::count_status;

/// A whole response of the proxy itself.
pub(super) struct OwnResponse {
    pub(super) status: u16,
    /// It is the last response of the connection.
    pub(super) close: bool,
    pub(super) response: Vec<u8>,
}

impl ClientConnection {
    /// The answer to a request that has to come over https; `None`: it is served here.
    ///
    /// # Errors
    /// The request names no host.
    pub(super) fn redirection(&self, outgoing: &Outgoing) -> Result<Option<OwnResponse>, Reason> {
        let view = self.door.view();
        let Some((port, request)) = to_https(&view.config, &outgoing.first) else {
            return Ok(None);
        };
        let close = !outgoing.head.keep_alive || !outgoing.upload.is_done() || self.is_closing();
        request.moved(port, close).map(Some).ok_or(Reason::RequestHost)
    }

    /// Sends a response of the proxy itself.
    pub(super) async fn send_own(&mut self, own: &OwnResponse) -> Reached {
        let &OwnResponse { status, close, ref response } = own;
        self.door.stats(|stats| count_status(&stats.responses, status));
        self.arm(Instant::now(), self.door.view().config.timeouts.idle);
        let after = self.send_whole(response, close).await.unwrap_or_else(|reason| {
            self.dropped(reason);
            After::Abort
        });
        Reached { after, status, ended: Instant::now(), counted: false }
    }
}

/// The port of https to which the front door redirects this request, if it does. `head` is as it
/// goes to a backend.
pub(super) fn to_https<'h>(door: &FrontDoor, head: &'h [u8]) -> Option<(u16, RequestLine<'h>)> {
    let port = door.redirect?;
    let request = RequestLine::of(head).filter(|it| !it.is_challenge())?;
    Some((port, request))
}

/// The parts of a checked request that its new place depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestLine<'a> {
    pub(super) method: &'a [u8],
    /// Origin form, or `*`.
    pub(super) target: &'a [u8],
    /// Of `Host`; empty if a client of HTTP/1.0 sent none.
    pub(super) host: &'a [u8],
}

impl<'a> RequestLine<'a> {
    /// Reads them from a head as it goes to backends, which begins with request line and `Host`.
    pub(super) fn of(head: &'a [u8]) -> Option<RequestLine<'a>> {
        let mut lines = head.split(|byte| *byte == b'\r');
        let mut words = lines.next()?.split(|byte| *byte == b' ');
        let (method, target) = (words.next()?, words.next()?);
        let host = lines.next()?.strip_prefix(b"\nHost: ")?;
        Some(RequestLine { method, target, host })
    }

    /// Whether it asks for the answer to a challenge, which is one segment of base64url. An
    /// authority that issues certificates asks here, without TLS (RFC 8555, section 8.3).
    fn is_challenge(&self) -> bool {
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        self.target.strip_prefix(challenge::PATH).is_some_and(|token| token.iter().all(is_token))
    }

    /// The answer; `None` if the request names no host.
    pub(super) fn moved(&self, port: u16, close: bool) -> Option<OwnResponse> {
        let name = match self.host.iter().rposition(|byte| *byte == b':') {
            // The last colon of an IPv6 address stands within brackets.
            Some(colon) if !self.host[colon..].contains(&b']') => &self.host[..colon],
            _ => self.host,
        };
        if name.is_empty() {
            return None;
        }
        // 308 keeps the method and the body; clients have known 301 for longer.
        let (status, phrase): (u16, &[u8]) = match self.method {
            b"GET" | b"HEAD" => (301, b"301 Moved Permanently"),
            _ => (308, b"308 Permanent Redirect"),
        };
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let target = if self.target == b"*" { b"" } else { self.target };
        let last: &[u8] = if close { b"Connection: close\r\n" } else { b"" };
        let parts: [&[u8]; 9] = [
            b"HTTP/1.1 ",
            phrase,
            b"\r\nLocation: https://",
            name,
            port.as_bytes(),
            target,
            b"\r\nContent-Length: 0\r\n",
            last,
            b"\r\n",
        ];
        Some(OwnResponse { status, close, response: parts.concat() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(method: &str, target: &str, host: &str, port: u16) -> Option<String> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
        let request = RequestLine::of(head.as_bytes()).expect("a head");
        let moved = request.moved(port, false)?;
        Some(String::from_utf8(moved.response).expect("text"))
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

//! Keeps web pages away from the API.
//!
//! A page in the operator's browser can send requests to loopback with its own `Origin`, or, after
//! rebinding its DNS name to 127.0.0.1, with its own `Host`. Both are refused. A page cannot reach
//! the unix socket.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};

use super::Peer;
use crate::Problem;

/// The reason to refuse a request that a web page may have sent.
pub(crate) fn refuse(request: &Request, peer: Peer) -> Option<Problem> {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    if matches!(peer, Peer::Tcp { loopback: true, .. }) && !host.is_some_and(is_loopback_name) {
        let detail = format!(
            "Host `{}` is refused (DNS rebinding); use localhost, 127.0.0.1 or [::1], \
             or make your reverse proxy send one of them",
            host.unwrap_or("")
        );
        return Some(Problem::new(StatusCode::FORBIDDEN, "host not allowed", detail));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && request.headers().contains_key(header::ORIGIN) {
        let detail = "changes with an Origin header are refused, because any web page could send \
                      them; use the command line (`equipoise drain`, `equipoise reload`) or a client without Origin";
        return Some(Problem::new(StatusCode::FORBIDDEN, "not from a browser", detail));
    }
    None
}

/// Whether a `Host` value, with or without a port, names this machine's loopback.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((v6, port)) if port.is_empty() || is_port(port) => v6,
            _ => return false,
        },
        None => match host.find(':') {
            Some(colon) if !is_port(&host[colon..]) => return false,
            Some(colon) => &host[..colon],
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::is_loopback_name;

    #[test]
    fn only_names_of_loopback_pass() {
        for good in [
            "localhost",
            "LOCALHOST:9090",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.9.8.7",
            "[::1]",
            "[::1]:1",
        ] {
            assert!(is_loopback_name(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "::1",
            "localhost:",
            "localhost:x",
            "[::1",
            "[::1]x",
            "127.0.0.1:80:80",
            "localhost@evil",
        ] {
            assert!(!is_loopback_name(bad), "{bad}");
        }
    }
}

//! Keeps web pages away from the API.
//!
//! A page in the operator's browser can send requests to loopback with its own `Origin`, or, after
//! rebinding its DNS name to 127.0.0.1, with its own `Host`. Both are refused. Also over the unix
//! socket: a page can reach it through a tunnel (`ssh -L 9909:/run/equipoise/api.sock`). The
//! dashboard is a page of this API, so its `Origin` is the address to which it sends the change.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};

use super::{ClientCertificate, Peer};
use crate::Problem;

/// The reason to refuse a request that a web page may have sent.
pub(crate) fn refuse(request: &Request, peer: Peer) -> Option<Problem> {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    let is_foreign = match peer {
        Peer::Tcp { loopback, .. } => loopback && !host.is_some_and(is_loopback_name),
        // A page reaches the socket through a tunnel, and browsers always send `Host`.
        Peer::Unix { .. } => host.is_some_and(|host| !is_loopback_name(host)),
    };
    if is_foreign {
        let detail = format!(
            "Host `{}` is refused (DNS rebinding); use localhost, 127.0.0.1 or [::1], \
             or make your reverse proxy send one of them",
            host.unwrap_or("")
        );
        return Some(Problem::new(StatusCode::FORBIDDEN, "host not allowed", detail));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads && request.headers().contains_key(header::ORIGIN) && !is_own_page(request, peer) {
        let detail = "the Origin header is that of another site's page, and only the dashboard of this address may \
                      send changes; use it, the command line (`equipoise drain`, `equipoise reload`) or a client without Origin";
        return Some(Problem::new(StatusCode::FORBIDDEN, "from another page", detail));
    }
    None
}

/// Whether the only `Origin` is the address of this request, so that the page came from here.
fn is_own_page(request: &Request, peer: Peer) -> bool {
    let headers = request.headers();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = origins.next().filter(|_| origins.next().is_none());
    let origin = origin.and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A browser attaches a client certificate by itself. A page in the clear may be anybody's.
    let is_certified = request.extensions().get::<Arc<ClientCertificate>>().is_some();
    let page = match origin.split_once("://") {
        Some(("https", page)) => page,
        Some(("http", page)) if !is_certified => page,
        _ => return false,
    };
    let is_reachable = matches!(peer, Peer::Tcp { .. }) || is_loopback_name(page);
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    is_reachable && host.is_some_and(|host| host.eq_ignore_ascii_case(page))
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
    use axum::body::Body;
    use axum::extract::Request;

    use super::*;

    fn refused(peer: Peer, host: &str, origin: &[&str], certified: bool) -> bool {
        let mut request = Request::post("/v1/reload").header("host", host);
        for origin in origin {
            request = request.header("origin", *origin);
        }
        let mut request = request.body(Body::empty()).unwrap();
        if certified {
            request.extensions_mut().insert(Arc::new(ClientCertificate::of(&b""[..].into())));
        }
        refuse(&request, peer).is_some()
    }

    /// A page that rebinds its name to this machine reads without an `Origin`.
    #[test]
    fn reads_with_the_name_of_another_host_are_refused() {
        let tcp = Peer::Tcp { address: "127.0.0.1:5000".parse().unwrap(), loopback: true };
        for peer in [tcp, Peer::Unix { uid: 0, pid: None }] {
            for (host, is_refused) in [("evil.example:9909", true), ("localhost:9909", false)] {
                let request = Request::get("/v1/config/text").header("host", host);
                let request = request.body(Body::empty()).unwrap();
                assert_eq!(refuse(&request, peer).is_some(), is_refused, "{peer} {host}");
            }
        }
    }

    #[test]
    fn only_a_page_of_this_address_may_send_changes() {
        let unix = Peer::Unix { uid: 0, pid: None };
        let tcp = |loopback| Peer::Tcp { address: "192.0.2.1:5000".parse().unwrap(), loopback };
        for (peer, host, origin, certified, is_refused) in [
            (tcp(true), "localhost:9909", &["http://localhost:9909"][..], false, false),
            (tcp(true), "localhost:9909", &["http://localhost:8080"], false, true),
            (tcp(true), "localhost:9909", &["null"], false, true),
            (tcp(true), "evil:9909", &["http://evil:9909"], false, true),
            (tcp(false), "lb:9909", &["https://lb:9909"], true, false),
            (tcp(false), "lb:9909", &["http://lb:9909"], true, true),
            (tcp(false), "lb:9909", &["http://lb:9909"], false, false),
            (tcp(false), "lb:9909", &["http://lb:9909", "http://lb:9909"], false, true),
            (tcp(false), "lb:9909", &["ftp://lb:9909"], false, true),
            (unix, "localhost:9909", &["http://localhost:9909"], false, false),
            (unix, "evil:9909", &["http://evil:9909"], false, true),
            (unix, "localhost", &[], false, false),
        ] {
            let refused = refused(peer, host, origin, certified);
            assert_eq!(refused, is_refused, "{peer} {host} {origin:?} {certified}");
        }
    }

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

//! Questions: parses URLs, addresses and header fields.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use equipoise_api::OperateError;
use equipoise_api::wire::why::{FlowProtocol, WhyFlow, WhyRequest};
use equipoise_session::config::Protocol;
use equipoise_session::why::Question;

/// A question, with its words.
pub(super) struct Asked {
    /// The subject in words.
    pub(super) subject: String,
    /// Name of the host of a URL; `None`: an address.
    pub(super) host: Option<String>,
    /// For the session level.
    pub(super) question: Question,
}

/// A connection or datagram.
pub(super) fn flow(flow: &WhyFlow) -> Result<Asked, OperateError> {
    let address = |text: &str| {
        text.parse::<SocketAddr>().map_err(|_| {
            OperateError::Refused(format!(
                "`{text}` is not an address and port; accepted: IP:PORT, such as 192.0.2.7:4711"
            ))
        })
    };
    let (from, to) = (address(&flow.from)?, address(&flow.to)?);
    if from.is_ipv4() != to.is_ipv4() {
        let text = format!("`{from}` and `{to}` are of different IP families");
        return Err(OperateError::Refused(text));
    }
    let question = Question {
        protocol: match flow.protocol {
            FlowProtocol::Tcp => Protocol::Tcp,
            FlowProtocol::Udp => Protocol::Udp,
        },
        front_door: None,
        address: Some(to.ip()),
        port: to.port(),
        client: from.ip(),
        client_port: Some(from.port()),
        tls: None,
        server_name: None,
        head: Vec::new(),
        all_routes: false,
    };
    Ok(Asked { subject: format!("{} {from} -> {to}", flow.protocol), host: None, question })
}

/// A request.
pub(super) fn request(request: &WhyRequest) -> Result<Asked, OperateError> {
    let Url { tls, authority, host, port, target } = url(&request.url)?;
    let method = request.method.as_deref().unwrap_or("GET");
    let (client, client_port) = client(request.from.as_deref())?;
    let head = head(method, &target, &authority, &request.headers)?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let assumed = if request.from.is_some() { "" } else { " (assumed)" };
    let subject = format!("{method} {} from {client}{assumed}", request.url);
    let host = address.is_none().then(|| name.clone());
    let question = Question {
        protocol: Protocol::Http,
        front_door: request.front_door.clone(),
        address,
        port,
        client,
        client_port,
        tls: Some(tls),
        server_name: (tls && address.is_none()).then_some(name),
        head,
        all_routes: request.all_routes,
    };
    Ok(Asked { subject, host, question })
}

/// The parts of a URL.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    tls: bool,
    /// As in `Host`: without the default port.
    authority: String,
    host: String,
    port: u16,
    /// Path and query.
    target: String,
}

fn url(text: &str) -> Result<Url, OperateError> {
    let wrong = || {
        OperateError::Refused(format!(
            "`{text}` is not a URL; accepted: http:// or https://, such as https://shop.example/cart?x=1"
        ))
    };
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let (tls, default) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return Err(wrong()),
    };
    if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong());
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an IPv6 address stands within brackets.
        Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (authority, default),
    };
    if host.is_empty() || host.contains('@') {
        return Err(wrong());
    }
    let authority = if port == default { host.into() } else { format!("{host}:{port}") };
    Ok(Url { tls, authority, host: host.into(), port, target })
}

/// Address and port of the client.
pub(super) fn client(from: Option<&str>) -> Result<(IpAddr, Option<u16>), OperateError> {
    let Some(text) = from else { return Ok((Ipv4Addr::LOCALHOST.into(), None)) };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, None));
    }
    let address = text.parse::<SocketAddr>().map_err(|_| {
        OperateError::Refused(format!(
            "`{text}` is not a client's address; accepted: IP or IP:PORT, such as 192.0.2.7"
        ))
    })?;
    Ok((address.ip(), Some(address.port())))
}

/// The head of a request.
fn head(
    method: &str,
    target: &str,
    authority: &str,
    headers: &[String],
) -> Result<Vec<u8>, OperateError> {
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
        let text = format!("`{method}` is not a method; accepted: letters and `-`, such as GET");
        return Err(OperateError::Refused(text));
    }
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    let is_host =
        |field: &String| field.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case("host"));
    if !headers.iter().any(is_host) {
        head.push_str(&format!("Host: {authority}\r\n"));
    }
    for field in headers {
        let is_field = field.split_once(':').is_some_and(|(name, _)| !name.trim().is_empty());
        if !is_field || field.contains(['\r', '\n', '\0']) {
            return Err(OperateError::Refused(format!(
                "`{}` is not a header field; accepted: `Name: value` in one line",
                field.escape_debug()
            )));
        }
        head.push_str(field);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    Ok(head.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_into_its_parts_or_rejected() {
        let rows = [
            ("http://a.example", (false, "a.example", "a.example", 80, "/")),
            ("HTTPS://a.example:443/x?y=1#z", (true, "a.example", "a.example", 443, "/x?y=1")),
            ("https://a.example:8443?y", (true, "a.example:8443", "a.example", 8443, "/?y")),
            ("http://[2001:db8::1]:81/", (false, "[2001:db8::1]:81", "[2001:db8::1]", 81, "/")),
            ("http://[2001:db8::1]/", (false, "[2001:db8::1]", "[2001:db8::1]", 80, "/")),
        ];
        for (text, (tls, authority, host, port, target)) in rows {
            let (authority, host, target) = (authority.into(), host.into(), target.into());
            assert_eq!(url(text), Ok(Url { tls, authority, host, port, target }), "{text}");
        }
        for text in ["a.example/", "ftp://a.example/", "http:///x", "http://a:x/", "http://a/b c"] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_head_has_one_host_and_malformed_input_is_refused() {
        let one = |field: &str| head("GET", "/", "a", &[field.to_owned()]);
        assert_eq!(one("X-A: b").unwrap(), b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n");
        assert_eq!(one("host: c").unwrap(), b"GET / HTTP/1.1\r\nhost: c\r\n\r\n");
        for field in ["X-A: b\r\nX-C: d", "X-A", ": b", "X-A: b\n"] {
            assert!(one(field).is_err(), "{field:?}");
        }
        assert!(head("GET /", "/", "a", &[]).is_err());
    }
}

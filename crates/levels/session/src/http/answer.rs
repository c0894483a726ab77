//! Answers that the proxy gives itself.

use std::time::Duration;

use equipoise_core::delegation::{DELEGATED_FIELD, UNDONE, write_room};

use super::edits::ResponseEdits;
use super::grpc;
use crate::reason::Reason;

/// The message of a response to the peer that delegated the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToPeer {
    /// Nothing; or no peer did.
    Nothing,
    /// This node could not serve the request, and the peer may serve it elsewhere.
    Undone,
    /// As [`ToPeer::Undone`], because this node has no room. There is no body, so that the session
    /// is kept at no cost.
    NoRoom,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// With a line of text.
    Text,
    /// The head alone, to HEAD.
    Head,
    /// A status of gRPC.
    Grpc,
}

/// An answer of the proxy itself.
pub(crate) struct OwnAnswer<'a> {
    pub(crate) reason: Reason,
    pub(crate) instance: &'a str,
    pub(crate) retry_after: Duration,
    pub(crate) close: bool,
    pub(crate) to_peer: ToPeer,
    pub(crate) form: Form,
    /// A page in HTML in the place of the line of text.
    pub(crate) page: Option<&'a str>,
    /// Further lines.
    pub(crate) edits: ResponseEdits<'a>,
}

/// Writes the answer into `out`: status, `Proxy-Status` (RFC 9209) and, as its form has it, one
/// line of text.
pub(crate) fn write_answer(answer: &OwnAnswer<'_>, out: &mut Vec<u8>) {
    let &OwnAnswer { reason, instance, retry_after, close, to_peer, form, page, edits } = answer;
    let status = reason.status();
    let phrase = phrase(status);
    let body = match to_peer {
        ToPeer::NoRoom => String::new(),
        ToPeer::Nothing | ToPeer::Undone => match page {
            Some(page) => page.to_string(),
            None => format!("{status} {phrase}: {}\n", explain(reason)),
        },
    };
    let content_type = if page.is_some() { "text/html; charset=utf-8" } else { "text/plain" };
    out.clear();
    if form == Form::Grpc {
        grpc::write_refusal(reason, explain(reason), out);
    }
    let mut line = |text: std::fmt::Arguments<'_>| {
        use std::io::Write;
        // Writing to a Vec does not fail.
        let _ = out.write_fmt(text);
    };
    if form != Form::Grpc {
        line(format_args!("HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\n"));
        line(format_args!("Content-Length: {}\r\n", body.len()));
    }
    line(format_args!("Proxy-Status: \"{instance}\"; error={}\r\n", proxy_error(reason)));
    line(format_args!("Cache-Control: no-store\r\n"));
    if matches!(status, 429 | 503) {
        let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        line(format_args!("Retry-After: {}\r\n", seconds.max(1)));
    }
    if status == 405 {
        line(format_args!("Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n"));
    }
    if to_peer != ToPeer::Nothing {
        line(format_args!("{DELEGATED_FIELD}: {UNDONE}\r\n"));
    }
    if close {
        line(format_args!("Connection: close\r\n"));
    }
    edits.write(|_| false, out);
    if to_peer == ToPeer::NoRoom {
        write_room(0, out);
    }
    out.extend_from_slice(b"\r\n");
    if form == Form::Text {
        out.extend_from_slice(body.as_bytes());
    }
}

/// The phrase of a status.
pub(super) fn phrase(status: u16) -> &'static str {
    let known = http::StatusCode::from_u16(status).ok();
    match status {
        // RFC 9110 has renamed it.
        413 => "Content Too Large",
        _ => known.and_then(|status| status.canonical_reason()).unwrap_or("Error"),
    }
}

/// The error type of RFC 9209 section 2.3 that fits best.
fn proxy_error(reason: Reason) -> &'static str {
    match reason {
        Reason::NoBackend
        | Reason::Overloaded
        | Reason::QueueFull
        | Reason::QueueTimeout
        | Reason::NoRoom
        | Reason::RetryBudget => "destination_unavailable",
        Reason::ConnectRefused => "connection_refused",
        Reason::ConnectTimeout => "connection_timeout",
        Reason::ConnectFailed => "destination_ip_unroutable",
        Reason::PeerTls
        | Reason::UpstreamTlsName
        | Reason::UpstreamTlsExpired
        | Reason::UpstreamTlsIssuer => "tls_certificate_error",
        Reason::UpstreamTls => "tls_protocol_error",
        Reason::UpstreamClosed | Reason::BackendRemoved => "connection_terminated",
        Reason::UpstreamMalformed => "http_protocol_error",
        Reason::ResponseTimeout | Reason::RequestTimeout => "http_response_timeout",
        Reason::UpstreamStalled => "connection_write_timeout",
        Reason::OutOfResources => "connection_limit_reached",
        Reason::MemoryShort => "proxy_internal_error",
        Reason::ShuttingDown => "proxy_internal_response",
        Reason::SourceDenied | Reason::RateLimited | Reason::ConcurrencyLimited => {
            "http_request_denied"
        }
        _ => "http_request_error",
    }
}

pub(super) fn explain(reason: Reason) -> &'static str {
    match reason {
        Reason::RequestMalformed => "the request is not well-formed HTTP/1.1",
        Reason::RequestFraming => "the length of the request's body is ambiguous",
        Reason::RequestHost => "the request must name exactly one host",
        Reason::RequestPath => "the path of the request can be read in several ways",
        Reason::HeaderUnderscore => "the name of a header field has an underscore",
        Reason::RequestHeadTooLarge => "the request line and headers are too large",
        Reason::RequestBodyTooLarge => "the request body is too large",
        Reason::MethodNotAllowed => "this server does not tunnel",
        Reason::VersionNotSupported => "this server speaks HTTP/1.0 and HTTP/1.1",
        Reason::CodingNotImplemented => "the transfer coding is unknown",
        Reason::ExpectationFailed => "the expectation cannot be met",
        Reason::SourceDenied => "clients of this address are not served",
        Reason::RateLimited => "too many requests; try again later",
        Reason::ConcurrencyLimited => "too many requests at once; try again later",
        Reason::HeaderTimeout => "the request head did not arrive in time",
        Reason::BodyTimeout => "the request body did not arrive in time",
        Reason::TlsMissing => "this port speaks TLS; use https://",
        Reason::NoBackend => "no backend is available",
        Reason::Overloaded => "there is more to do than can be done; try again later",
        Reason::QueueFull => "too many requests wait for a backend; try again later",
        Reason::QueueTimeout => "no backend had room in time; try again later",
        Reason::NoRoom => "this node has no room for a request that a peer delegated",
        Reason::RetryBudget => {
            "a backend failed, and too many requests are retried; try again later"
        }
        Reason::ConnectRefused => "the backend refused the connection",
        Reason::ConnectTimeout => "the backend did not accept the connection in time",
        Reason::ConnectFailed => "the backend cannot be reached",
        Reason::PeerTls => "a peer could not be trusted",
        Reason::UpstreamTls => "the connection to the backend could not be encrypted",
        Reason::UpstreamTlsName => "the backend's certificate is for another name",
        Reason::UpstreamTlsExpired => "the backend's certificate is not valid now",
        Reason::UpstreamTlsIssuer => "the backend's certificate is not of a trusted authority",
        Reason::UpstreamClosed => "the backend closed the connection before it answered",
        Reason::UpstreamMalformed => "the backend's response is not well-formed",
        Reason::ResponseTimeout => "the backend did not answer in time",
        Reason::UpstreamStalled => "the backend stopped taking the request",
        Reason::RequestTimeout => "the request took too long",
        Reason::OutOfResources => "the balancer is out of resources",
        Reason::MemoryShort => "the balancer is out of memory; try again later",
        Reason::ShuttingDown => "the balancer is stopping",
        Reason::BackendRemoved => "the backend was set down",
        _ => "the request could not be served",
    }
}

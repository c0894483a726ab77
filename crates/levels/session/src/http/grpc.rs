//! gRPC requests: their deadline, and refusals in their form.
//!
//! # Source
//! The gRPC project's "gRPC over HTTP/2" (PROTOCOL-HTTP2.md) and "Status codes and their use in
//! gRPC" (statuscodes.md).

use std::time::Duration;

use crate::reason::Reason;

/// A gRPC request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrpcCall {
    /// The time in which its client wants the answer.
    pub(crate) timeout: Option<Duration>,
}

/// The status codes that refusals use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// Whether a content type is that of gRPC, with any message format; gRPC-Web is another protocol.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    const NAME: &[u8] = b"application/grpc";
    content_type.get(..NAME.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(NAME))
        && matches!(content_type.get(NAME.len()), None | Some(b'+' | b';' | b' '))
}

/// Reads the status of a head that has the trailers, too.
pub(super) fn status(head: &[httparse::Header<'_>]) -> Option<u8> {
    let field = head.iter().find(|it| it.name.eq_ignore_ascii_case("grpc-status"))?;
    std::str::from_utf8(field.value).ok()?.trim().parse().ok()
}

/// Reads a `grpc-timeout`: at most 8 digits and a unit.
pub(super) fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// The code for `reason`. Clients may retry after UNAVAILABLE, so it is only for requests that no
/// backend has processed, or that a backend lost.
fn code(reason: Reason) -> Code {
    match reason {
        // A client that retries at once would make it worse.
        Reason::QueueFull
        | Reason::Overloaded
        | Reason::RequestBodyTooLarge
        | Reason::RateLimited
        | Reason::ConcurrencyLimited
        | Reason::RequestHeadTooLarge => Code::ResourceExhausted,
        Reason::SourceDenied => Code::PermissionDenied,
        Reason::ConnectTimeout => Code::Unavailable,
        reason => match reason.status() {
            408 | 504 => Code::DeadlineExceeded,
            502 | 503 => Code::Unavailable,
            405 | 501 | 505 => Code::Unimplemented,
            _ => Code::Internal,
        },
    }
}

/// Writes the lines of a refusal that are its own: the response has trailers alone, which HTTP/2
/// has in its only head.
pub(super) fn write_refusal(reason: Reason, explanation: &str, out: &mut Vec<u8>) {
    let code = code(reason) as u8;
    // The explanations are plain ASCII without `%`, which need no encoding.
    let lines = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\
         Grpc-Status: {code}\r\nGrpc-Message: {explanation}\r\n"
    );
    out.extend_from_slice(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_of_any_message_format_is_grpc() {
        for yes in ["application/grpc", "Application/gRPC+proto", "application/grpc;a=b"] {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in ["application/grpc-web", "application/grp", "text/plain", ""] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn a_timeout_has_a_unit_and_at_most_eight_digits() {
        let rows = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("100m", Some(Duration::from_millis(100))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("100000000m", None),
            ("m", None),
            ("5", None),
            ("-5m", None),
            ("5x", None),
            ("", None),
        ];
        for (text, wanted) in rows {
            assert_eq!(timeout(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn no_refusal_message_needs_percent_encoding() {
        for reason in Reason::ALL {
            let text = super::super::answer::explain(*reason);
            assert!(text.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b'%'), "{text}");
        }
    }

    #[test]
    fn drop_reasons_map_to_their_grpc_status_codes() {
        let rows = [
            (Reason::NoBackend, Code::Unavailable),
            (Reason::QueueTimeout, Code::Unavailable),
            (Reason::ConnectTimeout, Code::Unavailable),
            (Reason::UpstreamClosed, Code::Unavailable),
            (Reason::QueueFull, Code::ResourceExhausted),
            (Reason::RequestBodyTooLarge, Code::ResourceExhausted),
            (Reason::RateLimited, Code::ResourceExhausted),
            (Reason::SourceDenied, Code::PermissionDenied),
            (Reason::RequestTimeout, Code::DeadlineExceeded),
            (Reason::ResponseTimeout, Code::DeadlineExceeded),
            (Reason::BodyTimeout, Code::DeadlineExceeded),
            (Reason::RequestMalformed, Code::Internal),
        ];
        for (reason, wanted) in rows {
            assert_eq!(code(reason), wanted, "{}", reason.name());
        }
    }
}

//! Strings about requests and responses.

use std::str::FromStr;

use equipoise_session::config::{HashBy, Hedge};

use super::read_duration;

/// First and last status of a range: `200-299` or `204`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusRange(pub u16, pub u16);

impl FromStr for StatusRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let three_digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|status| three_digits && (100..=599).contains(status))
        };
        let (first, last) = (status(first).ok_or(())?, status(last).ok_or(())?);
        if first <= last { Ok(StatusRange(first, last)) } else { Err(()) }
    }
}

/// Statuses and ranges of statuses: `200-299,401`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusRanges(pub Vec<(u16, u16)>);

impl FromStr for StatusRanges {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let range = |part: &str| part.trim().parse().map(|StatusRange(first, last)| (first, last));
        Ok(StatusRanges(text.split(',').map(range).collect::<Result<_, ()>>()?))
    }
}

/// A failure after which a request is tried again: `connect`, `reset`, a status of gRPC, or
/// statuses of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryFailure {
    Connect,
    Reset,
    /// First and last.
    Statuses(u16, u16),
    /// The status of a gRPC call.
    Grpc(u8),
}

/// Statuses of gRPC after which a call may be tried again, with Envoy's names.
const GRPC_STATUSES: [(&str, u8); 5] = [
    ("grpc-cancelled", 1),
    ("grpc-deadline-exceeded", 4),
    ("grpc-resource-exhausted", 8),
    ("grpc-internal", 13),
    ("grpc-unavailable", 14),
];

impl FromStr for RetryFailure {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some((_, status)) = GRPC_STATUSES.iter().find(|(name, _)| *name == text) {
            return Ok(RetryFailure::Grpc(*status));
        }
        match text {
            "connect" => Ok(RetryFailure::Connect),
            "reset" => Ok(RetryFailure::Reset),
            _ => text.parse().map(|StatusRange(first, last)| RetryFailure::Statuses(first, last)),
        }
    }
}

/// The part that requests to the same pool share: `source`, `header:NAME` or `cookie:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StickyTo(pub HashBy);

impl FromStr for StickyTo {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.parse()? {
            HashedBy(HashBy::Query(_)) => Err(()),
            HashedBy(part) => Ok(StickyTo(part)),
        }
    }
}

/// The part of requests by which they are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashedBy(pub HashBy);

impl FromStr for HashedBy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        Ok(HashedBy(match kind {
            "source" if text == "source" => HashBy::Source,
            "header" if is_token(name) => HashBy::Header(name.to_ascii_lowercase().into()),
            "cookie" if is_token(name) => HashBy::Cookie(name.into()),
            "query" if is_token(name) => HashBy::Query(name.into()),
            _ => return Err(()),
        }))
    }
}

/// Whether the text is a token of HTTP (RFC 9110, section 5.6.2), such as a header's name.
pub(super) fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

/// A header that the proxy may write in the name of an operator: `NAME: VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderLine {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Headers that the proxy writes itself: of the connection, of the length, and of the origin.
const OWN_HEADERS: [&str; 16] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-real-ip",
    "proxy-status",
];

impl FromStr for HeaderLine {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, value) = text.split_once(':').ok_or(())?;
        let (lower, value) = (name.to_ascii_lowercase(), value.trim());
        let is_own = OWN_HEADERS.contains(&&*lower)
            || ["x-forwarded-", "equipoise-"].iter().any(|it| lower.starts_with(it));
        let is_text = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
        match is_token(name) && !is_own && is_text && text.len() <= 4096 {
            true => Ok(HeaderLine { name: name.into(), value: value.into() }),
            false => Err(()),
        }
    }
}

/// Delay before a request is hedged: `50ms`, or `p95`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HedgeDelay(pub Hedge);

impl FromStr for HedgeDelay {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some(percent) = text.strip_prefix('p') else {
            let delay = read_duration(text).filter(|delay| !delay.is_zero());
            return delay.map(|delay| HedgeDelay(Hedge::After(delay))).ok_or(());
        };
        let is_plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent = percent.parse::<f64>().ok().filter(|_| is_plain).ok_or(())?;
        match (50.0..=99.9).contains(&percent) {
            true => Ok(HedgeDelay(Hedge::Share(percent / 100.0))),
            false => Err(()),
        }
    }
}

/// The port of https to which requests are redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedirectTo(pub u16);

impl FromStr for RedirectTo {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let port = match text.strip_prefix("https").ok_or(())? {
            "" => 443,
            rest => rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(())?,
        };
        if port == 0 { Err(()) } else { Ok(RedirectTo(port)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn statuses_may_have_several_parts() {
        let read = |text: &str| text.parse::<StatusRanges>().map(|StatusRanges(ranges)| ranges);
        assert_eq!(read("200-299"), Ok(vec![(200, 299)]));
        assert_eq!(read("200-299,401"), Ok(vec![(200, 299), (401, 401)]));
        assert_eq!(read("204, 301-302"), Ok(vec![(204, 204), (301, 302)]));
        for text in ["", ",", "200,", "200-299;401", "200 204", "200,600"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn a_hedges_delay_is_a_time_or_a_share_of_responses() {
        let read = |text: &str| text.parse::<HedgeDelay>().map(|HedgeDelay(hedge)| hedge);
        assert_eq!(read("50ms"), Ok(Hedge::After(Duration::from_millis(50))));
        assert_eq!(read("p95"), Ok(Hedge::Share(0.95)));
        assert_eq!(read("p99.5"), Ok(Hedge::Share(0.995)));
        for text in ["", "p", "0ms", "95", "p49", "p100", "p-95", "p9e1", "pNaN", "P95"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn a_status_range_rises() {
        assert_eq!("200-299".parse(), Ok(StatusRange(200, 299)));
        assert_eq!("204".parse(), Ok(StatusRange(204, 204)));
        for text in ["", "200-", "-299", "299-200", "99-200", "200-600", "2xx", "+20", "0200"] {
            assert_eq!(text.parse::<StatusRange>(), Err(()), "{text}");
        }
    }
}

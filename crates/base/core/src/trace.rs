//! Traces of requests: their identifiers on the wire, and what is known of a request at its end.
//!
//! # Source
//! W3C Trace Context, Level 2. Deviates: a `traceparent` that was received twice counts as none, as
//! Level 1 asks for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The header that names a request's trace and the span that has sent it.
pub const TRACE_PARENT: &str = "traceparent";
/// The header with more about the trace, by vendor.
pub const TRACE_STATE: &str = "tracestate";

/// The bit of the flags that is set if the sender has recorded its span.
const SAMPLED: u8 = 1;
/// Flags that pass to the next hop: [`SAMPLED`], and whether the trace id is random.
const FLAGS_KNOWN: u8 = 3;
/// Length of a value of version 0.
const LENGTH: usize = 55;

/// A value of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span that has sent the request.
    pub span_id: [u8; 8],
    /// Flags.
    pub flags: u8,
}

impl TraceParent {
    /// Reads a value; `None` if it is invalid.
    pub fn read(value: &[u8]) -> Option<TraceParent> {
        let (known, more) = value.split_at_checked(LENGTH)?;
        if [2, 35, 52].iter().any(|at| known[*at] != b'-') {
            return None;
        }
        let [version] = hex(&known[..2])?;
        // A later version may have further parts.
        let is_open = version > 0 && more.first().is_none_or(|byte| *byte == b'-');
        if version == 0xff || !(more.is_empty() || is_open) {
            return None;
        }
        let (trace_id, span_id) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let [flags] = hex(&known[53..])?;
        let is_named = trace_id != [0; 16] && span_id != [0; 8];
        is_named.then_some(TraceParent { trace_id, span_id, flags: flags & FLAGS_KNOWN })
    }

    /// Whether the sender has recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The flags of a request of this trace whose span is recorded.
    pub fn sampled_flags(parent: Option<&TraceParent>) -> u8 {
        parent.map_or(0, |parent| parent.flags) | SAMPLED
    }

    /// Writes the value.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"00-");
        write_hex(&self.trace_id, out);
        out.push(b'-');
        write_hex(&self.span_id, out);
        out.push(b'-');
        write_hex(&[self.flags], out);
    }
}

/// Where [`TraceParent::write`] writes the span's id.
pub const SPAN_ID_AT: std::ops::Range<usize> = 36..52;

/// Appends bytes as lower-case hexadecimal digits.
pub fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(b"0123456789abcdef"[usize::from(digit)]);
        }
    }
}

/// Lower-case hexadecimal digits.
fn hex<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// A sampled request that has ended.
#[derive(Clone, Debug)]
pub struct RequestTrace {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The request's span.
    pub span_id: [u8; 8],
    /// The client's span, if it has named one.
    pub parent_id: Option<[u8; 8]>,
    /// Flags of the trace.
    pub flags: u8,
    /// Since 1970.
    pub began: Duration,
    /// Since 1970.
    pub ended: Duration,
    /// Name of the front door.
    pub front_door: Arc<str>,
    /// Name of the route that it took.
    pub route: Option<Arc<str>>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Version of HTTP, as the client uses it: `1.1`, `2`.
    pub version: &'static str,
    /// The method, as the client sent it.
    pub method: String,
    /// The target, as the client sent it.
    pub target: String,
    /// The header `Host`.
    pub host: Option<String>,
    /// The header `User-Agent`.
    pub user_agent: Option<String>,
    /// Where the client is.
    pub client: SocketAddr,
    /// The status that the client received; 0 if none.
    pub status: u16,
    /// Why it failed.
    pub error: Option<&'static str>,
    /// Target of the request to backends.
    pub upstream_target: String,
    /// Its attempts, in the order of their begin.
    pub attempts: Vec<AttemptTrace>,
}

/// An attempt of a request at a backend.
#[derive(Clone, Debug)]
pub struct AttemptTrace {
    /// The attempt's span, which the backend gets as its parent.
    pub span_id: [u8; 8],
    /// Since 1970.
    pub began: Duration,
    /// Since 1970.
    pub ended: Duration,
    /// Name of the backend's pool.
    pub pool: Arc<str>,
    /// Name of the backend.
    pub backend: Arc<str>,
    /// The backend's address.
    pub address: SocketAddr,
    /// Whether the connection to it is encrypted.
    pub is_tls: bool,
    /// The backend's status; 0 if none.
    pub status: u16,
    /// Why it failed.
    pub error: Option<&'static str>,
}

/// Takes the traces of sampled requests.
#[derive(Clone)]
pub struct TraceSink {
    /// Share of requests that are sampled, unless a trusted sender decides, `0.0..=1.0`.
    pub share: f64,
    /// Takes a trace. It must not block.
    pub take: Arc<dyn Fn(RequestTrace) + Send + Sync>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_value_is_read_and_written() {
        let parent = TraceParent::read(VALUE.as_bytes()).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.flags), (0x0a, 0x31, 1));
        let mut out = Vec::new();
        parent.write(&mut out);
        assert_eq!(out, VALUE.as_bytes());
        assert_eq!(&out[SPAN_ID_AT], b"b7ad6b7169203331");
    }

    #[test]
    fn invalid_values_are_none() {
        let read = |value: &str| TraceParent::read(value.as_bytes());
        for value in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x",
        ] {
            assert_eq!(read(value), None, "{value}");
        }
        for later in ["cc", "01"] {
            let value = format!("{later}{}-x", &VALUE[2..]);
            assert_eq!(read(&value), read(VALUE), "{value}");
            assert_eq!(read(&value[..LENGTH]), read(VALUE), "{value}");
        }
    }

    #[test]
    fn flags_of_later_levels_do_not_pass() {
        let parent = TraceParent::read(VALUE.replace("-01", "-fe").as_bytes()).unwrap();
        assert!(!parent.is_sampled());
        assert_eq!(TraceParent::sampled_flags(Some(&parent)), 3);
        assert_eq!(TraceParent::sampled_flags(None), 1);
    }
}

//! The engine's HTTP/1.1 response head as the stream sends it.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::http::chunk::ChunkReader;
use crate::http::head::{Field, Framing, Lengths};
use crate::http::http2::Malformed;
use crate::http::http2::outgoing::Left;

/// A response that the engine wrote.
pub(in crate::http) struct Head {
    pub(in crate::http) response: Response<()>,
    /// Its body.
    pub(in crate::http) left: Left,
    /// The length of its head.
    pub(in crate::http) bytes: usize,
}

/// The kind of request that a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Asked {
    Usual,
    Head,
    Tunnel,
}

/// Reads the head at the start of `input`, which the engine wrote: lines end with CR LF, and none
/// is folded.
pub(in crate::http) fn read_response(
    input: &[u8],
    asked: Asked,
    known: &mut KnownFields,
) -> Result<Head, Malformed> {
    let (status, mut bytes) = read_status(input)?;
    let opens = asked == Asked::Tunnel && status == StatusCode::SWITCHING_PROTOCOLS;
    // A client would take another success for an open tunnel.
    let status = match (asked, status) {
        _ if opens => StatusCode::OK,
        (Asked::Tunnel, status) if status.is_success() => return Err(Malformed),
        (_, status) => status,
    };
    let mut lengths = Lengths::default();
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().reserve(known.count);
    let mut at = 0;
    while !input[bytes..].starts_with(b"\r\n") {
        let line = known.read(at, &input[bytes..])?;
        (at, bytes) = (at + 1, bytes + line.bytes);
        match line.field {
            // About the connection between the engine and the stream (RFC 9113, section 8.2.2).
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::Http2Settings => continue,
            Field::TransferEncoding => {
                lengths.transfer_encoding(line.value.as_bytes()).map_err(|_| Malformed)?;
                continue;
            }
            // A proof for the key, which the client did not send.
            _ if opens && line.name == header::SEC_WEBSOCKET_ACCEPT => continue,
            Field::ContentLength if opens => continue,
            Field::ContentLength => {
                lengths.content_length(line.value.as_bytes()).map_err(|_| Malformed)?;
            }
            _ => {}
        }
        response.headers_mut().try_append(line.name, line.value).map_err(|_| Malformed)?;
    }
    bytes += 2;
    known.count = at.min(KNOWN_FIELDS);
    if opens {
        return Ok(Head { response, left: Left::Open, bytes });
    }
    let has_no_body =
        asked == Asked::Head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
    let left = match lengths.framing(false).map_err(|_| Malformed)? {
        _ if has_no_body => Left::Nothing,
        Some(Framing::Length(0)) => Left::Nothing,
        Some(Framing::Length(length)) => Left::Length(length),
        Some(Framing::Chunked) => Left::Chunked(ChunkReader::new()),
        // The engine frames every response to a client of HTTP/1.1.
        Some(Framing::UntilClose) | None => return Err(Malformed),
    };
    Ok(Head { response, left, bytes })
}

/// Reads the status line at the start of `input`. Returns its length, too.
fn read_status(input: &[u8]) -> Result<(StatusCode, usize), Malformed> {
    let rest = input.strip_prefix(b"HTTP/1.1 ").ok_or(Malformed)?;
    let digits = rest.get(..3).ok_or(Malformed)?;
    let status = StatusCode::from_bytes(digits).map_err(|_| Malformed)?;
    Ok((status, line_bytes(input)?))
}

/// The length of the line at the start of `input`, with its end.
fn line_bytes(input: &[u8]) -> Result<usize, Malformed> {
    let end = memchr::memchr(b'\n', input).ok_or(Malformed)?;
    if input[..end].ends_with(b"\r") { Ok(end + 1) } else { Err(Malformed) }
}

/// Fields that are remembered, and the longest line of one.
const KNOWN_FIELDS: usize = 16;
const KNOWN_LINE_BYTES: usize = 160;

/// Lines of a thread's last responses, by their place in the head. Most responses repeat those of
/// the one before, and to compare a line costs less than to read it.
#[derive(Default)]
pub(crate) struct KnownFields {
    lines: [Option<KnownLine>; KNOWN_FIELDS],
    /// The number of lines of the last head, as far as they are remembered.
    count: usize,
}

/// A field's line, as the engine writes it, and its content.
struct KnownLine {
    written: Vec<u8>,
    /// The length of its name.
    name_bytes: usize,
    field: Field,
    name: HeaderName,
    value: HeaderValue,
}

/// The content of a field's line.
struct Line {
    field: Field,
    name: HeaderName,
    value: HeaderValue,
    /// The length of the line.
    bytes: usize,
}

impl KnownFields {
    /// Reads the line at the start of `input`, which has place `at` in its head.
    fn read(&mut self, at: usize, input: &[u8]) -> Result<Line, Malformed> {
        let place = self.lines.get_mut(at);
        if let Some(Some(known)) = &place
            && input.starts_with(&known.written)
        {
            return Ok(known.line());
        }
        let bytes = line_bytes(input)?;
        let (written, text) = (&input[..bytes], &input[..bytes - 2]);
        let name_bytes = memchr::memchr(b':', text).ok_or(Malformed)?;
        let value = HeaderValue::from_bytes(trimmed(&text[name_bytes + 1..]));
        let value = value.map_err(|_| Malformed)?;
        if let Some(Some(known)) = place
            && known.has_name(&text[..name_bytes])
            && bytes <= KNOWN_LINE_BYTES
        {
            known.value = value;
            known.written.clear();
            known.written.extend_from_slice(written);
            return Ok(known.line());
        }
        let name = std::str::from_utf8(&text[..name_bytes]).map_err(|_| Malformed)?;
        let field = Field::of(name);
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed)?;
        if let Some(place) = self.lines.get_mut(at)
            && bytes <= KNOWN_LINE_BYTES
        {
            let (name, value) = (name.clone(), value.clone());
            *place = Some(KnownLine { written: written.to_vec(), name_bytes, field, name, value });
        }
        Ok(Line { field, name, value, bytes })
    }
}

impl KnownLine {
    fn line(&self) -> Line {
        let (name, value) = (self.name.clone(), self.value.clone());
        Line { field: self.field, name, value, bytes: self.written.len() }
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.written[..self.name_bytes] == *name
    }
}

/// A value without the white space around it (RFC 9112, section 5).
fn trimmed(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let begin = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(begin, |last| last + 1);
    &value[begin..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(known: &mut KnownFields, head: &str) -> Vec<(String, Vec<u8>)> {
        let head = read_response(head.as_bytes(), Asked::Usual, known).ok().unwrap();
        let fields = head.response.headers().iter();
        fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn fields_cached_from_earlier_heads_do_not_alter_later_heads() {
        let heads = [
            "HTTP/1.1 200 OK\r\nServer: a\r\nX-B: 1\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nServer: a\r\nX-B: 2\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nserver: a\r\nX-C: 2\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-B: 2\r\nServer: a\r\nX-C: 2\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-B: 22\r\nServer: a\r\nX-C:2\r\nContent-Length: \t0\t \r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-B:\r\nServer2: a\r\nX: C: 2\r\nContent-Length: 0\r\n\r\n",
        ];
        let mut known = KnownFields::default();
        for head in heads.iter().chain(heads.iter().rev()) {
            assert_eq!(read(&mut known, head), read(&mut KnownFields::default(), head), "{head}");
        }
    }

    #[test]
    fn header_lines_beyond_the_cache_limits_are_parsed() {
        let long = "v".repeat(KNOWN_LINE_BYTES);
        let many: String = (0..2 * KNOWN_FIELDS).map(|at| format!("X-{at}: {at}\r\n")).collect();
        let head = format!("HTTP/1.1 200 \r\nX: {long}\r\n{many}Content-Length: 0\r\n\r\n");
        let mut known = KnownFields::default();
        for _ in 0..2 {
            let fields = read(&mut known, &head);
            assert_eq!(fields.len(), 2 * KNOWN_FIELDS + 2);
            assert!(fields.contains(&("x".to_owned(), long.clone().into_bytes())));
            assert!(fields.contains(&("x-31".to_owned(), b"31".to_vec())));
        }
    }

    #[test]
    fn a_malformed_head_is_refused_despite_cached_fields() {
        let mut known = KnownFields::default();
        read(&mut known, "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n\r\n");
        for head in [
            "HTTP/1.1 200 OK\r\nA: b\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n",
            "HTTP/1.1 200 OK\nA: b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\x0c\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 20\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert!(read_response(head.as_bytes(), Asked::Usual, &mut known).is_err(), "{head:?}");
        }
    }
}

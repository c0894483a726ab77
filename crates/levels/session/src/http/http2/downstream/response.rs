//! The engine's HTTP/1.1 response head as the stream sends it.

use std::mem::MaybeUninit;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::http::chunk::ChunkReader;
use crate::http::head::{Field, Framing, Lengths};
use crate::http::http2::outgoing::Left;
use crate::http::http2::{FIELDS_ADDED, Malformed, read_name, read_value};
use crate::http::request::HEADERS_PARSED_MAX;

/// A response that the engine wrote.
pub(super) struct Head {
    pub(super) response: Response<()>,
    /// Its body.
    pub(super) left: Left,
    /// The length of its head.
    pub(super) bytes: usize,
}

/// The kind of request that a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Usual,
    Head,
    Tunnel,
}

/// Reads the head at the start of `input`, which the engine wrote.
pub(super) fn read_response(
    input: &[u8],
    asked: Asked,
    known: &mut KnownFields,
) -> Result<Head, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX + FIELDS_ADDED];
    let mut read = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut read,
        input,
        &mut fields,
    );
    let Ok(httparse::Status::Complete(bytes)) = parsed else { return Err(Malformed) };
    let status = StatusCode::from_u16(read.code.ok_or(Malformed)?).map_err(|_| Malformed)?;
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
    response.headers_mut().reserve(read.headers.len());
    for (at, field) in read.headers.iter().enumerate() {
        match Field::of(field.name) {
            // About the connection between the engine and the stream (RFC 9113, section 8.2.2).
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::Http2Settings => continue,
            Field::TransferEncoding => {
                lengths.transfer_encoding(field.value).map_err(|_| Malformed)?;
                continue;
            }
            // A proof for the key, which the client did not send.
            _ if opens && field.name.eq_ignore_ascii_case("sec-websocket-accept") => continue,
            Field::ContentLength if opens => continue,
            Field::ContentLength => lengths.content_length(field.value).map_err(|_| Malformed)?,
            _ => {}
        }
        known.append(at, field, response.headers_mut())?;
    }
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

/// Fields that are remembered, and the longest value of one.
const KNOWN_FIELDS: usize = 16;
const KNOWN_VALUE_BYTES: usize = 128;

/// Fields of a thread's last responses, by their place in the head. Most responses repeat those of
/// the one before, and a clone costs less than to check a name and to copy a value.
#[derive(Default)]
pub(crate) struct KnownFields([Option<KnownField>; KNOWN_FIELDS]);

struct KnownField {
    /// As the engine writes it.
    name_written: Box<str>,
    name: HeaderName,
    value: HeaderValue,
}

impl KnownFields {
    /// Adds the field at place `at` of a head.
    fn append(
        &mut self,
        at: usize,
        field: &httparse::Header<'_>,
        to: &mut HeaderMap,
    ) -> Result<(), Malformed> {
        let place = self.0.get_mut(at).filter(|_| field.value.len() <= KNOWN_VALUE_BYTES);
        let (name, value) = match place {
            None => (read_name(field)?, read_value(field)?),
            Some(Some(known)) if *known.name_written == *field.name => {
                if known.value.as_bytes() != field.value {
                    known.value = read_value(field)?;
                }
                (known.name.clone(), known.value.clone())
            }
            Some(place) => {
                let (name, value) = (read_name(field)?, read_value(field)?);
                let name_written = field.name.into();
                *place =
                    Some(KnownField { name_written, name: name.clone(), value: value.clone() });
                (name, value)
            }
        };
        to.try_append(name, value).map(|_| ()).map_err(|_| Malformed)
    }
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
    fn what_is_known_of_earlier_heads_changes_none() {
        let heads = [
            "HTTP/1.1 200 OK\r\nServer: a\r\nX-B: 1\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nServer: a\r\nX-B: 2\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nserver: a\r\nX-C: 2\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-B: 2\r\nServer: a\r\nX-C: 2\r\nContent-Length: 0\r\n\r\n",
        ];
        let mut known = KnownFields::default();
        for head in heads.iter().chain(heads.iter().rev()) {
            assert_eq!(read(&mut known, head), read(&mut KnownFields::default(), head), "{head}");
        }
    }
}

//! The engine's HTTP/1.1 response as the stream sends it.

use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::SendStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::request::may_trail;
use crate::buffer::Buffer;
use crate::http::chunk::ChunkReader;
use crate::http::head::{Field, Framing, HeadScanner, Lengths};
use crate::http::request::HEADERS_PARSED_MAX;
use crate::http::response::HEAD_BYTES_MAX;
use crate::memory::End;

/// Header fields that the engine may add to those of a backend.
const FIELDS_ADDED: usize = 16;

/// Bytes of the payload that are read ahead of the client's window.
const AHEAD_BYTES: usize = 16 << 10;

/// Trailer fields of a response.
const TRAILERS_MAX: usize = 64;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was handed to `h2` whole.
    Whole,
    /// The engine gave no response, or a part of one.
    Cut,
    /// The client reset the stream, or its connection ended.
    Reset,
}

/// A response that HTTP/2 cannot express.
#[derive(Debug)]
struct Bad;

/// A response on its way to the client.
pub(super) struct Download {
    respond: SendResponse<Bytes>,
    is_head: bool,
    scanner: HeadScanner,
    body: Option<Body>,
}

impl Download {
    pub(super) fn new(respond: SendResponse<Bytes>, is_head: bool) -> Download {
        Download { respond, is_head, scanner: HeadScanner::default(), body: None }
    }

    /// Bytes of the payload that `h2` was handed.
    pub(super) fn sent(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.sent)
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: h2::Reason) {
        match &mut self.body {
            Some(body) => body.stream.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Moves what can be moved; ready at the end. `no_more`: the engine has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, from: &End, no_more: bool) -> Poll<Ended> {
        // Before it looks, so that no byte goes unnoticed.
        from.watch(cx);
        while self.body.is_none() {
            if self.respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Ended::Reset);
            }
            match from.read_with(|input| self.read_head(input)) {
                Some(Ok(Some(head))) => match self.send_head(head) {
                    Ok(None) => {}
                    Ok(Some(ended)) => return Poll::Ready(ended),
                    Err(_) => return Poll::Ready(Ended::Reset),
                },
                Some(Err(Bad)) => return Poll::Ready(Ended::Cut),
                Some(Ok(None)) | None if no_more || from.is_over() => {
                    return Poll::Ready(Ended::Cut);
                }
                Some(Ok(None)) | None => return Poll::Pending,
            }
        }
        match &mut self.body {
            Some(body) => body.poll(cx, from, no_more),
            None => Poll::Pending,
        }
    }

    fn read_head(&mut self, input: &mut Buffer) -> Result<Option<Head>, Bad> {
        let Some(bytes) = self.scanner.find_end(input).map_err(|_| Bad)? else {
            if input.is_full() {
                input.grow(2 * HEAD_BYTES_MAX);
            }
            return Ok(None);
        };
        self.scanner = HeadScanner::default();
        let head = parse(&input[..bytes], self.is_head);
        input.consume(bytes);
        head.map(Some)
    }

    fn send_head(&mut self, head: Head) -> Result<Option<Ended>, h2::Error> {
        if head.response.status().is_informational() {
            self.respond.send_informational(head.response)?;
            return Ok(None);
        }
        let is_whole = matches!(head.left, Left::Nothing);
        let stream = self.respond.send_response(head.response, is_whole)?;
        self.body = Some(Body {
            stream,
            left: head.left,
            payload: BytesMut::new(),
            trailers: Vec::new(),
            sent: 0,
        });
        Ok(is_whole.then_some(Ended::Whole))
    }
}

struct Head {
    response: Response<()>,
    left: Left,
}

enum Left {
    Length(u64),
    Chunked(ChunkReader),
    Nothing,
}

/// Reads a head that the engine wrote.
fn parse(head: &[u8], is_head: bool) -> Result<Head, Bad> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX + FIELDS_ADDED];
    let mut read = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut read,
        head,
        &mut fields,
    );
    if !matches!(parsed, Ok(httparse::Status::Complete(_))) {
        return Err(Bad);
    }
    let status = StatusCode::from_u16(read.code.ok_or(Bad)?).map_err(|_| Bad)?;
    let mut lengths = Lengths::default();
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().reserve(read.headers.len());
    for field in read.headers.iter() {
        match Field::of(field.name) {
            // About the connection between the engine and the stream (RFC 9113, section 8.2.2).
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::Http2Settings => continue,
            Field::TransferEncoding => {
                lengths.transfer_encoding(field.value).map_err(|_| Bad)?;
                continue;
            }
            Field::ContentLength => lengths.content_length(field.value).map_err(|_| Bad)?,
            _ => {}
        }
        append(response.headers_mut(), field)?;
    }
    let has_no_body = is_head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
    let left = match lengths.framing(false).map_err(|_| Bad)? {
        _ if has_no_body => Left::Nothing,
        Some(Framing::Length(0)) => Left::Nothing,
        Some(Framing::Length(length)) => Left::Length(length),
        Some(Framing::Chunked) => Left::Chunked(ChunkReader::new()),
        // The engine frames every response to a client of HTTP/1.1.
        Some(Framing::UntilClose) | None => return Err(Bad),
    };
    Ok(Head { response, left })
}

fn append(to: &mut HeaderMap, field: &httparse::Header<'_>) -> Result<(), Bad> {
    let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Bad)?;
    let value = HeaderValue::from_bytes(field.value).map_err(|_| Bad)?;
    to.try_append(name, value).map(|_| ()).map_err(|_| Bad)
}

/// The body of a response.
struct Body {
    stream: SendStream<Bytes>,
    left: Left,
    /// Read, and not handed to `h2` yet.
    payload: BytesMut,
    /// The lines of the trailers, with the empty one.
    trailers: Vec<u8>,
    sent: u64,
}

impl Body {
    fn poll(&mut self, cx: &mut Context<'_>, from: &End, no_more: bool) -> Poll<Ended> {
        if self.stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Ended::Reset);
        }
        loop {
            while !matches!(self.left, Left::Nothing) && self.payload.len() < AHEAD_BYTES {
                match from.read_with(|input| self.take(input)) {
                    Some(Ok(())) => {}
                    Some(Err(Bad)) => return Poll::Ready(Ended::Cut),
                    None => break,
                }
            }
            let is_read = matches!(self.left, Left::Nothing);
            if is_read && self.payload.is_empty() {
                return Poll::Ready(self.end());
            }
            if self.payload.is_empty() {
                return match no_more || from.is_over() {
                    true => Poll::Ready(Ended::Cut),
                    false => Poll::Pending,
                };
            }
            self.stream.reserve_capacity(self.payload.len());
            if self.stream.capacity() == 0 {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Ended::Reset),
                    Poll::Pending if from.is_cut() => return Poll::Ready(Ended::Cut),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let count = self.stream.capacity().min(self.payload.len());
            let bytes = self.payload.split_to(count).freeze();
            let is_last = is_read && self.payload.is_empty() && self.trailers.len() <= 2;
            self.sent += count as u64;
            match self.stream.send_data(bytes, is_last) {
                Ok(()) if is_last => return Poll::Ready(Ended::Whole),
                Ok(()) => {}
                Err(_) => return Poll::Ready(Ended::Reset),
            }
        }
    }

    /// Takes some of the body.
    fn take(&mut self, input: &mut Buffer) -> Result<(), Bad> {
        let most = input.len().min(AHEAD_BYTES);
        match &mut self.left {
            Left::Nothing => {}
            Left::Length(left) => {
                let count = most.min(usize::try_from(*left).unwrap_or(usize::MAX));
                self.payload.extend_from_slice(&input[..count]);
                input.consume(count);
                *left -= count as u64;
                if *left == 0 {
                    self.left = Left::Nothing;
                }
            }
            Left::Chunked(reader) => {
                let in_trailers = reader.is_in_trailers();
                let piece = reader.read(&input[..most]).map_err(|_| Bad)?;
                if in_trailers {
                    self.trailers.extend_from_slice(&input[..piece.consumed]);
                }
                let payload = &input[piece.consumed - piece.payload..piece.consumed];
                self.payload.extend_from_slice(payload);
                input.consume(piece.consumed);
                if reader.is_done() {
                    self.left = Left::Nothing;
                }
            }
        }
        Ok(())
    }

    /// Ends the stream behind its payload, with the trailers if there are some.
    fn end(&mut self) -> Ended {
        let Ok(trailers) = parse_trailers(&self.trailers) else { return Ended::Cut };
        let sent = match trailers.is_empty() {
            true => self.stream.send_data(Bytes::new(), true),
            false => self.stream.send_trailers(trailers),
        };
        if sent.is_ok() { Ended::Whole } else { Ended::Reset }
    }
}

fn parse_trailers(lines: &[u8]) -> Result<HeaderMap, Bad> {
    let mut trailers = HeaderMap::new();
    if lines.len() <= 2 {
        return Ok(trailers);
    }
    let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(lines, &mut fields)
    else {
        return Err(Bad);
    };
    for field in fields.iter().filter(|field| may_trail(field.name)) {
        append(&mut trailers, field)?;
    }
    Ok(trailers)
}

//! The engine's HTTP/1.1 response as the stream sends it.

use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use http::{Response, StatusCode};

use crate::buffer::Buffer;
use crate::http::chunk::ChunkReader;
use crate::http::head::{Field, Framing, HeadScanner, Lengths};
use crate::http::http2::outgoing::{Left, Outgoing, Stopped};
use crate::http::http2::{FIELDS_ADDED, Malformed, Message, append};
use crate::http::request::HEADERS_PARSED_MAX;
use crate::http::response::HEAD_BYTES_MAX;
use crate::memory::End;

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

/// A response on its way to the client.
pub(super) struct Download {
    respond: SendResponse<Bytes>,
    is_head: bool,
    scanner: HeadScanner,
    body: Option<Outgoing>,
}

impl Download {
    pub(super) fn new(respond: SendResponse<Bytes>, is_head: bool) -> Download {
        Download { respond, is_head, scanner: HeadScanner::default(), body: None }
    }

    /// Bytes of the payload that `h2` was handed.
    pub(super) fn sent(&self) -> u64 {
        self.body.as_ref().map_or(0, Outgoing::sent)
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: h2::Reason) {
        match &mut self.body {
            Some(body) => body.reset(reason),
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
                Some(Err(Malformed)) => return Poll::Ready(Ended::Cut),
                Some(Ok(None)) | None if no_more || from.is_over() => {
                    return Poll::Ready(Ended::Cut);
                }
                Some(Ok(None)) | None => return Poll::Pending,
            }
        }
        match &mut self.body {
            Some(body) => poll_body(body, cx, from, no_more),
            None => Poll::Pending,
        }
    }

    fn read_head(&mut self, input: &mut Buffer) -> Result<Option<Head>, Malformed> {
        let Some(bytes) = self.scanner.find_end(input).map_err(|_| Malformed)? else {
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
        self.body = Some(Outgoing::new(stream, Message::Response, head.left));
        Ok(is_whole.then_some(Ended::Whole))
    }
}

struct Head {
    response: Response<()>,
    left: Left,
}

/// Reads a head that the engine wrote.
fn parse(head: &[u8], is_head: bool) -> Result<Head, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX + FIELDS_ADDED];
    let mut read = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut read,
        head,
        &mut fields,
    );
    if !matches!(parsed, Ok(httparse::Status::Complete(_))) {
        return Err(Malformed);
    }
    let status = StatusCode::from_u16(read.code.ok_or(Malformed)?).map_err(|_| Malformed)?;
    let mut lengths = Lengths::default();
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().reserve(read.headers.len());
    for field in read.headers.iter() {
        match Field::of(field.name) {
            // About the connection between the engine and the stream (RFC 9113, section 8.2.2).
            Field::Connection | Field::HopByHop | Field::Upgrade | Field::Http2Settings => continue,
            Field::TransferEncoding => {
                lengths.transfer_encoding(field.value).map_err(|_| Malformed)?;
                continue;
            }
            Field::ContentLength => lengths.content_length(field.value).map_err(|_| Malformed)?,
            _ => {}
        }
        append(response.headers_mut(), field)?;
    }
    let has_no_body = is_head || status.is_informational() || matches!(status.as_u16(), 204 | 304);
    let left = match lengths.framing(false).map_err(|_| Malformed)? {
        _ if has_no_body => Left::Nothing,
        Some(Framing::Length(0)) => Left::Nothing,
        Some(Framing::Length(length)) => Left::Length(length),
        Some(Framing::Chunked) => Left::Chunked(ChunkReader::new()),
        // The engine frames every response to a client of HTTP/1.1.
        Some(Framing::UntilClose) | None => return Err(Malformed),
    };
    Ok(Head { response, left })
}

fn poll_body(body: &mut Outgoing, cx: &mut Context<'_>, from: &End, no_more: bool) -> Poll<Ended> {
    if body.poll_reset(cx).is_ready() {
        return Poll::Ready(Ended::Reset);
    }
    loop {
        let mut is_drained = false;
        while body.has_room() && !is_drained {
            match from.read_with(|input| body.take(input).map(|count| input.consume(count))) {
                Some(Ok(())) => {}
                Some(Err(Malformed)) => return Poll::Ready(Ended::Cut),
                None => is_drained = true,
            }
        }
        match body.poll_flush(cx) {
            Poll::Ready(Ok(())) if body.has_ended() => return Poll::Ready(Ended::Whole),
            Poll::Ready(Ok(())) if !is_drained => {}
            Poll::Ready(Ok(())) if no_more || from.is_over() => return Poll::Ready(Ended::Cut),
            Poll::Ready(Ok(())) => return Poll::Pending,
            Poll::Ready(Err(Stopped::Malformed)) => return Poll::Ready(Ended::Cut),
            Poll::Ready(Err(Stopped::Reset)) => return Poll::Ready(Ended::Reset),
            Poll::Pending if from.is_cut() => return Poll::Ready(Ended::Cut),
            Poll::Pending => return Poll::Pending,
        }
    }
}

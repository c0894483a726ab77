//! The body of a request.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use http::{HeaderMap, header};

use super::frames::{Fault, Frames, Piece};
use super::pseudo::PseudoFields;
use super::quic::Heads;
use crate::http::http2::incoming::Source;

/// The body of a request, and its trailers.
pub(super) struct RequestBody {
    frames: Frames,
    heads: Rc<RefCell<Heads>>,
    /// A piece that was read to see whether there is a body.
    first: Option<Piece>,
    /// Bytes that `content-length` promises, and that have not come.
    left: Option<u64>,
    trailers: Option<Bytes>,
}

impl RequestBody {
    /// `first`: a piece that was read already.
    pub(super) fn new(
        frames: Frames,
        heads: Rc<RefCell<Heads>>,
        first: Option<Piece>,
        left: Option<u64>,
    ) -> RequestBody {
        RequestBody { frames, heads, first, left, trailers: None }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, Fault>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Ok(first)),
            None => self.frames.poll_next(cx),
        }
    }
}

impl Source for RequestBody {
    type Error = Fault;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        let is_at_end = self.trailers.is_some();
        let payload = match is_at_end {
            true => None,
            false => match ready!(self.poll_piece(cx))? {
                Piece::Data(payload) => Some(payload),
                Piece::Block(block) => {
                    self.trailers = Some(block);
                    None
                }
                Piece::End => None,
            },
        };
        // It has to be as long as `content-length` says (RFC 9114, section 4.1.2).
        let count = payload.as_ref().map_or(0, Bytes::len) as u64;
        let is_right = match &mut self.left {
            Some(left) if payload.is_none() => *left == 0,
            Some(left) => left.checked_sub(count).map(|rest| *left = rest).is_some(),
            None => true,
        };
        match is_right {
            true => Poll::Ready(payload.map(Ok)),
            false => Poll::Ready(Some(Err(Fault::Stream(Code::H3_MESSAGE_ERROR)))),
        }
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, Fault>> {
        let Some(block) = &self.trailers else { return Poll::Ready(Ok(None)) };
        match ready!(self.frames.poll_next(cx))? {
            Piece::End => {}
            Piece::Data(_) | Piece::Block(_) => {
                return Poll::Ready(Err(Fault::Connection(Code::H3_FRAME_UNEXPECTED)));
            }
        }
        let have_none = PseudoFields::of(block).map_err(Fault::of)?.are_none();
        let trailers = have_none.then(|| self.heads.borrow_mut().decode_trailers(block));
        match trailers {
            Some(Ok(trailers)) => Poll::Ready(Ok(Some(trailers))),
            Some(Err(_)) | None => Poll::Ready(Err(Fault::Stream(Code::H3_MESSAGE_ERROR))),
        }
    }

    /// Does nothing: QUIC counts what was read.
    fn release(&mut self, _: usize) {}
}

/// The number in `content-length`; `None`: there is none, or the engine will refuse it.
pub(super) fn content_length(fields: &HeaderMap) -> Option<u64> {
    let value = fields.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

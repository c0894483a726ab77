//! A request of a client's stream, from its head to the end of its response.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::request::Parts;
use http::{Method, StatusCode};
use quinn::{RecvStream, SendStream};

use super::body::{RequestBody, content_length};
use super::connection::Open;
use super::frames::{Fault, Frames, Piece};
use super::pseudo::PseudoFields;
use super::quic::{HeadMemory, Heads, Quic, Request};
use super::send::Sender;
use super::stream::{Ended, Http3Stream};
use super::{block_bytes_max, reset};
use crate::deadline::Deadline;
use crate::http::connection::ClientConnection;
use crate::http::http2::Message;
use crate::http::http2::downstream::request::write_head;
use crate::http::http2::downstream::response::Asked;
use crate::http::http2::incoming::{Framing, Incoming};
use crate::http::logged::log_unread;
use crate::http::served::{ServedStream, run_engine, send_rest};
use crate::http::version::ClientVersion;
use crate::reason::Reason;
use crate::socket::Socket;
use crate::stats::count_status;
use crate::worker::Phase;

/// A new stream, with its request unread.
pub(super) struct Arrived {
    pub(super) send: SendStream,
    pub(super) receive: RecvStream,
    pub(super) resolver: RequestResolver<Quic, Bytes>,
    pub(super) memory: HeadMemory,
}

/// Why a request does not reach the engine.
enum Refused {
    Fault(Fault),
    /// Its head did not come in time.
    Late,
    /// Its head is too large. The frames of the answer.
    TooLarge(Vec<u8>),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

/// Longest time from the end of a response to its acknowledgement, in which the request is counted
/// as being served. At most a window of the connection is under way.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

const MALFORMED: Refused = Refused::Fault(Fault::Stream(Code::H3_MESSAGE_ERROR));

/// A request with its head.
struct Read {
    parts: Parts,
    /// Its head in HTTP/1.1.
    head: Vec<u8>,
    framing: Framing,
    body: RequestBody,
    heads: Rc<RefCell<Heads>>,
}

/// Serves a stream to its end.
pub(super) async fn serve(open: Open, arrived: Arrived) {
    let shared = &open.0;
    let (worker, door) = (&shared.worker, &shared.door);
    let _task = worker.task();
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let deadline = Rc::new(worker.deadlines.register(waker.clone()));
    deadline.set(Instant::now(), door.view().config.timeouts.header);
    let Arrived { send, receive, resolver, memory } = arrived;
    let frames = Frames::new(receive, block_bytes_max(&door.view().config.limits));
    let read = read(&open, frames, resolver, memory, &deadline).await;
    let Read { parts, head, framing, body, heads } = match read {
        Ok(read) => read,
        Err(refused) => return refuse(&open, send, refused, &deadline).await,
    };
    deadline.clear();
    let asked = if parts.method == Method::HEAD { Asked::Head } else { Asked::Usual };
    drop(parts);
    let request = Incoming::new(body, Message::Request, framing, head);
    let sender = Sender::new(send, heads);
    let stream = Rc::new(Http3Stream::new(request, sender, asked, waker, Rc::clone(worker)));
    let client = ClientConnection {
        version: ClientVersion::Http3,
        identity: shared.identity.clone(),
        ..ClientConnection::new(
            Rc::clone(worker),
            Rc::clone(door),
            Socket::of_client(stream.clone()),
            shared.peer,
            shared.hashes,
            Rc::clone(&deadline),
        )
    };
    run_engine(client, &*stream).await;
    stream.finish();
    let ended = match stream.ended() {
        Some(ended) => ended,
        None => send_rest(&*stream, worker, door, &deadline).await,
    };
    match ended {
        Ended::Whole => {
            settle(&stream, &open, &deadline).await;
            shared.resets.ended();
        }
        Ended::Cut => {}
        Ended::Reset => shared.resets.add(Instant::now()),
        Ended::Faulty(fault) => blame(&open, fault),
    }
}

/// Reads the head, within the deadline.
async fn read(
    open: &Open,
    mut frames: Frames,
    resolver: RequestResolver<Quic, Bytes>,
    memory: HeadMemory,
    deadline: &Deadline,
) -> Result<Read, Refused> {
    let Piece::Block(block) = next(open, &mut frames, deadline).await? else {
        return Err(Fault::Connection(Code::H3_FRAME_UNEXPECTED).into());
    };
    let pseudo = PseudoFields::of(&block).map_err(Fault::of)?;
    let (parts, stream) = decode(resolver, block, &memory).await?;
    if !pseudo.fit(parts.method == Method::CONNECT) {
        return Err(MALFORMED);
    }
    let stated = content_length(&parts.headers);
    // A request without a body ends here. Clients that send one without its length may wait for
    // the response before they send more, so only requests that seldom have a body wait for it.
    let waits = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let first = match stated {
        None if waits => Some(next(open, &mut frames, deadline).await?),
        _ => {
            poll_fn(|cx| match frames.poll_next(cx) {
                Poll::Ready(piece) => Poll::Ready(piece.map(Some)),
                Poll::Pending => Poll::Ready(Ok(None)),
            })
            .await?
        }
    };
    let has_body = !matches!(first, Some(Piece::End)) && stated != Some(0);
    let has_data = matches!(first, Some(Piece::Data(_)));
    if !has_body && (has_data || stated.is_some_and(|length| length > 0)) {
        return Err(MALFORMED);
    }
    let mut head = Vec::with_capacity(512);
    let framing = write_head(&parts, has_body, &mut head).map_err(|_| MALFORMED)?;
    let heads = Rc::new(RefCell::new(Heads::new(stream, memory)));
    let body = RequestBody::new(frames, Rc::clone(&heads), first, stated);
    Ok(Read { parts, head, framing, body, heads })
}

/// The next piece of the request, within the deadline.
async fn next(open: &Open, frames: &mut Frames, deadline: &Deadline) -> Result<Piece, Refused> {
    poll_fn(|cx| match frames.poll_next(cx) {
        Poll::Ready(piece) => Poll::Ready(piece.map_err(Refused::from)),
        Poll::Pending if deadline.is_past() => Poll::Ready(Err(Refused::Late)),
        Poll::Pending if open.0.worker.phase.get() == Phase::Cutting => {
            Poll::Ready(Err(Refused::Late))
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Decodes the head.
async fn decode(
    resolver: RequestResolver<Quic, Bytes>,
    block: Bytes,
    memory: &HeadMemory,
) -> Result<(Parts, RequestStream<Request, Bytes>), Refused> {
    let resolved = resolver.accept_with_frame(Ok(Some(Frame::Headers(block))));
    // Of a head that cannot be decoded, `h3` notifies the task of the connection, which closes it.
    let resolved = resolved.map_err(|_| Refused::Fault(Fault::Reset))?;
    match resolved.resolve().await {
        Ok((request, stream)) => Ok((request.into_parts().0, stream)),
        Err(StreamError::HeaderTooBig { .. }) => Err(Refused::TooLarge(memory.take_output())),
        Err(_) => Err(MALFORMED),
    }
}

/// Ends a stream without passing its request to the engine.
async fn refuse(open: &Open, mut send: SendStream, refused: Refused, deadline: &Deadline) {
    let shared = &open.0;
    let (worker, door) = (&shared.worker, &shared.door);
    let reason = match refused {
        Refused::Late => Reason::HeaderTimeout,
        Refused::TooLarge(_) | Refused::Fault(Fault::Stream(Code::H3_EXCESSIVE_LOAD)) => {
            Reason::RequestHeadTooLarge
        }
        Refused::Fault(Fault::Reset) => Reason::ClientGone,
        Refused::Fault(_) => Reason::Http3Protocol,
    };
    door.dropped(reason);
    log_unread(worker, door, shared.peer, reason);
    shared.resets.add(Instant::now());
    match refused {
        Refused::Late => reset(&mut send, Code::H3_REQUEST_CANCELLED),
        Refused::Fault(Fault::Stream(code)) => reset(&mut send, code),
        Refused::Fault(Fault::Reset) => reset(&mut send, Code::H3_REQUEST_CANCELLED),
        Refused::Fault(Fault::Connection(code)) => {
            reset(&mut send, code);
            shared.fail(code);
        }
        Refused::TooLarge(answer) => {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            door.stats(|stats| count_status(&stats.responses, status.as_u16()));
            let is_sent = {
                let mut sent = pin!(send.write_all(&answer));
                poll_fn(|cx| match sent.as_mut().poll(cx) {
                    Poll::Ready(result) => Poll::Ready(result.is_ok()),
                    Poll::Pending if deadline.is_past() => Poll::Ready(false),
                    Poll::Pending => Poll::Pending,
                })
                .await
            };
            if !is_sent {
                reset(&mut send, Code::H3_EXCESSIVE_LOAD);
            }
        }
    }
}

/// Counts a request that turned out to be faulty while the engine read it.
fn blame(open: &Open, fault: Fault) {
    let shared = &open.0;
    shared.door.dropped(Reason::Http3Protocol);
    shared.resets.add(Instant::now());
    if let Fault::Connection(code) = fault {
        shared.fail(code);
    }
}

/// Waits for a while until the client has acknowledged the response, so that no end of the
/// connection cuts it.
async fn settle(stream: &Http3Stream, open: &Open, deadline: &Deadline) {
    let shared = &open.0;
    deadline.set(Instant::now(), SETTLE_WITHIN);
    poll_fn(|cx| {
        let is_cutting = shared.worker.phase.get() == Phase::Cutting;
        match stream.poll_settled(cx) {
            Poll::Pending if !deadline.is_past() && !is_cutting => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}

//! One stream: the engine and both directions of its connection in memory, in one task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Method, Request};

use super::request::{Upload, write_head};
use super::response::{Download, Ended};
use super::{Open, Shared};
use crate::deadline::Deadline;
use crate::http::connection::ClientConnection;
use crate::http::logged::log_unread;
use crate::memory::{self, End};
use crate::reason::Reason;
use crate::socket::Socket;
use crate::worker::Phase;

/// A stream with its request's head.
pub(super) struct Arrived {
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
}

/// Serves a stream to its end.
pub(super) async fn serve(open: Open, mut arrived: Arrived) {
    let shared = &open.0;
    let (worker, door) = (&shared.worker, &shared.door);
    let _task = worker.task();
    let (parts, body) = arrived.request.into_parts();
    let mut head = worker.take_vec();
    let written = write_head(&parts, !body.is_end_stream(), &mut head);
    let (near, far) = memory::pair(&worker.buffers);
    // The other end is there.
    let _ = far.write_all(&head);
    worker.give_vec(head);
    let Ok(framing) = written else {
        door.dropped(Reason::Http2Protocol);
        log_unread(worker, door, shared.peer, Reason::Http2Protocol);
        arrived.respond.send_reset(h2::Reason::PROTOCOL_ERROR);
        shared.was_reset();
        return;
    };
    let mut exchange = Exchange {
        shared,
        upload: Upload::new(body, framing),
        download: Download::new(arrived.respond, parts.method == Method::HEAD),
        far,
        ended: None,
        rest: Deadline::of_this_task(&worker.deadlines).await,
        rest_sent: None,
    };
    drop((parts.headers, parts.uri));
    let client = ClientConnection {
        is_http2: true,
        identity: shared.identity.clone(),
        ..ClientConnection::new(
            worker.clone(),
            door.clone(),
            Socket::in_memory(near),
            shared.peer,
            shared.hashes,
            Deadline::of_this_task(&worker.deadlines).await,
        )
    };
    let mut engine = pin!(client.run());
    let mut is_served = false;
    poll_fn(|cx| {
        exchange.poll_upload(cx);
        is_served = is_served || engine.as_mut().poll(cx).is_ready();
        exchange.poll_download(cx, is_served);
        match is_served && exchange.ended.is_some() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

struct Exchange<'a> {
    shared: &'a Shared,
    upload: Upload,
    download: Download,
    /// The other end of the engine's connection.
    far: End,
    ended: Option<Ended>,
    /// Bounds the sending of what the engine has left behind.
    rest: Deadline,
    rest_sent: Option<u64>,
}

impl Exchange<'_> {
    fn poll_upload(&mut self, cx: &mut Context<'_>) {
        // A reset is noticed with the response.
        let _ = self.upload.poll(cx, &self.far);
    }

    fn poll_download(&mut self, cx: &mut Context<'_>, is_served: bool) {
        if self.ended.is_some() {
            return;
        }
        let ended = match self.download.poll(cx, &self.far, is_served) {
            Poll::Ready(ended) => ended,
            Poll::Pending if is_served && self.is_overdue() => {
                self.shared.door.dropped(Reason::ClientStalled);
                Ended::Cut
            }
            Poll::Pending => return,
        };
        self.ended = Some(ended);
        match ended {
            Ended::Whole => {
                self.shared.ended();
                self.far.finish();
            }
            Ended::Cut => {
                self.download.reset(h2::Reason::INTERNAL_ERROR);
                self.far.cut();
            }
            Ended::Reset => {
                self.shared.was_reset();
                self.far.cut();
            }
        }
    }

    /// Whether the client has taken nothing of the rest for as long as it may be idle.
    fn is_overdue(&mut self) -> bool {
        let sent = self.download.sent();
        if self.rest_sent != Some(sent) {
            self.rest_sent = Some(sent);
            let idle = self.shared.door.view().config.timeouts.idle;
            self.rest.set(Instant::now(), idle);
        }
        self.rest.is_past() || self.shared.worker.phase.get() == Phase::Cutting
    }
}

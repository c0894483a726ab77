//! A client's connection: one request after the other.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use equipoise_tls::PeerIdentity;

use super::answer::{Form, OwnAnswer, ToPeer, write_answer};
use super::head::HeadScanner;
use super::logged::Logged;
use super::mux::Ticket;
use super::proxied::ProxyFacts;
use super::request::{Origin, RequestHead, read_request};
use super::routed::Routed;
use super::routing::edits;
use super::version::ClientVersion;
use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::door::Door;
use crate::limiter::HeaderKeys;
use crate::linger::{Rest, linger};
use crate::reason::Reason;
use crate::socket::{Socket, poll_fill};
use crate::stats::count_status;
use crate::tls::FIRST_BYTE;
use crate::upstream::Session;
use crate::worker::{ClientHashes, Phase, Worker};

/// The fate of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Another request may follow.
    KeepAlive,
    /// The response announced the close.
    Close,
    /// A response was cut, or is not possible. The client must not take its bytes for complete.
    Abort,
    /// The connection was a tunnel, and has ended as it should.
    Over,
}

/// One client's connection.
pub(crate) struct ClientConnection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) door: Rc<Door>,
    pub(crate) client: Rc<Socket>,
    pub(crate) peer: SocketAddr,
    pub(crate) hashes: ClientHashes,
    pub(crate) deadline: Rc<Deadline>,
    /// Its place on multiplexed sessions.
    pub(super) ticket: Option<Rc<Ticket>>,
    /// Bytes that were read and not yet used; present only while there are some.
    pub(crate) input: Option<Buffer>,
    /// The current request, if it is one of the share that is logged.
    pub(super) logged: Option<Box<Logged>>,
    /// When the current request has to be over.
    pub(crate) request_end: Option<Instant>,
    /// Something was read of it.
    pub(super) has_begun: bool,
    /// Which peer this is, if it is one that encrypts.
    pub(super) peer_identity: Option<Box<PeerIdentity>>,
    /// Header lines about the client's certificate.
    pub(super) identity: Option<Rc<[u8]>>,
    /// The route of the current request, if it takes one.
    pub(super) routed: Option<Routed>,
    /// The values by which limits count the current request.
    pub(super) limit_keys: LimitKeys,
    /// When a request that was above a rate is within it.
    pub(super) limited_for: Cell<Duration>,
    /// Input that is expected after the last response.
    pub(super) rest: Rest,
    /// The version of HTTP that the client speaks.
    pub(super) version: ClientVersion,
    /// Content of the PROXY header that the connection began with.
    pub(super) proxy: Option<Rc<ProxyFacts>>,
    /// The connection of which this is a stream.
    pub(super) under: Option<Rc<Socket>>,
    /// A session to a backend that began with this client's PROXY header, and since when it has
    /// been idle.
    pub(super) kept: Cell<Option<(Instant, Box<Session>)>>,
}

/// The values by which the limits by a header count a request.
#[derive(Default)]
pub(super) struct LimitKeys {
    pub(super) of_route: HeaderKeys,
    pub(super) of_door: HeaderKeys,
}

enum Next {
    /// With the head that goes upstream.
    Request(RequestHead, Vec<u8>),
    /// The peer was not authenticated; its input is discarded.
    Distrusted,
    Closed,
    /// With the time at which the head began, if that is known.
    Refused(Reason, Option<Instant>),
}

impl ClientConnection {
    pub(super) fn new(
        worker: Rc<Worker>,
        door: Rc<Door>,
        client: Socket,
        peer: SocketAddr,
        hashes: ClientHashes,
        deadline: Rc<Deadline>,
    ) -> ClientConnection {
        ClientConnection {
            worker,
            door,
            client: Rc::new(client),
            peer,
            hashes,
            deadline,
            ticket: None,
            input: None,
            logged: None,
            request_end: None,
            has_begun: false,
            peer_identity: None,
            identity: None,
            routed: None,
            limit_keys: LimitKeys::default(),
            limited_for: Cell::default(),
            rest: Rest::Unexpected,
            version: ClientVersion::Http1,
            proxy: None,
            under: None,
            kept: Cell::default(),
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn run(&mut self) {
        let mut now = Instant::now();
        loop {
            let after = match self.next_request(now).await {
                Next::Request(head, out) => {
                    now = Instant::now();
                    match self.challenge_answer(&out) {
                        None => self.exchange(head, out, &mut now).await,
                        Some(answer) => Box::pin(self.answer_challenge(head, out, answer)).await,
                    }
                }
                Next::Refused(reason, begun) => {
                    if reason == Reason::RequestBodyTooLarge {
                        self.rest = Rest::OfBody;
                    }
                    Box::pin(self.answer_refused(reason, begun)).await;
                    After::Close
                }
                Next::Distrusted => After::Close,
                Next::Closed => {
                    self.client.announce_end();
                    break;
                }
            };
            match after {
                // A stream has one request; its task sends what is left of the response.
                After::KeepAlive | After::Close if self.version.has_streams() => break,
                After::KeepAlive => {}
                After::Close => {
                    Box::pin(self.linger()).await;
                    break;
                }
                After::Abort => {
                    self.client.reset_on_close();
                    break;
                }
                After::Over => break,
            }
        }
    }

    /// Answers a client that may send no request, and closes.
    pub(crate) async fn refuse_client(mut self, reason: Reason) {
        self.answer_refused(reason, None).await;
        self.linger().await;
    }

    async fn answer_refused(&mut self, reason: Reason, begun: Option<Instant>) {
        self.log_refused(begun);
        self.answer(reason, true, Form::Text, ToPeer::Nothing).await;
        self.log_end(reason.status(), Instant::now());
    }

    /// Whether the response has to announce that it is the last.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_stopping() || self.peer_identity.as_ref().is_some_and(|peer| peer.has_ended())
    }

    /// Whether no further request is accepted. A peer with an ended certificate is not cut off so:
    /// its next response announces that it is the last, since requests that it sends until then
    /// would be lost.
    fn is_stopping(&self) -> bool {
        self.door.closing.get() || self.worker.phase.get() != Phase::Running
    }

    /// Arms the deadline for a phase of the request, within the bound on the whole of it.
    pub(crate) fn arm(&self, now: Instant, phase: Duration) {
        let left =
            self.request_end.map_or(phase, |end| end.saturating_duration_since(now).min(phase));
        self.deadline.set(now, left);
    }

    /// The reason of an expired deadline: that of the phase, unless the whole request is overdue.
    pub(crate) fn timed_out(&self, phase: Reason) -> Reason {
        match self.request_end {
            Some(end) if Instant::now() >= end => Reason::RequestTimeout,
            _ => phase,
        }
    }

    /// Reads the next request's head; `now` is when the last response ended.
    async fn next_request(&mut self, now: Instant) -> Next {
        let mut scanner = HeadScanner::default();
        let mut begun = None;
        self.routed = None;
        self.deadline.set(now, self.door.view().config.timeouts.idle);
        self.deadline.give_way();
        loop {
            // The configuration may have changed while nothing came.
            let view = self.door.view();
            let config = &view.config;
            if let Some(input) = &self.input
                && !std::mem::replace(&mut self.has_begun, true)
                && input.first() == Some(&FIRST_BYTE)
                && let Some(tls) = config.dispatch.as_ref().and_then(|it| it.peers_tls.as_ref())
            {
                match Box::pin(self.meet_peer(tls)).await {
                    true => continue,
                    false => return Next::Distrusted,
                }
            }
            if let Some(input) = &mut self.input {
                // Some clients send an empty line after a body (RFC 9112, section 2.2).
                while begun.is_none() && input.starts_with(b"\r\n") {
                    input.consume(2);
                    scanner = HeadScanner::default();
                }
                if input.is_full() {
                    input.grow(config.limits.head_bytes_max + 1);
                }
                let origin = Origin {
                    client: self.peer.ip(),
                    door: config,
                    challenges: &self.worker.shared.challenges,
                    instance: &self.worker.shared.instance,
                    peer: self.peer_identity.as_deref(),
                    identity: self.identity.as_deref(),
                    version: self.version,
                };
                let mut out = self.worker.take_vec();
                match read_request(input, &mut scanner, &origin, &mut out) {
                    Ok(Some(_)) if self.peer_identity.as_ref().is_some_and(|it| it.is_out()) => {
                        self.door.dropped(Reason::PeerRefused);
                        return Next::Distrusted;
                    }
                    Ok(Some(head)) => {
                        let read = &input[..head.bytes];
                        let from = self.peer.ip();
                        self.logged =
                            Logged::of_request(&self.worker, &self.door, from, &head, read);
                        self.take_route(head.route);
                        self.consume_head(head.bytes);
                        self.bound_request(&head);
                        return Next::Request(head, out);
                    }
                    Ok(None) => self.worker.give_vec(out),
                    Err(reason) => return Next::Refused(reason, begun),
                }
                self.drop_empty_input();
                // A lone CR may be half of an empty line: nothing has begun.
                let begins = self.input.as_ref().is_some_and(|input| **input != *b"\r");
                if begins && begun.is_none() {
                    let now = Instant::now();
                    begun = Some(now);
                    self.deadline.set(now, config.timeouts.header);
                }
            }
            match poll_fn(|cx| self.poll_more(cx, begun.is_some())).await {
                Err(Reason::HeaderTimeout) => return Next::Refused(Reason::HeaderTimeout, begun),
                Ok(0) | Err(_) => return Next::Closed,
                Ok(_) => {}
            }
        }
    }

    /// Takes the head of a request from the input, with the values by which limits count it.
    fn consume_head(&mut self, bytes: usize) {
        let Some(input) = &mut self.input else { return };
        let of_route = self.routed.as_ref().and_then(Routed::limiter);
        self.limit_keys = LimitKeys {
            of_route: of_route.map(|it| it.keys(&input[..bytes])).unwrap_or_default(),
            of_door: self.door.view().limiter.keys(&input[..bytes]),
        };
        input.consume(bytes);
        self.drop_empty_input();
    }

    /// Bounds the time of the whole request.
    fn bound_request(&mut self, head: &RequestHead) {
        self.deadline.stand();
        let of_route = self.routed.as_ref().and_then(|it| it.options().request_timeout);
        let of_door = || self.door.view().config.timeouts.request;
        let of_client = head.grpc.and_then(|call| call.timeout);
        let bound = of_route.or_else(of_door).into_iter().chain(of_client).min();
        self.request_end = bound.map(|bound| Instant::now() + bound);
    }

    /// Reads more of a head; between requests the connection ends when it is idle for too long, or
    /// some time after the door closes. Neither is a drop: nothing is lost.
    fn poll_more(&mut self, cx: &mut Context<'_>, begun: bool) -> Poll<Result<usize, Reason>> {
        if let Poll::Ready(read) =
            poll_fill(cx, &self.client, &mut self.input, &self.worker.buffers)
        {
            let read = read.map_err(|_| Reason::ClientGone);
            if let Ok(count) = read {
                self.door.stats(|stats| stats.bytes_in.add(count as u64));
            }
            return Poll::Ready(read);
        }
        if self.worker.phase.get() == Phase::Cutting || (!begun && self.door.ends_idle()) {
            return Poll::Ready(Err(Reason::ShuttingDown));
        }
        if self.deadline.is_past() {
            let reason = if begun { Reason::HeaderTimeout } else { Reason::IdleTimeout };
            return Poll::Ready(Err(reason));
        }
        Poll::Pending
    }

    fn drop_empty_input(&mut self) {
        if self.input.as_ref().is_some_and(|input| input.is_empty()) {
            self.input = None;
        }
    }

    /// Answers for the proxy itself, counting the reason.
    pub(crate) async fn answer(
        &mut self,
        reason: Reason,
        close: bool,
        form: Form,
        to_peer: ToPeer,
    ) -> After {
        self.dropped(reason);
        if reason.status() == 0 {
            return After::Abort;
        }
        let retry_after = match reason {
            Reason::RateLimited => self.limited_for.get(),
            _ => self.worker.retry_after(&self.door, self.routed.as_ref()),
        };
        let (view, instance) = (self.door.view(), &self.worker.shared.instance);
        let mut out = self.worker.take_vec();
        let mut edits = edits(&view, self.routed.as_ref());
        // Plain HTTP is answered in the clear.
        if reason == Reason::TlsMissing {
            (edits.hsts, edits.alt_svc) = (None, None);
        }
        let page = view.config.error_pages.get(&reason.status()).map(String::as_str);
        let answer = OwnAnswer { reason, instance, retry_after, close, to_peer, form, page, edits };
        write_answer(&answer, &mut out);
        self.door.stats(|stats| count_status(&stats.responses, reason.status()));
        self.deadline.set(Instant::now(), self.door.view().config.timeouts.idle);
        let after = self.send_whole(&out, close).await;
        self.worker.give_vec(out);
        // The request has its reason already.
        after.unwrap_or(After::Abort)
    }

    /// Sends a whole response, the last one if `close`, within the deadline.
    pub(super) async fn send_whole(&self, response: &[u8], close: bool) -> Result<After, Reason> {
        let mut sent = 0;
        poll_fn(|cx| self.poll_send(cx, response, &mut sent)).await?;
        Ok(if close { After::Close } else { After::KeepAlive })
    }

    /// Writes `bytes[*sent..]` to the client.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        sent: &mut usize,
    ) -> Poll<Result<(), Reason>> {
        while *sent < bytes.len() {
            match self.client.poll_write(cx, &bytes[*sent..]) {
                Poll::Ready(Ok(count)) => {
                    *sent += count;
                    self.door.stats(|stats| stats.bytes_out.add(count as u64));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Reason::ClientGone)),
                Poll::Pending if self.deadline.is_past() => {
                    return Poll::Ready(Err(self.timed_out(Reason::ClientStalled)));
                }
                Poll::Pending if self.worker.phase.get() == Phase::Cutting => {
                    return Poll::Ready(Err(Reason::ShuttingDown));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Closes so that the sent bytes arrive.
    pub(super) async fn linger(&mut self) {
        let idle = self.door.view().config.timeouts.idle;
        let (worker, input) = (&self.worker, self.input.take());
        linger(worker, &self.client, &self.deadline, idle, input, self.rest).await;
    }
}

//! A request in the access log.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_core::{Combined, LogField, LogLine};

use super::connection::ClientConnection;
use super::request::{Marker, RequestHead};
use super::traced::{Ended, Trace};
use super::version::ClientVersion;
use crate::access_log::{self, write_extensions, write_reason};
use crate::door::Door;
use crate::lease::Lease;
use crate::proxy_protocol::Extensions;
use crate::reason::Reason;
use crate::worker::Worker;

/// Logged bytes of a method, a path and a header's value. The rest is cut off.
const METHOD_BYTES_MAX: usize = 32;
const PATH_BYTES_MAX: usize = 2048;
const VALUE_BYTES_MAX: usize = 256;
const PROTOCOL_BYTES_MAX: usize = 16;
const REFERER_BYTES_MAX: usize = 1024;

/// Bytes of a refused head that are looked through.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Records of logged requests that a thread keeps for reuse.
const RECORDS_MAX: usize = 64;

/// A request that the access log or a trace will have.
pub(crate) struct Logged {
    /// The access log will have it.
    has_line: bool,
    trace: Option<Box<Trace>>,
    begun: Instant,
    /// The logged parts of the head, one after the other.
    text: Vec<u8>,
    method: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
    referer: Option<Range<usize>>,
    host: Option<Range<usize>>,
    user_agent: Option<Range<usize>>,
    request_id: Option<Range<usize>>,
    /// Pool and backend of the last try.
    backend: Option<(Arc<str>, Arc<str>)>,
    retries: u32,
    queued: Option<Duration>,
    connect: Option<Duration>,
    first_byte: Option<Duration>,
    reason: Option<Reason>,
    /// Bytes of the connection, both ways, before this request.
    received_before: u64,
    sent_before: u64,
}

impl Logged {
    fn new() -> Logged {
        Logged {
            has_line: true,
            trace: None,
            begun: Instant::now(),
            text: Vec::new(),
            method: None,
            path: None,
            protocol: None,
            referer: None,
            host: None,
            user_agent: None,
            request_id: None,
            backend: None,
            retries: 0,
            queued: None,
            connect: None,
            first_byte: None,
            reason: None,
            received_before: 0,
            sent_before: 0,
        }
    }

    /// The record of a client's request with this head, if it is logged or traced.
    pub(super) fn of_request(
        worker: &Worker,
        door: &Door,
        client: IpAddr,
        head: &RequestHead,
        read: &[u8],
    ) -> Option<Box<Logged>> {
        let trace = Trace::decide(worker, door, client, head.marker == Marker::Believed, read);
        Logged::of_share(worker, door, read, trace)
    }

    /// A record with the logged parts of a client's head, if the request is one of the share that
    /// is logged, or is traced.
    fn of_share(
        worker: &Worker,
        door: &Door,
        head: &[u8],
        trace: Option<Box<Trace>>,
    ) -> Option<Box<Logged>> {
        let has_line = access_log::is_sampled(worker, door);
        if !has_line && trace.is_none() {
            return None;
        }
        let kept = worker.logged.borrow_mut().pop();
        let mut logged = kept.unwrap_or_else(|| Box::new(Logged::new()));
        let mut text = mem::take(&mut logged.text);
        text.clear();
        *logged = Logged { has_line, trace, text, ..Logged::new() };
        logged.read(head);
        Some(logged)
    }

    /// Stores the logged parts of `head`, which may be malformed or incomplete.
    fn read(&mut self, head: &[u8]) {
        let lines = head[..head.len().min(HEAD_BYTES_MAX)].split(|byte| *byte == b'\n');
        let mut lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
        self.method = self.keep(words.next(), METHOD_BYTES_MAX);
        self.path = self.keep(words.next(), PATH_BYTES_MAX);
        self.protocol = self.keep(words.next(), PROTOCOL_BYTES_MAX);
        for line in lines.take_while(|line| !line.is_empty()) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = (&line[..colon], Some(line[colon + 1..].trim_ascii()));
            if name.eq_ignore_ascii_case(b"host") {
                self.host = self.keep(value, VALUE_BYTES_MAX);
            } else if name.eq_ignore_ascii_case(b"referer") {
                self.referer = self.keep(value, REFERER_BYTES_MAX);
            } else if name.eq_ignore_ascii_case(b"user-agent") {
                self.user_agent = self.keep(value, VALUE_BYTES_MAX);
            } else if name.eq_ignore_ascii_case(b"x-request-id") {
                self.request_id = self.keep(value, VALUE_BYTES_MAX);
            }
        }
    }

    fn keep(&mut self, piece: Option<&[u8]>, most: usize) -> Option<Range<usize>> {
        let piece = piece.filter(|piece| !piece.is_empty())?;
        let start = self.text.len();
        self.text.extend_from_slice(&piece[..piece.len().min(most)]);
        Some(start..self.text.len())
    }

    fn shown(&self, piece: &Option<Range<usize>>) -> Option<&[u8]> {
        piece.clone().and_then(|range| self.text.get(range))
    }

    /// Its trace, if it has one.
    pub(super) fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_deref_mut()
    }

    fn write(&self, line: &mut LogLine<'_>, end: &End<'_>) {
        if line.is_combined() {
            return line.combined(&self.combined(end));
        }
        line.text(LogField::FrontDoor, end.front_door.as_bytes());
        line.word(LogField::Client, end.client);
        line.word(LogField::Scheme, end.scheme);
        line.optional(LogField::Method, self.shown(&self.method));
        line.optional(LogField::Host, self.shown(&self.host));
        line.optional(LogField::Path, self.shown(&self.path));
        line.optional(LogField::Protocol, self.protocol(end));
        match end.status {
            0 => line.none(LogField::Status),
            status => line.number(LogField::Status, status.into()),
        }
        line.number(LogField::BytesIn, end.bytes_in);
        line.number(LogField::BytesOut, end.bytes_out);
        line.seconds(LogField::Seconds, end.took);
        for (key, time) in [
            (LogField::QueueSeconds, self.queued),
            (LogField::ConnectSeconds, self.connect),
            (LogField::FirstByteSeconds, self.first_byte),
        ] {
            match time {
                Some(time) => line.seconds(key, time),
                None => line.none(key),
            }
        }
        line.optional(LogField::Route, end.route.map(str::as_bytes));
        let backend = self.backend.as_ref();
        line.optional(LogField::Pool, backend.map(|(pool, _)| pool.as_bytes()));
        line.optional(LogField::Backend, backend.map(|(_, backend)| backend.as_bytes()));
        line.number(LogField::Retries, self.retries.into());
        line.optional(LogField::Referer, self.shown(&self.referer));
        line.optional(LogField::UserAgent, self.shown(&self.user_agent));
        line.optional(LogField::RequestId, self.shown(&self.request_id));
        let trace_id = self.trace.as_ref().map(|trace| trace.shown_id());
        line.optional(LogField::TraceId, trace_id.as_deref());
        write_reason(line, self.reason);
        write_extensions(line, end.extensions);
    }

    fn combined<'a>(&'a self, end: &End<'_>) -> Combined<'a> {
        Combined {
            client: end.client.ip(),
            method: self.shown(&self.method),
            path: self.shown(&self.path),
            protocol: self.protocol(end),
            status: end.status,
            bytes: end.bytes_out,
            referer: self.shown(&self.referer),
            user_agent: self.shown(&self.user_agent),
        }
    }

    fn protocol(&self, end: &End<'_>) -> Option<&[u8]> {
        match end.version {
            ClientVersion::Http1 => self.shown(&self.protocol),
            ClientVersion::Http2 => Some(b"HTTP/2.0"),
            ClientVersion::Http3 => Some(b"HTTP/3.0"),
        }
    }
}

/// Fields that are known at the end of a request.
struct End<'a> {
    front_door: &'a str,
    scheme: &'static str,
    client: SocketAddr,
    /// The name of the route that it took.
    route: Option<&'a str>,
    version: ClientVersion,
    /// 0 if the client was sent none.
    status: u16,
    took: Duration,
    bytes_in: u64,
    bytes_out: u64,
    /// Extensions of the client's PROXY header.
    extensions: Option<&'a Extensions>,
}

/// Logs a connection that was refused before a request was read.
pub(super) fn log_unread(worker: &Worker, door: &Door, client: SocketAddr, reason: Reason) {
    if access_log::is_sampled(worker, door) {
        let logged = Logged { reason: Some(reason), ..Logged::new() };
        let (view, took) = (door.view(), Duration::ZERO);
        let (front_door, scheme) = (&view.config.name, view.config.scheme().name());
        let end = End {
            front_door,
            scheme,
            client,
            route: None,
            version: ClientVersion::Http1,
            status: 0,
            took,
            bytes_in: 0,
            bytes_out: 0,
            extensions: None,
        };
        access_log::write(worker, door, "request", |line| logged.write(line, &end));
    }
}

impl ClientConnection {
    /// Notes that the request with this head begins, if it is logged.
    pub(super) fn log_begin(&mut self, head: &RequestHead, begun: Instant) {
        if self.logged.is_some() {
            self.log_from(begun, self.consumed().saturating_sub(head.bytes as u64));
        }
    }

    /// Logs a request with a refused head.
    pub(super) fn log_refused(&mut self, begun: Option<Instant>) {
        let input = self.input.take();
        let unread = input.as_ref().map_or(0, |input| input.len()) as u64;
        let before = self.client.received().saturating_sub(unread);
        let head: &[u8] = input.as_ref().map_or(&[], |input| input);
        self.logged = Logged::of_share(&self.worker, &self.door, head, None);
        // All bytes that were read count for this request, and none is used again.
        self.log_from(begun.unwrap_or_else(Instant::now), before);
    }

    /// Sets where a logged request begins.
    fn log_from(&mut self, begun: Instant, received_before: u64) {
        let sent_before = self.client.sent();
        if let Some(logged) = &mut self.logged {
            (logged.begun, logged.received_before) = (begun, received_before);
            logged.sent_before = sent_before;
        }
    }

    /// Bytes of the connection that belong to this request and those before it.
    fn consumed(&self) -> u64 {
        let unread = self.input.as_ref().map_or(0, |input| input.len());
        self.client.received().saturating_sub(unread as u64)
    }

    /// Writes the line of the current request, if it is logged.
    pub(super) fn log_end(&mut self, status: u16, ended: Instant) {
        let Some(mut logged) = self.logged.take() else { return };
        let view = self.door.view();
        if let (Some(trace), Some(sink)) = (logged.trace.take(), &self.worker.shared.traces) {
            let version = match (self.version, logged.shown(&logged.protocol)) {
                (ClientVersion::Http2, _) => "2",
                (ClientVersion::Http3, _) => "3",
                (ClientVersion::Http1, Some(b"HTTP/1.0")) => "1.0",
                (ClientVersion::Http1, _) => "1.1",
            };
            trace.end(
                sink,
                Ended {
                    begun: logged.begun,
                    at: ended,
                    front_door: view.config.name.clone(),
                    route: self.routed.as_ref().map(|routed| routed.route().name.clone()),
                    scheme: view.config.scheme().name(),
                    version,
                    method: logged.shown(&logged.method),
                    target: logged.shown(&logged.path),
                    host: logged.shown(&logged.host),
                    user_agent: logged.shown(&logged.user_agent),
                    client: self.peer,
                    status,
                    reason: logged.reason,
                },
            );
            logged.trace = Some(trace);
        }
        let end = End {
            front_door: &view.config.name,
            scheme: view.config.scheme().name(),
            client: self.peer,
            route: self.routed.as_ref().map(|routed| &*routed.route().name),
            version: self.version,
            status,
            took: ended.saturating_duration_since(logged.begun),
            bytes_in: self.consumed().saturating_sub(logged.received_before),
            bytes_out: self.client.sent().saturating_sub(logged.sent_before),
            extensions: self.proxy.as_ref().and_then(|proxy| proxy.extensions.as_deref()),
        };
        if logged.has_line {
            access_log::write(&self.worker, &self.door, "request", |line| logged.write(line, &end));
        }
        let mut kept = self.worker.logged.borrow_mut();
        if kept.len() < RECORDS_MAX {
            kept.push(logged);
        }
    }

    /// Notes the backend that is tried.
    pub(super) fn log_backend(&mut self, lease: &Lease) {
        if let Some(logged) = &mut self.logged {
            logged.backend = Some((lease.pool().name.clone(), lease.backend().name.clone()));
        }
    }

    /// Notes how long it has waited for a backend with room.
    pub(super) fn log_queued(&mut self, took: Duration) {
        if let Some(logged) = &mut self.logged {
            logged.queued = Some(took);
        }
    }

    /// Notes how long a new session to the backend took.
    pub(super) fn log_connected(&mut self, since: Instant) {
        if let Some(logged) = &mut self.logged {
            logged.connect = Some(since.elapsed());
        }
    }

    /// Notes that the backend's response has begun.
    pub(super) fn log_first_byte(&mut self) {
        if let Some(logged) = &mut self.logged {
            logged.first_byte = Some(logged.begun.elapsed());
        }
    }

    /// Counts another try.
    pub(super) fn retried(&mut self) {
        self.door.stats(|stats| stats.retries.add(1));
        if let Some(logged) = &mut self.logged {
            logged.retries += 1;
        }
    }

    /// Counts why the request failed.
    pub(super) fn dropped(&mut self, reason: Reason) {
        self.door.dropped(reason);
        self.log_reason(Some(reason));
    }

    /// Notes why the request failed, where that is counted already.
    pub(super) fn log_reason(&mut self, reason: Option<Reason>) {
        if let Some(logged) = &mut self.logged {
            logged.reason = reason;
        }
    }
}

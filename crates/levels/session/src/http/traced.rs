//! The trace of a sampled request: whether it has one, the header that names it to backends, and
//! its attempts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_core::trace::{
    AttemptTrace, RequestTrace, SPAN_ID_AT, TRACE_PARENT, TRACE_STATE, TraceParent, TraceSink,
    write_hex,
};

use super::attempt::{Attempt, Outgoing};
use super::connection::ClientConnection;
use super::logged::Logged;
use crate::door::Door;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::worker::Worker;

/// The error of an attempt that was given up because another one was answered first.
const RACE_LOST: &str = "hedge_lost";

/// The trace of a request that is being served.
pub(super) struct Trace {
    id: [u8; 16],
    span_id: [u8; 8],
    parent: Option<TraceParent>,
    /// One moment by two clocks: that of this process, and time since 1970.
    moment: (Instant, Duration),
    upstream_target: String,
    /// Where the span's id begins in the head for backends that has no marker.
    span_id_at: usize,
    attempts: Vec<Tried>,
    /// Index of the attempt that the request waits for.
    current: usize,
}

/// An attempt at a backend.
struct Tried {
    span_id: [u8; 8],
    begun: Instant,
    /// `None`: not yet.
    ended: Option<Instant>,
    pool: Arc<str>,
    backend: Arc<str>,
    address: SocketAddr,
    is_tls: bool,
    status: u16,
    error: Option<&'static str>,
}

impl Trace {
    /// Decides whether the request with this head is sampled. A trusted sender has decided already,
    /// if it names its own span; from another one, the decision would be a client's.
    pub(super) fn decide(
        worker: &Worker,
        door: &Door,
        client: IpAddr,
        is_signed: bool,
        head: &[u8],
    ) -> Option<Box<Trace>> {
        let sink = worker.shared.traces.as_ref()?;
        let draw = || worker.sample() < sink.share;
        let is_trusted = is_signed || door.view().config.trusted.contains(client);
        let parent = match is_trusted || draw() {
            true => parent_in(head),
            false => return None,
        };
        let is_sampled = match parent {
            Some(parent) if is_trusted => parent.is_sampled(),
            _ => !is_trusted || draw(),
        };
        is_sampled.then(|| Box::new(Trace::new(worker, parent)))
    }

    fn new(worker: &Worker, parent: Option<TraceParent>) -> Trace {
        let id = || {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&worker.random_id());
            id[8..].copy_from_slice(&worker.random_id());
            id
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Trace {
            id: parent.map_or_else(id, |parent| parent.trace_id),
            span_id: worker.random_id(),
            parent,
            moment: (Instant::now(), now),
            upstream_target: String::new(),
            span_id_at: 0,
            attempts: Vec::new(),
            current: 0,
        }
    }

    /// The trace's id, as hexadecimal digits.
    pub(super) fn shown_id(&self) -> Vec<u8> {
        let mut digits = Vec::with_capacity(2 * self.id.len());
        write_hex(&self.id, &mut digits);
        digits
    }

    /// Names the trace in the head for backends. Without a parent, `tracestate` is of no trace.
    fn announce(&mut self, worker: &Worker, head: &mut Vec<u8>) {
        let mut out = worker.take_vec();
        let mut lines = head.split_inclusive(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let target = first.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        self.upstream_target = String::from_utf8_lossy(target).into_owned();
        out.extend_from_slice(first);
        // `Host`: a marker signs both lines, and is inserted behind them.
        out.extend_from_slice(lines.next().unwrap_or_default());
        out.extend_from_slice(TRACE_PARENT.as_bytes());
        out.extend_from_slice(b": ");
        self.span_id_at = out.len() + SPAN_ID_AT.start;
        let flags = TraceParent::sampled_flags(self.parent.as_ref());
        TraceParent { trace_id: self.id, span_id: self.span_id, flags }.write(&mut out);
        out.extend_from_slice(b"\r\n");
        for line in lines {
            let is_replaced = value_of(line, TRACE_PARENT).is_some()
                || (self.parent.is_none() && value_of(line, TRACE_STATE).is_some());
            if !is_replaced {
                out.extend_from_slice(line);
            }
        }
        std::mem::swap(head, &mut out);
        worker.give_vec(out);
    }

    /// Begins an attempt, and has the request name its span.
    fn attempt(&mut self, worker: &Worker, lease: &Lease, outgoing: &mut Outgoing) {
        let span_id = worker.random_id();
        let at = self.span_id_at + outgoing.marker.len();
        if let Some(place) = outgoing.first.get_mut(at..at + SPAN_ID_AT.len()) {
            let mut digits = Vec::with_capacity(SPAN_ID_AT.len());
            write_hex(&span_id, &mut digits);
            place.copy_from_slice(&digits);
        }
        self.current = self.attempts.len();
        self.attempts.push(Tried {
            span_id,
            begun: Instant::now(),
            ended: None,
            pool: lease.pool().name.clone(),
            backend: lease.backend().name.clone(),
            address: lease.backend().address,
            is_tls: lease.pool().options.tls.is_some(),
            status: 0,
            error: None,
        });
    }

    fn end_attempt(&mut self, index: usize, error: &'static str) {
        if let Some(tried) = self.attempts.get_mut(index) {
            (tried.ended, tried.error) = (Some(Instant::now()), Some(error));
        }
    }

    /// A moment since 1970.
    fn at(&self, moment: Instant) -> Duration {
        let (then, since_1970) = self.moment;
        (since_1970 + moment.saturating_duration_since(then))
            .saturating_sub(then.saturating_duration_since(moment))
    }
}

/// The end of a request, for its trace.
pub(super) struct Ended<'a> {
    pub(super) begun: Instant,
    pub(super) at: Instant,
    pub(super) front_door: Arc<str>,
    pub(super) route: Option<Arc<str>>,
    pub(super) scheme: &'static str,
    pub(super) version: &'static str,
    pub(super) method: Option<&'a [u8]>,
    pub(super) target: Option<&'a [u8]>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) user_agent: Option<&'a [u8]>,
    pub(super) client: SocketAddr,
    pub(super) status: u16,
    pub(super) reason: Option<Reason>,
}

impl Trace {
    /// Gives the trace to the sink.
    pub(super) fn end(&self, sink: &TraceSink, end: Ended<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let reason = end.reason.map(Reason::name);
        let attempts = self.attempts.iter().map(|tried| AttemptTrace {
            span_id: tried.span_id,
            began: self.at(tried.begun),
            ended: self.at(tried.ended.unwrap_or(end.at)),
            pool: tried.pool.clone(),
            backend: tried.backend.clone(),
            address: tried.address,
            is_tls: tried.is_tls,
            status: tried.status,
            // The failure of an attempt that has not ended before is that of the request.
            error: if tried.ended.is_some() { tried.error } else { reason },
        });
        (sink.take)(RequestTrace {
            trace_id: self.id,
            span_id: self.span_id,
            parent_id: self.parent.map(|parent| parent.span_id),
            flags: TraceParent::sampled_flags(self.parent.as_ref()),
            began: self.at(end.begun),
            ended: self.at(end.at),
            attempts: attempts.collect(),
            front_door: end.front_door,
            route: end.route,
            scheme: end.scheme,
            version: end.version,
            method: text(end.method.unwrap_or_default()),
            target: text(end.target.unwrap_or_default()),
            host: end.host.map(text),
            user_agent: end.user_agent.map(text),
            client: end.client,
            status: end.status,
            error: reason,
            upstream_target: self.upstream_target.clone(),
        });
    }
}

/// The valid `traceparent` of a head, unless there are two.
fn parent_in(head: &[u8]) -> Option<TraceParent> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let mut values = lines.filter_map(|line| value_of(line, TRACE_PARENT));
    let parent = values.next().and_then(TraceParent::read);
    parent.filter(|_| values.next().is_none())
}

/// The value of a header line, if it has this name.
fn value_of<'l>(line: &'l [u8], name: &str) -> Option<&'l [u8]> {
    let (own, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":")?;
    own.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
}

impl ClientConnection {
    fn trace(&mut self) -> Option<&mut Trace> {
        self.logged.as_deref_mut().and_then(Logged::trace)
    }

    /// Names the trace of the current request in its head for backends.
    pub(super) fn trace_begin(&mut self, head: &mut Vec<u8>) {
        if let Some(trace) = self.logged.as_deref_mut().and_then(Logged::trace) {
            trace.announce(&self.worker, head);
        }
    }

    /// Notes that the leased backend is tried now.
    pub(super) fn trace_attempt(&mut self, lease: &Lease, outgoing: &mut Outgoing) {
        if let Some(trace) = self.logged.as_deref_mut().and_then(Logged::trace) {
            trace.attempt(&self.worker, lease, outgoing);
        }
    }

    /// Notes the status of the backend that is tried.
    pub(super) fn trace_status(&mut self, status: u16) {
        if let Some(trace) = self.trace()
            && let Some(tried) = trace.attempts.get_mut(trace.current)
        {
            tried.status = status;
        }
    }

    /// Notes that the current attempt has failed.
    pub(super) fn trace_failed(&mut self, reason: Reason) {
        if let Some(trace) = self.trace() {
            trace.end_attempt(trace.current, reason.name());
        }
    }

    /// Notes the outcome of the current attempt. An answered one lasts as long as the request.
    pub(super) fn trace_outcome(&mut self, attempt: &Attempt) {
        match attempt {
            Attempt::Answered(_) => {}
            Attempt::Failed(failure) => self.trace_failed(failure.reason),
            Attempt::Discarded => self.trace_failed(Reason::BackendError),
        }
    }

    /// Notes which of two attempts was answered first: the last one, or the one before.
    pub(super) fn trace_race(&mut self, has_last_won: bool) {
        if let Some(trace) = self.trace()
            && let [.., _, _] = &trace.attempts[..]
        {
            let last = trace.attempts.len() - 1;
            let (winner, loser) = if has_last_won { (last, last - 1) } else { (last - 1, last) };
            trace.end_attempt(loser, RACE_LOST);
            trace.current = winner;
        }
    }
}

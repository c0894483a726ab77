//! TCP front doors: a virtual client of a backend for every client connection.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use equipoise_core::concurrency::Outcome;
use equipoise_core::load::RequestClass;

use crate::access_log::{self, FlowLine};
use crate::buffer::Buffer;
use crate::client_hello::read_hello;
use crate::deadline::Deadline;
use crate::door::Door;
use crate::handshake::{self, Refused};
use crate::lease::Lease;
use crate::limiter::Entered;
use crate::linger::{Rest, linger};
use crate::proxy_protocol::{self, Announced, Extensions};
use crate::queue::{self, Full, Rank, Turn};
use crate::reason::Reason;
use crate::relay::{End, relay};
use crate::socket::Socket;
use crate::upstream::{self, Session};
use crate::worker::{ClientHashes, Phase, Pick, Worker};

/// Serves one client connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, door: Rc<Door>, client: Socket, peer: SocketAddr) {
    let _task = worker.task();
    let _open = door.enter();
    let logged_since = access_log::is_sampled(&worker, &door).then(Instant::now);
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let (since, queued) = (Instant::now(), Cell::default());
    let mut connection = Connection {
        worker,
        door,
        client,
        deadline,
        peer,
        announced: None,
        extensions: None,
        server_name: None,
        since,
        queued,
    };
    let (end, lease) = connection.serve().await;
    if let Some(since) = logged_since {
        let line = FlowLine {
            client: connection.source(),
            lease: lease.as_ref(),
            took: since.elapsed(),
            bytes_in: end.sent,
            bytes_out: end.received,
            queued: connection.queued.get(),
            reason: end.reason,
            extensions: connection.extensions.as_deref(),
        };
        line.write(&connection.worker, &connection.door, "connection");
    }
}

struct Connection {
    worker: Rc<Worker>,
    door: Rc<Door>,
    client: Socket,
    deadline: Deadline,
    peer: SocketAddr,
    announced: Option<Announced>,
    extensions: Option<Box<Extensions>>,
    /// That the client asks for, where it chooses the pool.
    server_name: Option<Box<str>>,
    /// When it was accepted.
    since: Instant,
    /// Time that it waited for a backend with room.
    queued: Cell<Option<Duration>>,
}

impl Connection {
    async fn serve(&mut self) -> (End, Option<Lease>) {
        let early = match self.accept_proxy().await {
            Ok(early) => early,
            Err(reason) => return (self.refuse(reason), None),
        };
        let _entered = match self.permitted() {
            Ok(entered) => entered,
            Err(reason) => return (self.refuse(reason), None),
        };
        let early = match self.accept_tls(early).await {
            Ok(early) => early,
            Err(refused) => return (Box::pin(self.refuse_tls(refused)).await, None),
        };
        let (lease, session) = match self.connect().await {
            Ok(connected) => connected,
            Err(reason) => return (self.refuse(reason), None),
        };
        let idle = self.door.view().config.timeouts.idle;
        let end = relay(
            &self.worker,
            &self.door,
            &lease,
            &self.client,
            &session,
            early,
            None,
            &self.deadline,
            idle,
            None,
        );
        let end = end.await;
        match end.reason {
            Some(reason) => lease.failed(reason),
            None => lease.went(Outcome::Answered),
        }
        (end, Some(lease))
    }

    /// Reads the client's PROXY header where one is required; returns what came behind it.
    async fn accept_proxy(&mut self) -> Result<Option<Buffer>, Reason> {
        let view = self.door.view();
        if !view.config.accept_proxy {
            return Ok(None);
        }
        if !view.config.trusted.contains(self.peer.ip()) {
            return Err(Reason::ProxyUntrusted);
        }
        let within = view.config.timeouts.header;
        let deadline = &self.deadline;
        let accepted = proxy_protocol::accept(&self.worker, &self.client, deadline, within).await?;
        (self.announced, self.extensions) = (accepted.announced, accepted.extensions);
        Ok(accepted.rest)
    }

    /// Whether the front door lets this client connect now.
    fn permitted(&self) -> Result<Entered, Reason> {
        let (view, client) = (self.door.view(), self.source().ip());
        if !view.config.access.allows(client) {
            return Err(Reason::SourceDenied);
        }
        let entered = view.limiter.enter(client).ok_or(Reason::ConnectionsLimited)?;
        view.limiter.connection(client)?;
        Ok(entered)
    }

    /// Performs the TLS handshake where one is required, or reads the server name where that
    /// chooses the pool. `early` may be the beginning of TLS. Returns the bytes for the backend
    /// that were read already.
    async fn accept_tls(&mut self, early: Option<Buffer>) -> Result<Option<Buffer>, Refused> {
        let view = self.door.view();
        let (worker, door, deadline) = (&self.worker, &self.door, &self.deadline);
        if let Some(tls) = view.config.tls.as_ref().map(|tls| Arc::clone(tls.config())) {
            let accepted = handshake::accept(worker, door, &tls, &mut self.client, early, deadline);
            return Box::pin(accepted).await.map(|()| None);
        }
        if view.sni.is_empty() {
            return Ok(early);
        }
        let hello = Box::pin(read_hello(worker, door, &self.client, early, deadline)).await?;
        self.server_name = hello.name.map(Into::into);
        Ok(Some(hello.bytes))
    }

    /// Ends a connection without a handshake.
    async fn refuse_tls(&self, refused: Refused) -> End {
        let (worker, door, deadline) = (&self.worker, &self.door, &self.deadline);
        let reason = match refused {
            Refused::Unused => return End { reason: None, sent: 0, received: 0 },
            Refused::NotTls(_) => {
                // A client that takes no bytes gets no alert.
                let _ = self.client.try_write(&handshake::NOT_TLS);
                Reason::TlsMissing
            }
            Refused::Failed(reason) => reason,
        };
        door.dropped(reason);
        let idle = door.view().config.timeouts.idle;
        linger(worker, &self.client, deadline, idle, None, Rest::Unexpected).await;
        End { reason: Some(reason), sent: 0, received: 0 }
    }

    /// Connects to a backend, or to another if that fails, as often as the pool's retries permit.
    async fn connect(&self) -> Result<(Lease, Session), Reason> {
        let listen = self.door.view().config.listen;
        let hashes = ClientHashes::new(self.source(), listen);
        let (mut failed, mut tries) = (None, 0);
        loop {
            let avoid = failed.map(|(backend, _)| backend);
            let name = self.server_name.as_deref();
            let lease = match self.worker.pick_by_name(&self.door, name, &hashes, avoid) {
                Pick::Free(lease) => lease,
                // Boxed, as it is rare: the task is as large as its largest moment.
                Pick::Full(full) => match Box::pin(self.wait_in_queue(full, avoid)).await? {
                    Some(lease) => lease,
                    None => continue,
                },
                Pick::NoBackend => {
                    return Err(failed.map_or(Reason::NoBackend, |(_, reason)| reason));
                }
            };
            let reason = match self.connect_to(&lease).await {
                Ok(session) => {
                    lease.backend().live.succeeded();
                    lease.stats().requests.add(1);
                    return Ok((lease, session));
                }
                Err(reason) => reason,
            };
            self.worker.backend_failed(&lease, reason);
            tries += 1;
            if reason == Reason::ShuttingDown || tries > lease.pool().options.retries {
                return Err(reason);
            }
            if !lease.pool().may_retry(reason, Instant::now()) {
                return Err(Reason::RetryBudget);
            }
            self.door.stats(|stats| stats.retries.add(1));
            failed = Some((lease.backend().id, reason));
        }
    }

    /// Waits for a backend with room. `None`: pick again, the pool has changed.
    async fn wait_in_queue(&self, full: Full, avoid: Option<u32>) -> Result<Option<Lease>, Reason> {
        let priority = self.door.view().config.priority;
        let so_far = self.queued.get().unwrap_or_default();
        let (now, left) = (Instant::now(), full.longest().saturating_sub(so_far));
        let rank = Rank::new(priority, RequestClass::default(), self.since, now + left);
        let rank = rank.in_turn(if avoid.is_some() { Turn::Again } else { Turn::First });
        self.deadline.set(now, left);
        let (worker, door, client) = (&self.worker, &self.door, &self.client);
        let waited = queue::wait(worker, door, client, &self.deadline, &full, rank, avoid).await;
        self.queued.set(Some(so_far + waited.took));
        waited.lease
    }

    async fn connect_to(&self, lease: &Lease) -> Result<Session, Reason> {
        self.deadline.set(Instant::now(), lease.pool().options.connect_timeout);
        let tls = lease.pool().options.tls.as_ref();
        let (backend, header) = (lease.backend(), self.proxy_header(lease));
        let mut connecting = pin!(Session::open(backend, tls, header, &self.worker, || ()));
        poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(result) => {
                Poll::Ready(result.map_err(|error| upstream::connect_failure(&error)))
            }
            Poll::Pending if self.deadline.is_past() => Poll::Ready(Err(Reason::ConnectTimeout)),
            Poll::Pending if self.worker.phase.get() == Phase::Cutting => {
                Poll::Ready(Err(Reason::ShuttingDown))
            }
            Poll::Pending if lease.is_cut() => Poll::Ready(Err(Reason::BackendRemoved)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// The PROXY header of a session, if the pool has one.
    fn proxy_header(&self, lease: &Lease) -> Option<Buffer> {
        let version = lease.pool().options.send_proxy?;
        let mut header = self.worker.buffers.take();
        let (received, name) = (self.extensions.as_deref(), self.server_name.as_deref());
        let extensions = Extensions::of(received, &self.client, name);
        proxy_protocol::write(version, self.ends(), &extensions, &mut header);
        Some(header)
    }

    /// The client, as announced or else as the socket says.
    fn source(&self) -> SocketAddr {
        self.announced.map_or(self.peer, |announced| announced.source)
    }

    /// The client and where it connected to, as announced or else as the socket says.
    fn ends(&self) -> Announced {
        self.announced.unwrap_or_else(|| Announced {
            source: self.peer,
            destination: self
                .client
                .local_address()
                .unwrap_or_else(|_| self.door.view().config.listen),
        })
    }

    fn refuse(&self, reason: Reason) -> End {
        self.client.reset_on_close();
        self.door.dropped(reason);
        End { reason: Some(reason), sent: 0, received: 0 }
    }
}

//! Kept-open sessions to the backends: the virtual client's side towards them.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_health::Place;
use equipoise_tls::{ClientTls, PeerIdentity, Protocols, valid_until};
use rustls::pki_types::ServerName;

use crate::backend_tls::{self, UpstreamTls};
use crate::buffer::{Buffer, Buffers};
use crate::lent::{Lent, is_small};
use crate::live::BackendLive;
use crate::lookout::Lookout;
use crate::permits::Work;
use crate::reason::Reason;
use crate::snapshot::{BackendView, Snapshot};
use crate::socket::{BackendStream, Socket, watch};
use crate::stats::BackendStats;
use crate::tls::{ANY_NAME, Tls, is_distrust};
use crate::worker::Worker;

/// An open connection to a backend, or a stream of one.
pub(crate) struct Session {
    pub(crate) socket: Socket,
    /// Bytes written on it so far.
    pub(crate) written: u64,
    /// It has carried a request before.
    pub(crate) reused: bool,
    /// Whether the kernel looks out for the other side's silence.
    lookout: Lookout,
    /// The other end, if the session is encrypted.
    proven: Option<Proven>,
    /// The address at the other end; `None` for a unix socket.
    remote: Option<SocketAddr>,
    backend: u32,
    thread: usize,
    live: Arc<BackendLive>,
    counted: Option<Counted>,
}

/// Counts a session as open until it is dropped.
struct Counted {
    live: Arc<BackendLive>,
    thread: usize,
    is_lent: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.is_lent {
            self.live.stats.shard(self.thread).sessions_open.sub(1);
        }
    }
}

/// The proof that the other end has given.
enum Proven {
    /// It is this peer.
    Peer(Box<PeerIdentity>),
    /// It is the server that this TLS asks for.
    Server(ClientTls),
}

impl Session {
    /// Opens a session; the caller limits the time. With `tls` the backend must prove its name, a
    /// peer that of its node. `preamble`, a PROXY header, goes first, in the clear. `connected` is
    /// called before the handshake with a peer, which may take longer.
    pub(crate) async fn open(
        backend: &BackendView,
        tls: Option<&UpstreamTls>,
        preamble: Option<Buffer>,
        worker: &Worker,
        connected: impl FnOnce(),
    ) -> io::Result<Session> {
        Session::open_offering(backend, tls, None, preamble, worker, connected).await
    }

    /// As [`Session::open`]; offers these protocols in the place of the pool's.
    pub(crate) async fn open_offering(
        backend: &BackendView,
        tls: Option<&UpstreamTls>,
        offers: Option<Protocols>,
        preamble: Option<Buffer>,
        worker: &Worker,
        connected: impl FnOnce(),
    ) -> io::Result<Session> {
        let (thread, line) = (worker.index, worker.lines.get().sessions);
        let connect = |address| async move {
            Ok::<_, io::Error>((Socket::connect(address, line).await?, Some(address)))
        };
        let (mut socket, remote) = match &backend.place {
            Place::Address => connect(backend.address).await?,
            Place::Socket(path) => (Socket::connect_unix(path, line)?, None),
            Place::Host { resolved, .. } => resolved.connect(connect).await?,
        };
        if let Some(mut preamble) = preamble {
            while !preamble.is_empty() {
                let sent = poll_fn(|cx| socket.poll_write(cx, &preamble)).await?;
                preamble.consume(sent);
            }
        }
        let proven = match tls {
            None => None,
            Some(UpstreamTls::Peer(tls)) => {
                connected();
                let name = ServerName::try_from(ANY_NAME).expect("a host name");
                socket.encrypt(Tls::client(tls.client(), name, None, &worker.buffers)?);
                poll_fn(|cx| socket.poll_handshake(cx)).await?;
                let peer = PeerIdentity::new(socket.certificate(), tls)?;
                peer.is(&backend.name)?;
                Some(Proven::Peer(Box::new(peer)))
            }
            Some(UpstreamTls::Server(tls)) => {
                prove(&mut socket, backend, tls, offers, worker).await?;
                Some(Proven::Server(tls.clone()))
            }
        };
        let stats = backend.live.stats.shard(thread);
        stats.sessions_opened.add(1);
        stats.sessions_open.add(1);
        let counted = Counted { live: backend.live.clone(), thread, is_lent: false };
        Ok(Session {
            counted: Some(counted),
            written: socket.sent(),
            socket,
            reused: false,
            lookout: Lookout::None,
            proven,
            remote,
            backend: backend.id,
            thread,
            live: backend.live.clone(),
        })
    }

    /// A stream of a connection, as a session of one request. `is_used`: the connection has carried
    /// a response before.
    pub(crate) fn of_stream(
        stream: Box<dyn BackendStream>,
        backend: &BackendView,
        worker: &Worker,
        is_used: bool,
    ) -> Session {
        let session = Session {
            socket: Socket::of_stream(stream),
            counted: None,
            written: 0,
            reused: is_used,
            lookout: Lookout::None,
            proven: None,
            remote: None,
            backend: backend.id,
            thread: worker.index,
            live: backend.live.clone(),
        };
        if is_used {
            session.stats().sessions_reused.add(1);
        }
        session
    }

    /// An idle session that another thread may have opened.
    ///
    /// # Errors
    /// This thread's event loop cannot watch it; it has ended, or has unread input.
    fn of_lent(
        lent: Lent,
        backend: &BackendView,
        thread: usize,
        buffers: &Rc<Buffers>,
    ) -> io::Result<Session> {
        let counted = Counted { live: backend.live.clone(), thread, is_lent: false };
        let fd = if lent.thread == thread {
            lent.fd
        } else if lent.is_silent() {
            watch(lent.fd.into_inner())?
        } else {
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        let mut socket = Socket::of_watched(fd);
        let proven = lent.tls.map(|(idle, by)| {
            socket.encrypt(Tls::of_idle(idle, buffers));
            Proven::Server(by)
        });
        Ok(Session {
            socket,
            counted: Some(counted),
            written: lent.written,
            reused: true,
            lookout: lent.lookout,
            proven,
            remote: lent.remote,
            backend: backend.id,
            thread,
            live: backend.live.clone(),
        })
    }

    /// Leaves it to all threads, unless it is not idle.
    fn lend(self, since: Instant) {
        let Session { socket, counted, written, remote, live, thread, lookout, proven, .. } = self;
        let Some((fd, idle)) = socket.into_idle() else { return };
        let tls = match (idle, proven) {
            (None, None) => None,
            (Some(idle), Some(Proven::Server(by))) => Some((idle, by)),
            // Peers have no limit of their own.
            _ => return,
        };
        let Some(mut counted) = counted else { return };
        counted.is_lent = true;
        live.lent.put(Lent { fd, tls, thread, lookout, written, remote, since });
    }

    /// Whether it ends with one request.
    pub(crate) fn is_stream(&self) -> bool {
        self.socket.as_stream().is_some()
    }

    /// Lets the kernel detect within this time that the other side has fallen silent. If the other
    /// side receives more than its buffers hold (`streams`), unacknowledged bytes are no evidence:
    /// the kernel also gives up a receiver that is full for a while, although it answers every
    /// window probe (`TCP_USER_TIMEOUT`).
    pub(crate) fn look_out(&mut self, within: Option<Duration>, streams: bool) {
        let Some(within) = within else { return };
        let wanted = if streams { Lookout::Probes } else { Lookout::All };
        if self.lookout != wanted {
            self.lookout = wanted;
            self.socket.notice_silence(within, !streams);
        }
    }

    /// Bytes that went over the wire so far.
    pub(crate) fn sent(&self) -> u64 {
        self.socket.tls().map_or(self.written, |tls| tls.borrow().sent())
    }

    /// The address at the other end; `None` for a unix socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// Whether it goes to an address that the backend has now.
    pub(crate) fn reaches(&self, backend: &BackendView) -> bool {
        backend.place.includes(self.remote)
    }

    /// True if it may carry a request for this encryption (`tls`, or none).
    pub(crate) fn is_good_for(&self, tls: Option<&UpstreamTls>) -> bool {
        match (&self.proven, tls) {
            (None, None) => true,
            (Some(Proven::Peer(peer)), Some(UpstreamTls::Peer(tls))) => peer.is_good_for(tls),
            (Some(Proven::Server(by)), Some(UpstreamTls::Server(tls))) => by == tls,
            _ => false,
        }
    }

    /// Whether it may carry another request to this backend, encrypted by `tls` or not at all. One
    /// that has become readable was closed by the backend, or sent unsolicited bytes.
    pub(crate) fn is_reusable(&self, backend: &BackendView, tls: Option<&UpstreamTls>) -> bool {
        self.backend == backend.id
            && self.is_good_for(tls)
            && self.reaches(backend)
            && self.socket.is_silent()
    }

    /// Counts a further request on it.
    pub(crate) fn count_reuse(&mut self) {
        self.reused = true;
        self.stats().sessions_reused.add(1);
    }

    /// Whether nothing can have reached the application: the backend's kernel has acknowledged
    /// nothing beyond the first `before` bytes that went over the wire, or the backend says that it
    /// did nothing with the stream.
    pub(crate) fn nothing_arrived_since(&self, before: u64) -> bool {
        if let Some(stream) = self.socket.as_stream() {
            return stream.is_unprocessed();
        }
        // The kernel's count includes the SYN.
        self.socket.bytes_acknowledged().is_some_and(|acknowledged| acknowledged <= before + 1)
    }

    fn stats(&self) -> &BackendStats {
        self.live.stats.shard(self.thread)
    }
}

/// Performs the handshake with a backend, which proves its name.
async fn prove(
    socket: &mut Socket,
    backend: &BackendView,
    tls: &ClientTls,
    offers: Option<Protocols>,
    worker: &Worker,
) -> io::Result<()> {
    let state = &backend.live.tls;
    let name = backend.place.server_name(tls, backend.address.ip());
    socket.encrypt(Tls::client(&state.config(tls), name, offers, &worker.buffers)?);
    let done = poll_fn(|cx| socket.poll_handshake(cx)).await;
    if let Err(error) = done {
        let error = backend_tls::handshake_failed(&error);
        state.failed(|| backend.label(), &error);
        return Err(error);
    }
    state.succeeded();
    let stats = backend.live.stats.shard(worker.index);
    stats.tls_handshakes.add(1);
    let Some(encrypted) = socket.tls().map(|tls| tls.borrow()) else { return Ok(()) };
    if encrypted.is_resumed() {
        stats.tls_resumed.add(1);
    } else if let Some(until) = encrypted.certificate().as_ref().and_then(valid_until) {
        state.seen.note(until);
        state.warn_of_expiry(|| backend.label());
    }
    Ok(())
}

/// The name of what kept a session from opening.
pub(crate) fn connect_failure(error: &io::Error) -> Reason {
    const EXHAUSTED: [i32; 6] = [
        libc::EAGAIN,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EADDRNOTAVAIL,
    ];
    match error.raw_os_error() {
        None if let Some(reason) = backend_tls::reason_of(error) => reason,
        None if is_distrust(error) => Reason::PeerTls,
        Some(code) if EXHAUSTED.contains(&code) => Reason::OutOfResources,
        // A unix socket without a file has no listener either.
        Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::ENOENT) => Reason::ConnectRefused,
        Some(libc::ETIMEDOUT) => Reason::ConnectTimeout,
        _ => Reason::ConnectFailed,
    }
}

/// Sessions of one backend with when they became idle, the longest idle first.
type Idle = VecDeque<(Instant, Box<Session>)>;

/// The idle sessions of one thread, by backend.
pub(crate) struct IdleSessions {
    by_backend: RefCell<ByBackend<Idle>>,
    /// Small backends that this thread has lent sessions to.
    small: RefCell<ByBackend<Arc<BackendLive>>>,
    thread: usize,
    threads: usize,
    buffers: Rc<Buffers>,
}

impl IdleSessions {
    /// The sessions of the thread with this index, of so many threads. Sessions with TLS use its
    /// `buffers`.
    pub(crate) fn new(thread: usize, threads: usize, buffers: &Rc<Buffers>) -> IdleSessions {
        let (by_backend, small) = (RefCell::default(), RefCell::default());
        IdleSessions { by_backend, small, thread, threads, buffers: Rc::clone(buffers) }
    }

    /// An idle session that any thread may have left, encrypted by `tls` or not at all.
    fn take_lent(&self, backend: &BackendView, tls: Option<&UpstreamTls>) -> Option<Box<Session>> {
        let live = &backend.live;
        if !is_small(live.own_limit(), self.threads) {
            return None;
        }
        // The kernel is asked without the lock.
        while let Some(lent) = live.lent.pop(self.thread) {
            let session = Session::of_lent(lent, backend, self.thread, &self.buffers);
            if let Ok(session) = session
                && session.is_reusable(backend, tls)
            {
                session.stats().sessions_reused.add(1);
                return Some(Box::new(session));
            }
        }
        None
    }

    /// The most recently used session to the backend that is still open and silent, and encrypted
    /// by `tls` or not at all. None to a backend with unreliable framing: bytes that it sends late
    /// would answer the next request.
    pub(crate) fn take(
        &self,
        backend: &BackendView,
        tls: Option<&UpstreamTls>,
    ) -> Option<Box<Session>> {
        let mut all = self.by_backend.borrow_mut();
        if backend.live.is_multiplexing_lost() {
            all.remove(&backend.id);
            self.close_lent(&backend.live);
            return None;
        }
        if let Some(sessions) = all.get_mut(&backend.id) {
            while let Some((_, session)) = sessions.pop_back() {
                if session.is_reusable(backend, tls) {
                    session.stats().sessions_reused.add(1);
                    return Some(session);
                }
            }
        }
        self.take_lent(backend, tls)
    }

    fn close_lent(&self, live: &BackendLive) {
        live.stats.shard(self.thread).sessions_open.sub(live.lent.clear());
    }

    /// Keeps a session for later, unless there are `max` already for each thread. `permit`: the one
    /// that the request which used it still holds.
    pub(crate) fn give(
        &self,
        mut session: Box<Session>,
        permit: Option<Work>,
        max: usize,
        now: Instant,
    ) {
        let limit = session.live.own_limit();
        if let Some(limit) = limit.filter(|_| is_small(limit, self.threads)) {
            let (idle, limit) = (session.live.lent.len(), limit as usize);
            let busy = session.live.permits.held_for(Work::Usual) as usize;
            let is_beyond = permit.is_none() && idle + busy >= limit;
            if is_beyond || idle >= limit.min(max.saturating_mul(self.threads)) {
                return;
            }
            let mut small = self.small.borrow_mut();
            small.entry(session.backend).or_insert_with(|| session.live.clone());
            return session.lend(now);
        }
        let mut all = self.by_backend.borrow_mut();
        let sessions = all.entry(session.backend).or_default();
        session.reused = true;
        if sessions.len() < max {
            sessions.push_back((now, session));
        }
    }

    /// Closes sessions that have been idle for longer than their pool's bound, sessions to backends
    /// that may not be picked, and sessions to addresses that their backend's host name no longer
    /// has.
    pub(crate) fn sweep(&self, snapshot: &Snapshot, now: Instant) {
        let mut known = HashMap::new();
        for pool in &snapshot.pools {
            let bound = pool.options.session_idle_timeout;
            known.extend(pool.backends.iter().map(|backend| (backend.id, (backend, bound))));
        }
        self.small.borrow_mut().retain(|id, live| {
            let closed = match known.get(id) {
                Some((backend, bound)) => {
                    live.lent.sweep(*bound, now, |remote| backend.place.includes(remote))
                }
                None => live.lent.clear(),
            };
            live.stats.shard(self.thread).sessions_open.sub(closed);
            known.contains_key(id)
        });
        self.by_backend.borrow_mut().retain(|id, sessions| {
            let Some((backend, bound)) = known.get(id) else { return false };
            while sessions.front().is_some_and(|(since, _)| now.duration_since(*since) >= *bound) {
                sessions.pop_front();
            }
            sessions.retain(|(_, session)| session.reaches(backend) && session.socket.is_silent());
            true
        });
    }
}

/// A map by backend id. Ids count up and are ours, so that they are their own hash.
pub(crate) type ByBackend<T> = HashMap<u32, T, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only ids are hashed, by the method below.
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u32(&mut self, id: u32) {
        // The table takes the place from the low bits and a tag from the top ones.
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

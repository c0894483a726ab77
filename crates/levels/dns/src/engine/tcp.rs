//! A thread that serves TCP connections. Queries on a connection are answered in order (RFC 7766).

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use equipoise_core::SourcePrefix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::timeout_at;

use super::clock::Clock;
use super::connections::{Connections, Stamp};
use super::{Shared, lock};
use crate::Reason;
use crate::respond::{Published, Responder, TCP_MESSAGE_MAX};
use crate::stats::{Shard, Transport};

/// Maximum size of a query over TCP, bytes.
const QUERY_BYTES_MAX: usize = 4096;
/// Answers are written when this many bytes are buffered or no complete query is left.
const GATHERED_BYTES: usize = 32 << 10;
/// Pause after an accept that failed because descriptors or memory ran out.
const PAUSE: Duration = Duration::from_millis(50);

/// Time for the queries of open connections when the engine stops.
const LAST_QUERIES: Duration = Duration::from_secs(1);
/// Interval at which a stopping thread checks whether connections are left.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

type Listeners = watch::Receiver<Arc<Vec<Vec<Arc<StdListener>>>>>;

/// State that the tasks of a thread share.
struct Thread {
    shared: Arc<Shared>,
    shard: usize,
    state: RefCell<Answering>,
    open: RefCell<Connections<AbortHandle>>,
}

/// Inputs and buffers of the message path.
struct Answering {
    version: u64,
    published: Arc<Published>,
    responder: Responder,
    /// Buffer with space for the longest answer.
    scratch: Vec<u8>,
    clock: Clock,
}

impl Thread {
    fn stats(&self) -> &Shard {
        &self.shared.shards[self.shard]
    }
}

/// Serves connections until the engine stops. A panic in a connection's task ends that connection
/// only (tokio catches it). A panic elsewhere ends the thread's connections, and the thread starts
/// again: the kernel would assign its listeners new connections in any case.
pub(super) fn run(shared: &Arc<Shared>, (thread, shard): (usize, usize), listeners: &Listeners) {
    while !shared.stopping() {
        let followed =
            AssertUnwindSafe(|| follow_until_stopped(shared, (thread, shard), listeners));
        if catch_unwind(followed).is_err() {
            tracing::error!(
                thread,
                "dns: a defect: a thread of connections panicked; it begins anew"
            );
        }
    }
}

fn follow_until_stopped(
    shared: &Arc<Shared>,
    (thread, shard): (usize, usize),
    listeners: &Listeners,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "dns: no TCP on this thread for now");
            std::thread::sleep(PAUSE);
            return;
        }
    };
    let state = RefCell::new(Answering {
        version: shared.version.load(Ordering::Acquire),
        published: Arc::clone(&lock(&shared.state).published),
        responder: Responder::new(shard, rand::random()),
        scratch: vec![0; TCP_MESSAGE_MAX],
        clock: Clock::new(shared.started),
    });
    let open = RefCell::default();
    let own = Rc::new(Thread { shared: Arc::clone(shared), shard, state, open });
    LocalSet::new().block_on(&runtime, follow(own, thread, listeners.clone()));
}

/// Accepts connections on the current listeners.
async fn follow(own: Rc<Thread>, thread: usize, mut listeners: Listeners) {
    let mut accepting: Vec<(Arc<StdListener>, JoinHandle<()>)> = Vec::new();
    loop {
        let wanted = Arc::clone(&listeners.borrow_and_update());
        let wanted = wanted.get(thread).map(|own| &own[..]).unwrap_or_default();
        accepting.retain(|(listener, task)| {
            let stays = wanted.iter().any(|w| Arc::ptr_eq(w, listener));
            if !stays {
                task.abort();
            }
            stays
        });
        for listener in wanted {
            if !accepting.iter().any(|(known, _)| Arc::ptr_eq(known, listener)) {
                let task = spawn_local(accept_always(Rc::clone(&own), Arc::clone(listener)));
                accepting.push((Arc::clone(listener), task));
            }
        }
        if own.shared.stopping() {
            return own.drain().await;
        }
        if listeners.changed().await.is_err() {
            return;
        }
    }
}

/// Runs [`accept`] again if it panics.
async fn accept_always(own: Rc<Thread>, listener: Arc<StdListener>) {
    // Dropping the set with this task also ends the inner task.
    let mut inside = JoinSet::new();
    loop {
        inside.spawn_local(accept(Rc::clone(&own), Arc::clone(&listener)));
        match inside.join_next().await {
            Some(Err(error)) if error.is_panic() => {
                tracing::error!("dns: a defect: accepting connections panicked; it begins anew");
            }
            _ => return,
        }
    }
}

async fn accept(own: Rc<Thread>, listener: Arc<StdListener>) {
    let listener = listener.try_clone().and_then(TcpListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "dns: cannot accept connections");
            return;
        }
    };
    loop {
        let (mut stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "dns: accepting");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        own.stats().connections.add(1);
        let prefix = SourcePrefix::of(peer.ip());
        own.make_room(prefix);
        let open = Open { own: Rc::clone(&own), stamp: Rc::default() };
        let stamp = Rc::clone(&open.stamp);
        let task = spawn_local(async move {
            if let Err(reason) = serve(&open, &mut stream, peer.ip()).await {
                open.own.stats().dropped(reason, 1);
            }
            drop(open);
            // Dropped last: a client that sees the connection end finds it counted.
            drop(stream);
        });
        stamp.set(own.open.borrow_mut().add(prefix, task.abort_handle()));
    }
}

impl Thread {
    /// Waits until no connection is left, but not long: a client may send a last query on a
    /// connection, and those that are idle end.
    async fn drain(&self) {
        let end = Instant::now() + LAST_QUERIES;
        while !self.open.borrow().is_empty() && Instant::now() < end {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Counts a new connection from `prefix`. Closes others if the limit is exceeded.
    fn make_room(&self, prefix: SourcePrefix) {
        let shared = &self.shared;
        let max = shared.connections_max.load(Ordering::Relaxed);
        let mut open = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        while open > max {
            let longest_idle = self.open.borrow_mut().make_room(prefix);
            // A thread without connections may exceed the limit by one, so that other threads'
            // connections cannot lock out its clients.
            let Some(longest_idle) = longest_idle else { return };
            longest_idle.abort();
            open = shared.connections.fetch_sub(1, Ordering::Relaxed) - 1;
            self.stats().dropped(Reason::ConnectionsMax, 1);
        }
    }
}

/// Guard: counts a connection as open until it is dropped.
struct Open {
    own: Rc<Thread>,
    /// Updated with every query.
    stamp: Rc<Cell<Stamp>>,
}

impl Open {
    fn active(&self) {
        self.stamp.set(self.own.open.borrow_mut().active(self.stamp.get()));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // [`Thread::make_room`] has already subtracted a connection that it closed.
        if self.own.open.borrow_mut().remove(self.stamp.get()).is_some() {
            self.own.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
        if std::thread::panicking() {
            self.own.stats().dropped(Reason::Panicked, 1);
            tracing::error!("dns: a defect: answering panicked; its connection is lost");
        }
    }
}

/// Serves a connection until its end. An error is the reason why a query or an answer was lost.
async fn serve(open: &Open, stream: &mut TcpStream, client: IpAddr) -> Result<(), Reason> {
    let own = &*open.own;
    // Answers are buffered here, so Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let mut received = Vec::with_capacity(512);
    let mut answers = Vec::new();
    let idle = || tokio::time::Instant::now() + own.shared.idle();
    let mut deadline = idle();
    loop {
        let read = timeout_at(deadline, stream.read_buf(&mut received)).await;
        match read {
            // A connection that is idle between queries ends without an error.
            Err(_) if received.is_empty() => return Ok(()),
            Err(_) => return Err(Reason::ConnectionIdle),
            Ok(Ok(0)) if received.is_empty() => return Ok(()),
            Ok(Ok(0)) | Ok(Err(_)) => return Err(Reason::ConnectionBroken),
            Ok(Ok(_)) => {}
        }
        let mut rest = &received[..];
        let before = rest.len();
        let mut failed = None;
        while let Some((query, after)) = framed(rest) {
            // Only complete queries extend the deadline, so that a client cannot keep a connection
            // open byte by byte.
            deadline = idle();
            match query.and_then(|query| answer(own, client, query, &mut answers)) {
                Ok(()) => {}
                Err(reason) => {
                    failed = Some(reason);
                    break;
                }
            }
            rest = after;
            if answers.len() >= GATHERED_BYTES {
                write(stream, &mut answers, deadline).await?;
            }
        }
        let done = before - rest.len();
        if done > 0 {
            open.active();
        }
        received.drain(..done);
        write(stream, &mut answers, deadline).await?;
        // A malformed query is already counted.
        match failed {
            Some(Reason::TooLong) => return Err(Reason::TooLong),
            Some(_) => return Ok(()),
            None => {}
        }
    }
}

/// A message or the reason why it is rejected, and the bytes after it.
type Framed<'b> = (Result<&'b [u8], Reason>, &'b [u8]);

/// Splits off the first message. `None`: it is incomplete.
fn framed(bytes: &[u8]) -> Option<Framed<'_>> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length > QUERY_BYTES_MAX {
        return Some((Err(Reason::TooLong), rest));
    }
    let (query, after) = rest.split_at_checked(length)?;
    Some((Ok(query), after))
}

fn answer(own: &Thread, client: IpAddr, query: &[u8], answers: &mut Vec<u8>) -> Result<(), Reason> {
    let began = Instant::now();
    let state = &mut *own.state.borrow_mut();
    let version = own.shared.version.load(Ordering::Acquire);
    if version != state.version {
        state.version = version;
        state.published = Arc::clone(&lock(&own.shared.state).published);
    }
    let Answering { published, responder, scratch, clock, .. } = state;
    let now = clock.at(began);
    let from = (client, Transport::Tcp);
    let length = responder.respond(published, own.stats(), from, now, query, scratch)?;
    if responder.is_logged(published) {
        own.shared.log(own.stats(), from, &scratch[..length]);
    }
    // [`TCP_MESSAGE_MAX`] fits into 16 bits.
    answers.extend((length as u16).to_be_bytes());
    answers.extend(&scratch[..length]);
    own.stats().took(began.elapsed(), 1);
    Ok(())
}

async fn write(
    stream: &mut TcpStream,
    answers: &mut Vec<u8>,
    deadline: tokio::time::Instant,
) -> Result<(), Reason> {
    if answers.is_empty() {
        return Ok(());
    }
    match timeout_at(deadline, stream.write_all(answers)).await {
        Ok(Ok(())) => answers.clear(),
        Ok(Err(_)) => return Err(Reason::ConnectionBroken),
        Err(_) => return Err(Reason::ClientStalled),
    }
    Ok(())
}

//! A thread of connections: queries in line on each, answered in their order (RFC 7766).

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

/// A query over TCP is no longer than one over UDP may be.
const QUERY_BYTES_MAX: usize = 4096;
/// Answers are written when so much has gathered, or there are no more queries to answer.
const GATHERED_BYTES: usize = 32 << 10;
/// After an accept that failed for want of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

type Listeners = watch::Receiver<Arc<Vec<Vec<Arc<StdListener>>>>>;

/// What the tasks of a thread share.
struct Thread {
    shared: Arc<Shared>,
    shard: usize,
    state: RefCell<Answering>,
    open: RefCell<Connections<AbortHandle>>,
}

/// What answering takes.
struct Answering {
    version: u64,
    published: Arc<Published>,
    responder: Responder,
    /// With room for the longest answer.
    scratch: Vec<u8>,
    clock: Clock,
}

impl Thread {
    fn stats(&self) -> &Shard {
        &self.shared.shards[self.shard]
    }
}

/// Serves connections until the engine stops. A panic costs the connection in which it happened (tokio catches it); one elsewhere
/// those of the thread, which goes on: the kernel would give its listeners new ones all the same.
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

/// Accepts on whatever the engine listens on.
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
        if own.shared.stopping() || listeners.changed().await.is_err() {
            return;
        }
    }
}

/// Accepts again if accepting panics.
async fn accept_always(own: Rc<Thread>, listener: Arc<StdListener>) {
    // Dropped together with this task, which ends the one inside.
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
            // Last: who sees the end of the connection finds it counted.
            drop(stream);
        });
        stamp.set(own.open.borrow_mut().add(prefix, task.abort_handle()));
    }
}

impl Thread {
    /// Counts a connection from `prefix` in, and closes another if there are too many.
    fn make_room(&self, prefix: SourcePrefix) {
        let shared = &self.shared;
        let max = shared.connections_max.load(Ordering::Relaxed);
        let mut open = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        while open > max {
            let longest_idle = self.open.borrow_mut().make_room(prefix);
            // Without one of its own a thread may have one too many: nobody is kept out by what other threads have.
            let Some(longest_idle) = longest_idle else { return };
            longest_idle.abort();
            open = shared.connections.fetch_sub(1, Ordering::Relaxed) - 1;
            self.stats().dropped(Reason::ConnectionsMax, 1);
        }
    }
}

/// Counts a connection as open.
struct Open {
    own: Rc<Thread>,
    /// Changes whenever a query comes.
    stamp: Rc<Cell<Stamp>>,
}

impl Open {
    fn active(&self) {
        self.stamp.set(self.own.open.borrow_mut().active(self.stamp.get()));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // One that made room is counted out already.
        if self.own.open.borrow_mut().remove(self.stamp.get()).is_some() {
            self.own.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
        if std::thread::panicking() {
            self.own.stats().dropped(Reason::Panicked, 1);
            tracing::error!("dns: a defect: answering panicked; its connection is lost");
        }
    }
}

/// Serves one connection to its end; an error is why something of it was lost.
async fn serve(open: &Open, stream: &mut TcpStream, client: IpAddr) -> Result<(), Reason> {
    let own = &*open.own;
    // Answers are gathered here, and written when they are due.
    let _ = stream.set_nodelay(true);
    let mut received = Vec::with_capacity(512);
    let mut answers = Vec::new();
    let idle = || tokio::time::Instant::now() + own.shared.idle();
    let mut deadline = idle();
    loop {
        let read = timeout_at(deadline, stream.read_buf(&mut received)).await;
        match read {
            // Between queries it is what every connection comes to.
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
            // Only whole queries keep a connection open: not bytes that drip.
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
        // What is no query is counted already.
        match failed {
            Some(Reason::TooLong) => return Err(Reason::TooLong),
            Some(_) => return Ok(()),
            None => {}
        }
    }
}

/// A message, or why there is none, and what is behind it.
type Framed<'b> = (Result<&'b [u8], Reason>, &'b [u8]);

/// The first message of some bytes, and what is behind it; `None`: it is not whole yet.
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
    // A message of TCP has at most 65,535 bytes.
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

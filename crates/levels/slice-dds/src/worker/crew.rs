//! The worker's threads. The *clerk*, the control thread, waits for messages and examines
//! everything periodically. The others are *hands*, which process items. One hand listens for items
//! and processes the first one itself. Then another hand listens, if one is free. A hand that has
//! finished a job takes the next. So an item stays on one thread from its arrival to its reply.
//! While every hand has a job, arriving items wake no thread: they wait in DDS until a hand is free
//! or the clerk reads them.
//!
//! With an application that processes jobs elsewhere, the clerk is the only thread, and also waits
//! for items.
//!
//! # Source
//! Schmidt, O'Ryan, Pyarali, Kircher, Buschmann: Leader/Followers, a design pattern for efficient
//! multi-threaded event demultiplexing and dispatching, PLoP 2000.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use equipoise_basics::lock;
use equipoise_dds::{Error, Waker};

use crate::transport::Bell;
use crate::worker::engine::Engine;
use crate::worker::error::WorkerError;
use crate::worker::replies::Replies;
use crate::worker::threads::{Threads, work};

/// Longest time that a hand listens without a wake-up. Every event that it needs wakes it.
const LISTEN: Duration = Duration::from_secs(10);

pub(super) struct Crew {
    posts: Mutex<Posts>,
    /// For idle hands.
    changed: Condvar,
    /// Of messages, for the clerk.
    post: Bell,
    /// Of items. If the clerk is the only thread: of items and messages.
    bell: Bell,
    waker: Waker,
    /// Time that the clerk waits without an event while work is in progress.
    patience: Duration,
    /// The application that the hands run. `None`: it processes jobs elsewhere.
    hands: Option<Threads>,
    replies: Arc<Replies>,
}

struct Posts {
    /// `None`: the worker has ended.
    engine: Option<Engine>,
    /// A hand is waiting for items.
    listening: bool,
    /// The clerk waits for longer than usual, because no work was in progress.
    sleeps: bool,
    /// Number of hands that wait for a call.
    idle: usize,
    /// By thread: it is processing a job.
    working: Vec<bool>,
    failed: Option<WorkerError>,
}

/// The crew's threads. A drop ends them.
pub(super) struct Threaded {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the clerk, and as many hands as may process jobs at a time.
    pub(super) fn start(
        engine: Engine,
        hands: Option<Threads>,
        replies: Arc<Replies>,
    ) -> Result<Threaded, Error> {
        let count = 1 + hands.as_ref().map_or(0, |hands| hands.count);
        let transport = engine.driver.transport();
        let (bell, post, waker) = (transport.bell(), transport.mail_bell(), transport.waker());
        // Half of the interval that the protocol requires, so that a busy machine is in time.
        let patience = engine.options.protocol.resend / 2;
        let working = vec![false; count];
        let engine = Some(engine);
        let (listening, sleeps, idle, failed) = Default::default();
        let posts = Mutex::new(Posts { engine, listening, sleeps, idle, working, failed });
        let changed = Condvar::new();
        let crew = Arc::new(Self { posts, changed, post, bell, waker, patience, hands, replies });
        let mut threaded = Threaded { crew, threads: Vec::new() };
        for number in 0..count {
            let crew = threaded.crew.clone();
            let thread = std::thread::Builder::new().name(format!("slice-{number}"));
            let thread = thread.spawn(move || crew.run(number)).map_err(|_| Error::Thread)?;
            threaded.threads.push(thread);
        }
        Ok(threaded)
    }

    fn run(&self, number: usize) {
        let ended = match &self.hands {
            Some(hands) if number > 0 => self.work(number, hands),
            Some(_) => self.keep_books(),
            None => self.lead(),
        };
        if let Err(error) = ended {
            let mut posts = self.posts();
            posts.engine = None;
            posts.failed.get_or_insert(error);
            self.wake_all();
        }
    }

    /// The clerk's loop without hands.
    fn lead(&self) -> Result<(), WorkerError> {
        let mut patience = self.patience;
        loop {
            self.bell.wait(patience)?;
            match &mut self.posts().engine {
                Some(engine) => {
                    engine.step()?;
                    patience = self.patience.max(engine.idle_for().unwrap_or_default());
                }
                None => return Ok(()),
            }
        }
    }

    /// The clerk's loop while hands wait for items.
    fn keep_books(&self) -> Result<(), WorkerError> {
        let (mut patience, mut done) = (self.patience, None);
        loop {
            self.post.wait(patience)?;
            // The answer to a message depends on the items that have arrived.
            self.bell.look()?;
            let mut posts = self.posts();
            let Some(engine) = &mut posts.engine else { return Ok(()) };
            engine.step()?;
            // Between two items of a stream a worker is idle for a moment. If this thread slept
            // then, the thread of the next item would have to wake it.
            let before = done.replace(engine.done_ever());
            let idle = engine.idle_for().filter(|_| before == done);
            patience = self.patience.max(idle.unwrap_or_default());
            posts.sleeps = idle.is_some();
            self.call_a_hand(&posts);
        }
    }

    /// The loop of a hand.
    fn work(&self, number: usize, hands: &Threads) -> Result<(), WorkerError> {
        let mut posts = self.posts();
        loop {
            let Some(engine) = &mut posts.engine else { return Ok(()) };
            if let Some(started) = engine.start() {
                posts.working[number] = true;
                // There may be a further job, and a free hand should listen.
                if posts.idle > 0 && (posts.should_listen() || posts.has_more(hands.count)) {
                    self.changed.notify_one();
                }
                drop(posts);
                let work = || work(started, hands.process.as_ref(), &self.replies);
                let done = catch_unwind(AssertUnwindSafe(work));
                posts = self.posts();
                posts.working[number] = false;
                // The state of the job is unknown: other workers receive its slices when this
                // worker has ended.
                let done = done.map_err(|panic| WorkerError::panicked(panic.as_ref()))?;
                if let Some(engine) = &mut posts.engine {
                    engine.done(done)?;
                }
            } else if !posts.should_listen() {
                posts.idle += 1;
                posts = self.changed.wait(posts).unwrap_or_else(PoisonError::into_inner);
                posts.idle -= 1;
            } else {
                posts.listening = true;
                drop(posts);
                let waited = self.bell.wait(LISTEN);
                posts = self.posts();
                posts.listening = false;
                waited?;
                let sleeps = posts.sleeps;
                if let Some(engine) = &mut posts.engine {
                    engine.step()?;
                    // From now on the clerk has to watch the work in progress. Whether the worker
                    // is idle is examined last, because that examines every slice.
                    if sleeps && engine.idle_for().is_none() {
                        posts.sleeps = false;
                        self.post.waker().wake();
                    }
                }
            }
        }
    }

    /// Wakes a hand if there is a job, or if one should listen, and a hand is free.
    fn call_a_hand(&self, posts: &Posts) {
        let has_more = posts.has_more(self.hands.as_ref().map_or(0, |hands| hands.count));
        if posts.idle > 0 && (has_more || posts.should_listen()) {
            self.changed.notify_one();
        } else if posts.listening && has_more {
            self.waker.wake();
        }
    }

    /// Wakes all threads, so that they see that the worker ends or leaves.
    fn wake_all(&self) {
        self.changed.notify_all();
        self.waker.wake();
        self.post.waker().wake();
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        lock(&self.posts)
    }
}

impl Posts {
    /// Whether no hand listens for items, and some may be for this worker. Items that arrive while
    /// it owns no slice are not its work, and wake no hand: the clerk reads them.
    fn should_listen(&self) -> bool {
        let engine = self.engine.as_ref();
        !self.listening && engine.is_some_and(|engine| engine.driver.worker().slice_count() > 0)
    }

    /// Whether a further hand should have a job.
    fn has_more(&self, count: usize) -> bool {
        let engine = self.engine.as_ref();
        engine.is_some_and(|engine| engine.under_way < count && engine.driver.queued() > 0)
    }
}

impl Threaded {
    /// Makes all threads examine the worker's state.
    pub(super) fn wake(&self) {
        self.crew.wake_all();
    }

    /// Whether it still runs. An error of DDS or another worker of its name may have ended it.
    pub(super) fn is_running(&self) -> bool {
        self.crew.posts().engine.is_some() && !self.crew.posts.is_poisoned()
    }

    /// Ends the worker at once. Jobs in progress run to their end, but are not counted.
    pub(super) fn end(&mut self) -> Result<(), WorkerError> {
        let (engine, failed, working) = {
            let mut posts = self.crew.posts();
            (posts.engine.take(), posts.failed.take(), posts.working.clone())
        };
        self.crew.wake_all();
        drop(engine);
        let mut panicked = None;
        for (thread, is_working) in self.threads.drain(..).zip(working) {
            // Threads with a job notice the end themselves.
            if !is_working && let Err(panic) = thread.join() {
                panicked = Some(panic);
            }
        }
        match (panicked, failed) {
            (Some(panic), _) if self.crew.posts.is_poisoned() => std::panic::resume_unwind(panic),
            (_, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "the slice worker had ended with an error");
        }
    }
}

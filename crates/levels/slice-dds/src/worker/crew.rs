//! The worker's threads. The *clerk* waits for mail, and looks at everything from time to time. The others are *hands*: one of them
//! listens for items, does the first itself, and then another listens if there is one that is free; who has done a job takes
//! the next. So an item goes from its arrival to its reply on one thread, and while every hand is at a job nobody is woken by
//! items that could not be done anyway: they wait in DDS, until a hand is free or the clerk comes by.
//!
//! An application that does jobs elsewhere has the clerk alone, who then waits for items as well.
//!
//! # Source
//! Schmidt, O'Ryan, Pyarali, Kircher, Buschmann: Leader/Followers, a design pattern for efficient multi-threaded event
//! demultiplexing and dispatching, PLoP 2000.

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

/// A hand that listens looks by itself after this: it is woken for all that it has to know.
const LISTEN: Duration = Duration::from_secs(10);

pub(super) struct Crew {
    posts: Mutex<Posts>,
    /// For hands that are idle.
    changed: Condvar,
    /// Of mail, for the clerk.
    post: Bell,
    /// Of items; of all there is, if the clerk is alone.
    bell: Bell,
    waker: Waker,
    /// How long the clerk waits when nothing comes and something is under way.
    patience: Duration,
    /// What jobs are done by; none: they are done elsewhere.
    hands: Option<Threads>,
    replies: Arc<Replies>,
}

struct Posts {
    /// None: the worker has ended.
    engine: Option<Engine>,
    /// A hand waits for items.
    listening: bool,
    /// The clerk waits for longer than usual: nothing was under way.
    sleeps: bool,
    /// Hands that wait to be called.
    idle: usize,
    /// By thread: it is at a job.
    working: Vec<bool>,
    failed: Option<WorkerError>,
}

/// The crew's threads, which end with this.
pub(super) struct Threaded {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts the clerk, and as many hands as are to be at jobs.
    pub(super) fn start(
        engine: Engine,
        hands: Option<Threads>,
        replies: Arc<Replies>,
    ) -> Result<Threaded, Error> {
        let count = 1 + hands.as_ref().map_or(0, |hands| hands.count);
        let transport = engine.driver.transport();
        let (bell, post, waker) = (transport.bell(), transport.mail_bell(), transport.waker());
        // Half of what the protocol asks, so that a busy machine is in time.
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

    /// The clerk's, where there are no hands.
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

    /// The clerk's, where hands wait for items.
    fn keep_books(&self) -> Result<(), WorkerError> {
        let (mut patience, mut done) = (self.patience, None);
        loop {
            self.post.wait(patience)?;
            // What mail asks for depends on the items that have come.
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

    /// A hand's.
    fn work(&self, number: usize, hands: &Threads) -> Result<(), WorkerError> {
        let mut posts = self.posts();
        loop {
            let Some(engine) = &mut posts.engine else { return Ok(()) };
            if let Some(started) = engine.start() {
                posts.working[number] = true;
                // There may be one more job; and somebody who is free should listen.
                if posts.idle > 0 && (posts.should_listen() || posts.has_more(hands.count)) {
                    self.changed.notify_one();
                }
                drop(posts);
                let work = || work(started, hands.process.as_ref(), &self.replies);
                let done = catch_unwind(AssertUnwindSafe(work));
                posts = self.posts();
                posts.working[number] = false;
                // What it was at, nobody knows: others have its slices when this worker has ended.
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
                    // The clerk sees to what is under way from now on. Whether the worker is idle
                    // is asked last: the answer examines every slice.
                    if sleeps && engine.idle_for().is_none() {
                        posts.sleeps = false;
                        self.post.waker().wake();
                    }
                }
            }
        }
    }

    /// If there is something to do, or to listen for, and a hand that is free.
    fn call_a_hand(&self, posts: &Posts) {
        let has_more = posts.has_more(self.hands.as_ref().map_or(0, |hands| hands.count));
        if posts.idle > 0 && (has_more || posts.should_listen()) {
            self.changed.notify_one();
        } else if posts.listening && has_more {
            self.waker.wake();
        }
    }

    /// To see that the worker has ended, or leaves.
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
    /// Whether nobody listens for items, and some may be this worker's. Those that come while it owns no slice are nobody's
    /// work here, and wake nobody: the clerk reads them.
    fn should_listen(&self) -> bool {
        let engine = self.engine.as_ref();
        !self.listening && engine.is_some_and(|engine| engine.driver.worker().slice_count() > 0)
    }

    /// Whether somebody else should have a job, too.
    fn has_more(&self, count: usize) -> bool {
        let engine = self.engine.as_ref();
        engine.is_some_and(|engine| engine.under_way < count && engine.driver.queued() > 0)
    }
}

impl Threaded {
    /// Has all threads look at what there is.
    pub(super) fn wake(&self) {
        self.crew.wake_all();
    }

    /// Whether it still runs: DDS may have ended it, or another worker of its name.
    pub(super) fn is_running(&self) -> bool {
        self.crew.posts().engine.is_some() && !self.crew.posts.is_poisoned()
    }

    /// Ends it at once. What a thread is at it still does, and nobody counts it.
    pub(super) fn end(&mut self) -> Result<(), WorkerError> {
        let (engine, failed, working) = {
            let mut posts = self.crew.posts();
            (posts.engine.take(), posts.failed.take(), posts.working.clone())
        };
        self.crew.wake_all();
        drop(engine);
        let mut panicked = None;
        for (thread, is_working) in self.threads.drain(..).zip(working) {
            // Those at a job see by themselves that it has ended.
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
            tracing::warn!(%error, "the slice worker had ended");
        }
    }
}

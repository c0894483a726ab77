//! The worker's threads. One leads: it waits for what comes. When there is a job it does that itself, and another leads; who
//! has done a job takes the next. So an item goes from its arrival to its reply on one thread, and what comes meanwhile is
//! looked at by another.
//!
//! # Source
//! Schmidt, O'Ryan, Pyarali, Kircher, Buschmann: Leader/Followers, a design pattern for efficient multi-threaded event
//! demultiplexing and dispatching, PLoP 2000.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use equipoise_dds::{Error, Waker};

use crate::transport::Bell;
use crate::worker::engine::Engine;
use crate::worker::error::WorkerError;
use crate::worker::replies::Replies;
use crate::worker::threads::{Threads, work};

pub(super) struct Crew {
    posts: Mutex<Posts>,
    changed: Condvar,
    bell: Bell,
    waker: Waker,
    /// How long to wait when nothing comes.
    patience: Duration,
    /// What jobs are done by; none: they are done elsewhere.
    hands: Option<Threads>,
    replies: Arc<Replies>,
}

struct Posts {
    /// None: the worker has ended.
    engine: Option<Engine>,
    leading: bool,
    /// Threads that wait to be needed.
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
    /// Starts one thread that leads, and as many as are to be at jobs.
    pub(super) fn start(
        engine: Engine,
        hands: Option<Threads>,
        replies: Arc<Replies>,
    ) -> Result<Threaded, Error> {
        let count = 1 + hands.as_ref().map_or(0, |hands| hands.count);
        let (bell, waker) = (engine.driver.transport().bell(), engine.driver.transport().waker());
        // Half of what the protocol asks, so that a busy machine is in time.
        let patience = engine.options.protocol.resend / 2;
        let working = vec![false; count];
        let engine = Some(engine);
        let posts = Mutex::new(Posts { engine, leading: false, idle: 0, working, failed: None });
        let changed = Condvar::new();
        let crew = Arc::new(Self { posts, changed, bell, waker, patience, hands, replies });
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
        if let Err(error) = self.work_and_lead(number) {
            let mut posts = self.posts();
            posts.engine = None;
            posts.failed.get_or_insert(error);
            self.changed.notify_all();
            self.waker.wake();
        }
    }

    fn work_and_lead(&self, number: usize) -> Result<(), WorkerError> {
        let mut posts = self.posts();
        loop {
            let Some(engine) = &mut posts.engine else { return Ok(()) };
            if let Some(hands) = self.hands.as_ref()
                && engine.under_way < hands.count
                && let Some(started) = engine.start()
            {
                posts.working[number] = true;
                // There may be one more job; and somebody has to lead.
                if posts.idle > 0 && (!posts.leading || posts.has_more(hands.count)) {
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
            } else if posts.leading {
                posts.idle += 1;
                posts = self.changed.wait(posts).unwrap_or_else(PoisonError::into_inner);
                posts.idle -= 1;
            } else {
                posts.leading = true;
                drop(posts);
                let waited = self.bell.wait(self.patience);
                posts = self.posts();
                posts.leading = false;
                waited?;
                if let Some(engine) = &mut posts.engine {
                    engine.step()?;
                }
            }
        }
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Posts {
    /// Whether somebody else should have a job, too.
    fn has_more(&self, count: usize) -> bool {
        let engine = self.engine.as_ref();
        engine.is_some_and(|engine| engine.under_way < count && engine.driver.queued() > 0)
    }
}

impl Threaded {
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
        self.crew.changed.notify_all();
        self.crew.waker.wake();
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

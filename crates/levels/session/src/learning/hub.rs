//! The thread that adjusts learnt concurrency limits.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_basics::lock;
use equipoise_core::concurrency::{Load, Outcome, Sample};

use super::ring::{Finished, Ring};
use crate::live::BackendLive;
use crate::permits::Work;
use crate::queue::{Queue, Standing};

/// Interval between steps while requests wait.
const QUICK: Duration = Duration::from_millis(5);
/// Interval between steps while backends have work and no request waits.
const SLOW: Duration = Duration::from_millis(100);
/// Time for which steps stay quick after the last request waited.
const QUICK_FOR: Duration = Duration::from_millis(200);
/// A backend without work for this long is no longer adjusted.
const IDLE: Duration = Duration::from_secs(5);

/// Paces of the thread; [`Hub::pace`].
const PACE_QUICK: u8 = 0;
const PACE_SLOW: u8 = 1;
const PACE_ASLEEP: u8 = 2;

/// The place for finished requests of data threads, and for backends that have work.
pub(crate) struct Hub {
    rings: Box<[Ring]>,
    /// Backends that received work since the thread last looked.
    arrived: Mutex<Vec<Target>>,
    pace: AtomicU8,
    thread: OnceLock<Thread>,
    is_over: AtomicBool,
    began: Instant,
    /// Time between the UNIX epoch and `began`.
    epoch: Duration,
}

/// A backend with a learnt limit.
pub(crate) struct Target {
    pub(crate) id: u32,
    pub(crate) live: Arc<BackendLive>,
    pub(crate) queue: Arc<Queue>,
}

/// The thread of a hub. Dropping this ends it.
pub(crate) struct HubThread {
    hub: Arc<Hub>,
    handle: Option<JoinHandle<()>>,
}

impl HubThread {
    /// Starts the thread, for samples of this number of data threads.
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn start(threads: usize) -> io::Result<HubThread> {
        let hub = Arc::new(Hub {
            rings: (0..threads).map(|_| Ring::new()).collect(),
            arrived: Mutex::default(),
            pace: AtomicU8::new(PACE_QUICK),
            thread: OnceLock::new(),
            is_over: AtomicBool::new(false),
            began: Instant::now(),
            epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        });
        let handle = thread::Builder::new().name("learner".into()).spawn({
            let hub = Arc::clone(&hub);
            move || Active::default().run(&hub)
        })?;
        // No backend is announced before this returns.
        let _ = hub.thread.set(handle.thread().clone());
        Ok(HubThread { hub, handle: Some(handle) })
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl Drop for HubThread {
    fn drop(&mut self) {
        self.hub.is_over.store(true, SeqCst);
        self.hub.unpark();
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            tracing::error!("the thread that learns concurrency limits panicked");
        }
    }
}

impl Hub {
    /// Adds a finished request. `thread` is the calling data thread.
    #[inline]
    pub(crate) fn finished(&self, thread: usize, backend: u32, since: Instant, outcome: Outcome) {
        let now = Instant::now();
        let one = Finished {
            backend,
            outcome,
            at_us: now.saturating_duration_since(self.began).as_micros() as u64,
            service_us: now.saturating_duration_since(since).as_micros() as u64,
        };
        let ring = &self.rings[thread];
        ring.add(one);
        if ring.is_half_full() {
            self.hurry();
        }
    }

    /// Adds a backend that has received work.
    #[cold]
    pub(crate) fn announce(&self, target: Target) {
        lock(&self.arrived).push(target);
        if self.pace.load(SeqCst) == PACE_ASLEEP {
            self.unpark();
        }
    }

    /// Makes the thread run soon, because a request waits or a ring fills up.
    pub(crate) fn hurry(&self) {
        if self.pace.load(SeqCst) != PACE_QUICK {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn now(&self) -> Duration {
        self.epoch + self.began.elapsed()
    }

    fn sample(&self, one: Finished) -> Sample {
        Sample {
            finished: self.epoch + Duration::from_micros(one.at_us),
            service_time: Duration::from_micros(one.service_us),
            outcome: one.outcome,
        }
    }
}

/// The backends that the thread adjusts, by their ids.
#[derive(Default)]
struct Active {
    entries: HashMap<u32, Entry>,
    /// Time at which a request last waited.
    waited: Duration,
}

struct Entry {
    target: Target,
    /// Time at which it last had work.
    busy: Duration,
}

impl Active {
    fn run(mut self, hub: &Hub) {
        while !hub.is_over.load(SeqCst) {
            let now = hub.now();
            self.take_arrived(hub, now);
            self.take_samples(hub, now);
            self.step(now);
            self.rest(hub, now);
        }
    }

    fn take_arrived(&mut self, hub: &Hub, now: Duration) {
        let arrived = std::mem::take(&mut *lock(&hub.arrived));
        for target in arrived {
            // No request was in flight since the last step, however long ago that was.
            target.live.learning.step(Load { now, ..Load::default() }, |_| ());
            self.entries.insert(target.id, Entry { target, busy: now });
        }
    }

    fn take_samples(&mut self, hub: &Hub, now: Duration) {
        for ring in &hub.rings {
            ring.take(|one| {
                // A removed backend is no longer adjusted.
                let Some(entry) = self.entries.get_mut(&one.backend) else { return };
                entry.busy = now;
                let sample = hub.sample(one);
                entry.target.live.learning.observe(sample);
            });
        }
    }

    /// Adjusts all limits, and forgets backends without work.
    fn step(&mut self, now: Duration) {
        let mut last: Option<(*const Queue, Standing)> = None;
        let waited = &mut self.waited;
        self.entries.retain(|_, entry| {
            let queue = &entry.target.queue;
            let standing = match last {
                Some((same, standing)) if same == Arc::as_ptr(queue) => standing,
                _ => queue.standing(),
            };
            last = Some((Arc::as_ptr(queue), standing));
            if standing.waiting > 0 {
                *waited = now;
            }
            entry.step(now, standing)
        });
    }

    /// Sleeps until the next step.
    fn rest(&self, hub: &Hub, now: Duration) {
        if !self.entries.is_empty() && now.saturating_sub(self.waited) < QUICK_FOR {
            hub.pace.store(PACE_QUICK, SeqCst);
            return thread::park_timeout(QUICK);
        }
        let pace = if self.entries.is_empty() { PACE_ASLEEP } else { PACE_SLOW };
        hub.pace.store(pace, SeqCst);
        // Backends announced before the pace was set are seen here; later ones wake the thread.
        let waits = self.entries.values().any(|entry| entry.target.queue.has_waiting());
        let arrived = !lock(&hub.arrived).is_empty();
        if waits || (arrived && pace == PACE_ASLEEP) || hub.is_over.load(SeqCst) {
            return;
        }
        match pace {
            PACE_SLOW => thread::park_timeout(SLOW),
            _ => thread::park(),
        }
    }
}

impl Entry {
    /// Adjusts the limit. Returns false if the backend need not be adjusted any longer.
    fn step(&mut self, now: Duration, standing: Standing) -> bool {
        let live = &self.target.live;
        if live.permits_held() > 0 {
            self.busy = now;
        }
        let in_flight = live.permits.held_for(Work::Usual);
        // Requests wait only while all backends are full, or while they avoid those that are not.
        let waiting = if live.permits.is_full() { standing.share() } else { 0 };
        let load = Load { now, in_flight, waiting, oldest_wait: standing.oldest };
        let grown = live.learning.step(load, |learner| live.publish_learned(learner.limit()));
        match grown {
            Some(true) => self.target.queue.look(),
            Some(false) => {}
            None => return self.is_needed_again(),
        }
        now.saturating_sub(self.busy) < IDLE || self.is_needed_again()
    }

    /// Leaves the backend to the next request that announces it. Returns true if one came at this
    /// moment.
    fn is_needed_again(&self) -> bool {
        let live = &self.target.live;
        live.learning.is_active.store(false, SeqCst);
        live.learning.is_on.load(Relaxed) && live.permits_held() > 0 && live.learning.begins()
    }
}

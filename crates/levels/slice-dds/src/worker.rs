//! A worker: threads that run the protocol and process items, or give them to an application.

mod crew;
mod engine;
mod error;
mod folder;
mod item_times;
mod job;
mod losses;
mod outlet;
mod outlets;
mod program;
mod renewed;
mod replies;
mod threads;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_basics::lock;
use equipoise_dds::{Error, Waker};
use equipoise_slice::transport::Driver;
use equipoise_slice::worker::{CheckpointStatus, Worker as Protocol};
use equipoise_slice::{Config, Incarnation, Numbering, Process as OsProcess};

pub use error::WorkerError;
pub use job::{Job, Work};
pub use program::{
    Dealings, Format, ListenError, Program, SET_ASIDE_AFTER, SET_ASIDE_REPLY, SetAside,
};
pub use threads::{Process, Threads};

use crate::connections::Connections;
use crate::drops::{DropCounts, DropReason};
use crate::payload::Payload;
use crate::stream::{Stream, fnv1a, worker_id};
use crate::transport::DdsTransport;

/// Options of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The worker's name, the same after each restart.
    pub name: String,
    /// Number of slices of the stream, as in the controller's file.
    pub slices: u32,
    /// Its share of the load: 0 to 1000.
    pub weight: u16,
    /// Limit of the application's jobs at a time, unless it wants more ([`Application::jobs`]).
    pub jobs_max: usize,
    /// Limit of waiting items. Beyond it the worker refuses items of publishers that are not our
    /// clients. Our clients limit their items without a reply.
    pub queue_max: usize,
    /// Limit of the bytes of items at this worker: waiting, shadowed, and kept for a target or as a
    /// standby. Beyond it as beyond `queue_max`.
    pub held_bytes_max: usize,
    /// Times and limits of the protocol, equal to those of the controller.
    pub protocol: Config,
    /// Folder in which checkpoints are stored as well, if the protocol has any. It is created in an
    /// existing one. All workers of the stream should have the same, with the same contents.
    pub checkpoint_folder: Option<PathBuf>,
    /// Time after which a reader has discovered every writer that existed at its creation, also one
    /// that was paused.
    pub settle: Duration,
    /// Interval between reports.
    pub report: Duration,
}

impl Options {
    /// The default options.
    pub fn new(name: &str, slices: u32) -> Self {
        Self {
            name: name.to_string(),
            slices,
            weight: 1,
            jobs_max: 1,
            queue_max: 100_000,
            held_bytes_max: 1 << 30,
            protocol: Config::default(),
            checkpoint_folder: None,
            settle: Duration::from_secs(3),
            report: Duration::from_millis(250),
        }
    }
}

/// An application that processes jobs elsewhere. The worker's threads call it, so it must not
/// block.
pub trait Application: Send {
    /// Number of jobs that it should have at a time, if [`Options::jobs_max`] is not larger: those
    /// that it processes at once, and those that keep it busy until it receives the next.
    fn jobs(&self) -> usize {
        1
    }

    /// Begins a job. A dropped job leaves its item unprocessed for ever: it is not acknowledged,
    /// and no later item of its slice is processed.
    fn start(&mut self, job: Job);
}

/// Processes the items.
pub enum Doer {
    /// The worker's own threads.
    Threads(Threads),
    /// An application that receives jobs.
    Application(Box<dyn Application>),
}

impl From<Threads> for Doer {
    fn from(threads: Threads) -> Self {
        Self::Threads(threads)
    }
}

impl<A: Application + 'static> From<A> for Doer {
    fn from(application: A) -> Self {
        Self::Application(Box::new(application))
    }
}

/// A running worker. A drop ends it at once, like a crash. [`Worker::leave`] hands over its slices
/// first.
pub struct Worker {
    shared: Arc<Shared>,
    // Dropped first: a thread of the crew may wait for space.
    _writing: replies::Writing,
    threads: crew::Threaded,
    // Dropped last: for controllers, its end is the end of the worker.
    _connections: Arc<Connections>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// Figures of the worker's threads for other threads.
#[derive(Debug, Default)]
struct Shared {
    leaving: AtomicBool,
    owned: AtomicU64,
    done: AtomicU64,
    queued: AtomicU64,
    handovers: AtomicU64,
    others: AtomicU64,
    fenced: AtomicBool,
    stalled_ms: AtomicU64,
    out_of_order: AtomicU64,
    checkpoints: Mutex<CheckpointStatus>,
    drops: Arc<DropCounts>,
}

impl Worker {
    /// Joins the stream, and starts.
    ///
    /// # Errors
    /// [`Error`] of DDS.
    pub fn start(
        stream: &Stream,
        mut options: Options,
        doer: impl Into<Doer>,
    ) -> Result<Self, Error> {
        let (fenced, others) = (AtomicBool::new(true), AtomicU64::new(u64::MAX));
        let shared = Arc::new(Shared { fenced, others, ..Shared::default() });
        let topics = stream.join()?;
        let outlets = outlets::Outlets::new(&topics)?;
        let form = topics.form.clone();
        let id = worker_id(&options.name);
        let participant = topics.participant.guid()?;
        let process = this_process(fnv1a(&participant.0));
        // Larger than the number of the incarnation before.
        let incarnation = Incarnation { worker: id, number: since_epoch().as_micros() as u64 };
        let connections = Arc::new(Connections::new(incarnation, participant));
        let (numbering, settle) = (Numbering::new(options.slices), options.settle);
        let doer = doer.into();
        let apart = matches!(doer, Doer::Threads(_));
        let drops = shared.drops.clone();
        let transport = DdsTransport::new(
            topics,
            incarnation,
            numbering,
            settle,
            apart,
            drops,
            connections.clone(),
        )?;
        let waker = transport.waker();
        let replies = replies::Replies::new(outlets, form, waker.clone(), shared.drops.clone());
        let writing = replies.start()?;
        let folder = folder(&mut options, waker.clone())?;
        let protocol =
            Protocol::new(incarnation, options.protocol.clone()).in_process(process.clone());
        let protocol = protocol.with_size(|payload: &Payload| payload.cdr().len());
        let protocol = protocol.with_slices(options.slices);
        let begun = Instant::now();
        let (hands, outside) = match doer {
            Doer::Threads(threads) => (Some(threads), None),
            Doer::Application(application) => {
                let (done, finished) = mpsc::channel();
                let (waker, replies) = (waker.clone(), replies.clone());
                let standing = job::Standing::new(begun);
                let exits = job::Exits { done, waker, replies, standing };
                let jobs_max = options.jobs_max.max(application.jobs());
                (None, Some(engine::Outside { application, exits, finished, jobs_max }))
            }
        };
        let engine = engine::Engine {
            driver: Driver::new(protocol, transport),
            outside,
            shared: shared.clone(),
            replies: replies.clone(),
            process,
            tally: engine::Tally::default(),
            under_way: 0,
            in_hand: Default::default(),
            acknowledged: Duration::ZERO,
            asked: None,
            lacked: None,
            told: Duration::ZERO,
            is_told: false,
            folder,
            options,
            begun,
        };
        let threads = crew::Crew::start(engine, hands, replies)?;
        Ok(Self { shared, _writing: writing, threads, _connections: connections })
    }

    /// Asks the controller to move all its slices to others. [`Worker::slices`] shows the progress.
    pub fn leave(&self) {
        self.shared.leaving.store(true, Relaxed);
        self.threads.wake();
    }

    /// Slices that it owns.
    pub fn slices(&self) -> u64 {
        self.shared.owned.load(Relaxed)
    }

    /// Items that were processed.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Relaxed)
    }

    /// Items that wait or are in progress, some milliseconds ago.
    pub fn queued(&self) -> u64 {
        self.shared.queued.load(Relaxed)
    }

    /// Open handovers with this worker. A worker that leaves may end when it has no slices, no
    /// queued items and no open handovers.
    pub fn handovers(&self) -> u64 {
        self.shared.handovers.load(Relaxed)
    }

    /// Other workers of the stream that may receive its slices, as of the last report. A killed
    /// worker counts until the lease of its DDS participant expires. `None` before the first count.
    pub fn others(&self) -> Option<u64> {
        Some(self.shared.others.load(Relaxed)).filter(|others| *others < u64::MAX)
    }

    /// Whether it processes nothing because no controller has answered recently.
    pub fn is_fenced(&self) -> bool {
        self.shared.fenced.load(Relaxed)
    }

    /// Time for which the application has had items and has finished none. Zero without items.
    pub fn stalled(&self) -> Duration {
        Duration::from_millis(self.shared.stalled_ms.load(Relaxed))
    }

    /// Items that were republished too late for their order, and were processed after later ones.
    pub fn out_of_order(&self) -> u64 {
        self.shared.out_of_order.load(Relaxed)
    }

    /// Status of its checkpoints, some milliseconds ago.
    pub fn checkpoints(&self) -> CheckpointStatus {
        *lock(&self.shared.checkpoints)
    }

    /// Items that were dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.shared.drops.of(reason)
    }

    /// Whether it still runs. An error of DDS or another worker of its name may have ended it;
    /// [`Worker::stop`] returns the error.
    pub fn is_running(&self) -> bool {
        self.threads.is_running()
    }

    /// Ends the worker.
    ///
    /// # Errors
    /// The error that ended it before.
    pub fn stop(mut self) -> Result<(), WorkerError> {
        self.threads.end()
    }
}

/// Starts the folder of checkpoints, if there is one.
fn folder(options: &mut Options, waker: Waker) -> Result<Option<folder::Folder>, Error> {
    let Some(checkpoint) = &mut options.protocol.checkpoint else { return Ok(None) };
    checkpoint.folder = options.checkpoint_folder.is_some();
    let path = options.checkpoint_folder.clone().filter(|_| options.protocol.has_folder());
    let start = |path| folder::Folder::start(path, move || waker.wake());
    path.map(start).transpose().map_err(|_| Error::Thread)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Host and process of the worker, for operators. `key`: unique for this process.
fn this_process(key: u64) -> OsProcess {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let since_unix_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
    OsProcess { key, host: host.trim().to_string(), pid: std::process::id(), since_unix_ms }
}

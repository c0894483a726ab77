//! The scaler of a pool: a task that keeps what exists, asks the driver, and publishes.

mod adoption;
mod change;
pub(crate) mod desire;
mod makers;
pub(crate) mod record;
pub(crate) mod recovery;
mod roster;
mod task;
pub(crate) mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::options::{DriverOptions, OptionRefused, Refuse};
use crate::{Backoff, DesiredState, Driver, Event};
use makers::Makers;
use record::{Record, RecordKeeper};
use view::PoolView;

/// Bounds of a scaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Backends being added at the same time.
    pub parallel: u32,
    /// A draining backend is removed after this, whatever it still has.
    pub drain_timeout: Duration,
    /// Waits between tries to add, by backend and by size, and to remove.
    pub retry: Backoff,
}

impl Default for Limits {
    fn default() -> Self {
        let (first, most) = (Duration::from_secs(1), Duration::from_secs(60));
        Limits {
            parallel: 4,
            drain_timeout: Duration::from_secs(60),
            retry: Backoff { first, most },
        }
    }
}

impl Limits {
    /// Whether they can be followed.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first that is wrong.
    pub fn check(&self) -> Result<(), OptionRefused> {
        let refuse = Refuse("elastic");
        if !(1..=256).contains(&self.parallel) {
            return Err(refuse.with("parallel", self.parallel, "1 to 256"));
        }
        refuse.within("drain-timeout", self.drain_timeout, 0, 30 * 24 * 3600)?;
        refuse.within("retry-first", self.retry.first, 10, 3600)?;
        refuse.within("retry-most", self.retry.most, 10, 24 * 3600)?;
        if self.retry.first > self.retry.most {
            let accepted = format!("at most retry-most, {:?}", self.retry.most);
            return Err(refuse.with("retry-first", self.retry.first, accepted));
        }
        Ok(())
    }
}

/// What a scaler is started with.
pub struct ScalerOptions {
    /// The pool. Names of backends begin with it.
    pub pool: String,
    /// Its bounds.
    pub limits: Limits,
    /// What adds and removes.
    pub driver: DriverOptions,
    /// What an earlier process left, as the keeper read it.
    pub record: Option<Record>,
    /// Where what is made is written down. It may be left out for a driver whose backends die with this process.
    pub keeper: Option<Arc<dyn RecordKeeper>>,
}

/// A scaler that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option.
    #[error(transparent)]
    Option(#[from] OptionRefused),
    /// The record is another pool's.
    #[error("the record is of pool {found}, and this is pool {pool}")]
    OtherPool {
        /// This pool.
        pool: String,
        /// The record's.
        found: String,
    },
    /// What outlives this process must be written down.
    #[error(
        "the {driver} driver's backends outlive equipoise, so there must be a place for the record of them"
    )]
    NoKeeper {
        /// Its kind.
        driver: &'static str,
    },
}

/// The scaler has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the scaler has stopped")]
pub struct Stopped;

/// What the task is told.
enum Command {
    Desire { desired: DesiredState, done: oneshot::Sender<()> },
    Make { sizes: Vec<Option<String>>, done: oneshot::Sender<()> },
    Limits(Limits),
    Driver { driver: Arc<dyn Driver>, options: Option<Box<DriverOptions>> },
    Stop { remove: bool, done: oneshot::Sender<()> },
}

/// Commands that may wait: more than a plan has for one period.
const COMMANDS: usize = 256;
/// The same for what a driver notices.
const EVENTS: usize = 256;

/// A pool's scaler. It stops when this is dropped: then processes end, and what outlives us stays.
pub struct Scaler {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<Arc<PoolView>>,
    task: Option<JoinHandle<()>>,
    outlives_us: AtomicBool,
    has_keeper: bool,
    /// For what another driver notices.
    events: Option<mpsc::Sender<Event>>,
}

/// A driver that cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The other cannot be started; the one that there is goes on.
    #[error(transparent)]
    Start(#[from] StartError),
    /// There is nothing to change any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The record, if it is this pool's.
fn own(pool: &str, record: Option<Record>) -> Result<Option<Record>, StartError> {
    match record {
        Some(other) if other.pool != pool => {
            Err(StartError::OtherPool { pool: pool.to_string(), found: other.pool })
        }
        record => Ok(record),
    }
}

impl Scaler {
    /// Starts it, with what an earlier process left.
    ///
    /// # Errors
    /// [`StartError`]: nothing has been added or removed then.
    pub async fn start(options: ScalerOptions) -> Result<Scaler, StartError> {
        let (events_to, events) = mpsc::channel(EVENTS);
        let kind = options.driver.kind();
        if options.driver.outlives_us() && options.keeper.is_none() {
            return Err(StartError::NoKeeper { driver: kind });
        }
        let record = own(&options.pool, options.record)?;
        let makers = Makers::open(&options.pool, &options.driver, record.as_ref(), &events_to)?;
        let limits = options.limits;
        limits.check()?;
        let work = task::Work::new(&options.pool, limits, makers, options.keeper.clone());
        let scaler = Self::run(work, record, events, options.keeper.is_some()).await;
        let outlives_us = options.driver.outlives_us().into();
        Ok(Scaler { events: Some(events_to), outlives_us, ..scaler })
    }

    /// The same with a driver of one's own, and what it notices.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn with_driver(
        pool: String,
        limits: Limits,
        driver: Arc<dyn Driver>,
        events: mpsc::Receiver<Event>,
        record: Option<Record>,
        keeper: Option<Arc<dyn RecordKeeper>>,
    ) -> Result<Scaler, StartError> {
        limits.check()?;
        let record = own(&pool, record)?;
        let (outlives_us, has_keeper) = (driver.outlives_us().into(), keeper.is_some());
        let makers = Makers::own(driver, record.as_ref());
        let work = task::Work::new(&pool, limits, makers, keeper);
        let scaler = Self::run(work, record, events, has_keeper).await;
        Ok(Scaler { outlives_us, ..scaler })
    }

    async fn run(
        mut work: task::Work,
        record: Option<Record>,
        events: mpsc::Receiver<Event>,
        has_keeper: bool,
    ) -> Scaler {
        work.adopt(record).await;
        let (commands, commanded) = mpsc::channel(COMMANDS);
        let view = work.subscribe();
        let task = Some(tokio::spawn(work.run(commanded, events)));
        let outlives_us = false.into();
        Scaler { commands, view, task, outlives_us, has_keeper, events: None }
    }

    /// Goes over to a driver with other options, which must be this pool's: what comes is made by it, and what the one
    /// before made is taken away by that one, and shown as [outdated](crate::ElasticBackend::is_outdated).
    ///
    /// # Errors
    /// [`ChangeError`]; everything goes on as before.
    pub async fn set_driver(&self, options: DriverOptions) -> Result<(), ChangeError> {
        let kind = options.kind();
        let events = self.events.clone().unwrap_or_else(|| mpsc::channel(1).0);
        let pool = self.view.borrow().pool.clone();
        let driver = options.clone().open(&pool, events).map_err(StartError::from)?;
        if driver.outlives_us() && !self.has_keeper {
            return Err(StartError::NoKeeper { driver: kind }.into());
        }
        self.outlives_us.store(driver.outlives_us(), Relaxed);
        Ok(self.tell(Command::Driver { driver, options: Some(Box::new(options)) }).await?)
    }

    /// The same with a driver of one's own.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn change_driver(&self, driver: Arc<dyn Driver>) -> Result<(), Stopped> {
        self.outlives_us.store(driver.outlives_us(), Relaxed);
        self.tell(Command::Driver { driver, options: None }).await
    }

    /// What exists, and every change of it.
    pub fn subscribe(&self) -> watch::Receiver<Arc<PoolView>> {
        self.view.clone()
    }

    /// What exists.
    pub fn view(&self) -> Arc<PoolView> {
        self.view.borrow().clone()
    }

    /// Makes what exists what is desired. Returns when the view shows all that is desired and can be had.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn desire(&self, desired: DesiredState) -> Result<(), Stopped> {
        let (done, is_done) = oneshot::channel();
        self.tell(Command::Desire { desired, done }).await?;
        is_done.await.map_err(|_| Stopped)
    }

    /// Makes a backend of each of these sizes, under names that come after all that are known here: without a leader.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn make(&self, sizes: Vec<Option<String>>) -> Result<(), Stopped> {
        let (done, is_done) = oneshot::channel();
        self.tell(Command::Make { sizes, done }).await?;
        is_done.await.map_err(|_| Stopped)
    }

    /// Whether what it makes outlives this process.
    pub fn outlives_us(&self) -> bool {
        self.outlives_us.load(Relaxed)
    }

    /// Goes by other limits.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_limits(&self, limits: Limits) -> Result<(), Stopped> {
        self.tell(Command::Limits(limits)).await
    }

    /// Stops. Processes are ended; what outlives us stays, and the record says what it is.
    pub async fn stop(self) {
        self.end(false).await;
    }

    /// Removes every backend it made, and stops: the pool is no longer elastic. Some that cannot be removed within a minute
    /// stay in the record.
    pub async fn remove_all(self) {
        self.end(true).await;
    }

    async fn end(mut self, remove: bool) {
        let (done, ended) = oneshot::channel();
        if self.tell(Command::Stop { remove, done }).await.is_ok() {
            let _ = ended.await;
        }
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    async fn tell(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }
}

//! The scaler of a pool: a task that owns the roster, asks the drivers, and publishes the view.

mod change;
pub(crate) mod desire;
mod roster;
mod task;
pub(crate) mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::driver::{Added, Ask, DriverError, Listed};
use crate::options::{DriverOptions, OptionRefused, Refuse};
use crate::{Backoff, Desired, DesiredState, Driver, Event};
use view::PoolView;

/// Limits of a scaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of backends that are added at the same time.
    pub parallel: u32,
    /// Longest drain. After it the backend is removed even if it still has work.
    pub drain_timeout: Duration,
    /// Waits between attempts to add, per backend and per size, and between attempts to remove.
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
    /// Checks the limits.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first limit that is wrong.
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

/// Options of a scaler.
pub struct ScalerOptions {
    /// The pool's name, with which the names of its backends begin.
    pub pool: String,
    /// The scaler's limits.
    pub limits: Limits,
    /// The driver that adds backends.
    pub driver: DriverOptions,
    /// Drivers that this machine used for the pool before, by their names in rosters. Each removes
    /// the backends that it made.
    pub earlier: BTreeMap<String, DriverOptions>,
    /// Backends that outlived an earlier process, by the roster that it used last.
    pub has: Vec<Desired>,
    /// The next number of that roster.
    pub next_number: u64,
}

/// The scaler has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the scaler has stopped")]
pub struct Stopped;

/// A command to the task.
enum Command {
    Desire { desired: DesiredState, done: oneshot::Sender<()> },
    Limits(Limits),
    Driver { driver: Arc<dyn Driver>, name: Option<String> },
    Stop { done: oneshot::Sender<()> },
}

/// Capacity of the command queue, more than one plan needs.
const COMMANDS: usize = 256;
/// Capacity of the queue of drivers' events.
const EVENTS: usize = 256;

/// A pool's scaler. Dropping it stops it: its processes end, and backends that outlive equipoise
/// stay.
pub struct Scaler {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<Arc<PoolView>>,
    task: Option<JoinHandle<()>>,
    /// Given to drivers that are opened later.
    events: Option<mpsc::Sender<Event>>,
}

/// A failure to change the driver.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The new driver cannot be opened. The present one continues.
    #[error(transparent)]
    Option(#[from] OptionRefused),
    /// The scaler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// An earlier driver that could not be opened. Every call fails with this reason.
struct Unusable(String);

#[async_trait]
impl Driver for Unusable {
    fn outlives_us(&self) -> bool {
        true
    }

    async fn add(&self, _: &Ask) -> Result<Added, DriverError> {
        Err(DriverError::Other(self.0.clone()))
    }

    async fn remove(&self, _: &Ask) -> Result<(), DriverError> {
        Err(DriverError::Other(self.0.clone()))
    }

    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        Err(DriverError::Other(self.0.clone()))
    }
}

impl Scaler {
    /// Starts a scaler, with the backends that outlived an earlier process.
    ///
    /// # Errors
    /// [`OptionRefused`] of the driver that adds; then no backend was added or removed. If an
    /// earlier driver is refused, its backends stay as they are.
    pub async fn start(options: ScalerOptions) -> Result<Scaler, OptionRefused> {
        let (events_to, events) = mpsc::channel(EVENTS);
        let (limits, pool) = (options.limits, options.pool);
        limits.check()?;
        let open = |options: &DriverOptions| options.clone().open(&pool, events_to.clone());
        let (name, driver) = (options.driver.fingerprint(), open(&options.driver)?);
        let mut work = task::Work::new(&pool, limits, driver, name);
        for (name, earlier) in &options.earlier {
            // A later version may give the same driver another name.
            if earlier.is_as(&options.driver) {
                work.know(name, None);
                continue;
            }
            let driver = open(earlier).unwrap_or_else(|refused| {
                tracing::warn!(
                    pool,
                    "cannot use an earlier driver; its backends stay as they are until you correct this and restart: \
                     {refused}"
                );
                Arc::new(Unusable(refused.to_string()))
            });
            work.know(name, Some(driver));
        }
        let scaler = Self::run(work, &options.has, options.next_number, events).await;
        Ok(Scaler { events: Some(events_to), ..scaler })
    }

    /// Starts a scaler with the given driver and its events.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn with_driver(
        pool: String,
        limits: Limits,
        driver: Arc<dyn Driver>,
        events: mpsc::Receiver<Event>,
        has: &[Desired],
        next_number: u64,
    ) -> Result<Scaler, OptionRefused> {
        limits.check()?;
        let work = task::Work::new(&pool, limits, driver, None);
        Ok(Self::run(work, has, next_number, events).await)
    }

    async fn run(
        mut work: task::Work,
        has: &[Desired],
        next_number: u64,
        events: mpsc::Receiver<Event>,
    ) -> Scaler {
        work.adopt(has, next_number).await;
        let (commands, commanded) = mpsc::channel(COMMANDS);
        let view = work.subscribe();
        let task = Some(tokio::spawn(work.run(commanded, events)));
        Scaler { commands, view, task, events: None }
    }

    /// Changes the options of the pool's driver. The new driver adds backends from now on. The
    /// earlier driver removes those that it made, and the view shows them as
    /// [outdated](crate::ElasticBackend::is_outdated).
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub async fn set_driver(&self, options: DriverOptions) -> Result<(), ChangeError> {
        let events = self.events.clone().unwrap_or_else(|| mpsc::channel(1).0);
        let (pool, name) = (self.view.borrow().pool.clone(), options.fingerprint());
        let driver = options.open(&pool, events)?;
        Ok(self.tell(Command::Driver { driver, name }).await?)
    }

    /// Changes the driver to the given one.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn change_driver(&self, driver: Arc<dyn Driver>) -> Result<(), Stopped> {
        self.tell(Command::Driver { driver, name: None }).await
    }

    /// A receiver of every change of the view.
    pub fn subscribe(&self) -> watch::Receiver<Arc<PoolView>> {
        self.view.clone()
    }

    /// The backends that exist now.
    pub fn view(&self) -> Arc<PoolView> {
        self.view.borrow().clone()
    }

    /// Sets the desired state. Returns when the view shows every desired backend that can be had.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn desire(&self, desired: DesiredState) -> Result<(), Stopped> {
        let (done, is_done) = oneshot::channel();
        self.tell(Command::Desire { desired, done }).await?;
        is_done.await.map_err(|_| Stopped)
    }

    /// Changes the limits.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_limits(&self, limits: Limits) -> Result<(), Stopped> {
        self.tell(Command::Limits(limits)).await
    }

    /// Stops the scaler. Its processes end, and backends that outlive equipoise stay.
    pub async fn stop(mut self) {
        let (done, ended) = oneshot::channel();
        if self.tell(Command::Stop { done }).await.is_ok() {
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

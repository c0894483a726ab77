//! The scaler of a pool: a task that keeps what exists, asks the driver, and publishes.

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
    /// What adds.
    pub driver: DriverOptions,
    /// Drivers that this machine had for the pool, by the names that rosters have for them: each removes what it made.
    pub earlier: BTreeMap<String, DriverOptions>,
    /// Backends that outlived an earlier process, by the roster that it used last.
    pub has: Vec<Desired>,
    /// The number of that roster's next backend.
    pub next_number: u64,
}

/// The scaler has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the scaler has stopped")]
pub struct Stopped;

/// What the task is told.
enum Command {
    Desire { desired: DesiredState, done: oneshot::Sender<()> },
    Limits(Limits),
    Driver { driver: Arc<dyn Driver>, name: Option<String> },
    Stop { done: oneshot::Sender<()> },
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
    /// For what another driver notices.
    events: Option<mpsc::Sender<Event>>,
}

/// A driver that cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The other cannot be started; the one that there is goes on.
    #[error(transparent)]
    Option(#[from] OptionRefused),
    /// There is nothing to change any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// An earlier driver that could not be opened: it fails for this reason whatever it is asked.
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
    /// Starts it, with what outlived an earlier process.
    ///
    /// # Errors
    /// [`OptionRefused`] of the driver that adds: nothing has been added or removed then. An earlier one that is refused
    /// leaves what it made as it is.
    pub async fn start(options: ScalerOptions) -> Result<Scaler, OptionRefused> {
        let (events_to, events) = mpsc::channel(EVENTS);
        let (limits, pool) = (options.limits, options.pool);
        limits.check()?;
        let open = |options: &DriverOptions| options.clone().open(&pool, events_to.clone());
        let (name, driver) = (options.driver.fingerprint(), open(&options.driver)?);
        let mut work = task::Work::new(&pool, limits, driver, name);
        for (name, earlier) in &options.earlier {
            // A later version may have another name for the same.
            if earlier.is_as(&options.driver) {
                work.know(name, None);
                continue;
            }
            let driver = open(earlier).unwrap_or_else(|refused| {
                tracing::warn!(
                    pool,
                    "an earlier driver cannot be used, and what it made stays as it is until you mend that and restart: \
                     {refused}"
                );
                Arc::new(Unusable(refused.to_string()))
            });
            work.know(name, Some(driver));
        }
        let scaler = Self::run(work, &options.has, options.next_number, events).await;
        Ok(Scaler { events: Some(events_to), ..scaler })
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

    /// Goes over to a driver with other options, which must be this pool's: what comes is made by it, and what the one
    /// before made is taken away by that one, and shown as [outdated](crate::ElasticBackend::is_outdated).
    ///
    /// # Errors
    /// [`ChangeError`]; everything goes on as before.
    pub async fn set_driver(&self, options: DriverOptions) -> Result<(), ChangeError> {
        let events = self.events.clone().unwrap_or_else(|| mpsc::channel(1).0);
        let (pool, name) = (self.view.borrow().pool.clone(), options.fingerprint());
        let driver = options.open(&pool, events)?;
        Ok(self.tell(Command::Driver { driver, name }).await?)
    }

    /// The same with a driver of one's own.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn change_driver(&self, driver: Arc<dyn Driver>) -> Result<(), Stopped> {
        self.tell(Command::Driver { driver, name: None }).await
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

    /// Goes by other limits.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn set_limits(&self, limits: Limits) -> Result<(), Stopped> {
        self.tell(Command::Limits(limits)).await
    }

    /// Stops. Processes are ended; what outlives us stays.
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

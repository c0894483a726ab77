use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::change::Maker;
use super::desire::{Desired, Listings};
use super::roster::{Roster, Task};
use super::view::{ElasticBackend, PoolView};
use super::{Command, Limits};
use equipoise_basics::with_causes;

use crate::driver::{Added, Driver, Event};

/// Timeout of a driver's list at the start.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the removal of all processes at the end.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// The outcome of a driver's task.
enum Outcome {
    Added(String, Result<Added, String>),
    Removed(String, Result<(), String>),
}

/// State of the task: the roster, and the drivers that execute it.
pub(super) struct Work {
    pool: String,
    roster: Roster,
    /// By the roster's numbers.
    drivers: BTreeMap<u32, Arc<dyn Driver>>,
    asked: JoinSet<Outcome>,
    /// The backend of each running task, for tasks that panic or are aborted and so return no
    /// outcome.
    about: HashMap<Id, (Task, AbortHandle)>,
    started: Instant,
    view: watch::Sender<Arc<PoolView>>,
}

impl Work {
    /// Starts with a driver that adds; `name` is its name in rosters.
    pub(super) fn new(
        pool: &str,
        limits: Limits,
        driver: Arc<dyn Driver>,
        name: Option<String>,
    ) -> Work {
        let maker = Maker { name, outlives: driver.outlives_us() };
        let roster = Roster::new(pool, limits, maker);
        Work {
            pool: pool.to_string(),
            drivers: [(roster.maker, driver)].into(),
            roster,
            asked: JoinSet::new(),
            about: HashMap::new(),
            started: Instant::now(),
            view: watch::Sender::new(Arc::new(PoolView::default())),
        }
    }

    /// Registers an earlier driver under its name in rosters; `None` if it is the driver that adds.
    pub(super) fn know(&mut self, name: &str, driver: Option<Arc<dyn Driver>>) {
        match driver {
            None => drop(self.roster.names.insert(name.to_string(), self.roster.maker)),
            Some(driver) => {
                let (name, outlives) = (Some(name.to_string()), driver.outlives_us());
                let number = self.roster.know(Maker { name, outlives });
                self.drivers.entry(number).or_insert(driver);
            }
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<PoolView>> {
        self.view.subscribe()
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn driver_of(&self, maker: u32) -> &Arc<dyn Driver> {
        self.drivers.get(&maker).expect("a driver stays as long as something is its business")
    }

    /// Changes the driver that adds.
    fn change_driver(&mut self, driver: Arc<dyn Driver>, name: Option<String>) {
        let maker = Maker { name, outlives: driver.outlives_us() };
        let number = self.roster.change_driver(maker);
        self.drivers.insert(number, driver);
    }

    /// Drops drivers that have nothing left to do.
    fn forget_drivers(&mut self) {
        let about = &self.about;
        let asked: Vec<u32> =
            about.values().map(|(task, _)| self.roster.maker_of(task.name())).collect();
        self.roster.forget_makers(|maker| asked.contains(&maker));
        let roster = &self.roster;
        self.drivers.retain(|maker, _| roster.maker(*maker).is_some());
    }

    /// Adopts the backends that outlived an earlier process.
    pub(super) async fn adopt(&mut self, has: &[Desired], next_number: u64) {
        let mut listings = Listings::new();
        for (maker, driver) in self.drivers.iter().filter(|(_, it)| it.outlives_us()) {
            let listed = match timeout(LIST_TIMEOUT, driver.list()).await {
                Ok(outcome) => outcome.map_err(|error| with_causes(&error)),
                Err(_) => Err(format!("no answer within {LIST_TIMEOUT:?}")),
            };
            match listed {
                Ok(listed) => listings.extend(listed.map(|listed| (*maker, listed))),
                Err(problem) => {
                    warn!(
                        pool = self.pool,
                        problem, "cannot list the existing backends; using the roster"
                    );
                }
            }
        }
        self.roster.adopt(self.started.elapsed(), has, next_number, listings);
        self.publish();
    }

    /// Runs until the scaler is stopped or its handle is dropped.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<Event>,
    ) {
        let done = loop {
            self.turn();
            let wake = self.wake();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop { done }) => break Some(done),
                    Some(command) => self.obey(command),
                    None => break None,
                },
                Some(event) = events.recv() => self.notice(&event),
                Some(ended) = self.asked.join_next_with_id() => self.conclude(ended),
                () = sleep_until(wake) => {}
            }
        };
        self.end(&mut events).await;
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    fn wake(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        let due = self.roster.next_at().map(|at| {
            // A task that is already due waits for an outcome or for a slot.
            (self.started + at).max(Instant::now() + Duration::from_millis(20))
        });
        due.map_or(never, |due| due.min(never))
    }

    /// Starts the tasks that are due.
    fn turn(&mut self) {
        for task in self.roster.due(self.now()) {
            self.ask(task);
        }
        self.forget_drivers();
        self.publish();
    }

    fn ask(&mut self, task: Task) {
        let driver = self.driver_of(self.roster.maker_of(task.name())).clone();
        let asked = task.clone();
        let handle = self.asked.spawn(async move {
            match asked {
                Task::Add(ask) => {
                    info!(pool = ask.pool, backend = ask.name, size = ask.size, "adding backend");
                    let outcome = driver.add(&ask).await.map_err(|error| with_causes(&error));
                    Outcome::Added(ask.name, outcome)
                }
                Task::Remove(ask) => {
                    info!(pool = ask.pool, backend = ask.name, "removing backend");
                    let outcome = driver.remove(&ask).await.map_err(|error| with_causes(&error));
                    Outcome::Removed(ask.name, outcome)
                }
            }
        });
        self.about.insert(handle.id(), (task, handle));
    }

    fn obey(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Desire { desired, done } => {
                self.roster.desire(now, &desired);
                // The caller reads the view next.
                self.publish();
                let _ = done.send(());
            }
            Command::Limits(limits) => self.roster.set_limits(limits),
            Command::Driver { driver, name } => self.change_driver(driver, name),
            Command::Stop { .. } => {}
        }
    }

    fn notice(&mut self, event: &Event) {
        match event {
            Event::Down { name, reason, again_in, is_loop } => {
                warn!(
                    pool = self.pool,
                    backend = name,
                    reason,
                    ?again_in,
                    is_loop,
                    "backend went down"
                );
            }
            Event::Up { name, .. } => {
                info!(pool = self.pool, backend = name, "backend is up again")
            }
        }
        self.roster.noticed(event);
    }

    fn conclude(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let now = self.now();
        let outcome = match ended {
            Ok((id, outcome)) => {
                self.about.remove(&id);
                outcome
            }
            Err(error) => match self.about.remove(&error.id()) {
                Some((Task::Add(ask), _)) => Outcome::Added(ask.name, Err(error.to_string())),
                Some((Task::Remove(ask), _)) => Outcome::Removed(ask.name, Err(error.to_string())),
                None => return,
            },
        };
        match outcome {
            Outcome::Added(name, outcome) => {
                match &outcome {
                    Ok(Added { address, id }) => {
                        info!(pool = self.pool, backend = name, %address, id, "backend added");
                    }
                    Err(problem) => {
                        warn!(pool = self.pool, backend = name, problem, "cannot add backend")
                    }
                }
                self.roster.added(now, &name, outcome);
            }
            Outcome::Removed(name, outcome) => {
                match &outcome {
                    Ok(()) => info!(pool = self.pool, backend = name, "backend removed"),
                    Err(problem) => {
                        warn!(pool = self.pool, backend = name, problem, "cannot remove backend")
                    }
                }
                self.roster.removed(now, &name, outcome);
            }
        }
    }

    /// Ends the processes of all process drivers.
    async fn end(&mut self, events: &mut mpsc::Receiver<Event>) {
        let dying = self.drivers.iter().filter(|(_, it)| !it.outlives_us());
        let ending: BTreeSet<u32> = dying.map(|(maker, _)| *maker).collect();
        if !ending.is_empty() {
            self.roster.remove_all(self.now(), |maker| ending.contains(&maker));
            // Additions are aborted, because no caller needs the result.
            let adding = self.about.values().filter(|(task, _)| matches!(task, Task::Add(_)));
            let dies =
                |task: &Task| !self.driver_of(self.roster.maker_of(task.name())).outlives_us();
            adding.filter(|(task, _)| dies(task)).for_each(|(_, handle)| handle.abort());
            let until = Instant::now() + END_TIMEOUT;
            while ending.iter().any(|maker| self.roster.has_of(*maker)) && Instant::now() < until {
                self.turn();
                let wake = self.wake().min(until);
                tokio::select! {
                    Some(ended) = self.asked.join_next_with_id() => self.conclude(ended),
                    Some(event) = events.recv() => self.notice(&event),
                    () = sleep_until(wake) => {}
                }
            }
        }
        self.asked.shutdown().await;
        self.publish();
    }

    fn publish(&self) {
        let name_of = |maker| self.roster.maker(maker).and_then(|maker| maker.name.clone());
        let backend = |(name, one): (&String, &super::roster::Member)| ElasticBackend {
            name: name.clone(),
            address: one.address(),
            size: one.size().cloned(),
            state: one.state(),
            id: one.id().cloned(),
            problem: one.problem().cloned(),
            is_outdated: self.roster.is_outdated(name),
            driver: name_of(one.maker),
            outlives: self.roster.outlives(one.maker),
            replaces: one.replaces.clone(),
            key: Some(&one.key).filter(|key| *key != name).cloned(),
        };
        let backends = self.roster.members().into_iter().map(backend).collect();
        let (pool, next_number) = (self.pool.clone(), self.roster.next_number);
        let current = self.roster.maker;
        let (driver, outlives) = (name_of(current), self.roster.outlives(current));
        let view = PoolView { pool, backends, next_number, driver, outlives };
        self.view.send_if_modified(|was| {
            let is_new = **was != view;
            if is_new {
                *was = Arc::new(view);
            }
            is_new
        });
    }
}

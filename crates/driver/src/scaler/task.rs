use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::adoption::Listings;
use super::makers::Makers;
use super::record::{Record, RecordKeeper};
use super::roster::{Roster, Task};
use super::view::{ElasticBackend, PoolView};
use super::{Command, Limits};
use crate::DriverOptions;
use crate::driver::{Added, Driver, Event, chain};

/// A keeper that takes longer has failed.
const KEEP_TIMEOUT: Duration = Duration::from_secs(10);
/// A listing at the start that takes longer has failed.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// For removing everything at the end.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Between tries to keep the record.
const KEEP_AGAIN: Duration = Duration::from_secs(2);

/// How asking the driver ended.
enum Outcome {
    Added(String, Result<Added, String>),
    Removed(String, Result<(), String>),
}

/// The task's state: the roster, and what it acts through.
pub(super) struct Work {
    pool: String,
    roster: Roster,
    /// By number: the last adds, those before it take away what they made.
    drivers: BTreeMap<u32, Arc<dyn Driver>>,
    /// What those are, for the next process; unknown of drivers of a caller's own.
    options: BTreeMap<u32, Option<DriverOptions>>,
    keeper: Option<Arc<dyn RecordKeeper>>,
    kept: Option<Record>,
    keep_problem: Option<String>,
    keep_again: Option<Instant>,
    asked: JoinSet<Outcome>,
    /// What each of these tasks is about: one that does not end by itself says nothing.
    about: HashMap<Id, (Task, AbortHandle)>,
    started: Instant,
    view: watch::Sender<Arc<PoolView>>,
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Work {
    /// `makers`: the drivers by number, of which the last adds.
    pub(super) fn new(
        pool: &str,
        limits: Limits,
        makers: Makers,
        keeper: Option<Arc<dyn RecordKeeper>>,
    ) -> Work {
        let mut roster = Roster::new(pool, limits, format!("{:x}", unix_ms()));
        roster.maker = makers.drivers.keys().last().copied().unwrap_or(0);
        Work {
            pool: pool.to_string(),
            roster,
            drivers: makers.drivers,
            options: makers.options,
            keeper,
            kept: None,
            keep_problem: None,
            keep_again: None,
            asked: JoinSet::new(),
            about: HashMap::new(),
            started: Instant::now(),
            view: watch::Sender::new(Arc::new(PoolView::default())),
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

    /// Goes over to another driver.
    fn change_driver(&mut self, driver: Arc<dyn Driver>, options: Option<DriverOptions>) {
        self.roster.change_driver();
        if let Some(options) = options {
            self.options
                .insert(self.roster.maker, Some(options).filter(DriverOptions::outlives_us));
        }
        self.drivers.insert(self.roster.maker, driver);
    }

    /// Drivers that have nothing left to do.
    fn forget_drivers(&mut self) {
        let (roster, about) = (&self.roster, &self.about);
        let is_asked =
            |maker| about.values().any(|(task, _)| roster.maker_of(task.name()) == maker);
        let current = roster.maker;
        self.drivers
            .retain(|maker, _| *maker == current || roster.has_of(*maker) || is_asked(*maker));
        self.options.retain(|maker, _| self.drivers.contains_key(maker));
    }

    /// Goes on with what an earlier process left.
    pub(super) async fn adopt(&mut self, record: Option<Record>) {
        let record = record.unwrap_or_else(|| Record::empty(&self.pool));
        let mut listings = Listings::new();
        for (maker, driver) in self.drivers.iter().filter(|(_, it)| it.outlives_us()) {
            let listed = match timeout(LIST_TIMEOUT, driver.list()).await {
                Ok(outcome) => outcome.map_err(|error| chain(&error)),
                Err(_) => Err(format!("no answer within {LIST_TIMEOUT:?}")),
            };
            let listed = listed.unwrap_or_else(|problem| {
                warn!(
                    pool = self.pool,
                    problem, "cannot list what there is: going on by the record"
                );
                None
            });
            listings.insert(*maker, listed);
        }
        self.roster.adopt(self.started.elapsed(), &record, &listings);
        self.roster.pass_on();
        self.publish();
    }

    /// Until it is stopped, or its handle is gone.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut events: mpsc::Receiver<Event>,
    ) {
        let (remove, done) = loop {
            self.turn().await;
            let wake = self.wake();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop { remove, done }) => break (remove, Some(done)),
                    Some(command) => self.obey(command),
                    None => break (false, None),
                },
                Some(event) = events.recv() => self.notice(&event),
                Some(ended) = self.asked.join_next_with_id() => self.conclude(ended),
                () = sleep_until(wake) => {}
            }
        };
        self.end(remove, &mut events).await;
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    fn wake(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        let due = self.roster.next_at().map(|at| {
            // What is due already waits for an outcome or for its turn.
            (self.started + at).max(Instant::now() + Duration::from_millis(20))
        });
        let due = if self.keep_problem.is_some() { None } else { due };
        [due, self.keep_again].into_iter().flatten().fold(never, Instant::min)
    }

    /// Asks the driver for what is due. What is added is written down first; if that fails, nothing is that would outlive us.
    async fn turn(&mut self) {
        let is_blocked = self.keep_again.is_some_and(|at| at > Instant::now());
        if !is_blocked {
            let tasks = self.roster.due(self.now());
            self.keep().await;
            for task in tasks {
                self.ask(task);
            }
            self.forget_drivers();
        }
        self.publish();
    }

    async fn keep(&mut self) {
        let Some(keeper) = self.keeper.clone() else { return };
        let record = self.roster.record(&self.options);
        if self.kept.as_ref() == Some(&record) && self.keep_problem.is_none() {
            return;
        }
        let outcome = match timeout(KEEP_TIMEOUT, keeper.keep(&record)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("not kept within {KEEP_TIMEOUT:?}")),
        };
        match outcome {
            Ok(()) => {
                if self.keep_problem.take().is_some() {
                    info!(pool = self.pool, "the record of elastic backends is kept again");
                }
                (self.kept, self.keep_again) = (Some(record), None);
            }
            Err(problem) => {
                if self.keep_problem.is_none() {
                    warn!(pool = self.pool, problem, "the record of elastic backends is not kept");
                }
                self.keep_problem = Some(problem);
                self.keep_again = Some(Instant::now() + KEEP_AGAIN);
            }
        }
    }

    fn ask(&mut self, task: Task) {
        let driver = self.driver_of(self.roster.maker_of(task.name())).clone();
        if let (Task::Add(ask), Some(problem)) = (&task, &self.keep_problem)
            && driver.outlives_us()
        {
            let problem = format!("nothing is added while the record is not kept: {problem}");
            self.roster.added(self.started.elapsed(), &ask.name, Err(problem));
            return;
        }
        let asked = task.clone();
        let handle = self.asked.spawn(async move {
            match asked {
                Task::Add(ask) => {
                    info!(pool = ask.pool, backend = ask.name, size = ask.size, "adding");
                    let outcome = driver.add(&ask).await.map_err(|error| chain(&error));
                    Outcome::Added(ask.name, outcome)
                }
                Task::Remove(ask) => {
                    info!(pool = ask.pool, backend = ask.name, "removing");
                    let outcome = driver.remove(&ask).await.map_err(|error| chain(&error));
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
                // Who waits looks at the view.
                self.publish();
                let _ = done.send(());
            }
            Command::Make { sizes, done } => {
                let want = |size: Option<String>| self.roster.want(now, size);
                let added: Vec<String> = sizes.into_iter().map(want).collect();
                info!(pool = self.pool, ?added, "without a leader");
                self.publish();
                let _ = done.send(());
            }
            Command::Limits(limits) => self.roster.set_limits(limits),
            Command::Driver { driver, options } => {
                self.change_driver(driver, options.map(|options| *options));
            }
            Command::Stop { .. } => {}
        }
    }

    fn notice(&mut self, event: &Event) {
        match event {
            Event::Down { name, reason, again_in, is_loop } => {
                warn!(pool = self.pool, backend = name, reason, ?again_in, is_loop, "went down");
            }
            Event::Up { name, .. } => info!(pool = self.pool, backend = name, "is up again"),
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
                        info!(pool = self.pool, backend = name, %address, id, "added");
                    }
                    Err(problem) => warn!(pool = self.pool, backend = name, problem, "not added"),
                }
                self.roster.added(now, &name, outcome);
            }
            Outcome::Removed(name, outcome) => {
                match &outcome {
                    Ok(()) => info!(pool = self.pool, backend = name, "removed"),
                    Err(problem) => warn!(pool = self.pool, backend = name, problem, "not removed"),
                }
                self.roster.removed(now, &name, outcome);
            }
        }
    }

    /// Ends what is to end; what outlives us and is being added stays in the record as such.
    async fn end(&mut self, remove: bool, events: &mut mpsc::Receiver<Event>) {
        let all = self.drivers.iter();
        let ending: BTreeSet<u32> =
            all.filter(|(_, it)| remove || !it.outlives_us()).map(|(maker, _)| *maker).collect();
        if !ending.is_empty() {
            self.roster.remove_all(self.now(), |maker| ending.contains(&maker));
            // Nobody needs to wait until they are ready.
            let adding = self.about.values().filter(|(task, _)| matches!(task, Task::Add(_)));
            let dies =
                |task: &Task| !self.driver_of(self.roster.maker_of(task.name())).outlives_us();
            adding.filter(|(task, _)| dies(task)).for_each(|(_, handle)| handle.abort());
            let until = Instant::now() + END_TIMEOUT;
            while ending.iter().any(|maker| self.roster.has_of(*maker)) && Instant::now() < until {
                self.turn().await;
                let wake = self.wake().min(until);
                tokio::select! {
                    Some(ended) = self.asked.join_next_with_id() => self.conclude(ended),
                    Some(event) = events.recv() => self.notice(&event),
                    () = sleep_until(wake) => {}
                }
            }
        }
        self.asked.shutdown().await;
        self.keep().await;
        self.publish();
    }

    fn publish(&self) {
        let backend = |(name, one): (&String, &super::roster::Member)| ElasticBackend {
            name: name.clone(),
            address: one.address(),
            size: one.size().cloned(),
            state: one.state(),
            id: one.id().cloned(),
            problem: one.problem().cloned(),
            is_outdated: self.roster.is_outdated(name),
        };
        let backends = self.roster.members().into_iter().map(backend).collect();
        let (pool, record_problem) = (self.pool.clone(), self.keep_problem.clone());
        let next_number = self.roster.next_number;
        let view = PoolView { pool, backends, next_number, record_problem };
        self.view.send_if_modified(|was| {
            let is_new = **was != view;
            if is_new {
                *was = Arc::new(view);
            }
            is_new
        });
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::lock;
use equipoise_planner::Plan;
use equipoise_store::{
    Election, Entry, Key, KeyError, Leader, Membership, Prefix, Store, StoreError,
};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::candidate;
use crate::condition::{Failing, Refused};
use crate::counts::Counts;
use crate::hearing::HearingRecord;
use crate::listening::{Hearing, see_controllers};
use crate::mirror::Mirror;
use crate::options::{ControllerOptions, Premises, Source};
use crate::recorder::Recorder;
use crate::roll::Roll;
use crate::wishes::{Wishes, see_admins, see_sizes};
use crate::{ClusterView, Instructions, Intake, IntakeError, NodeReport, Tallies};

/// A running controller.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    /// Tasks that never end by themselves.
    mirrors: JoinSet<()>,
}

/// A handle of a running [`Controller`]. Clones refer to the same controller.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    pub(crate) shared: Arc<Shared>,
}

/// A controller that cannot start, or an operator's change that was not stored.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The name cannot be a key of the store.
    #[error("{0:?} cannot be a name in the store")]
    Name(String, #[source] KeyError),
    /// The store did not accept the change.
    #[error("the store did not accept the change")]
    Store(#[from] StoreError),
    /// The store did not answer. The change may still take effect.
    #[error("the store has not taken the change; the change may still take effect")]
    Unanswered,
    /// The store failed during the change, which may take effect or have taken effect.
    #[error("the store did not confirm the change; the change may still take effect")]
    Unconfirmed(#[source] StoreError),
    /// The store has not answered an earlier change, so this one was not started.
    #[error("an earlier change waits for the store; this one was not made")]
    Busy,
}

/// State that the tasks of a controller share.
pub(crate) struct Shared {
    pub(crate) options: ControllerOptions,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) began: Instant,
    pub(crate) roll: Mutex<Roll>,
    pub(crate) known: Mutex<Known>,
    pub(crate) instructions: watch::Sender<Arc<Instructions>>,
    pub(crate) counts: Counts,
    /// Wakes the task to plan now, because an operator changed something.
    pub(crate) wake: Notify,
    /// Held while an operator's change is written.
    pub(crate) wish_turn: Arc<tokio::sync::Mutex<()>>,
    /// Notifies that other controllers joined or left, or hear other members.
    pub(crate) others_hear: Notify,
    /// This controller's record in the store, as it should be.
    pub(crate) record: watch::Sender<HearingRecord>,
    pub(crate) keys: Keys,
}

/// State of a controller that does not come from reports.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) premises: Premises,
    pub(crate) wishes: Wishes,
    pub(crate) leader: Option<Leader>,
    /// The previous leader, and the time since which there is no leader.
    pub(crate) led_last: Option<String>,
    pub(crate) vacant_since: Option<Instant>,
    pub(crate) hearing: Hearing,
    pub(crate) controllers: Vec<String>,
    /// The term in which this controller leads, if it does.
    pub(crate) leads_in: Option<u64>,
    /// When the newest instructions were published here.
    pub(crate) published: Option<Instant>,
    pub(crate) failing: Option<Failing>,
    /// An operator's write that the store did not answer in time.
    pub(crate) unanswered: Option<JoinHandle<()>>,
    /// The last error of the store that prevents leadership.
    pub(crate) cannot_lead: Option<Refused>,
    pub(crate) is_stopping: bool,
}

/// Keys of the controllers in the store.
pub(crate) struct Keys {
    pub(crate) plans: Prefix,
    pub(crate) plan: Key,
    pub(crate) wishes: Prefix,
    pub(crate) nodes: Prefix,
    office: Prefix,
    group: Prefix,
}

/// Names of the leadership, and of the group of its candidates.
const OFFICE: &str = "controller";
const GROUP: &str = "controllers";

impl Controller {
    /// Starts a controller on the current runtime. It campaigns for leadership at once.
    ///
    /// # Errors
    /// [`ControllerError::Name`] if the controller's name cannot be the name of a member.
    pub fn start(
        options: ControllerOptions,
        store: Arc<dyn Store>,
        source: Arc<dyn Source>,
        recorder: Arc<Recorder>,
    ) -> Result<Controller, ControllerError> {
        let name = |of: &str| {
            let of = of.to_string();
            move |error| ControllerError::Name(of, error)
        };
        let ttl = options.time_to_live;
        let election = Election::new(Arc::clone(&store), OFFICE, ttl).map_err(name(OFFICE))?;
        let members = Membership::new(Arc::clone(&store), GROUP, ttl).map_err(name(GROUP))?;
        let candidate = Prefix::of(GROUP).and_then(|group| group.key(&options.name));
        candidate.map_err(name(&options.name))?;
        let keys = Keys::new().map_err(name("plan"))?;
        let roll = Roll::new(options.smoothing, options.members_max, Duration::ZERO);
        let shared = Arc::new(Shared {
            options,
            store,
            source,
            recorder,
            began: Instant::now(),
            roll: Mutex::new(roll),
            known: Mutex::default(),
            instructions: watch::channel(Arc::default()).0,
            counts: Counts::default(),
            wake: Notify::new(),
            wish_turn: Arc::default(),
            others_hear: Notify::new(),
            record: watch::channel(HearingRecord::default()).0,
            keys,
        });
        let (stop, stopping) = watch::channel(false);
        let (mut tasks, mut mirrors) = (JoinSet::new(), JoinSet::new());
        shared.follow(&mut mirrors);
        tasks.spawn(join(Arc::clone(&shared), members, stopping.clone()));
        tasks.spawn(candidate::run(Arc::clone(&shared), election, stopping));
        Ok(Controller { shared, stop, tasks, mirrors })
    }

    /// A handle of this controller.
    pub fn handle(&self) -> ControllerHandle {
        ControllerHandle { shared: Arc::clone(&self.shared) }
    }

    /// Gives up leadership, so that another controller need not wait, and stops. The store stays
    /// open.
    pub async fn stop(mut self) {
        self.shared.known().is_stopping = true;
        self.stop.send_replace(true);
        let patience = self.shared.options.time_to_live;
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(patience, ended).await;
        self.tasks.abort_all();
        self.mirrors.abort_all();
    }
}

impl Keys {
    fn new() -> Result<Keys, KeyError> {
        let plans = Prefix::of("plan")?;
        let plan = plans.key("instructions")?;
        let wishes = Prefix::of("wishes/pools")?;
        let nodes = Prefix::of("wishes/nodes")?;
        let office = Prefix::of(&format!("election/{OFFICE}"))?;
        let group = Prefix::of(&format!("members/{GROUP}"))?;
        Ok(Keys { plan, plans, wishes, nodes, office, group })
    }
}

impl ControllerHandle {
    /// The plan that would be made now. It has no effect. `None` if the inputs are contradictory.
    pub fn preview(&self) -> Option<Plan> {
        let premises = self.shared.known().premises.clone();
        let before = self.shared.instructions.borrow().clone();
        let period = self.shared.options.smoothing.period;
        let draft = self.shared.draft(&premises, &before, &before.rosters, before.term, period);
        draft.map(|draft| draft.plan)
    }

    /// The inputs of the last period, with the sizes that operators set.
    pub fn premises_now(&self) -> Premises {
        let known = self.shared.known();
        let mut premises = known.premises.clone();
        let newest = self.shared.instructions.borrow().clone();
        for (name, made) in &premises.made {
            if let (Some(spec), Some(roster)) =
                (premises.pools.get_mut(name), newest.rosters.get(name))
            {
                roster.add_to(spec, made);
            }
        }
        for (name, said) in &known.wishes.sizes {
            let pool = premises.pools.get_mut(name);
            if let Some(elastic) = pool.and_then(|pool| pool.elastic.as_mut()) {
                elastic.mode = said.mode();
            }
        }
        premises
    }

    /// Plans now, if this controller leads, because the inputs have changed.
    pub fn plan_soon(&self) {
        self.shared.wake.notify_one();
    }

    /// Returns when instructions newer than `seen` are published, or after `patience`.
    pub async fn newer_than(&self, seen: crate::Edition, patience: Duration) {
        let mut instructions = self.shared.instructions.subscribe();
        let newer = instructions.wait_for(|now| now.edition() > seen);
        let _ = tokio::time::timeout(patience, newer).await;
    }
}

#[async_trait]
impl Intake for ControllerHandle {
    fn tallies(&self, node: &str) -> Tallies {
        self.shared.roll().tallies(self.shared.now(), node)
    }

    fn shut_out(&self, nodes: BTreeSet<String>) {
        if self.shared.roll().set_evicted(nodes) {
            self.shared.wake.notify_one();
        }
    }

    async fn report(&self, node: &str, report: NodeReport) -> Result<(), IntakeError> {
        let shared = &self.shared;
        if shared.known().is_stopping {
            return Err(IntakeError::Stopping);
        }
        let (load, pressure) = (report.load, report.pressure);
        let now = shared.now();
        let leaves = report.leaves;
        shared.roll().take(now, node, report)?;
        if leaves {
            tracing::info!(node, "the node announced that it leaves");
            shared.wake.notify_one();
        }
        if let Some(load) = load {
            shared.recorder.record_load(node, &load, pressure);
        }
        Ok(())
    }

    fn instructions(&self) -> watch::Receiver<Arc<Instructions>> {
        self.shared.instructions.subscribe()
    }

    fn cluster(&self) -> ClusterView {
        crate::view::cluster(&self.shared)
    }
}

impl Shared {
    /// Time since the start, which is the clock of the load history.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn roll(&self) -> MutexGuard<'_, Roll> {
        lock(&self.roll)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Notes the outcome of a request to the store, other than the write of a plan.
    pub(crate) fn note_store<T>(&self, outcome: &Result<T, StoreError>) {
        match outcome {
            Ok(_) => self.note_read(),
            Err(error) => self.note_failure(error),
        }
    }

    /// Publishes `instructions`, if they are newer than the newest.
    pub(crate) fn publish(&self, instructions: Instructions) {
        let is_newer = self.instructions.send_if_modified(|newest| {
            let is_newer = instructions.is_newer_than(newest);
            if is_newer {
                *newest = Arc::new(instructions);
            }
            is_newer
        });
        if is_newer {
            self.known().published = Some(Instant::now());
        }
    }

    /// Reads what is in the store, and follows changes by others.
    fn follow(self: &Arc<Self>, mirrors: &mut JoinSet<()>) {
        self.mirror(mirrors, self.keys.plans.clone(), see_plan);
        self.mirror(mirrors, self.keys.wishes.clone(), see_sizes);
        self.mirror(mirrors, self.keys.nodes.clone(), see_admins);
        self.mirror(mirrors, self.keys.office.clone(), see_leader);
        self.mirror(mirrors, self.keys.group.clone(), see_controllers);
    }

    fn mirror(
        self: &Arc<Self>,
        mirrors: &mut JoinSet<()>,
        folder: Prefix,
        see: fn(&Shared, &BTreeMap<Key, Entry>),
    ) {
        let mirror = Mirror::new(Arc::clone(&self.store), folder);
        let (seeing, failing) = (Arc::clone(self), Arc::clone(self));
        mirrors.spawn(
            mirror.run(
                move |entries| see(&seeing, entries),
                move |error| failing.note_failure(error),
            ),
        );
    }
}

/// Decodes instructions from the store. `None` if this version cannot.
pub(crate) fn read_instructions(entry: &Entry) -> Option<Instructions> {
    serde_json::from_slice(&entry.value)
        .inspect_err(|error| {
            tracing::error!(%error, key = %entry.key, "cannot decode the stored plan; ignoring it");
        })
        .ok()
}

fn see_plan(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let Some(entry) = entries.get(&shared.keys.plan) else { return };
    if let Some(instructions) = read_instructions(entry) {
        shared.publish(instructions);
    }
}

fn see_leader(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let leader = entries.values().find(|entry| entry.key.name() == "leader").map(|entry| Leader {
        name: String::from_utf8_lossy(&entry.value).into_owned(),
        term: equipoise_store::Term(entry.created),
    });
    let mut known = shared.known();
    if known.leader != leader {
        match &leader {
            Some(leader) => tracing::info!(leader = leader.name, term = %leader.term, "leader"),
            None => tracing::warn!("no controller leads"),
        }
        if let (Some(before), None) = (&known.leader, &leader) {
            known.led_last = Some(before.name.clone());
            known.vacant_since = Some(Instant::now());
        }
    }
    known.leader = leader;
}

/// Keeps this controller in the group of controllers until the end, with its hearing record.
async fn join(shared: Arc<Shared>, members: Membership, mut stopping: watch::Receiver<bool>) {
    let mut record = shared.record.subscribe();
    loop {
        let value = record.borrow_and_update().write();
        let joined = tokio::select! {
            joined = members.join(&shared.options.name, value.into()) => joined,
            () = candidate::stopped(&mut stopping) => return,
        };
        match joined {
            Ok(member) => loop {
                tokio::select! {
                    () = candidate::stopped(&mut stopping) => {
                        let _ = member.leave().await;
                        return;
                    }
                    Ok(()) = record.changed() => {
                        member.tell(record.borrow_and_update().write().into());
                    }
                }
            },
            Err(error) => {
                tracing::warn!(%error, "cannot join the group of controllers; trying again");
                tokio::time::sleep(shared.options.time_to_live).await;
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_planner::Plan;
use equipoise_store::{Election, Entry, Key, Leader, Membership, Prefix, Store};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::candidate;
use crate::counts::Counts;
use crate::hearing::HearingRecord;
use crate::listening::see_controllers;
use crate::mirror::Mirror;
use crate::options::{ControllerOptions, Premises, Source};
use crate::recorder::Recorder;
use crate::roll::Roll;
use crate::settings::{see_admins, see_sizes};
use crate::shared::{
    ControllerError, ControllerHandle, GROUP, Keys, OFFICE, Shared, read_instructions,
};
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
        let cpu_forecast = {
            let mut roll = shared.roll();
            let expected = roll.load(node).map(|load| load.coming().cpu);
            roll.take(now, node, report)?;
            expected
        };
        if leaves {
            tracing::info!(
                event = "node.leaves",
                subject = node,
                node,
                "the node announced that it leaves"
            );
            shared.wake.notify_one();
        }
        if let Some(load) = load {
            shared.recorder.record_load(node, &load, cpu_forecast, pressure);
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
            Some(leader) => {
                tracing::info!(event = "controller.leader", leader = leader.name, term = %leader.term, "leader")
            }
            None => tracing::warn!(event = "controller.no-leader", "no controller leads"),
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

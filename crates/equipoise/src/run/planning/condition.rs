//! How the controller does that is to run in this process, in the API's words: it may be lost, and traffic goes on without a sign.

use std::time::Duration;

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::controller::{ControllerState, ControllerStatus};
use equipoise_controller::Condition;

use super::{Active, Planner};
use crate::run::cluster::Seat;
use crate::run::lock;

impl Planner {
    /// How the controller does; `None` if none is to run here.
    pub(crate) fn controller_status(&self) -> Option<ControllerStatus> {
        match &*lock(&self.active) {
            Active::Unasked => None,
            Active::Failed(why) => Some(ControllerStatus {
                state: ControllerState::Stopped,
                leader: None,
                plan: None,
                plan_age_seconds: self.since_asked().as_secs_f64(),
                period_seconds: self.period.as_secs_f64(),
                problem: Some(why.clone()),
                remedy: Some(self.what_next().to_string()),
            }),
            Active::Running(running) => {
                Some(running_status(&running.controller.handle().condition()))
            }
        }
    }

    /// What is done about a controller that does not start, or is to be done.
    pub(super) fn what_next(&self) -> &'static str {
        match self.seat {
            Seat::Controller(_) => "it is tried again every few seconds",
            Seat::Alone | Seat::Node(_) => "when this is mended: equipoise reload",
        }
    }

    /// A controller that does not run, for metrics: what is counted begins at zero, and a plan's age grows.
    pub(super) fn reading_without(&self) -> Option<PlanningReading> {
        let has_failed = matches!(&*lock(&self.active), Active::Failed(_));
        has_failed.then(|| PlanningReading {
            runs: Some(false),
            age_seconds: self.since_asked().as_secs_f64(),
            ..PlanningReading::default()
        })
    }

    /// For how long a controller has been wanted.
    fn since_asked(&self) -> Duration {
        lock(&self.asked_since).map_or(Duration::ZERO, |since| since.elapsed())
    }
}

fn running_status(condition: &Condition) -> ControllerStatus {
    let problem = condition.problem();
    let remedy = problem.as_ref().map(|_| remedy(condition));
    ControllerStatus {
        state: match (condition.leads, &condition.leader) {
            (true, _) => ControllerState::Leads,
            (false, Some(leader)) if *leader != condition.name => ControllerState::Follows,
            (false, _) => ControllerState::Vacant,
        },
        leader: condition.leader.clone(),
        plan: condition.instructions.map(|edition| edition.to_string()),
        plan_age_seconds: condition.plan_age.as_secs_f64(),
        period_seconds: condition.period.as_secs_f64(),
        problem,
        remedy,
    }
}

/// What is said last goes on for as long as it takes; this is about planning.
fn remedy(condition: &Condition) -> String {
    if condition.unheard.is_some() {
        return "see to what is between the nodes and this controller's `cluster.listen`: a firewall, the network, its \
                clock; a node that is gone for good: equipoise cluster evict NODE"
            .to_string();
    }
    let is_store = condition.store.failing_for.is_some() || condition.cannot_lead.is_some();
    let text = match &condition.leader {
        _ if is_store => "see to the store (its disk; etcd): it goes on by itself then",
        Some(leader) if *leader != condition.name => {
            return format!("look at the log of {leader}, and at the store between you");
        }
        Some(_) => "mend the file, and reload",
        None => {
            "look at the logs of the controllers and at their store; if nothing helps, restart this one"
        }
    };
    text.to_string()
}

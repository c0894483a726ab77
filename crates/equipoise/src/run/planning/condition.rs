//! The state of this process's controller, in the API's types. A controller may fail without any
//! effect on traffic, so operators need to see it.

use std::time::Duration;

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::controller::{ControllerState, ControllerStatus};
use equipoise_controller::Condition;

use super::{Active, Planner};
use crate::run::cluster::Seat;
use equipoise_basics::lock;

impl Planner {
    /// State of the controller; `None` if no controller should run here.
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

    /// The next step for a controller that does not start: a retry, or an operator's action.
    pub(super) fn what_next(&self) -> &'static str {
        match self.seat {
            Seat::Controller(_) => "the start is retried every few seconds",
            Seat::Alone | Seat::Node(_) => "fix this, then run `equipoise reload`",
        }
    }

    /// Metrics of a controller that does not run: counters are zero, and the age of the plan grows.
    pub(super) fn reading_without(&self) -> Option<PlanningReading> {
        let has_failed = matches!(&*lock(&self.active), Active::Failed(_));
        has_failed.then(|| PlanningReading {
            runs: Some(false),
            age_seconds: self.since_asked().as_secs_f64(),
            ..PlanningReading::default()
        })
    }

    /// Time since the configuration first asked for a controller.
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

/// An operator's remedy. Silent nodes come first, because the rest of the text concerns planning.
fn remedy(condition: &Condition) -> String {
    if condition.unheard.is_some() {
        return "check the path from the nodes to this controller's `cluster.listen` (firewall, network) and its \
                clock; for a node that is lost for good: equipoise cluster evict NODE"
            .to_string();
    }
    let is_store = condition.store.failing_for.is_some() || condition.cannot_lead.is_some();
    let text = match &condition.leader {
        _ if is_store => {
            "repair the store (its disk, or etcd); the controller then continues by itself"
        }
        Some(leader) if *leader != condition.name => {
            return format!(
                "read the log of {leader}, and check the store that both controllers use"
            );
        }
        Some(_) => "fix the configuration file, and reload",
        None => {
            "read the logs of the controllers and check their store; if that does not help, restart this one"
        }
    };
    text.to_string()
}

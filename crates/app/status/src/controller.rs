//! The state of this process's controller. A controller may fail without any effect on traffic, so
//! operators need to see it.

use std::time::Duration;

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::controller::{ControllerState, ControllerStatus};
use equipoise_controller::Condition;
use equipoise_planning::ControllerNow;

/// Its status. `period` is the interval between plans.
pub fn status(controller: &ControllerNow, period: Duration) -> ControllerStatus {
    match controller {
        ControllerNow::Failed { why, since, what_next } => ControllerStatus {
            state: ControllerState::Stopped,
            leader: None,
            plan: None,
            plan_age_seconds: since.as_secs_f64(),
            period_seconds: period.as_secs_f64(),
            problem: Some(why.clone()),
            remedy: Some((*what_next).to_string()),
        },
        ControllerNow::Running(condition) => running_status(condition),
    }
}

/// Metrics of a controller that does not run: counters are zero, and the age of the plan grows.
/// `None` if it runs.
pub fn reading_without(controller: &ControllerNow) -> Option<PlanningReading> {
    let ControllerNow::Failed { since, .. } = controller else { return None };
    Some(PlanningReading {
        runs: Some(false),
        age_seconds: since.as_secs_f64(),
        ..PlanningReading::default()
    })
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

//! The line of `equipoise status` about the controller.

use equipoise_api::wire::controller::{ControllerState, ControllerStatus};

use equipoise_basics::two_units;

/// The state of the controller; if there is a problem, also the problem and its remedy.
pub(crate) fn line(controller: &ControllerStatus) -> String {
    let leader = controller.leader.as_deref();
    let state = match controller.state {
        ControllerState::Leads => "leads".to_string(),
        ControllerState::Follows => format!("{} leads", leader.unwrap_or("another")),
        ControllerState::Vacant => "no controller leads".to_string(),
        ControllerState::Stopped => {
            let age = two_units(controller.plan_age_seconds as u64);
            return with_problem(format!("controller: not running for {age}"), controller);
        }
    };
    let plan = match &controller.plan {
        Some(plan) => format!("plan {plan}, {} old", age(controller.plan_age_seconds)),
        None => "no plan yet".to_string(),
    };
    with_problem(format!("controller: {state} · {plan}"), controller)
}

fn with_problem(mut line: String, controller: &ControllerStatus) -> String {
    for (part, before) in [(&controller.problem, ": "), (&controller.remedy, "; ")] {
        if let Some(text) = part {
            line.push_str(before);
            line.push_str(text);
        }
    }
    line
}

/// With several plans a second, the first seconds deserve a decimal.
fn age(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { two_units(seconds as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_line_names_the_leader_or_the_problem_and_remedy() {
        let sound = ControllerStatus {
            state: ControllerState::Leads,
            leader: Some("edge-1".into()),
            plan: Some("3.14".into()),
            plan_age_seconds: 0.42,
            period_seconds: 1.0,
            problem: None,
            remedy: None,
        };
        assert_eq!(line(&sound), "controller: leads · plan 3.14, 0.4 s old");
        let follows = ControllerStatus {
            state: ControllerState::Follows,
            leader: Some("c2".into()),
            ..sound.clone()
        };
        assert_eq!(line(&follows), "controller: c2 leads · plan 3.14, 0.4 s old");
        let vacant = ControllerStatus {
            state: ControllerState::Vacant,
            leader: None,
            plan: None,
            plan_age_seconds: 43.0,
            problem: Some("no plan for 43 s: no controller leads".into()),
            remedy: Some("look at the logs".into()),
            ..sound.clone()
        };
        assert_eq!(
            line(&vacant),
            "controller: no controller leads · no plan yet: no plan for 43 s: no controller leads; look at the logs"
        );
        let stopped = ControllerStatus {
            state: ControllerState::Stopped,
            problem: Some("the store's file f is damaged".into()),
            remedy: Some("fix this, then run `equipoise reload`".into()),
            ..vacant
        };
        assert_eq!(
            line(&stopped),
            "controller: not running for 43 s: the store's file f is damaged; fix this, then run `equipoise reload`"
        );
    }
}

//! Decides which nodes take part, and with which part of their share.

use equipoise_core::{AdminState, Health};

use crate::plan::{NodePlan, Standing};
use crate::policy::Liveness;

/// The known state of a node.
pub(crate) struct Seen {
    pub(crate) admin: AdminState,
    pub(crate) health: Health,
    pub(crate) missed_beats: f64,
    /// A second observer cannot reach it.
    pub(crate) is_unreachable: bool,
    /// Many nodes are late at once, so the cause is probably at this controller. No share decays
    /// and no node is removed for lateness.
    pub(crate) is_lateness_doubted: bool,
}

/// The standing of a node in the coming period, and its presence.
///
/// A missed report is no proof, because the controller itself may be cut off. So the share of a
/// late node only decays, and the node is removed when a second observer agrees. It stays out until
/// it reports again. A node that returns or joins rises from [`Liveness::presence_min`] over the
/// warm-up (slow start). A late node that was never removed first recovers a period's decay, so
/// that one late report has no further cost. In the first plan of all, every node is present,
/// because no other node could take the load.
///
/// `passed` and `warm_up` are in periods.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system") removes unreachable nodes from the
/// answer; Onedata itself gave a late node full CPU and left it there. The second observer is our
/// own rule, after SWIM's indirect probes (Das, Gupta, Motivala, DSN 2002, section 4.1).
pub(crate) fn stand(
    policy: &Liveness,
    seen: &Seen,
    before: Option<&NodePlan>,
    is_first_plan: bool,
    passed: f64,
    warm_up: f64,
) -> (Standing, f64) {
    match (seen.admin, seen.health) {
        (AdminState::Down, _) => return (Standing::Down, 0.0),
        (AdminState::Drain, _) => return (Standing::Draining, 0.0),
        (AdminState::Up, Health::Unhealthy) => return (Standing::Unhealthy, 0.0),
        (AdminState::Up, Health::Healthy | Health::Unknown) => {}
    }
    // A plan from the store may hold invalid values.
    let had = before.map(|it| it.presence).filter(|it| (0.0..=1.0).contains(it));
    let had = had.unwrap_or(if is_first_plan { 1.0 } else { 0.0 });
    if seen.missed_beats >= policy.late_beats {
        let was_gone = before.is_some_and(|it| it.standing == Standing::Gone);
        let leaves = seen.missed_beats >= policy.gone_beats
            && seen.is_unreachable
            && !seen.is_lateness_doubted;
        if leaves || was_gone {
            return (Standing::Gone, 0.0);
        }
        let kept = if seen.is_lateness_doubted { 1.0 } else { policy.decay.powf(passed) };
        return (Standing::Late, (had * kept).max(policy.presence_min.min(had)));
    }
    let rise = if warm_up > 0.0 { (1.0 - policy.presence_min) * passed / warm_up } else { 1.0 };
    let was_late = before.is_some_and(|it| it.standing == Standing::Late);
    let decay = policy.decay.powf(passed);
    let made_good = if was_late && decay > 0.0 { had / decay } else { 0.0 };
    let risen = if had < policy.presence_min { policy.presence_min } else { had + rise };
    let presence = risen.max(made_good).min(1.0);
    let standing = if presence < 1.0 { Standing::Joining } else { Standing::Present };
    (standing, presence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(missed_beats: f64, is_unreachable: bool) -> Seen {
        Seen {
            admin: AdminState::Up,
            health: Health::Healthy,
            missed_beats,
            is_unreachable,
            is_lateness_doubted: false,
        }
    }

    /// Goes through periods, each of (missed beats, unreachable).
    fn run(from: Option<NodePlan>, periods: &[(f64, bool)]) -> Vec<(Standing, f64)> {
        let policy = Liveness { presence_min: 0.1, decay: 0.5, ..Liveness::default() };
        let mut last = from;
        let step = |&(missed, unreachable)| {
            let (standing, presence) =
                stand(&policy, &seen(missed, unreachable), last.as_ref(), false, 1.0, 3.0);
            last = Some(NodePlan::new(standing, presence));
            (standing, (1000.0 * presence).round() / 1000.0)
        };
        periods.iter().map(step).collect()
    }

    #[test]
    fn a_joiner_rises_evenly_from_a_small_share() {
        use Standing::{Joining, Present};
        let found = run(None, &[(0.0, false); 5]);
        let expected =
            [(Joining, 0.1), (Joining, 0.4), (Joining, 0.7), (Present, 1.0), (Present, 1.0)];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_unconfirmed_late_node_decays_to_the_minimum_presence() {
        use Standing::{Late, Present};
        let beats =
            [(1.0, false), (2.0, true), (3.0, false), (9.0, false), (10.0, false), (11.0, false)];
        let found = run(Some(NodePlan::new(Present, 1.0)), &beats);
        let expected =
            [(Present, 1.0), (Late, 0.5), (Late, 0.25), (Late, 0.125), (Late, 0.1), (Late, 0.1)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_node_confirmed_unreachable_leaves_and_rejoins_gradually() {
        use Standing::{Gone, Joining, Late, Present};
        let beats = [(4.0, true), (5.0, true), (6.0, false), (0.0, false), (0.0, false)];
        let found = run(Some(NodePlan::new(Present, 1.0)), &beats);
        let expected = [(Late, 0.5), (Gone, 0.0), (Gone, 0.0), (Joining, 0.1), (Joining, 0.4)];
        assert_eq!(found, expected);
    }

    #[test]
    fn recovery_is_immediate_after_one_late_period_and_gradual_after_several() {
        use Standing::{Joining, Late, Present};
        let beats = [(2.0, false), (0.0, false), (2.0, false), (3.0, false), (4.0, false)];
        let beats = [&beats[..], &[(0.0, false), (0.0, false)]].concat();
        let found = run(Some(NodePlan::new(Present, 1.0)), &beats);
        let expected = [
            (Late, 0.5),
            (Present, 1.0),
            (Late, 0.5),
            (Late, 0.25),
            (Late, 0.125),
            (Joining, 0.425),
            (Joining, 0.725),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn presence_does_not_decay_while_lateness_is_doubted() {
        let doubted = Seen { is_lateness_doubted: true, ..seen(50.0, true) };
        let was = NodePlan::new(Standing::Present, 0.8);
        let found = stand(&Liveness::default(), &doubted, Some(&was), false, 1.0, 30.0);
        assert_eq!(found, (Standing::Late, 0.8));
    }

    #[test]
    fn admin_state_and_health_override_heartbeats() {
        let policy = Liveness::default();
        let rows = [
            (AdminState::Down, Health::Healthy, Standing::Down),
            (AdminState::Drain, Health::Unhealthy, Standing::Draining),
            (AdminState::Up, Health::Unhealthy, Standing::Unhealthy),
        ];
        for (admin, health, standing) in rows {
            let seen = Seen { admin, health, ..seen(0.0, false) };
            assert_eq!(stand(&policy, &seen, None, true, 1.0, 30.0), (standing, 0.0));
        }
    }

    #[test]
    fn in_the_first_plan_every_node_is_present() {
        let found = stand(&Liveness::default(), &seen(0.0, false), None, true, 1.0, 30.0);
        assert_eq!(found, (Standing::Present, 1.0));
    }
}

//! Planned shares of names that this process answers. Pure.

use std::collections::BTreeMap;

use equipoise_controller::Instructions;
use equipoise_planner::Standing;

use crate::config::NamesByLoad;

/// Planned shares by zone, then by pool and name of the backend.
pub type PlannedShares = BTreeMap<String, BTreeMap<(String, String), PlannedShare>>;

/// The plan for a backend that is a member of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedShare {
    /// Share of clients, 0..=1.
    pub share: f64,
    /// The member's state in the plan; `None` if the plan does not have the member.
    pub standing: Option<Standing>,
}

/// Steps to which shares are rounded. A smaller change is not worth new tables.
const STEPS: f64 = 10_000.0;

/// Zones that are planned completely. Other zones follow weights.
pub(crate) fn planned(names: &NamesByLoad, newest: &Instructions) -> PlannedShares {
    let zone = |(zone, members): (&String, &BTreeMap<(String, String), String>)| {
        let answers = newest.plan.names.get(zone)?;
        let one = |(backend, member): (&(String, String), &String)| {
            let exact = answers.shares.get(member)?.probability;
            // Rounding up keeps small shares in the answers.
            let share = (exact * STEPS).ceil() / STEPS;
            let standing = newest.plan.nodes.get(member).map(|node| node.standing);
            Some((backend.clone(), PlannedShare { share, standing }))
        };
        let shares: Option<BTreeMap<_, _>> = members.iter().map(one).collect();
        Some((zone.clone(), shares?))
    };
    names.iter().filter_map(zone).collect()
}

#[cfg(test)]
mod tests {
    use equipoise_planner::{NamePlan, Share};

    use super::*;

    #[test]
    fn a_zone_follows_the_plan_when_all_of_it_is_planned() {
        let members = ["a", "b"].map(|n| (("web".to_string(), n.to_string()), n.to_string()));
        let names: NamesByLoad = [("z.".to_string(), members.into())].into();
        let mut newest = Instructions::default();
        assert_eq!(planned(&names, &newest), PlannedShares::new());
        let share = |probability| Share { probability, learnt: 1.0 };
        let mut answers = NamePlan::default();
        answers.shares.insert("a".to_string(), share(0.25));
        newest.plan.names.insert("z.".to_string(), answers.clone());
        assert_eq!(planned(&names, &newest), PlannedShares::new(), "b has not been planned");
        answers.shares.insert("b".to_string(), share(0.000_001));
        newest.plan.names.insert("z.".to_string(), answers);
        let found = planned(&names, &newest);
        let shares: Vec<f64> = found["z."].values().map(|it| it.share).collect();
        assert_eq!(shares, [0.25, 0.0001]);
    }
}

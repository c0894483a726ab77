//! Elastic pools of a node's file that the leader does not scale. No single file shows the problem,
//! so the node compares its own with the leader's instructions.

use std::sync::Arc;

use equipoise_basics::lock;
use equipoise_controller::Instructions;

use super::Planner;
use crate::planning_config::PlanningConfig;

/// One sentence for each elastic pool of `wish` that the leader's file lacks, and for each that the
/// controllers should declare and do not.
fn unscaled(wish: &PlanningConfig, newest: &Instructions) -> Vec<String> {
    if newest.is_blank() {
        return Vec::new();
    }
    let leader = &newest.leader;
    let is_scaled = |pool: &str| newest.plan.pools.get(pool).is_some_and(|it| it.scaling.is_some());
    let planning = &wish.planning;
    let own = planning.elastic.keys().filter(|pool| !planning.awaited.contains(*pool));
    let own = own.filter(|pool| !is_scaled(pool)).map(|pool| {
        format!(
            "pool {pool} is elastic in this node's file but not in the file of the controller {leader}, so no backends are \
             created for it: add the pool, with its [pool.elastic], to the controllers' files and reload them"
        )
    });
    let awaited = planning.awaited.iter().filter(|pool| !newest.pools.contains_key(*pool));
    let awaited = awaited.map(|pool| {
        format!(
            "this node's file expects the controllers to declare the elastic pool {pool}, but {leader} does not, so no \
             backends are created for it: add the pool, with `declared = \"controllers\"` in its [pool.elastic], to the controllers' files and reload them"
        )
    });
    own.chain(awaited).collect()
}

impl Planner {
    /// One sentence for each elastic pool of this node that the leader does not scale, or declares
    /// in a way that this node cannot use.
    pub fn unscaled(&self) -> Vec<String> {
        if self.seat.client().is_none() {
            return Vec::new();
        }
        let (wish, newest) = (self.wish.borrow().clone(), self.newest.borrow().clone());
        let mut problems = unscaled(&wish, &newest);
        let refused =
            lock(&self.declared).values().filter_map(|it| it.problem.clone()).collect::<Vec<_>>();
        problems.extend(refused);
        problems
    }

    /// Logs each such pool once, until it is scaled.
    pub(super) async fn watch_unscaled(self: Arc<Self>) {
        let (mut newest, mut wish) = (self.newest.subscribe(), self.wish.subscribe());
        let mut logged = Vec::new();
        loop {
            let changed = tokio::select! {
                changed = newest.changed() => changed,
                changed = wish.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            let now = newest.borrow_and_update().clone();
            let problems = unscaled(&wish.borrow_and_update(), &now);
            for problem in problems.iter().filter(|problem| !logged.contains(*problem)) {
                tracing::warn!("{problem}");
            }
            logged = problems;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use equipoise_planner::PoolPlan;
    use equipoise_planner::elastic::{Elasticity, Scaling, ScalingPlan};

    use super::*;

    fn scaling() -> ScalingPlan {
        ScalingPlan {
            action: Scaling::Hold,
            reason: String::new(),
            in_use: None,
            since_out: Duration::ZERO,
            since_in: Duration::ZERO,
            low_for: Duration::ZERO,
            peak: 0.0,
            limit: None,
            full: None,
        }
    }

    #[test]
    fn a_pool_that_is_elastic_on_the_node_alone_is_found_once_there_are_instructions() {
        let mut wish = PlanningConfig::default();
        let elastic =
            ["planned", "plain", "unknown"].map(|it| (it.to_string(), Elasticity::default()));
        wish.planning.elastic = elastic.into();
        let mut newest = Instructions::default();
        assert_eq!(unscaled(&wish, &newest), [""; 0]);
        newest.term = 1;
        let planned = PoolPlan { scaling: Some(scaling()), ..PoolPlan::default() };
        newest.plan.pools.insert("planned".to_string(), planned);
        newest.plan.pools.insert("plain".to_string(), PoolPlan::default());
        let problems = unscaled(&wish, &newest);
        let is_of =
            |problem: &String, pool| problem.starts_with(&format!("pool {pool} is elastic"));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(is_of(&problems[0], "plain") && is_of(&problems[1], "unknown"), "{problems:?}");
        wish.planning.awaited = ["declared", "unknown"].map(str::to_string).into();
        newest.pools.insert("declared".to_string(), String::new());
        let problems = unscaled(&wish, &newest);
        assert!(is_of(&problems[0], "plain"), "{problems:?}");
        assert!(problems[1].contains("declare the elastic pool unknown"), "{problems:?}");
    }
}

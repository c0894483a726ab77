//! Elastic pools of a node's file that the leader does not scale. No file shows it alone: the node
//! compares its own with the leader's instructions.

use std::sync::Arc;

use equipoise_controller::Instructions;

use super::{Planner, Wish};

/// Elastic pools of `wish` for which the leader that wrote `newest` has no `[pool.elastic]`.
fn unscaled(wish: &Wish, newest: &Instructions) -> Vec<String> {
    let is_scaled = |pool: &str| newest.plan.pools.get(pool).is_some_and(|it| it.scaling.is_some());
    let elastic = wish.planning.elastic.keys();
    elastic.filter(|pool| !newest.is_blank() && !is_scaled(pool)).cloned().collect()
}

fn problem(pool: &str, leader: &str) -> String {
    format!(
        "pool {pool} is elastic in this node's file and not in that of the controller {leader}, so no backends are made \
         for it: add the pool, with its [pool.elastic], to the controllers' files and reload them"
    )
}

impl Planner {
    /// A sentence for each elastic pool of this node that the leader does not scale.
    pub(crate) fn unscaled(&self) -> Vec<String> {
        if self.seat.client().is_none() {
            return Vec::new();
        }
        let (wish, newest) = (self.wish.borrow().clone(), self.newest.borrow().clone());
        let pools = unscaled(&wish, &newest).into_iter();
        pools.map(|pool| problem(&pool, &newest.leader)).collect()
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
            let pools = unscaled(&wish.borrow_and_update(), &now);
            for pool in pools.iter().filter(|pool| !logged.contains(*pool)) {
                tracing::warn!(pool, "{}", problem(pool, &now.leader));
            }
            logged = pools;
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
        }
    }

    #[test]
    fn a_pool_that_is_elastic_on_the_node_alone_is_found_once_there_are_instructions() {
        let mut wish = Wish::default();
        let elastic =
            ["planned", "plain", "unknown"].map(|it| (it.to_string(), Elasticity::default()));
        wish.planning.elastic = elastic.into();
        let mut newest = Instructions::default();
        assert_eq!(unscaled(&wish, &newest), [""; 0]);
        newest.term = 1;
        let planned = PoolPlan { scaling: Some(scaling()), ..PoolPlan::default() };
        newest.plan.pools.insert("planned".to_string(), planned);
        newest.plan.pools.insert("plain".to_string(), PoolPlan::default());
        assert_eq!(unscaled(&wish, &newest), ["plain", "unknown"]);
    }
}

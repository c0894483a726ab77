//! Elastic pools of this node that the controllers' files declare. Their declarations come in the
//! instructions and complete the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use equipoise_basics::lock;
use equipoise_planner::elastic::Elasticity;

use super::Planner;
use crate::config::Maker;
use crate::planning_config::PlanningConfig;
use crate::seat::addresses;

/// Declarations that this node knows, by pool.
pub(super) type Declared = BTreeMap<String, Known>;

/// An elastic pool that the controllers declare.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Text of the declaration, from the instructions.
    text: String,
    /// Its content, or that of an earlier text if this one is invalid.
    options: Option<(Elasticity, Maker)>,
    /// Reason why this text is invalid.
    pub(super) problem: Option<String>,
}

/// Adds the declared pools to `wish`.
fn with(mut wish: PlanningConfig, declared: &Declared) -> PlanningConfig {
    let planning = &mut wish.planning;
    for pool in &planning.awaited {
        planning.elastic.remove(pool);
        planning.makers.remove(pool);
        let options = declared.get(pool).and_then(|known| known.options.clone());
        if let Some((elasticity, maker)) = options {
            planning.elastic.insert(pool.clone(), elasticity);
            planning.makers.insert(pool.clone(), maker);
        }
    }
    wish
}

/// Reads `[pool.elastic]` tables that controllers declare.
#[async_trait]
pub trait ReadDeclaration: Send + Sync + 'static {
    /// Reads the declaration of a pool, for a member with the address `own`. The error is the
    /// reason why it cannot be used.
    async fn read(
        &self,
        pool: &str,
        text: &str,
        own: Option<IpAddr>,
    ) -> Result<(Elasticity, Maker), String>;
}

impl Planner {
    /// Adds the declarations in the newest instructions to the desired state. The caller holds
    /// `changing`.
    pub(super) async fn with_declared(&self, wish: PlanningConfig) -> PlanningConfig {
        let Some(client) = self.seat.client() else { return wish };
        let newest = client.instructions().borrow().clone();
        let mut known = lock(&self.declared).clone();
        if !newest.is_blank() {
            known.retain(|pool, _| newest.pools.contains_key(pool));
        }
        let awaited: BTreeSet<&String> = wish.planning.awaited.iter().collect();
        for (pool, text) in newest.pools.iter().filter(|(pool, _)| awaited.contains(pool)) {
            let before = known.remove(pool);
            let one = match before {
                Some(same) if same.text == *text && same.problem.is_none() => same,
                before => self.learn(pool, text, before).await,
            };
            known.insert(pool.clone(), one);
        }
        let wish = with(wish, &known);
        *lock(&self.declared) = known;
        wish
    }

    async fn learn(&self, pool: &str, text: &str, before: Option<Known>) -> Known {
        let own = match self.seat.cluster() {
            Some(place) => addresses(place).await.first().copied(),
            None => None,
        };
        let text = text.to_string();
        match self.declarations.read(pool, &text, own).await {
            Ok(options) => {
                tracing::info!(
                    event = "plan.declared",
                    pool,
                    driver = options.1.driver.kind(),
                    "the pool is elastic, as the controllers' files declare"
                );
                Known { text, options: Some(options), problem: None }
            }
            Err(problem) => {
                tracing::error!(
                    event = "plan.failed",
                    pool,
                    "kept the pool's earlier declaration: {problem}"
                );
                let options = before.and_then(|known| known.options);
                Known { text, options, problem: Some(problem) }
            }
        }
    }

    /// Follows changes of the declarations.
    pub(super) async fn watch_declared(self: Arc<Self>) {
        let Some(client) = self.seat.client() else { return };
        let mut instructions = client.instructions();
        let mut followed = BTreeMap::new();
        while instructions.changed().await.is_ok() {
            let now = instructions.borrow_and_update().clone();
            if now.pools == followed {
                continue;
            }
            followed.clone_from(&now.pools);
            let _one = self.changing.lock().await;
            let before = self.wish.borrow().clone();
            let wish = Arc::new(self.with_declared((*before).clone()).await);
            if wish.planning != before.planning {
                self.wish.send_replace(Arc::clone(&wish));
                self.scalers.follow(&wish).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_driver::{DriverOptions, Limits};

    use super::*;

    #[test]
    fn a_pool_is_elastic_as_long_as_it_is_declared() {
        let mut wish = PlanningConfig::default();
        wish.planning.awaited.insert("web".to_string());
        let driver = DriverOptions::Webhook(Default::default());
        let maker = Maker { driver, limits: Limits::default() };
        let options = Some((Elasticity::default(), maker));
        let known = Known { text: String::new(), options, problem: None };
        let with_it = with(wish.clone(), &[("web".to_string(), known)].into());
        assert!(with_it.planning.makers.contains_key("web"));
        assert_eq!(with(with_it, &Declared::new()).planning, wish.planning, "declared no more");
    }
}

//! Elastic pools of this node that the controllers' files declare. Their declarations come in the
//! instructions and complete the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use equipoise_planner::elastic::Elasticity;

use super::{Planner, Wish};
use crate::run::cluster;
use equipoise_basics::lock;
use equipoise_config::{Loader, Maker, Severity, text_for};

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
fn with(mut wish: Wish, declared: &Declared) -> Wish {
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

/// Reads a declaration. The error is the reason why it cannot be used.
async fn read(pool: &str, text: &str, own: Option<IpAddr>) -> Result<(Elasticity, Maker), String> {
    let refused = |why: &str| {
        format!("the controllers' [pool.elastic] of pool {pool} cannot be used here: {why}")
    };
    let text = text_for(text, own).ok_or_else(|| refused("it is not the TOML of a pool"))?;
    let loaded = Loader::default().check(Path::new("instructions"), text).await;
    let planning = loaded.map(|loaded| loaded.config.planning).map_err(|errors| {
        let errors = errors.problems.iter().filter(|it| it.severity == Severity::Error);
        let all: Vec<String> = errors.map(|it| format!("{}: {}", it.option, it.text)).collect();
        refused(&all.join("; "))
    });
    let mut planning = planning?;
    let options = planning.elastic.remove(pool).zip(planning.makers.remove(pool));
    options.ok_or_else(|| refused("it has no driver"))
}

impl Planner {
    /// Adds the declarations in the newest instructions to the desired state. The caller holds
    /// `changing`.
    pub(super) async fn with_declared(&self, wish: Wish) -> Wish {
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
            Some(place) => cluster::addresses(place).await.first().copied(),
            None => None,
        };
        let text = text.to_string();
        match read(pool, &text, own).await {
            Ok(options) => {
                tracing::info!(
                    pool,
                    driver = options.1.driver.kind(),
                    "the pool is elastic, as the controllers' files declare"
                );
                Known { text, options: Some(options), problem: None }
            }
            Err(problem) => {
                tracing::error!(pool, "kept the pool's earlier declaration: {problem}");
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
    use super::*;

    const PROCESS: &str = "[[pool]]\nname = \"web\"\n[pool.elastic]\nmax = 3\n\
                           [pool.elastic.process]\ncommand = [\"/bin/app\", \"{port}\"]\n";

    fn wish() -> Wish {
        let mut wish = Wish::default();
        wish.planning.awaited.insert("web".to_string());
        wish
    }

    #[tokio::test]
    async fn a_declared_process_listens_where_other_nodes_reach_it() {
        let own = "192.0.2.7".parse().unwrap();
        let options = read("web", PROCESS, Some(own)).await.unwrap();
        assert_eq!(options.0.max, 3);
        let equipoise_driver::DriverOptions::Process(process) = &options.1.driver else {
            panic!("{options:?}")
        };
        assert_eq!(process.address, own);
        let known = Known { text: PROCESS.to_string(), options: Some(options), problem: None };
        let with_it = with(wish(), &[("web".to_string(), known)].into());
        assert!(with_it.planning.makers.contains_key("web"));
        assert_eq!(with(with_it, &Declared::new()).planning, wish().planning, "declared no more");
    }

    #[tokio::test]
    async fn a_declaration_that_this_version_cannot_read_is_refused_with_its_reason() {
        let later = PROCESS.replace("max = 3", "max = 3\nsurprise = 1");
        let refused = read("web", &later, None).await.unwrap_err();
        assert!(refused.contains("elastic.surprise: unknown option"), "{refused}");
        assert!(read("web", "no = ", None).await.is_err());
        assert!(read("web", "[[pool]]\nname = \"web\"\nelastic = 1\n", None).await.is_err());
    }
}

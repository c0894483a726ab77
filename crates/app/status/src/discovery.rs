//! The state of the sources of pools' backends.

use equipoise_api::{metrics, wire};
use equipoise_discovery::DiscoveryState;

/// Adds the states to the pools.
pub fn add_to_pools(pools: &mut [wire::PoolStatus], states: &[DiscoveryState]) {
    for pool in pools {
        pool.source = of_pool(&pool.name, states);
    }
}

/// Adds the states to the figures of pools.
pub fn add_to_figures(pools: &mut [metrics::PoolReading], states: &[DiscoveryState]) {
    for pool in pools {
        pool.source = of_pool(&pool.name, states);
    }
}

/// During a reload a pool may have two sources; the first one is in use.
fn of_pool(pool: &str, states: &[DiscoveryState]) -> Option<wire::SourceStatus> {
    let state = states.iter().find(|state| *state.pool == *pool)?;
    Some(wire::SourceStatus {
        source: state.source.clone(),
        backends: state.backends,
        age_seconds: state.age.map(|age| age.as_secs_f64()),
        problem: state.problem.clone(),
        failures_total: state.failures_total,
        changes_total: state.changes_total,
    })
}

//! States of backends that a process gives to its successor.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use equipoise_core::Weight;
use equipoise_handover::BackendState;

use super::inventory::Inventory;

impl Inventory {
    /// The states that are not in the configuration.
    pub(crate) fn to_inherit(&self, now: Instant) -> Vec<BackendState> {
        let of_pool = self.pools.iter().flat_map(|pool| {
            pool.backends.iter().map(|backend| BackendState {
                pool: pool.settings.name.to_string(),
                address: backend.config.address,
                admin: backend.admin,
                weight: backend.weight_override.map(Weight::get),
                concurrency: backend.concurrency_override.map(NonZeroU32::get),
                health: backend.health.verdict(),
                ejected_ms: backend
                    .health
                    .ejected_until()
                    .map(|until| until.saturating_duration_since(now).as_millis() as u64),
            })
        });
        of_pool.collect()
    }

    /// Takes over the states of backends that still exist.
    pub(crate) fn inherit(&mut self, states: &[BackendState], now: Instant) {
        for state in states {
            let Ok(pool) = self.find_pool(&state.pool) else { continue };
            let checks = pool.settings.health.is_some();
            let ejects = pool.settings.passive.failures > 0;
            let mut backends = pool.backends.iter_mut();
            let Some(backend) = backends.find(|it| it.config.address == state.address) else {
                continue;
            };
            backend.admin = state.admin;
            backend.weight_override = state.weight.and_then(|weight| Weight::new(weight).ok());
            backend.concurrency_override = state.concurrency.and_then(NonZeroU32::new);
            backend.follow_concurrency(&pool.settings);
            let ejected = state.ejected_ms.filter(|_| ejects);
            let ejected_until = ejected.map(|ms| now + Duration::from_millis(ms));
            let verdict = if checks { state.health } else { Default::default() };
            backend.health.inherit(verdict, ejected_until);
        }
    }
}

//! Fixtures of this folder's tests.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_core::{SchedulerKind, Weight};

use super::inventory::{BackendEntry, Inventory};
use crate::config::{
    ActiveHealth, BackendConfig, Concurrency, FrontDoor, PassiveHealth, Place, PoolConfig,
    PoolOptions, Protocol, SessionConfig,
};
use crate::{BackendEvent, Reason};
use equipoise_health::{CheckError, CheckReport};

pub(super) const THREADS: usize = 2;

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// `b1` to `bN` at 10.0.0.1:80 to 10.0.0.N:80.
pub(super) fn backend(number: u8) -> BackendConfig {
    BackendConfig {
        name: format!("b{number}").into(),
        address: ([10, 0, 0, number], 80).into(),
        place: Place::Address,
        weight: Weight::DEFAULT,
        backup: false,
        concurrency: None,
    }
}

/// A pool that is not checked, of `backends` backends.
pub(super) fn pool(name: &str, backends: u8) -> PoolConfig {
    PoolConfig {
        name: name.into(),
        scheduler: SchedulerKind::WeightedRoundRobin,
        backends: (1..=backends).map(backend).collect(),
        concurrency: Concurrency::None,
        options: PoolOptions::default(),
        health: None,
        passive: PassiveHealth::default(),
        slow_start: None,
        weights_by_load: false,
        starts_within: None,
    }
}

/// Checked: one pass makes healthy, one failure unhealthy.
pub(super) fn checked(pool: PoolConfig) -> PoolConfig {
    PoolConfig {
        health: Some(ActiveHealth { rise: 1, fall: 1, ..ActiveHealth::default() }),
        ..pool
    }
}

pub(super) fn front_door(port: u16, pool: &str) -> FrontDoor {
    FrontDoor::new(([127, 0, 0, 1], port).into(), Protocol::Http, pool)
}

/// These pools, and a front door on port 8000, 8001, ... to each.
pub(super) fn config(pools: Vec<PoolConfig>) -> SessionConfig {
    let front_doors = pools.iter().zip(8000..).map(|(p, port)| front_door(port, &p.name)).collect();
    SessionConfig { pools, front_doors }
}

pub(super) fn inventory(pools: Vec<PoolConfig>, now: Instant) -> Inventory {
    reload(&Inventory::default(), pools, now)
}

/// Goes over to these pools, and settles.
pub(super) fn reload(before: &Inventory, pools: Vec<PoolConfig>, now: Instant) -> Inventory {
    let (mut inventory, _) = before.reloaded(&config(pools), THREADS, now).unwrap();
    inventory.settle(now);
    inventory
}

pub(super) fn entry<'a>(inventory: &'a Inventory, pool: &str, backend: &str) -> &'a BackendEntry {
    let pool = inventory.pools.iter().find(|p| *p.settings.name == *pool).unwrap();
    pool.backends.iter().find(|b| *b.config.name == *backend).unwrap()
}

/// The backends of the first pool that may be picked.
pub(super) fn eligible(inventory: &Inventory) -> Vec<&str> {
    inventory.pools[0].picked().map(|b| &*b.config.name).collect()
}

/// A backend of the first pool resets so many connections that the data plane reports it; returns
/// the log lines.
pub(super) fn fail(inventory: &mut Inventory, backend: &str, now: Instant) -> Vec<String> {
    fail_with(inventory, backend, Reason::UpstreamClosed, now)
}

/// The same with another last failure.
pub(super) fn fail_with(
    inventory: &mut Inventory,
    backend: &str,
    reason: Reason,
    now: Instant,
) -> Vec<String> {
    let pool = &inventory.pools[0];
    let (id, threshold) = (pool.id, pool.settings.passive.failures);
    let backend = entry(inventory, &pool.settings.name, backend);
    backend.live.failures_in_row.store(threshold, Relaxed);
    let event = BackendEvent::Failing { pool: id, backend: backend.id, reason };
    let mut lines: Vec<_> = inventory.heard(event, now).iter().map(|n| n.to_string()).collect();
    lines.extend(inventory.settle(now).iter().map(|n| n.to_string()));
    lines
}

/// A check of a backend of the first pool passes, or is refused; returns the log lines.
pub(super) fn check(
    inventory: &mut Inventory,
    backend: &str,
    passed: bool,
    now: Instant,
) -> Vec<String> {
    let pool = inventory.pools[0].settings.name.clone();
    let report = CheckReport {
        backend: entry(inventory, &pool, backend).id,
        when: now,
        took: Duration::from_millis(1),
        result: if passed { Ok(()) } else { Err(CheckError::Refused) },
        addresses: Vec::new(),
    };
    let mut lines: Vec<_> = inventory.checked(report).iter().map(|n| n.to_string()).collect();
    lines.extend(inventory.settle(now).iter().map(|n| n.to_string()));
    lines
}

pub(super) fn settle(inventory: &mut Inventory, now: Instant) -> Vec<String> {
    inventory.settle(now).iter().map(|n| n.to_string()).collect()
}

//! Backends of pools.

use equipoise_api::wire::{
    Added, BackendState, BackendStatus, FrontDoorStatus, PoolStatus, Region, Status,
};
use equipoise_basics::counted;

use super::super::action::Target;
use super::super::figures::{number, percent};
use super::super::sheet::{Row, Sheet, Value, left, right};
use super::doors;
use crate::slice::status::time;
use crate::status::tone;

pub(super) fn backends(status: &Status) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("BACKEND", 0),
        left("STATE", 0),
        right("REQ/S", 1),
        right("IN FLIGHT", 2),
        right("LIMIT", 5),
        right("WEIGHT", 3),
        right("ERR/S", 4),
        right("SERVICE", 6),
        right("SHARE", 7),
        left("REGION", 8),
        left("ADDRESS", 9),
        left("WHY", 0),
    ]);
    for pool in &status.pools {
        let all: f64 = pool.backends.iter().map(|backend| backend.rates.requests).sum();
        let door = status.front_doors.iter().find(|door| leads_to(door, &pool.name));
        let question = door.map(doors::question).unwrap_or_default();
        for backend in &pool.backends {
            sheet.add(row(pool, backend, all, question.clone()));
        }
    }
    sheet
}

fn leads_to(door: &FrontDoorStatus, pool: &str) -> bool {
    door.pool == pool || door.pools.iter().any(|name| name == pool)
}

fn row(pool: &PoolStatus, backend: &BackendStatus, all: f64, question: String) -> Row {
    let id = format!("{}/{}", pool.name, backend.name);
    let errors = backend.rates.errors;
    let share = if all > 0.0 { backend.rates.requests / all } else { 0.0 };
    Row {
        values: vec![
            Value::text(&id),
            Value::text(backend.state.word()).toned(tone(backend.state)),
            Value::figure(backend.rates.requests, number(backend.rates.requests)),
            Value::count(backend.in_flight),
            Value::maybe(backend.limit.map(f64::from), |limit| format!("{limit:.0}")),
            Value::count(backend.weight.into()),
            Value::figure(errors, number(errors)).bad_if(errors > 0.0),
            Value::maybe(backend.service_seconds, time),
            Value::figure(share, percent(share)),
            Value::text(backend.region.map_or("-", Region::word)),
            Value::text(&backend.address),
            Value::text(reason(backend)),
        ],
        trouble: trouble(backend),
        target: Some(target(pool, backend)),
        question,
        id,
    }
}

/// The backend of a pool as the object of actions.
pub(super) fn target(pool: &PoolStatus, backend: &BackendStatus) -> Target {
    Target::Backend {
        pool: pool.name.clone(),
        backend: backend.name.clone(),
        weight: backend.weight,
        admin: backend.admin,
    }
}

/// A backend by its names, as the object of actions.
pub(super) fn find(status: &Status, pool: &str, backend: &str) -> Option<Target> {
    let pool = status.pools.iter().find(|it| it.name == pool)?;
    Some(target(pool, pool.backends.iter().find(|it| it.name == backend)?))
}

fn is_full(backend: &BackendStatus) -> bool {
    backend.limit.is_some_and(|limit| backend.in_flight >= u64::from(limit))
}

fn trouble(backend: &BackendStatus) -> u8 {
    match backend.state {
        BackendState::Unhealthy => 0,
        BackendState::Draining => 1,
        BackendState::Drained => 2,
        BackendState::Down => 3,
        BackendState::Up if is_full(backend) || backend.rates.errors > 0.0 => 4,
        BackendState::Up => 5,
        BackendState::Standby => 6,
    }
}

/// Why it is in its state, or what it lacks.
fn reason(backend: &BackendStatus) -> String {
    let mut parts = Vec::new();
    match backend.state {
        BackendState::Draining | BackendState::Drained => {
            parts.push(match backend.in_flight + backend.flows {
                0 => "0: safe to stop".to_owned(),
                left => format!("{} of work left", counted(left, "unit")),
            });
        }
        BackendState::Down => parts.push("an operator disabled it".into()),
        BackendState::Up | BackendState::Unhealthy | BackendState::Standby => {}
    }
    if backend.added == Some(Added::Removing) {
        parts.push("it is removed when its work is done".into());
    }
    parts.extend(backend.health_detail.clone());
    if is_full(backend) {
        parts.push("at its limit".into());
    }
    if let Some(waited) = backend.queue_seconds.filter(|seconds| *seconds > 0.0) {
        parts.push(format!("requests waited {}", time(waited)));
    }
    parts.join("; ")
}

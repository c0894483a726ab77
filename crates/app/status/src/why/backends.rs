//! Backends of a pool in explanations.

use equipoise_api::wire::why::{WhyBackend, WhyStep};
use equipoise_core::AdminState;
use equipoise_core::Eligibility;
use equipoise_session::registry::{BackendStatus, PoolStatus, Status};
use equipoise_session::why::{BackendStep, PoolStep};

use super::words::percent;
use crate::session::{health, health_detail, state};

/// A backend that may be picked. `here`: the part of requests that this node serves.
pub(super) fn picked(
    pool: &PoolStep,
    step: &BackendStep,
    here: f64,
    status: &Status,
) -> Option<WhyStep> {
    let backends = &of_name(pool, status)?.backends;
    let is_it = |it: &&BackendStatus| it.name == step.name && it.address == step.address;
    let backend = backends.iter().find(is_it)?;
    let share = match step.share_of_retries {
        _ if step.is_full => "0 %: at its limit".to_owned(),
        Some(later) if step.share == 0.0 && later > 0.0 => {
            format!("0 %, {} of retries", percent(later))
        }
        _ => percent(step.share),
    };
    let text = format!("{}: {share}: {}", named(pool, backend), described(backend));
    let whole = pool.share * step.share * here;
    Some(WhyStep { level: "session".into(), text, backend: Some(shown(pool, backend, whole)) })
}

/// The backends of a pool that may not be picked; `seen` are those that may.
pub(super) fn others(pool: &PoolStep, seen: &[String], status: &Status) -> Vec<WhyStep> {
    let backends = of_name(pool, status).map(|pool| &pool.backends[..]).unwrap_or_default();
    let others = backends.iter().filter(|backend| !seen.contains(&backend.name.to_string()));
    let step = |backend: &BackendStatus| WhyStep {
        level: "session".into(),
        text: format!("{}: no: {}", named(pool, backend), why_not(backend)),
        backend: Some(shown(pool, backend, 0.0)),
    };
    others.map(step).collect()
}

fn of_name<'s>(pool: &PoolStep, status: &'s Status) -> Option<&'s PoolStatus> {
    status.pools.iter().find(|it| it.name == pool.name)
}

fn named(pool: &PoolStep, backend: &BackendStatus) -> String {
    let address = backend.place.text(backend.address);
    match *backend.name == *address {
        true => format!("backend {}/{}", pool.name, backend.name),
        false => format!("backend {}/{} ({address})", pool.name, backend.name),
    }
}

/// The state of a backend that may be picked.
fn described(backend: &BackendStatus) -> String {
    let in_flight = match backend.limit {
        Some(limit) => format!("{} in flight of at most {limit}", backend.in_flight),
        None => format!("{} in flight", backend.in_flight),
    };
    let detail = health_detail(backend).map(|detail| format!(", {detail}")).unwrap_or_default();
    format!(
        "{}, {}, weight {}, {in_flight}{detail}",
        state(backend).word(),
        match health(backend.health) {
            equipoise_api::wire::Health::Unknown => "not checked",
            equipoise_api::wire::Health::Healthy => "healthy",
            equipoise_api::wire::Health::Unhealthy => "unhealthy",
        },
        backend.weight.get(),
    )
}

/// Why a backend may not be picked.
fn why_not(backend: &BackendStatus) -> String {
    match backend.eligibility {
        Eligibility::Eligible if backend.is_standby => {
            "a backup, and other backends take the work".into()
        }
        Eligibility::Eligible => "it has become available just now".into(),
        Eligibility::Draining if backend.admin == AdminState::Drain => {
            format!("drained by an operator, {} in flight", backend.in_flight)
        }
        Eligibility::Draining => format!("weight 0, {} in flight", backend.in_flight),
        Eligibility::Down => "disabled by an operator".into(),
        Eligibility::Unhealthy => health_detail(backend).unwrap_or_else(|| "unhealthy".into()),
    }
}

fn shown(pool: &PoolStep, backend: &BackendStatus, share: f64) -> WhyBackend {
    WhyBackend {
        pool: pool.name.to_string(),
        name: backend.name.to_string(),
        address: backend.place.text(backend.address),
        share,
        admin: backend.admin.into(),
        health: health(backend.health),
        state: state(backend),
        weight: backend.weight.get(),
        in_flight: backend.in_flight.into(),
        limit: backend.limit,
    }
}

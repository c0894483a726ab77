//! The state of the session level.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use equipoise_api::metrics::{BackendReading, FrontDoorReading, PoolReading, TimeReading};
use equipoise_api::wire;
use equipoise_core::concurrency::Region;
use equipoise_core::delegation::Encryption;
use equipoise_core::load::RequestClass;
use equipoise_core::{Eligibility, Health, SchedulerKind};
use equipoise_session::Reason;
use equipoise_session::config::{Place, Protocol, Upstream};
use equipoise_session::registry::{
    BackendSeries, BackendStatus, DispatchStatus, FrontDoorSeries, FrontDoorStatus, PoolStatus,
    RouteStatus, StatsView, Status,
};
use equipoise_session::route::Action;
use equipoise_session::stats::{BUCKETS_US, BackendStats, Counter, FrontDoorStats, HistogramSum};

use crate::rates::{RateWindow, Subject, Totals};
use crate::tls::{CertificateStates, backend_tls, tls};

/// The counters from which rates are computed.
pub fn totals(status: &Status) -> HashMap<Subject, Totals> {
    let doors = status.front_doors.iter().map(|door| (door_subject(door), door_totals(door)));
    let backends = status.pools.iter().flat_map(|pool| {
        let each = pool.backends.iter();
        each.map(move |backend| (backend_subject(pool, backend), backend_totals(backend)))
    });
    doors.chain(backends).collect()
}

fn door_subject(door: &FrontDoorStatus) -> Subject {
    Subject::FrontDoor(door.name.clone())
}

fn backend_subject(pool: &PoolStatus, backend: &BackendStatus) -> Subject {
    Subject::Backend { pool: pool.name.clone(), backend: backend.name.clone() }
}

fn door_totals(door: &FrontDoorStatus) -> Totals {
    Totals {
        requests: if door.protocol == Protocol::Http { door.requests } else { door.connections },
        errors: door.drops.iter().map(|(_, count)| count).sum(),
        bytes_in: door.bytes_in,
        bytes_out: door.bytes_out,
        ..Totals::default()
    }
}

fn backend_totals(backend: &BackendStatus) -> Totals {
    Totals {
        requests: backend.requests,
        errors: backend.failures.iter().map(|(_, count)| count).sum(),
        // "In" and "out" are those of the front door: towards backends, and towards clients.
        bytes_in: backend.bytes_out,
        bytes_out: backend.bytes_in,
        answers: backend.answers,
        permit_time: backend.permit_time,
        queue_wait: backend.queue_wait,
    }
}

/// The status of a front door.
pub fn front_door(
    door: &FrontDoorStatus,
    accept_pauses: u64,
    rates: &RateWindow,
    certificates: &CertificateStates,
    now: Instant,
) -> wire::FrontDoorStatus {
    wire::FrontDoorStatus {
        name: door.name.to_string(),
        listen: door.listen.to_string(),
        protocol: protocol(door.protocol).into(),
        pool: door.pool.to_string(),
        pools: door.pools().collect::<BTreeSet<_>>().into_iter().map(ToString::to_string).collect(),
        connections_open: door.connections_open,
        connections_total: door.connections,
        requests_in_flight: door.requests_in_flight,
        requests_total: door.requests,
        responses: door.responses.into(),
        bytes_in_total: door.bytes_in,
        bytes_out_total: door.bytes_out,
        retries_total: door.retries,
        accept_pauses_total: accept_pauses,
        drops: by_name(&door.drops),
        rates: rates.rates(now, &door_subject(door), door_totals(door)),
        dispatch: door.dispatch.as_ref().map(dispatch),
        tls: door.tls.as_ref().map(|it| tls(it, certificates)),
        routes: routes(door),
    }
}

fn routes(door: &FrontDoorStatus) -> Vec<wire::RouteStatus> {
    let status = |route: &RouteStatus| wire::RouteStatus {
        name: route.name.to_string(),
        leads_to: leads_to(&route.action),
        requests_total: route.requests,
        mirror: route.mirror.as_ref().map(|mirror| wire::MirrorStatus {
            pool: mirror.pool.to_string(),
            in_flight: mirror.in_flight,
            outcomes: mirror.outcomes.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        }),
    };
    door.routes.iter().map(status).collect()
}

/// Where requests of a route go.
pub(crate) fn leads_to(action: &Action) -> String {
    match action {
        Action::Redirect(redirect) => format!("redirect {}", redirect.status),
        Action::Answer(answer) => format!("answer {}", answer.status),
        Action::Pools(pools) => match &pools.names[..] {
            [only] => only.to_string(),
            several => {
                let share = |(name, weight): (&Arc<str>, u64)| format!("{name} {weight}");
                let shares = several.iter().zip(pools.split.weights()).map(share);
                shares.collect::<Vec<_>>().join(", ")
            }
        },
    }
}

/// Converts the status of delegation.
fn dispatch(node: &DispatchStatus) -> wire::dispatch::DispatchStatus {
    let class = |class: RequestClass| {
        let counts = &node.classes[class];
        wire::dispatch::ClassStatus {
            class: class.to_string(),
            keep: node.keep[class],
            refuse: node.refuse[class],
            arrived_total: counts.arrived,
            delegated_total: counts.delegated,
            refused_total: counts.refused,
            taken_total: counts.taken,
            handed_back_total: counts.handed_back,
            bytes_total: counts.bytes,
        }
    };
    wire::dispatch::DispatchStatus {
        planned: node.is_planned,
        classes: RequestClass::ALL.into_iter().map(class).collect(),
        returned_total: node.returned,
        failed_open_total: node.failed_open,
        markers_refused_total: node.markers_refused,
        peer_tls: match node.encryption {
            Encryption::Off => "off",
            Encryption::Accepted => "accepted",
            Encryption::Required => "required",
            Encryption::Waiting => "waiting",
        }
        .to_string(),
    }
}

/// The status of a pool.
pub fn pool(pool: &PoolStatus, rates: &RateWindow, now: Instant) -> wire::PoolStatus {
    let backends = pool.backends.iter();
    wire::PoolStatus {
        name: pool.name.to_string(),
        scheduler: scheduler(pool.scheduler),
        upstream: match pool.upstream {
            Upstream::Exclusive => "exclusive".into(),
            Upstream::Multiplexed => "multiplexed".into(),
            Upstream::Http2 => "http2".into(),
            Upstream::Auto => "auto".into(),
        },
        backends_eligible: backends
            .clone()
            .filter(|b| b.eligibility.is_eligible() && !b.is_standby)
            .count(),
        queued: pool.queued as u64,
        queue_waited_total: pool.waited,
        queue_wait_seconds_total: pool.wait.as_secs_f64(),
        source: None,
        backends: backends.map(|b| backend(pool, b, rates, now)).collect(),
    }
}

/// The status of a backend.
pub fn backend(
    pool: &PoolStatus,
    backend: &BackendStatus,
    rates: &RateWindow,
    now: Instant,
) -> wire::BackendStatus {
    let (subject, totals) = (backend_subject(pool, backend), backend_totals(backend));
    let means = rates.means(&subject, totals);
    let learned_seconds = backend.learned.map(|learned| learned.service_time.as_secs_f64());
    wire::BackendStatus {
        name: backend.name.to_string(),
        address: backend.place.text(backend.address),
        resolved: match &backend.place {
            Place::Host { resolved, .. } => {
                Some(resolved.addresses().iter().map(ToString::to_string).collect())
            }
            Place::Address | Place::Socket(_) => None,
        },
        weight: backend.weight.get(),
        admin: backend.admin.into(),
        health: health(backend.health),
        state: state(backend),
        health_detail: health_detail(backend),
        in_flight: backend.in_flight.into(),
        added: None,
        concurrency: backend.concurrency,
        limit: backend.limit,
        group_limit: backend.learned.and_then(|learned| learned.group_limit),
        region: backend.region.map(region),
        knee: backend.learned.and_then(|learned| learned.knee),
        service_seconds: learned_seconds.or(means.service_seconds),
        queue_seconds: means.queue_seconds,
        flows: 0,
        requests_total: backend.requests,
        responses: backend.responses.into(),
        failures: by_name(&backend.failures),
        sessions_open: backend.sessions_open,
        sessions_opened_total: backend.sessions_opened,
        sessions_reused_total: backend.sessions_reused,
        multiplex_faults_total: backend.multiplex_faults,
        multiplex_shared_total: backend.multiplex_shared,
        multiplex_alone_total: backend.multiplex_alone,
        multiplex_handed_over_total: backend.multiplex_handed_over,
        multiplex_repeated_total: backend.multiplex_repeated,
        multiplexing_lost: backend.multiplexing_lost,
        tls: backend.tls.as_ref().map(backend_tls),
        bytes_out_total: backend.bytes_out,
        bytes_in_total: backend.bytes_in,
        rates: rates.rates(now, &subject, totals),
    }
}

pub(crate) fn health_detail(backend: &BackendStatus) -> Option<String> {
    let mut parts = Vec::new();
    if let Place::Host { resolved, .. } = &backend.place {
        match (resolved.problem(), resolved.addresses()) {
            (Some(problem), []) => parts.push(format!("its name is not resolved: {problem}")),
            (Some(problem), _) => {
                parts.push(format!("its name could not be resolved again: {problem}"));
            }
            (None, []) => parts.push("its name is not resolved yet".to_owned()),
            (None, _) => {}
        }
    }
    if let Some(left) = backend.ejection_left {
        parts
            .push(format!("ejected for {} s more because its requests failed", left.as_secs() + 1));
    }
    if let Some(error) = backend.last_check.as_ref().and_then(|check| check.result.as_ref().err()) {
        parts.push(format!("last check failed: {error}"));
    }
    if let Some(failure) = backend.tls.as_ref().and_then(|tls| tls.failure.as_ref()) {
        parts.push(format!("TLS failed: {failure}"));
    }
    if backend.ramp_permille < 1000 && backend.eligibility.is_eligible() {
        parts.push(format!("slow start, {} % of its weight", backend.ramp_permille / 10));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn by_name(counts: &[(Reason, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(reason, count)| (reason.name().to_owned(), *count)).collect()
}

pub(crate) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Http => "http",
    }
}

/// The scheduler's name in the configuration, which is also its serialized form.
pub(crate) fn scheduler(kind: SchedulerKind) -> String {
    let value = serde_json::to_value(kind).expect("an enum without fields serializes to its name");
    value.as_str().expect("an enum without fields serializes to its name").to_owned()
}

fn region(region: Region) -> wire::Region {
    match region {
        Region::NotEnoughSeen => wire::Region::NotEnoughSeen,
        Region::UnderUsed => wire::Region::UnderUsed,
        Region::Rising => wire::Region::Rising,
        Region::Best => wire::Region::Best,
        Region::Over => wire::Region::Over,
    }
}

/// The health of a backend.
pub fn health(health: Health) -> wire::Health {
    match health {
        Health::Unknown => wire::Health::Unknown,
        Health::Healthy => wire::Health::Healthy,
        Health::Unhealthy => wire::Health::Unhealthy,
    }
}

pub(crate) fn state(backend: &BackendStatus) -> wire::BackendState {
    match backend.eligibility {
        Eligibility::Eligible if backend.is_standby => wire::BackendState::Standby,
        Eligibility::Eligible => wire::BackendState::Up,
        Eligibility::Draining if backend.in_flight == 0 => wire::BackendState::Drained,
        Eligibility::Draining => wire::BackendState::Draining,
        Eligibility::Down => wire::BackendState::Down,
        Eligibility::Unhealthy => wire::BackendState::Unhealthy,
    }
}

/// Number of pauses in accepting at `door`; `view` has its counters.
pub fn accept_pauses(view: &StatsView, door: &FrontDoorStatus) -> u64 {
    let found = view.front_doors.iter().find(|series| series.name == door.name);
    found.map_or(0, |series| series.stats.sum(|shard| shard.accept_pauses.get()))
}

/// The figures of a front door; `status` has its state.
pub fn front_door_figures(
    door: &FrontDoorSeries,
    status: &Status,
    certificates: &CertificateStates,
) -> FrontDoorReading {
    let known = status.front_doors.iter().find(|it| it.name == door.name);
    let stats = &door.stats;
    let sum = |of: fn(&FrontDoorStats) -> &Counter| stats.sum(|shard| of(shard).get());
    let drops = Reason::ALL.iter();
    FrontDoorReading {
        name: door.name.to_string(),
        pool: door.pool.to_string(),
        http: door.protocol == Protocol::Http,
        connections: sum(|s| &s.connections),
        connections_open: sum(|s| &s.connections_open),
        requests_in_flight: sum(|s| &s.requests_in_flight),
        responses: std::array::from_fn(|class| stats.sum(|s| s.responses[class].get())),
        request_time: time(&stats.histogram(|s| &s.request_time)),
        bytes_in: sum(|s| &s.bytes_in),
        bytes_out: sum(|s| &s.bytes_out),
        retries: sum(|s| &s.retries),
        hedges: sum(|s| &s.hedges),
        hedges_won: sum(|s| &s.hedges_won),
        accept_pauses: sum(|s| &s.accept_pauses),
        access_log_dropped: sum(|s| &s.access_log_dropped) + sum(|s| &s.access_log_unwritten),
        drops: drops.map(|r| (r.name(), stats.sum(|s| s.drops[*r as usize].get()))).collect(),
        routes: known.map(routes).unwrap_or_default(),
        dispatch: known.and_then(|it| it.dispatch.as_ref()).map(dispatch),
        tls: known.and_then(|it| it.tls.as_ref()).map(|it| tls(it, certificates)),
    }
}

/// The figures of `pool`'s backends; `view` has their counters.
pub fn pool_figures(pool: &PoolStatus, view: &StatsView) -> PoolReading {
    let series = view.pools.iter().filter(|series| series.name == pool.name);
    let queue = series.clone().next().map(|series| &series.queue);
    let by_address: HashMap<_, _> =
        series.flat_map(|series| &series.backends).map(|b| (b.address, b)).collect();
    let backends = pool.backends.iter().filter_map(|backend| {
        by_address.get(&backend.address).map(|series| backend_figures(backend, series))
    });
    PoolReading {
        name: pool.name.to_string(),
        queued: queue.map_or(0, |queue| queue.len() as u64),
        queue_wait: queue
            .map(|queue| time(&queue.stats.histogram(|shard| &shard.wait)))
            .unwrap_or_default(),
        source: None,
        backends: backends.collect(),
    }
}

fn backend_figures(backend: &BackendStatus, series: &BackendSeries) -> BackendReading {
    let stats = &series.live.stats;
    let sum = |of: fn(&BackendStats) -> &Counter| stats.sum(|shard| of(shard).get());
    // Reasons that do not blame a backend are not counted for one.
    let failures = Reason::ALL.iter().filter(|reason| reason.blames_backend());
    BackendReading {
        name: backend.name.to_string(),
        admin: backend.admin.into(),
        health: health(backend.health),
        state: state(backend),
        weight: backend.weight.get(),
        requests: sum(|s| &s.requests),
        in_flight: series.live.in_flight().into(),
        limit: series.live.limit(),
        region: backend.region.map(region),
        responses: std::array::from_fn(|class| stats.sum(|s| s.responses[class].get())),
        response_time: time(&stats.histogram(|s| &s.response_time)),
        queue_wait_seconds: backend.queue_wait.as_secs_f64(),
        failures: failures
            .map(|r| (r.name(), stats.sum(|s| s.failures[*r as usize].get())))
            .collect(),
        sessions_open: sum(|s| &s.sessions_open),
        sessions_opened: sum(|s| &s.sessions_opened),
        sessions_reused: sum(|s| &s.sessions_reused),
        multiplex_faults: sum(|s| &s.multiplex_faults),
        multiplex_shared: sum(|s| &s.multiplex_shared),
        multiplex_alone: sum(|s| &s.multiplex_alone),
        multiplex_handed_over: sum(|s| &s.multiplex_handed_over),
        multiplex_repeated: sum(|s| &s.multiplex_repeated),
        tls: backend.tls.as_ref().map(backend_tls),
        bytes_out: sum(|s| &s.bytes_out),
        bytes_in: sum(|s| &s.bytes_in),
    }
}

fn time(sum: &HistogramSum) -> TimeReading {
    let bounds = BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    TimeReading { buckets: bounds.zip(sum.counts).collect(), sum_seconds: sum.sum_us as f64 / 1e6 }
}

//! Builds pools with their backends: `[[pool]]`.
//!
//! An element that lacks a required option is left out. The file then has errors and is not used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::Weight;
use equipoise_session::config::{
    ActiveHealth, BackendConfig, Concurrency, PoolConfig, PoolOptions, ProxyProtocol, QueueOptions,
    Upstream, UpstreamTls,
};

use super::place::{backend_name, place};
use super::pool_tls::{self, System};
use super::problem::Findings;
use super::routes::retry_on;
use super::tables::{Backend, Elastic, Exec, Pool, Process, Queue, Webhook, WeightsBy};
use super::text::HedgeDelay;
use super::users::Users;
use super::view::View;
use super::{Surroundings, affinity, health, labels};

pub(super) fn pool(
    pool: View<'_, Pool>,
    users: &Users<'_>,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<PoolConfig> {
    let name = pool.get(Pool::NAME)?;
    let upstream = pool.get(Pool::UPSTREAM);
    let tls = pool_tls::of_pool(pool, &users.of_pool(name), system, around, findings);
    let health = pool.get(Pool::HEALTH).map(|health| health::active(health, upstream));
    Some(PoolConfig {
        name: name.into(),
        scheduler: pool.get(Pool::SCHEDULER),
        backends: backends(pool, findings),
        concurrency: concurrency_of_pool(pool, users.of_pool(name).are_http()),
        options: PoolOptions {
            upstream,
            multiplex_sessions: pool.get(Pool::MULTIPLEX_SESSIONS),
            multiplex_depth: pool.get(Pool::MULTIPLEX_DEPTH),
            multiplex_slow: pool.get(Pool::MULTIPLEX_SLOW),
            streams_max: pool.get(Pool::STREAMS_MAX),
            hash_by: affinity::hash_by(pool),
            sticky: affinity::sticky(pool, around, findings),
            connect_timeout: pool.get(Pool::CONNECT_TIMEOUT),
            response_timeout: pool.get(Pool::RESPONSE_TIMEOUT),
            session_idle_timeout: pool.get(Pool::SESSION_IDLE_TIMEOUT),
            idle_sessions_max: pool.get(Pool::IDLE_SESSIONS_MAX),
            retries: pool.get(Pool::RETRIES),
            retry_on: retry_on(pool.get(Pool::RETRY_ON)),
            retry_budget: pool.get(Pool::RETRY_BUDGET),
            hedge: pool.get(Pool::HEDGE).map(|HedgeDelay(hedge)| hedge),
            send_proxy: pool.get(Pool::SEND_PROXY),
            retry_after: pool.get(Pool::RETRY_AFTER),
            queue: queue(pool.get(Pool::QUEUE)),
            start_wait: start_wait(pool),
            lost_after: None,
            tls: tls.clone().map(UpstreamTls::Server),
        },
        health: health.map(|health| ActiveHealth {
            tls,
            preamble: if health.port.is_some() { &[] } else { check_preamble(pool) },
            ..health
        }),
        passive: health::passive(pool.get(Pool::PASSIVE)),
        slow_start: pool.get(Pool::SLOW_START),
        weights_by_load: pool.get(Pool::WEIGHTS) == WeightsBy::Load,
        starts_within: pool.get(Pool::ELASTIC).and_then(|elastic| starts_within(pool, elastic)),
    })
}

/// The PROXY header of checks, by which the sender speaks for itself.
fn check_preamble(pool: View<'_, Pool>) -> &'static [u8] {
    match pool.get(Pool::SEND_PROXY) {
        None => &[],
        Some(ProxyProtocol::V1) => b"PROXY UNKNOWN\r\n",
        Some(ProxyProtocol::V2) => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    }
}

/// The concurrency limit of a pool. HTTP pools learn it unless the file states one. An elastic pool
/// also needs limits to measure its utilisation, unless it states a target for each backend.
pub(super) fn concurrency_of_pool(pool: View<'_, Pool>, is_http: bool) -> Concurrency {
    let targets = [Elastic::TARGET_CONCURRENCY, Elastic::TARGET_REQUESTS];
    let needs_limits =
        |elastic: View<'_, Elastic>| !targets.into_iter().any(|option| elastic.given(option));
    let is_learnt = is_http || pool.get(Pool::ELASTIC).is_some_and(needs_limits);
    let otherwise = if is_learnt { Concurrency::Learnt } else { Concurrency::None };
    pool.get(Pool::CONCURRENCY).unwrap_or(otherwise)
}

fn queue(queue: View<'_, Queue>) -> QueueOptions {
    QueueOptions { wait: queue.get(Queue::WAIT), length: queue.get(Queue::LENGTH) }
}

/// How long requests wait for the first backend of an elastic pool. `None` if they do not wait.
fn start_wait(pool: View<'_, Pool>) -> Option<Duration> {
    let wait = pool.get(Pool::ELASTIC)?.get(Elastic::START_WAIT);
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Longest time until the first backend of an elastic pool serves: created, warmed up and checked.
/// `None` if the pool may have no backends.
fn starts_within(pool: View<'_, Pool>, elastic: View<'_, Elastic>) -> Option<Duration> {
    if elastic.get(Elastic::MIN) == 0 {
        return None;
    }
    let process = elastic.get(Elastic::PROCESS).map(|it| it.get(Process::READY_TIMEOUT));
    let exec = elastic.get(Elastic::EXEC).map(|it| it.get(Exec::TIMEOUT));
    let webhook = elastic.get(Elastic::WEBHOOK).map(|it| it.get(Webhook::TIMEOUT));
    let made = process.or(exec).or(webhook);
    let warm = elastic.get(Elastic::WARM_UP).max(made.unwrap_or(MADE_ELSEWHERE));
    let health = pool.get(Pool::HEALTH).map(|health| health::active(health, Upstream::Exclusive));
    let checked = health.map(|health| health.interval * health.rise + health.timeout);
    Some(warm + checked.unwrap_or_default())
}

/// Assumed time in which another member of the cluster creates a backend.
const MADE_ELSEWHERE: Duration = Duration::from_secs(30);

/// Builds the backends of a pool. Schedulers and pooled connections identify a backend by its
/// address, so two backends must not share one.
fn backends(pool: View<'_, Pool>, findings: &mut Findings<'_>) -> Vec<BackendConfig> {
    let mut made: Vec<BackendConfig> = Vec::new();
    let mut places: HashMap<SocketAddr, usize> = HashMap::new();
    for values in pool.get(Pool::BACKENDS) {
        let Some(backend) = backend(values) else { continue };
        labels::check(values, Backend::LABELS, findings);
        let first = *places.entry(backend.address).or_insert(made.len());
        if let Some(first) = made.get(first) {
            let text = format!(
                "backend `{}` has this address ({}); accepted: each address once",
                first.name,
                values.get(Backend::ADDRESS.as_written()).unwrap_or_default()
            );
            findings.error(values.at(Backend::ADDRESS), &values.path_of(Backend::ADDRESS), text);
            continue;
        }
        made.push(backend);
    }
    made
}

fn backend(backend: View<'_, Backend>) -> Option<BackendConfig> {
    let (address, place) = place(backend.get(Backend::ADDRESS)?)?;
    Some(BackendConfig {
        name: backend_name(backend)?,
        address,
        place,
        weight: Weight::new(backend.get(Backend::WEIGHT))
            .expect("the option's maximum is Weight::MAX"),
        backup: backend.get(Backend::BACKUP),
        concurrency: backend.get(Backend::CONCURRENCY),
    })
}

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
use super::tables::{Elastic, Exec, Pool, Process, Queue, Webhook, WeightsBy};
use super::text::HedgeDelay;
use super::users::Users;
use super::values::{Values, chosen};
use super::view::View;
use super::{Surroundings, affinity, health, labels};

pub(super) fn pool(
    pool: &Values,
    users: &Users<'_>,
    system: &System,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<PoolConfig> {
    let typed: View<'_, Pool> = pool.typed();
    let name = pool.text("name")?;
    let upstream = chosen(pool, "upstream");
    let tls = pool_tls::of_pool(typed, &users.of_pool(name), system, around, findings);
    let http2 = upstream == Upstream::Http2;
    let health = pool.table("health").map(|health| health::active(health.typed(), http2));
    Some(PoolConfig {
        name: name.into(),
        scheduler: chosen(pool, "scheduler"),
        backends: backends(pool, findings),
        concurrency: concurrency_of_pool(pool, users.of_pool(name).are_http()),
        options: PoolOptions {
            upstream,
            multiplex_sessions: pool.amount("multiplex-sessions"),
            multiplex_depth: pool.amount("multiplex-depth"),
            multiplex_slow: pool.duration("multiplex-slow"),
            streams_max: pool.amount("streams-max"),
            hash_by: affinity::hash_by(typed),
            sticky: affinity::sticky(typed, around, findings),
            connect_timeout: pool.duration("connect-timeout"),
            response_timeout: pool.duration("response-timeout"),
            session_idle_timeout: pool.duration("session-idle-timeout"),
            idle_sessions_max: pool.amount("idle-sessions-max"),
            retries: pool.amount("retries"),
            retry_on: retry_on(typed.get(Pool::RETRY_ON)),
            retry_budget: pool.share("retry-budget"),
            hedge: pool.parsed("hedge").map(|HedgeDelay(hedge)| hedge),
            send_proxy: pool.choice("send-proxy"),
            retry_after: pool.duration("retry-after"),
            queue: queue(typed.get(Pool::QUEUE)),
            start_wait: start_wait(typed),
            lost_after: None,
            tls: tls.clone().map(UpstreamTls::Server),
        },
        health: health.map(|health| ActiveHealth {
            tls,
            preamble: if health.port.is_some() { &[] } else { check_preamble(typed) },
            ..health
        }),
        passive: health::passive(typed.get(Pool::PASSIVE)),
        slow_start: pool.duration_if_any("slow-start"),
        weights_by_load: chosen::<WeightsBy>(pool, "weights") == WeightsBy::Load,
        starts_within: typed.get(Pool::ELASTIC).and_then(|elastic| starts_within(typed, elastic)),
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
pub(super) fn concurrency_of_pool(pool: &Values, is_http: bool) -> Concurrency {
    let targets = ["target-concurrency", "target-requests"];
    let needs_limits = |elastic: &Values| !targets.iter().any(|option| elastic.given(option));
    let is_learnt = is_http || pool.table("elastic").is_some_and(needs_limits);
    let otherwise = if is_learnt { Concurrency::Learnt } else { Concurrency::None };
    concurrency(pool).unwrap_or(otherwise)
}

pub(super) fn concurrency(values: &Values) -> Option<Concurrency> {
    values.number_or_choice("concurrency")
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
    let health = pool.get(Pool::HEALTH).map(|health| health::active(health, false));
    let checked = health.map(|health| health.interval * health.rise + health.timeout);
    Some(warm + checked.unwrap_or_default())
}

/// Assumed time in which another member of the cluster creates a backend.
const MADE_ELSEWHERE: Duration = Duration::from_secs(30);

/// Builds the backends of a pool. Schedulers and pooled connections identify a backend by its
/// address, so two backends must not share one.
fn backends(pool: &Values, findings: &mut Findings<'_>) -> Vec<BackendConfig> {
    let mut made: Vec<BackendConfig> = Vec::new();
    let mut places: HashMap<SocketAddr, usize> = HashMap::new();
    for values in pool.tables("backends") {
        let Some(backend) = backend(values) else { continue };
        labels::check(values, findings);
        let first = *places.entry(backend.address).or_insert(made.len());
        if let Some(first) = made.get(first) {
            let text = format!(
                "backend `{}` has this address ({}); accepted: each address once",
                first.name,
                values.text("address").unwrap_or_default()
            );
            findings.error(values.at("address"), &values.path_of("address"), text);
            continue;
        }
        made.push(backend);
    }
    made
}

fn backend(backend: &Values) -> Option<BackendConfig> {
    let (address, place) = place(backend)?;
    Some(BackendConfig {
        name: backend_name(backend)?,
        address,
        place,
        weight: Weight::new(backend.amount("weight")).expect("the option's maximum is Weight::MAX"),
        backup: backend.flag("backup"),
        concurrency: concurrency(backend),
    })
}

//! Builds the typed configuration from values that were read.
//!
//! An element that lacks a required option is left out. The file then has errors and is not used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::Weight;
use equipoise_session::config::{
    ActiveHealth, BackendConfig, ClientTimeouts, Concurrency, Forwarded, FrontDoor, HealthCheck,
    HttpCheck, Limits, PassiveHealth, Place, PoolConfig, PoolOptions, QueueOptions, Resolved,
    SessionConfig, stand_in,
};

use super::option::Choices;
use super::problem::Findings;
use super::text::{ApiListen, BackendAddress, HedgeDelay, Listen, StatusRange, StatusRanges};
use super::users::Users;
use super::values::Values;
use super::{
    Config, Instance, Operations, Surroundings, api, cluster, dispatch, dns, labels, names, packet,
    planning, slice, tables,
};

/// Builds the whole configuration. Host names of backends stay unresolved: [`Place::Host`].
pub(super) fn config(
    file: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Config {
    let of = |name: &str| file.table(name).expect("has a default: a test reads every one");
    let instance = of("instance");
    let users = Users::of(file);
    let mut pools: Vec<_> =
        file.tables("pool").iter().filter_map(|p| pool(p, &users, findings)).collect();
    let packet = packet::config(file, &pools, around, findings);
    for pool in &mut pools {
        // The packets of a VIP go to one address of its family, so the check has to report each
        // family.
        if let Some(health) = &mut pool.health {
            health.every_family = packet.vips.iter().any(|vip| vip.pool == pool.name);
        }
    }
    let mut planning = planning::config(file, &pools, around, findings);
    let name: Arc<str> = instance.text("name").unwrap_or(&around.host_name).into();
    let cluster = cluster::config(file, &name, around, findings);
    let dns = dns::config(file, &pools, &name, around, findings);
    let mut front_doors: Vec<_> = file.tables("session").iter().flat_map(front_doors_of).collect();
    if let Some((door, peers)) = dispatch::config(file, &name, &pools, around, findings) {
        front_doors.push(door);
        pools.push(peers);
    }
    planning.names = names::by_load(file, &dns, &planning, findings);
    Config {
        instance: Instance { name, threads: instance.amount("threads") },
        operations: operations(of("api"), of("log"), of("shutdown"), around, findings),
        session: SessionConfig { pools, front_doors },
        packet,
        planning,
        cluster,
        dns,
        slices: slice::config(file, around),
    }
}

/// The value of a choice that has a default.
pub(super) fn chosen<T: Copy>(values: &Values, name: &str, choices: &Choices<T>) -> T {
    values.choice(name, choices).expect("has a default: a test reads every one")
}

fn operations(
    api_values: &Values,
    log: &Values,
    shutdown: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Operations {
    Operations {
        api_socket: api_values.text("socket").map_or_else(|| around.api_socket.clone(), Into::into),
        api_listen: api_values.parsed("listen").and_then(|ApiListen(address)| address),
        api_policy: api::policy(api_values, around, findings),
        audit: api::audit(api_values),
        log_level: chosen(log, "level", &tables::LOG_LEVEL),
        log_format: chosen(log, "format", &tables::LOG_FORMAT),
        access_log: log.parsed("access-log").unwrap_or_default(),
        grace: shutdown.duration("grace"),
    }
}

fn pool(pool: &Values, users: &Users<'_>, findings: &mut Findings<'_>) -> Option<PoolConfig> {
    let passive = pool.table("passive").expect("has a default: a test reads every one");
    let name = pool.text("name")?;
    Some(PoolConfig {
        name: name.into(),
        scheduler: chosen(pool, "scheduler", &tables::SCHEDULER),
        backends: backends(pool, findings),
        concurrency: concurrency_of_pool(pool, users.of_pool(name).are_http()),
        options: PoolOptions {
            upstream: chosen(pool, "upstream", &tables::UPSTREAM),
            multiplex_sessions: pool.amount("multiplex-sessions"),
            multiplex_depth: pool.amount("multiplex-depth"),
            multiplex_slow: pool.duration("multiplex-slow"),
            connect_timeout: pool.duration("connect-timeout"),
            response_timeout: pool.duration("response-timeout"),
            session_idle_timeout: pool.duration("session-idle-timeout"),
            idle_sessions_max: pool.amount("idle-sessions-max"),
            retries: pool.amount("retries"),
            retry_budget: pool.share("retry-budget"),
            hedge: pool.parsed("hedge").map(|HedgeDelay(hedge)| hedge),
            send_proxy: pool.choice("send-proxy", &tables::PROXY_PROTOCOL),
            retry_after: pool.duration("retry-after"),
            queue: queue(pool.table("queue").expect("has a default: a test reads every one")),
            start_wait: start_wait(pool),
            lost_after: None,
            tls: None,
        },
        health: pool.table("health").map(active_health),
        passive: PassiveHealth {
            failures: passive.amount("failures"),
            statuses: statuses(passive),
            ejection: passive.duration("ejection"),
            ejection_max: passive.duration("ejection-max"),
            panic_threshold: passive.share("panic-threshold"),
        },
        slow_start: pool.duration_if_any("slow-start"),
        weights_by_load: chosen(pool, "weights", &tables::WEIGHTS),
        starts_within: pool.table("elastic").and_then(|elastic| starts_within(pool, elastic)),
    })
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
    values.number_or_choice("concurrency", &tables::CONCURRENCY, |limit| {
        u32::try_from(limit).ok().and_then(NonZeroU32::new).map(Concurrency::Fixed)
    })
}

fn queue(queue: &Values) -> QueueOptions {
    QueueOptions { wait: queue.duration("wait"), length: queue.amount("length") }
}

/// How long requests wait for the first backend of an elastic pool. `None` if they do not wait.
fn start_wait(pool: &Values) -> Option<Duration> {
    let wait = pool.table("elastic")?.duration("start-wait");
    Some(wait).filter(|wait| !wait.is_zero())
}

/// Longest time until the first backend of an elastic pool serves: created, warmed up and checked.
/// `None` if the pool may have no backends.
fn starts_within(pool: &Values, elastic: &Values) -> Option<Duration> {
    if elastic.number("min") == Some(0) {
        return None;
    }
    let process = elastic.table("process").map(|it| it.duration("ready-timeout"));
    let others = ["exec", "webhook"].into_iter().filter_map(|kind| elastic.table(kind));
    let made = process.or_else(|| others.map(|it| it.duration("timeout")).next());
    let warm = elastic.duration("warm-up").max(made.unwrap_or(MADE_ELSEWHERE));
    let health = pool.table("health").map(active_health);
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

fn statuses(passive: &Values) -> Arc<[(u16, u16)]> {
    let texts = passive.texts("statuses").unwrap_or_default();
    let ranges = texts.iter().filter_map(|text| text.parse().ok());
    ranges.map(|StatusRange(first, last)| (first, last)).collect()
}

fn active_health(health: &Values) -> ActiveHealth {
    let StatusRanges(statuses) =
        health.parsed("status").expect("has a default: a test reads every one");
    let check = match health.text("http") {
        Some(path) => HealthCheck::Http(HttpCheck {
            method: chosen(health, "method", &tables::CHECK_METHOD),
            path: path.into(),
            host: health.text("host").map(Into::into),
            statuses: statuses.into(),
            body: health.text("body").map(Into::into),
        }),
        None => HealthCheck::Tcp,
    };
    ActiveHealth {
        check,
        port: health.given("port").then(|| health.amount("port")),
        interval: health.duration("interval"),
        timeout: health.duration("timeout"),
        rise: health.amount("rise"),
        fall: health.amount("fall"),
        every_family: false,
    }
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

/// The name of a backend; its address if it has none.
pub(super) fn backend_name(backend: &Values) -> Option<Arc<str>> {
    if let Some(name) = backend.text("name") {
        return Some(name.into());
    }
    let name = match backend.parsed("address")? {
        BackendAddress::Ip(address) => address.to_string(),
        BackendAddress::Host(host) => host,
        BackendAddress::Unix(path) => path.file_name()?.to_string_lossy().into_owned(),
    };
    Some(name.into())
}

/// The address that identifies a table's backend, and where the backend is reached.
pub(super) fn place(values: &Values) -> Option<(SocketAddr, Place)> {
    Some(match values.parsed("address")? {
        BackendAddress::Ip(address) => (address, Place::Address),
        BackendAddress::Host(host) => {
            let host = host.to_ascii_lowercase();
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())?;
            let resolved = Resolved::default();
            (stand_in(host.as_bytes(), port), Place::Host { name: host.into(), resolved })
        }
        BackendAddress::Unix(path) => {
            let address = stand_in(path.as_os_str().as_encoded_bytes(), 0);
            (address, Place::Socket(path.as_path().into()))
        }
    })
}

/// The listen addresses of a `[[session]]` or `[[dispatch]]` table.
pub(super) fn listen_addresses(door: &Values) -> Vec<SocketAddr> {
    if door.spec.option("protocol").is_none() {
        return door.parsed("listen").into_iter().collect();
    }
    let texts = door.texts("listen").unwrap_or_default().iter();
    let parsed = texts.filter_map(|text| text.parse().ok());
    parsed.flat_map(|Listen(addresses)| addresses).collect()
}

/// One front door for each listen address of the table.
fn front_doors_of(door: &Values) -> Vec<FrontDoor> {
    let addresses = listen_addresses(door);
    let is_one = addresses.len() == 1;
    addresses.into_iter().filter_map(|listen| front_door(door, listen, is_one)).collect()
}

fn front_door(door: &Values, listen: SocketAddr, is_one: bool) -> Option<FrontDoor> {
    let protocol = door.choice("protocol", &tables::PROTOCOL)?;
    let unnamed = FrontDoor::new(listen, protocol, door.text("pool")?);
    let name = match door.text("name") {
        Some(name) if is_one => name.into(),
        Some(name) => format!("{name}:{listen}").into(),
        None => unnamed.name.clone(),
    };
    Some(FrontDoor {
        name,
        accept_proxy: door.flag("accept-proxy"),
        responses: door.number("responses").and_then(|number| u32::try_from(number).ok()),
        ..http_door(door, unnamed)
    })
}

fn prefixes<'v>(
    values: &'v Values,
    name: &str,
) -> impl Iterator<Item = (std::net::IpAddr, u8)> + use<'v> {
    values.texts(name).unwrap_or_default().iter().filter_map(|text| tables::dns_prefix(text))
}

fn forwarded(door: &Values) -> Forwarded {
    let fields = door.texts("forwarded").unwrap_or_default();
    let has = |name: &str| fields.iter().any(|field| field == name);
    Forwarded {
        x_forwarded_for: has("x-forwarded-for"),
        x_forwarded_proto: has("x-forwarded-proto"),
        x_forwarded_host: has("x-forwarded-host"),
        forwarded: has("forwarded"),
    }
}

/// Adds the options that every HTTP front door has.
pub(super) fn http_door(door: &Values, unnamed: FrontDoor) -> FrontDoor {
    FrontDoor {
        limits: Limits {
            head_bytes_max: door.amount("head-max"),
            headers_max: door.amount("headers-max"),
            body_bytes_max: door.number("body-max"),
            connections_max: door.amount("connections-max"),
        },
        timeouts: ClientTimeouts {
            header: door.duration("header-timeout"),
            idle: door.duration("idle-timeout"),
            request: door.duration_if_any("request-timeout"),
        },
        trusted: prefixes(door, "trusted").collect(),
        forwarded: forwarded(door),
        underscores: chosen(door, "underscores", &tables::UNDERSCORES),
        upgrades: door.texts("upgrades").unwrap_or_default().into(),
        via: door.flag("via"),
        access_log: door.share("access-log"),
        priority: door.amount("priority"),
        ..unnamed
    }
}

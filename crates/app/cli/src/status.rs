//! `equipoise status`.

mod dispatch;
mod dns;
mod packet;
mod routes;
mod slice;
mod tls;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::cluster::ClusterStanding;
use equipoise_api::wire::{
    BackendState, BackendStatus, FrontDoorStatus, Phase, PoolStatus, Region, Status,
};
use equipoise_basics::{counted, two_units};

use crate::cluster::alone::own_load;
use crate::process::ApiArgs;
use crate::slice::status::time;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;
use crate::watch::{self, WatchArgs};
use crate::{cluster, controller};

/// Arguments of `equipoise status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    watch: WatchArgs,
    /// Show the cluster instead: members, leader, loads, instructions and their age
    #[arg(long, conflicts_with = "watch")]
    cluster: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.cluster {
        let shown = cluster::members::show(args.api, args.watch.json).await;
        return shown.map_err(cluster::explained);
    }
    let client = args.api.client().await?;
    watch::show(args.watch, async || client.ask(STATUS, &()).await, render).await
}

/// Shows the status once, as tables.
///
/// # Errors
/// As [`run`].
pub(crate) async fn once(api: ApiArgs) -> anyhow::Result<ExitCode> {
    run(Args { watch: WatchArgs::default(), cluster: false, api }).await
}

/// Writes the whole answer as tables.
fn render(status: &Status, view: View, out: &mut String) {
    heading(status, out);
    out.push('\n');
    // A machine without front doors and pools shows only the rest.
    let serves = !status.front_doors.is_empty() || !status.pools.is_empty();
    let load = status.cluster.as_ref().and_then(|cluster| cluster.load.as_ref());
    if serves {
        front_doors(&status.front_doors).render(view, out);
        out.push('\n');
        backends(&status.pools).render(view, out);
    } else if let Some(load) = load {
        own_load(&status.instance, load).render(view, out);
    }
    routes::render(&status.front_doors, view, out);
    dispatch::render(&status.front_doors, view, out);
    if let Some(packet) = &status.packet {
        packet::render(packet, view, out);
    }
    if let Some(dns) = &status.dns {
        dns::render(dns, view, out);
    }
    slice::render(&status.streams, view, out);
    details(status, out);
}

/// A node's line about its cluster, and one line for each problem.
fn standing(cluster: &ClusterStanding, out: &mut String) {
    let whom = match (&cluster.following, cluster.heard_seconds) {
        (Some(controller), _) => format!("following {controller}"),
        (None, Some(age)) => {
            format!("no controller can be reached; one last answered {} ago", two_units(age as u64))
        }
        (None, None) => "no controller can be reached".to_string(),
    };
    let _ = match (cluster.term, cluster.generation, cluster.age_seconds) {
        (Some(term), Some(generation), Some(age)) => {
            let age = two_units(age as u64);
            let kept = if cluster.kept { ", saved before the restart" } else { "" };
            writeln!(out, "cluster: {whom} · instructions {term}.{generation}, {age} old{kept}")
        }
        _ => writeln!(out, "cluster: {whom} · no instructions yet"),
    };
    for problem in &cluster.problems {
        let _ = writeln!(out, "cluster: {problem}");
    }
}

fn heading(status: &Status, out: &mut String) {
    let up = two_units(status.uptime_seconds as u64);
    let threads = match status.threads {
        // An agent has no data plane.
        0 => "agent".to_string(),
        threads => counted(threads as u64, "thread"),
    };
    let _ = write!(
        out,
        "{} · equipoise {} · pid {} · up {up} · {threads} · {}",
        status.instance, status.version, status.pid, status.config_file
    );
    if status.phase == Phase::Stopping {
        out.push_str(" · STOPPING");
    }
    out.push('\n');
    for process in &status.replaced {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let since = two_units(now.saturating_sub(process.since_unix_seconds));
        let _ = writeln!(
            out,
            "replaced process {}: finishes {}, since {since}",
            process.pid,
            counted(process.connections, "connection")
        );
    }
    if let Some(cluster) = &status.cluster {
        standing(cluster, out);
    }
    if let Some(controller) = &status.controller {
        let _ = writeln!(out, "{}", controller::line(controller));
    }
    if let Some(reload) = status.last_reload.as_ref().filter(|reload| !reload.succeeded) {
        out.push_str("the last reload failed; the previous configuration is in force:\n");
        for error in &reload.errors {
            let _ = writeln!(out, "  {}", error.replace('\n', "\n  "));
        }
    }
}

fn front_doors(doors: &[FrontDoorStatus]) -> Table {
    let mut table = Table::new(&[
        ("FRONT DOOR", Align::Left),
        ("LISTEN", Align::Left),
        ("KIND", Align::Left),
        ("POOL", Align::Left),
        ("OPEN", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("REQ/S", Align::Right),
        ("IN/S", Align::Right),
        ("OUT/S", Align::Right),
        ("TOTAL", Align::Right),
        ("4XX", Align::Right),
        ("5XX", Align::Right),
        ("DROPS", Align::Right),
    ])
    .folding(&["OPEN", "IN/S", "OUT/S", "LISTEN", "4XX", "KIND", "TOTAL"]);
    for door in doors {
        let http = door.protocol == "http";
        let total = if http { door.requests_total } else { door.connections_total };
        let in_flight = if http { door.requests_in_flight } else { door.connections_open };
        let class = |count: u64| if http { errors_cell(count) } else { "-".into() };
        table.row(vec![
            (&door.name).into(),
            (&door.listen).into(),
            (&door.protocol).into(),
            (&door.pool).into(),
            door.connections_open.into(),
            in_flight.into(),
            rate(door.rates.requests).into(),
            bytes(door.rates.bytes_in).into(),
            bytes(door.rates.bytes_out).into(),
            total.into(),
            if http { door.responses.client_error.into() } else { "-".into() },
            class(door.responses.server_error),
            errors_cell(door.drops.values().sum()),
        ]);
    }
    table
}

fn backends(pools: &[PoolStatus]) -> Table {
    let mut table = Table::new(&[
        ("POOL/BACKEND", Align::Left),
        ("ADDRESS", Align::Left),
        ("STATE", Align::Left),
        ("HEALTH", Align::Left),
        ("WEIGHT", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("LIMIT", Align::Right),
        ("REGION", Align::Left),
        ("SERVICE", Align::Right),
        ("QUEUE", Align::Right),
        ("SESSIONS", Align::Right),
        ("REUSED", Align::Right),
        ("REQ/S", Align::Right),
        ("TOTAL", Align::Right),
        ("5XX", Align::Right),
        ("FAILURES", Align::Right),
    ])
    .folding(&[
        "REUSED", "SESSIONS", "ADDRESS", "TOTAL", "WEIGHT", "HEALTH", "QUEUE", "SERVICE", "REGION",
    ]);
    for pool in pools {
        for backend in &pool.backends {
            table.row(vec![
                format!("{}/{}", pool.name, backend.name).into(),
                (&backend.address).into(),
                Cell::toned(state(backend), tone(backend.state)),
                backend.health.into(),
                backend.weight.into(),
                backend.in_flight.into(),
                backend.limit.map_or("none".into(), |limit| u64::from(limit).into()),
                backend.region.map_or("-", Region::word).into(),
                mean(backend.service_seconds),
                mean(backend.queue_seconds),
                backend.sessions_open.into(),
                reused(backend).into(),
                rate(backend.rates.requests).into(),
                backend.requests_total.into(),
                errors_cell(backend.responses.server_error),
                errors_cell(backend.failures.values().sum()),
            ]);
        }
    }
    table
}

/// The state; that of a backend which was added at run time says so.
fn state(backend: &BackendStatus) -> String {
    match backend.added {
        Some(added) => format!("{} ({})", backend.state.word(), added.word()),
        None => backend.state.word().to_owned(),
    }
}

/// Lines that explain the error counts; none if there are no errors.
fn details(status: &Status, out: &mut String) {
    let mut lines = Vec::new();
    if let Some(of_api) = &status.api_tls {
        lines.extend(tls::details("API", of_api, SystemTime::now()));
    }
    for door in &status.front_doors {
        if !door.drops.is_empty() {
            lines.push(format!("{}: dropped {}", door.name, reasons(&door.drops)));
        }
        if let Some(node) = &door.dispatch {
            lines.extend(dispatch::details(&door.name, node));
        }
        if let Some(of_door) = &door.tls {
            lines.extend(tls::details(&door.name, of_door, SystemTime::now()));
        }
    }
    if let Some(packet) = &status.packet {
        lines.extend(packet::details(packet));
    }
    if let Some(dns) = &status.dns {
        lines.extend(dns::details(dns));
    }
    lines.extend(slice::details(&status.streams));
    for pool in &status.pools {
        if pool.backends_eligible == 0 {
            lines.push(format!("pool {}: NO BACKEND can take new work", pool.name));
        }
        lines.extend(source_detail(pool));
        lines.extend(queue_detail(pool));
        for backend in &pool.backends {
            if let Some(detail) = &backend.health_detail {
                lines.push(format!("{}/{}: {detail}", pool.name, backend.name));
            }
            if let Some(of_backend) = &backend.tls {
                let name = format!("{}/{}", pool.name, backend.name);
                lines.extend(tls::backend_details(&name, of_backend));
            }
            lines.extend(learnt_detail(&pool.name, backend));
            lines.extend(group_detail(&pool.name, backend));
            lines.extend(multiplexing_detail(&pool.name, backend));
            lines.extend(sharing_detail(&pool.name, backend));
            if !backend.failures.is_empty() {
                lines.push(format!(
                    "{}/{}: failed {}",
                    pool.name,
                    backend.name,
                    reasons(&backend.failures)
                ));
            }
        }
    }
    if !lines.is_empty() {
        let _ = write!(out, "\n{}\n", lines.join("\n"));
    }
}

/// A line about the source of the pool's backends.
fn source_detail(pool: &PoolStatus) -> Option<String> {
    let (name, source) = (&pool.name, pool.source.as_ref()?);
    let age = source.age_seconds.map(|age| two_units(age as u64));
    let backends = counted(source.backends as u64, "backend");
    Some(match (&source.problem, age) {
        (None, None) => format!("pool {name}: {} was not read yet", source.source),
        (None, Some(_)) => format!("pool {name}: {backends} from {}", source.source),
        (Some(problem), None) => {
            format!("pool {name}: {} has never answered: {problem}", source.source)
        }
        (Some(problem), Some(age)) => {
            format!(
                "pool {name}: {backends} from {}, confirmed {age} ago: {problem}",
                source.source
            )
        }
    })
}

/// A line about the pool's queue, if a request has waited.
fn queue_detail(pool: &PoolStatus) -> Option<String> {
    let (queued, waited) = (pool.queued, pool.queue_waited_total);
    (queued + waited > 0).then(|| {
        let mean_ms = pool.queue_wait_seconds_total * 1e3 / waited.max(1) as f64;
        format!(
            "pool {}: {queued} queued; {waited} have waited, {mean_ms:.0} ms on average",
            pool.name
        )
    })
}

/// A line about the number of requests at which the backend serves most.
fn learnt_detail(pool: &str, backend: &BackendStatus) -> Option<String> {
    let (name, knee) = (&backend.name, backend.knee?);
    Some(format!("{pool}/{name}: serves most with {knee:.0} in flight"))
}

/// A line about the limit that the balancers of a cluster share.
fn group_detail(pool: &str, backend: &BackendStatus) -> Option<String> {
    let (name, limit, all) = (&backend.name, backend.limit?, backend.group_limit?);
    Some(format!("{pool}/{name}: {limit} of the {all} that all balancers of the cluster share"))
}

/// A line about a backend that lost multiplexing because of faults.
fn multiplexing_detail(pool: &str, backend: &BackendStatus) -> Option<String> {
    let (name, faults) = (&backend.name, backend.multiplex_faults_total);
    backend.multiplexing_lost.then(|| {
        format!(
            "{pool}/{name}: not multiplexed after {faults} responses with ambiguous framing or without a request; after fixing the backend: equipoise undrain {pool}/{name}"
        )
    })
}

/// A line about late or large responses on shared connections.
fn sharing_detail(pool: &str, backend: &BackendStatus) -> Option<String> {
    let name = &backend.name;
    let (shared, alone) = (backend.multiplex_shared_total, backend.multiplex_alone_total);
    let (over, again) = (backend.multiplex_handed_over_total, backend.multiplex_repeated_total);
    (over > 0).then(|| {
        format!(
            "{pool}/{name}: {shared} requests on shared connections, {alone} on their own; {over} connections handed over for late or large responses, {again} requests sent again"
        )
    })
}

fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> =
        counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.join(", ")
}

pub(crate) fn tone(state: BackendState) -> Tone {
    match state {
        BackendState::Up => Tone::Good,
        BackendState::Standby => Tone::Plain,
        BackendState::Draining | BackendState::Drained => Tone::Warning,
        BackendState::Down | BackendState::Unhealthy => Tone::Bad,
    }
}

fn errors_cell(count: u64) -> Cell {
    Cell::toned(count.to_string(), if count == 0 { Tone::Plain } else { Tone::Bad })
}

/// The share of requests that reused a pooled connection.
fn reused(backend: &BackendStatus) -> String {
    let uses = backend.sessions_reused_total + backend.sessions_opened_total;
    if uses == 0 {
        return "-".into();
    }
    format!("{:.1}%", backend.sessions_reused_total as f64 * 100.0 / uses as f64)
}

fn mean(seconds: Option<f64>) -> Cell {
    seconds.map_or("-".into(), |seconds| time(seconds).into())
}

fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

pub(crate) fn bytes(count: f64) -> String {
    let mut value = count;
    for unit in ["B", "KiB", "MiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} GiB")
}

#[cfg(test)]
mod tests;

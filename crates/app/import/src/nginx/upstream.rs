//! `upstream`: pools.

use super::syntax::{Directive, milliseconds};
use crate::model::{Options, Pool, duration, has_port, name};
use crate::report::Report;

/// The pool of an `upstream`.
pub(super) fn pool(upstream: &Directive, report: &mut Report) -> Pool {
    let mut pool = Pool { name: name(upstream.arg(0)), ..Pool::default() };
    let servers: Vec<_> = upstream.block.iter().filter(|it| it.name == "server").collect();
    for (at, server) in servers.iter().enumerate() {
        backend(&mut pool, at, server, report);
    }
    if pool.backends.iter().any(|it| it.has("concurrency")) {
        for backend in pool.backends.iter_mut().filter(|it| !it.has("concurrency")) {
            backend.set("concurrency", "none");
        }
    }
    let weights: Vec<_> = servers
        .iter()
        .filter(|it| !it.has("backup"))
        .map(|it| it.value("weight").unwrap_or("1"))
        .collect();
    let is_weighted = weights.iter().any(|it| *it != weights[0]) || pool.options.has("slow-start");
    let turns = if is_weighted { "weighted-round-robin" } else { "round-robin" };
    let mut scheduler = (servers.len() > 1).then_some(turns);
    for directive in &upstream.block {
        match directive.name.as_str() {
            "least_conn" if is_weighted => scheduler = Some("weighted-least-connection"),
            "least_conn" => scheduler = Some("least-connection"),
            "least_time" => scheduler = Some("least-time"),
            "ip_hash" => scheduler = Some("source-hash"),
            "random" => scheduler = Some("power-of-two"),
            "hash" => scheduler = Some(hash(&mut pool, directive, turns, report)),
            "keepalive" => {
                if let Ok(number) = directive.arg(0).parse::<i64>() {
                    pool.options.set("idle-sessions-max", number.clamp(0, 65536));
                }
            }
            "keepalive_timeout" => {
                if let Some(time) = milliseconds(directive.arg(0)) {
                    pool.options.set("session-idle-timeout", duration(time.clamp(100, 86_400_000)));
                }
            }
            "sticky" if directive.arg(0) == "cookie" => {
                let mut sticky = Options::default();
                sticky.set("cookie", name(directive.arg(1)));
                pool.sticky = Some(sticky);
            }
            "sticky" => {
                report.lost(directive.number, "sticky = { cookie = ... } sets a cookie of its own")
            }
            _ => {}
        }
    }
    if let Some(scheduler) = scheduler {
        pool.options.set("scheduler", scheduler);
    }
    pool
}

fn hash(
    pool: &mut Pool,
    directive: &Directive,
    turns: &'static str,
    report: &mut Report,
) -> &'static str {
    let key = directive.arg(0);
    let part = match key {
        "$remote_addr" | "$binary_remote_addr" => None,
        key => {
            match (
                key.strip_prefix("$cookie_"),
                key.strip_prefix("$arg_"),
                key.strip_prefix("$http_"),
            ) {
                (Some(name), ..) => Some(format!("cookie:{name}")),
                (_, Some(name), _) => Some(format!("query:{name}")),
                (.., Some(name)) => Some(format!("header:{}", name.replace('_', "-"))),
                _ => {
                    report.lost(directive.number, "source-hash hashes a header, a cookie, a parameter or the client's address");
                    return turns;
                }
            }
        }
    };
    if let Some(part) = part {
        pool.options.set("hash-by", part);
    }
    if !directive.has("consistent") {
        report.changes(directive.number, "source-hash is consistent when backends change");
    }
    "source-hash"
}

fn backend(pool: &mut Pool, at: usize, server: &Directive, report: &mut Report) {
    let mut backend = Options::default();
    backend.set("name", name(&format!("{}{}", pool.name, at + 1)));
    backend.set("address", address(server.arg(0), 80));
    for arg in &server.args[1.min(server.args.len())..] {
        let (key, value) = arg.split_once('=').unwrap_or((arg, ""));
        match key {
            "weight" => {
                if let Ok(weight) = value.parse::<i64>() {
                    backend.set("weight", weight.clamp(0, 1000));
                }
            }
            "max_conns" => {
                if let Some(limit) = value.parse::<i64>().ok().filter(|it| *it > 0) {
                    backend.set("concurrency", limit.min(1_000_000));
                }
            }
            "backup" => {
                backend.set("backup", true);
            }
            "down" => {
                backend.set("weight", 0);
            }
            "max_fails" => {
                if let Ok(number) = value.parse::<i64>() {
                    pool.passive.set("failures", number.clamp(0, 1000));
                }
            }
            "fail_timeout" => {
                if let Some(time) = milliseconds(value) {
                    pool.passive.set("ejection", duration(time.clamp(100, 86_400_000)));
                }
            }
            "slow_start" => {
                if let Some(time) = milliseconds(value) {
                    pool.options.set("slow-start", duration(time.clamp(1000, 3_600_000)));
                }
            }
            "resolve" => report.changes(server.number, "a host name is resolved for each connection; [pool.discover.dns] makes each address a backend"),
            _ => report.lost(server.number, format!("a backend has no {key}")),
        }
    }
    pool.backends.push(backend);
}

/// An address with a port.
pub(super) fn address(text: &str, port: u16) -> String {
    if text.starts_with("unix:") {
        return text.trim_end_matches(':').to_string();
    }
    if has_port(text) { text.to_string() } else { format!("{text}:{port}") }
}

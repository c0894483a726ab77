//! Checks of servers: `check`, `option httpchk`, `http-check`, `tcp-check`.

use super::proxy::Proxy;
use super::server::Parameters;
use super::words::{Line, milliseconds};
use crate::model::{Options, Pool, duration};
use crate::report::Report;

pub(super) fn check(
    pool: &mut Pool,
    proxy: &Proxy,
    first: &Parameters,
    all: &[(&Line, Parameters)],
    report: &mut Report,
) {
    let checked: Vec<_> = all.iter().filter(|(_, it)| it.contains_key("check")).collect();
    for line in proxy.check.iter().chain(&proxy.check_rules) {
        report.carried(line.number);
    }
    let Some((_, parameters)) = checked.first() else {
        for line in proxy.check.iter().chain(&proxy.check_rules) {
            report.changes(line.number, "no server has `check`, so neither program checks");
        }
        return;
    };
    differences(parameters, all, report);
    let health = &mut pool.health;
    let mut is_http = false;
    if let Some(line) = &proxy.check {
        is_http = true;
        let (method, path) = match line.from(2) {
            [] => ("OPTIONS", "/"),
            [path] => ("OPTIONS", path.as_str()),
            [method, path, ..] => (method.as_str(), path.as_str()),
        };
        health.set("http", path);
        health.set("status", "200-399");
        if method != "GET" {
            health.set("method", method);
        }
        if let Some(host) =
            line.words.iter().find_map(|it| it.split_once("Host:").map(|(_, host)| host))
        {
            health.set("host", host.trim().trim_end_matches("\\r\\n"));
        }
    }
    for line in &proxy.check_rules {
        rule(health, line, is_http, report);
    }
    if !is_http {
        health.set("tcp", true);
    }
    for (key, name) in [("inter", "interval"), ("rise", "rise"), ("fall", "fall"), ("port", "port")]
    {
        let Some(value) = parameters.get(key).or_else(|| first.get(key)) else { continue };
        match (key, value.parse::<i64>(), milliseconds(value)) {
            ("inter", _, Some(time)) => health.set(name, duration(time.clamp(100, 3_600_000))),
            (_, Ok(number), _) => health.set(name, number),
            _ => health,
        };
    }
    if let Some(time) = proxy.time("check", 10, 600_000, report) {
        health.set("timeout", time);
    }
    if closes(parameters) {
        health.set("close-connections", true);
    }
}

/// Reports each server with other check options than the first checked server.
fn differences(first: &Parameters, all: &[(&Line, Parameters)], report: &mut Report) {
    let checks =
        |it: &Parameters| ["inter", "rise", "fall", "port"].map(|key| it.get(key).cloned());
    for (line, other) in all {
        if !other.contains_key("check") {
            report.changes(line.number, "the checks are for all backends of the pool");
        } else if checks(other) != checks(first) {
            report.changes(
                line.number,
                "the times and the port of checks are those of the pool's first server",
            );
        }
        if other.contains_key("check") && closes(other) != closes(first) {
            report.changes(
                line.number,
                "close-connections of the pool is for all backends, as on-marked-down of the first \
                 server with checks",
            );
        }
    }
}

/// True if a failed check closes the server's connections.
fn closes(server: &Parameters) -> bool {
    server.get("on-marked-down").is_some_and(|it| it == "shutdown-sessions")
}

/// `http-check` and `tcp-check`.
fn rule(health: &mut Options, line: &Line, is_http: bool, report: &mut Report) {
    let number = line.number;
    if line.word(0) == "tcp-check" {
        if line.word(1) != "connect" {
            report.changes(number, "the check opens a connection and sends nothing");
        }
        return;
    }
    if !is_http {
        report.lost(number, "`option httpchk` is missing, so HAProxy does not use it either");
        return;
    }
    let value_of = |key: &str| {
        let at = line.words.iter().position(|it| it == key)?;
        line.words.get(at + 1).cloned()
    };
    match line.word(1) {
        "send" => {
            // Without `meth`, `http-check send` asks by GET.
            match value_of("meth") {
                Some(method) if method != "GET" => health.set("method", method),
                _ => health.set("method", "GET"),
            };
            if let Some(path) = value_of("uri") {
                health.set("http", path);
            }
            let headers = line.words.windows(3).filter(|it| it[0] == "hdr");
            for header in headers {
                if header[1].eq_ignore_ascii_case("host") {
                    health.set("host", header[2].clone());
                } else {
                    report.lost(number, format!("a check sends no header {}", header[1]));
                }
            }
            if value_of("body").is_some() {
                report.lost(number, "a check sends no body");
            }
        }
        "connect" => {
            if let Some(port) = value_of("port").and_then(|it| it.parse::<i64>().ok()) {
                health.set("port", port);
            }
            if line.words.iter().any(|it| ["ssl", "proto", "sni", "alpn"].contains(&it.as_str())) {
                report.changes(number, "the check uses TLS if the pool has `tls`");
            }
        }
        "expect" => {
            let words: Vec<_> =
                line.from(2).iter().filter(|it| !it.starts_with("min-recv")).collect();
            match words.as_slice() {
                [how, status] if *how == "status" => {
                    health.set("status", status.replace(' ', ","));
                }
                [how, text] if *how == "string" => {
                    health.set("body", (*text).clone());
                }
                _ => {
                    report.lost(number, "health has status = \"200-299,401\" and body = \"a text\"")
                }
            }
        }
        "disable-on-404" => {
            report.lost(number, "equipoise drain takes a backend out; a 404 is a failed check")
        }
        "send-state" => report.lost(number, "checks send no state"),
        _ => report.lost(number, "health has http, method, host, port, status and body"),
    }
}

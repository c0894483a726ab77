//! `server` lines: a pool.

use std::collections::BTreeMap;

use toml::Value;

use super::balance::{cookie, retries, schedule, times};
use super::check::check;
use super::proxy::Proxy;
use super::words::{Line, milliseconds};
use crate::model::{Options, Pool, duration, has_port, name};
use crate::report::Report;

/// Parameters of a server: those with a value have it, flags have an empty one.
pub(super) type Parameters = BTreeMap<String, String>;

/// Parameters without a value. Every other one has a value.
const FLAGS: &[&str] = &[
    "check",
    "no-check",
    "backup",
    "non-stick",
    "ssl",
    "no-ssl",
    "check-ssl",
    "no-check-ssl",
    "send-proxy",
    "send-proxy-v2",
    "send-proxy-v2-ssl",
    "send-proxy-v2-ssl-cn",
    "check-send-proxy",
    "no-send-proxy",
    "no-send-proxy-v2",
    "disabled",
    "enabled",
    "agent-check",
    "allow-0rtt",
    "tfo",
    "no-tls-tickets",
    "tls-tickets",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "force-tlsv12",
    "force-tlsv13",
    "no-verifyhost",
    "stick",
    "no-backup",
    "no-ssl-reuse",
    "ssl-reuse",
    "check-via-socks4",
];

/// Parameters that have no counterpart and need none.
const NOTHING: &[&str] = &[
    "check",
    "enabled",
    "no-check",
    "stick",
    "no-backup",
    "no-ssl",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-ssl-reuse",
    "ssl-reuse",
    "no-tls-tickets",
    "tls-tickets",
    "id",
    "pool-low-conn",
    "init-addr",
    "resolve-opts",
    "tfo",
    "allow-0rtt",
    "check-proto",
    "log-bufsize",
    "no-send-proxy",
    "no-send-proxy-v2",
    "check-send-proxy",
];

/// The pool of a `backend` or `listen`.
pub(super) fn pool(proxy: &Proxy, report: &mut Report) -> Pool {
    let mut pool = Pool { name: name(&proxy.name), ..Pool::default() };
    let defaults = proxy.server_defaults.iter().fold(Parameters::new(), |so_far, line| {
        report.carried(line.number);
        parameters(line.from(1), so_far)
    });
    let servers: Vec<(&Line, Parameters)> = proxy
        .servers
        .iter()
        .map(|line| (line, parameters(line.from(3), defaults.clone())))
        .collect();
    for (line, parameters) in &servers {
        report.carried(line.number);
        backend(&mut pool, line, parameters, report);
    }
    let mut all = servers;
    for line in &proxy.templates {
        let parameters = parameters(line.from(4), defaults.clone());
        template(&mut pool, line, &parameters, report);
        all.push((line, parameters));
    }
    if let Some((first, parameters)) = all.first() {
        shared(&mut pool, proxy, first, parameters, &all, report);
        check(&mut pool, proxy, parameters, &all, report);
    }
    schedule(&mut pool, proxy, &all, report);
    times(&mut pool, proxy, report);
    cookie(&mut pool, proxy, report);
    retries(&mut pool, proxy, report);
    pool
}

fn parameters(words: &[String], mut so_far: Parameters) -> Parameters {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = if FLAGS.contains(&word.as_str()) { None } else { words.next() };
        // `no-check` and the like take back a default.
        if let Some(opposite) = word.strip_prefix("no-") {
            so_far.remove(opposite);
        }
        so_far.insert(word.clone(), value.cloned().unwrap_or_default());
    }
    so_far
}

fn backend(pool: &mut Pool, line: &Line, parameters: &Parameters, report: &mut Report) {
    let mut backend = Options::default();
    backend.set("name", name(line.word(1)));
    let address = line.word(2);
    let address =
        address.strip_prefix("ipv4@").or_else(|| address.strip_prefix("ipv6@")).unwrap_or(address);
    let address = match address
        .strip_prefix("unix@")
        .or(address.starts_with('/').then_some(address))
    {
        Some(path) => format!("unix:{path}"),
        None if has_port(address) => address.to_string(),
        None => {
            report.changes(
                line.number,
                "without a port HAProxy uses the client's; the translation has port 80",
            );
            if address.contains(':') { format!("[{address}]:80") } else { format!("{address}:80") }
        }
    };
    backend.set("address", address);
    if let Some(weight) = parameters.get("weight").and_then(|it| it.parse::<i64>().ok()) {
        backend.set("weight", weight.clamp(0, 1000));
    }
    if parameters.contains_key("backup") {
        backend.set("backup", true);
    }
    if parameters.contains_key("disabled") {
        report.changes(
            line.number,
            "the server is disabled: weight = 0, or equipoise disable after the start",
        );
        backend.set("weight", 0);
    }
    pool.backends.push(backend);
}

fn template(pool: &mut Pool, line: &Line, parameters: &Parameters, report: &mut Report) {
    let address = line.word(3);
    let mut names = Options::default();
    match address.rsplit_once(':') {
        Some((host, port)) => {
            names.set("name", host);
            if let Ok(port) = port.parse::<i64>() {
                names.set("port", port);
            }
            match parameters.get("resolve-prefer").map(String::as_str) {
                Some("ipv4") => names.set("type", "a"),
                Some("ipv6") => names.set("type", "aaaa"),
                _ => names.set("type", "addresses"),
            };
        }
        None => {
            names.set("name", address).set("type", "srv");
        }
    }
    report.carried(line.number);
    if pool.names.is_some() {
        report.lost(line.number, "a pool has one [pool.discover.dns]");
        return;
    }
    pool.names = Some(names);
}

/// Options that equipoise has for a whole pool. Servers that differ from the first are noted.
fn shared(
    pool: &mut Pool,
    proxy: &Proxy,
    first: &Line,
    parameters: &Parameters,
    all: &[(&Line, Parameters)],
    report: &mut Report,
) {
    let keys = [
        "ssl",
        "verify",
        "ca-file",
        "crt",
        "sni",
        "proto",
        "send-proxy",
        "send-proxy-v2",
        "slowstart",
        "maxqueue",
    ];
    for (line, other) in all {
        let different = keys.iter().filter(|key| other.get(**key) != parameters.get(**key));
        let different: Vec<_> = different.copied().collect();
        if !different.is_empty() {
            report.changes(
                line.number,
                format!(
                    "{} is for the whole pool, as at line {}",
                    different.join(", "),
                    first.number
                ),
            );
        }
        for key in other.keys().filter(|key| !keys.contains(&key.as_str())) {
            parameter(line.number, key, line.word(0) == "server-template", report);
        }
    }
    limits(pool, parameters, all);
    if parameters.contains_key("send-proxy") {
        pool.options.set("send-proxy", "v1");
    }
    if parameters.keys().any(|it| it.starts_with("send-proxy-v2")) {
        pool.options.set("send-proxy", "v2");
    }
    if parameters.get("proto").is_some_and(|it| it == "h2") && !proxy.is_tcp {
        pool.options.set("upstream", "http2");
    } else if offers_http2(parameters) && !proxy.is_tcp {
        let offers_both = parameters.get("alpn").is_some_and(|it| it.contains("http/1.1"));
        pool.options.set("upstream", if offers_both { "auto" } else { "http2" });
    }
    if let Some(time) = parameters.get("slowstart").and_then(|it| milliseconds(it)) {
        pool.options.set("slow-start", duration(time.clamp(1000, 3_600_000)));
    }
    if let Some(length) =
        parameters.get("maxqueue").and_then(|it| it.parse::<i64>().ok()).filter(|it| *it > 0)
    {
        pool.queue.set("length", length.min(1_000_000));
    }
    if parameters.contains_key("ssl") {
        tls(pool, first, parameters, report);
    }
}

/// Whether servers may choose HTTP/2 by ALPN.
fn offers_http2(parameters: &Parameters) -> bool {
    parameters.contains_key("ssl")
        && parameters.get("alpn").is_some_and(|it| it.split(',').any(|name| name == "h2"))
}

fn parameter(number: usize, key: &str, is_template: bool, report: &mut Report) {
    match key {
        "weight" | "backup" | "disabled" | "maxconn" | "inter" | "rise" | "fall" | "port"
        | "verifyhost" | "alpn" | "on-marked-down" => {}
        "fastinter" | "downinter" => {
            report.changes(number, "checks of a backend have one interval, `inter`")
        }
        "observe" | "error-limit" | "on-error" => {
            report.changes(number, "`passive` of the pool ejects a backend whose requests fail")
        }
        "minconn" => report.changes(number, "the limit is maxconn at any load"),
        "non-stick" => report.changes(number, "`sticky` is for all backends of the pool"),
        "cookie" => report.changes(
            number,
            "values of the cookie are equipoise's own: cookies of HAProxy are replaced",
        ),
        "check-ssl" | "no-check-ssl" | "check-sni" | "check-alpn" => {
            report.changes(number, "checks use TLS as the pool's traffic does")
        }
        "ciphers" | "ciphersuites" => report.changes(number, "suites are those of the profile"),
        "no-verifyhost" => {
            report.changes(number, "the name in the backend's certificate is verified")
        }
        "resolvers" | "resolve-prefer" | "resolve-net" if is_template => {}
        "resolvers" | "resolve-prefer" | "resolve-net" => report.changes(
            number,
            "a host name is looked up by the system's servers; [pool.discover.dns] names others",
        ),
        "pool-max-conn" | "pool-purge-delay" => report.changes(
            number,
            "idle-sessions-max and session-idle-timeout of the pool bound open connections",
        ),
        "on-marked-up" | "track" | "addr" | "source" | "redir" | "agent-check" | "agent-port"
        | "agent-inter" | "agent-addr" | "crl-file" | "socks4" | "namespace" | "ws" => {
            report.lost(number, format!("servers have no {key}"))
        }
        "ssl-min-ver" | "ssl-max-ver" | "force-tlsv12" | "force-tlsv13" | "no-tlsv12"
        | "no-tlsv13" => {
            report.changes(
                number,
                "versions are those of profile: TLS 1.2 and 1.3, or 1.3 with \"modern\"",
            );
        }
        key if NOTHING.contains(&key) || key.starts_with("send-proxy") => {}
        key => report.lost(number, format!("servers have no {key}")),
    }
}

/// `maxconn`: one number for all is the pool's, otherwise each backend has its own.
fn limits(pool: &mut Pool, parameters: &Parameters, all: &[(&Line, Parameters)]) {
    let number = |it: &Parameters| {
        it.get("maxconn").and_then(|it| it.parse::<i64>().ok()).filter(|it| *it > 0)
    };
    let first = number(parameters);
    if all.iter().all(|(_, it)| number(it) == first) {
        if let Some(number) = first {
            pool.options.set("concurrency", number.min(1_000_000));
        }
        return;
    }
    for (backend, (_, parameters)) in pool.backends.iter_mut().zip(all) {
        let limit =
            number(parameters).map_or(Value::from("none"), |it| Value::from(it.min(1_000_000)));
        backend.set("concurrency", limit);
    }
}

fn tls(pool: &mut Pool, line: &Line, parameters: &Parameters, report: &mut Report) {
    let mut tls = Options::default();
    let value = |key: &str| parameters.get(key).filter(|it| !it.is_empty());
    let sni =
        value("sni").and_then(|it| it.strip_prefix("str(")?.strip_suffix(')').map(str::to_string));
    if let Some(server) = value("verifyhost").cloned().or(sni) {
        tls.set("server-name", server);
    } else if value("sni").is_some() {
        report.changes(
            line.number,
            "the name of the server is one for all requests: tls = { server-name = ... }",
        );
    }
    match (value("verify").map(String::as_str), value("ca-file")) {
        (Some("none"), _) => {
            tls.set("verify", false);
        }
        (_, Some(file)) if file != "@system-ca" => {
            tls.set("ca", file.clone());
        }
        _ => {}
    }
    if let Some(file) = value("crt") {
        tls.set("certificate", file.clone());
    }
    pool.tls = Some(tls);
}

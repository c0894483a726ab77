//! `http`: front doors, and what their servers share.

use super::location;
use super::syntax::{Directive, milliseconds, size};
use super::{Socket, innermost, listen_lines, listen_options, sockets, upstream};
use crate::conditions::{Meet, escaped, meet};
use crate::model::{Config, Door, Options, Route, duration, name};
use crate::report::Report;

/// Adds the pools and front doors of a `http` block.
pub(super) fn add(block: &[Directive], config: &mut Config, report: &mut Report) {
    for one in block.iter().filter(|it| it.name == "upstream") {
        let pool = upstream::pool(one, report);
        config.pools.push(pool);
    }
    for map in block.iter().filter(|it| it.name == "map") {
        // WebSocket's usual map of the header `Connection`.
        if map.arg(0) != "$http_upgrade" {
            report.lost(map.number, "routes with conditions, one for each value");
        }
    }
    let servers: Vec<_> = block.iter().filter(|it| it.name == "server").collect();
    for (socket, servers) in sockets(&servers, report) {
        let port = socket.listen.rsplit(':').next().unwrap_or_default().to_string();
        let mut door = Door { name: name(&format!("http-{port}")), ..Door::default() };
        let is_taken = |config: &Config, name: &str| config.doors.iter().any(|it| it.name == name);
        if is_taken(config, &door.name) {
            door.name = name(&format!("http-{}", socket.listen));
        }
        door.options.set("listen", socket.listen.clone()).set("protocol", "http");
        listen_options(&mut door, &servers, &socket);
        let scopes: [&[Directive]; 2] = [&servers[0].block, block];
        shared(&mut door, &scopes);
        let mut forwarded = Vec::new();
        let (first, others) = (servers[0], &servers[1..]);
        // The default server is for all other names, and so comes last.
        for server in others.iter().chain([&first]) {
            let is_default = std::ptr::eq(*server, first);
            let hosts = hosts(server, is_default, report);
            let mut building = location::Building {
                block,
                server,
                enclosing: Vec::new(),
                config,
                report,
                forwarded: &mut forwarded,
                door: &mut door,
            };
            building.routes(&hosts);
        }
        door.listen_lines = servers.iter().flat_map(|it| numbers(it, &socket)).collect();
        if door.hsts.is_some() {
            strict_transport(block, &servers, report);
        }
        for server in &servers {
            certificates(&mut door, &[&server.block, block], report);
        }
        headers(&mut door, &forwarded);
        pool_of(&mut door, config);
        config.doors.push(door);
    }
}

/// The numbers of a server's lines that are one socket's; without any, the server's own.
fn numbers(server: &Directive, socket: &Socket) -> Vec<usize> {
    let numbers: Vec<_> = listen_lines(server, socket).iter().map(|it| it.number).collect();
    if numbers.is_empty() { vec![server.number] } else { numbers }
}

/// Options of the front door from its default server and from `http`.
fn shared(door: &mut Door, scopes: &[&[Directive]]) {
    let first = |name: &str| innermost(scopes, name).first().map(|it| it.arg(0).to_string());
    let time = |name: &str| first(name).and_then(|it| milliseconds(&it));
    if let Some(time) = time("client_header_timeout") {
        door.options.set("header-timeout", duration(time.clamp(100, 3_600_000)));
    }
    // nginx's own default is 75 s.
    let idle = time("keepalive_timeout").unwrap_or(75_000);
    door.options.set("idle-timeout", duration(idle.clamp(100, 86_400_000)));
    // nginx's own default is 1 MiB.
    let body = first("client_max_body_size").unwrap_or_else(|| "1m".to_string());
    if let Some(size) = size(&body).filter(|it| !it.starts_with("0")) {
        door.options.set("body-max", size);
    }
    if first("underscores_in_headers").is_some_and(|it| it == "on") {
        door.options.set("underscores", "keep");
    }
    if first("http2").is_some_and(|it| it == "on") {
        door.options.set("http2", true);
    }
    for line in innermost(scopes, "set_real_ip_from") {
        door.options.push("trusted", line.arg(0));
    }
    if first("access_log").is_some_and(|it| it != "off") {
        door.options.set("access-log", 1.0);
    }
}

/// Reports the header `Strict-Transport-Security` if some server of the front door has none.
fn strict_transport(block: &[Directive], servers: &[&Directive], report: &mut Report) {
    let stated = |server: &Directive| {
        let all = innermost(&[&server.block, block], "add_header").into_iter();
        let is_it = |it: &&Directive| it.arg(0).eq_ignore_ascii_case("strict-transport-security");
        all.filter(is_it).map(|it| it.number).collect::<Vec<_>>()
    };
    let all: Vec<_> = servers.iter().map(|it| stated(it)).collect();
    if all.iter().any(Vec::is_empty) {
        for number in all.into_iter().flatten() {
            report.changes(number, "hsts is for all names of the front door");
        }
    }
}

/// `allow` and `deny` of a front door of TCP or UDP: the first that fits decides.
pub(super) fn access(door: &mut Door, scopes: &[&[Directive]]) {
    let rules: Vec<_> = scopes
        .iter()
        .map(|scope| {
            scope.iter().filter(|it| it.name == "allow" || it.name == "deny").collect::<Vec<_>>()
        })
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let mut refused: Vec<Options> = Vec::new();
    let mut is_closed = false;
    for rule in &rules {
        let mut source = Options::default();
        source.push("source", rule.arg(0));
        match (rule.name.as_str(), rule.arg(0)) {
            (name, "all") => {
                is_closed = name == "deny";
                break;
            }
            (_, "unix:") => {}
            ("allow", prefix) => {
                let is_refused =
                    refused.iter().any(|it| meet(it, &source) == Meet::Both(source.clone()));
                if !is_refused {
                    door.options.push("allow", prefix);
                }
            }
            (_, prefix) => {
                door.options.push("deny", prefix);
                refused.push(source);
            }
        }
    }
    match (is_closed, door.options.has("allow")) {
        (true, false) => {
            door.options.push("deny", "0.0.0.0/0");
            door.options.push("deny", "::/0");
        }
        (false, true) => {
            door.options.push("allow", "0.0.0.0/0");
            door.options.push("allow", "::/0");
        }
        _ => {}
    }
}

/// Certificates of a server, and those of its clients.
pub(super) fn certificates(door: &mut Door, scopes: &[&[Directive]], report: &mut Report) {
    if door.tls.is_none() {
        return;
    }
    let keys = innermost(scopes, "ssl_certificate_key");
    for (at, chain) in innermost(scopes, "ssl_certificate").iter().enumerate() {
        let mut certificate = Options::default();
        certificate.set("chain", chain.arg(0));
        if let Some(key) = keys.get(at).filter(|it| it.arg(0) != chain.arg(0)) {
            certificate.set("key", key.arg(0));
        }
        if !door.certificates.contains(&certificate) {
            door.certificates.push(certificate);
        }
    }
    if let Some(line) = innermost(scopes, "ssl_protocols").first() {
        let has = |version: &str| line.has(version);
        if has("TLSv1.3")
            && !has("TLSv1.2")
            && let Some(tls) = &mut door.tls
        {
            tls.set("profile", "modern");
        }
        if has("TLSv1") || has("TLSv1.1") {
            report.changes(line.number, "TLS 1.2 is the oldest version");
        }
    }
    let verifies = innermost(scopes, "ssl_verify_client");
    let authority = innermost(scopes, "ssl_client_certificate");
    if let (Some(verify), Some(ca)) = (verifies.first(), authority.first()) {
        let mut clients = Options::default();
        clients.set("ca", ca.arg(0));
        if verify.arg(0) == "optional" {
            clients.set("required", false);
        }
        if verify.arg(0) != "off" {
            // Of several servers the strictest counts: the front door has one setting.
            match &door.clients {
                Some(before) if *before != clients => {
                    report.changes(
                        verify.number,
                        "the strictest server's is for all names of the front door",
                    );
                    if before.has("required") {
                        door.clients = Some(clients);
                    }
                }
                _ => door.clients = Some(clients),
            }
        }
    }
}

/// TLS to backends. nginx does not verify them unless it is asked to.
pub(super) fn backend_tls(scopes: &[&[Directive]]) -> Options {
    let first = |name: &str| innermost(scopes, name).first().map(|it| it.arg(0).to_string());
    let mut tls = Options::default();
    if let Some(name) = first("proxy_ssl_name").filter(|it| !it.contains('$')) {
        tls.set("server-name", name);
    }
    if first("proxy_ssl_verify").is_some_and(|it| it == "on") {
        if let Some(ca) = first("proxy_ssl_trusted_certificate") {
            tls.set("ca", ca);
        }
    } else {
        tls.set("verify", false);
    }
    if let Some(certificate) = first("proxy_ssl_certificate") {
        tls.set("certificate", certificate);
    }
    if let Some(key) = first("proxy_ssl_certificate_key") {
        tls.set("key", key);
    }
    tls
}

/// Names of a server as conditions of routes: `host`s, or a regular expression of the header.
fn hosts(server: &Directive, is_default: bool, report: &mut Report) -> Options {
    let mut options = Options::default();
    if is_default {
        return options;
    }
    let mut patterns = Vec::new();
    for line in server.block.iter().filter(|it| it.name == "server_name") {
        for host in &line.args {
            match host.as_str() {
                "_" | "" => {}
                host if host.starts_with('~') => patterns.push(host[1..].to_string()),
                host if host.ends_with(".*") => {
                    patterns.push(format!("^{}\\.", escaped(host.trim_end_matches(".*"))))
                }
                host if host.starts_with('.') => {
                    options.push("host", host[1..].to_lowercase());
                    options.push("host", format!("*{}", host.to_lowercase()));
                }
                "$hostname" => report.lost(line.number, "write the name of the machine"),
                host if !host.contains('.') => {
                    patterns.push(format!("^{}(?::[0-9]+)?$", escaped(host)))
                }
                host => options.push("host", host.to_lowercase()),
            }
        }
    }
    if !patterns.is_empty() {
        if options.is_empty() {
            options.push("header", format!("Host: ~(?i){}", patterns.join("|")));
        } else {
            report.lost(
                server.number,
                format!("put the names {} into a route of their own", patterns.join(" and ")),
            );
        }
    }
    options
}

/// `forwarded` of the front door, and `Strict-Transport-Security` out of its routes.
fn headers(door: &mut Door, forwarded: &[&'static str]) {
    let mut all: Vec<&str> = forwarded.to_vec();
    all.sort_unstable();
    all.dedup();
    let is_default = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] == all[..];
    if !is_default {
        let all: Vec<_> = all.into_iter().map(toml::Value::from).collect();
        door.options.set("forwarded", toml::Value::Array(all));
    }
}

/// The pool of requests that no route takes.
fn pool_of(door: &mut Door, config: &Config) {
    // A last route that only names a pool is what the front door does by itself.
    if let Some(last) = door.routes.last()
        && let Some(pool) = last.options.get("pool").cloned()
    {
        let mut plain = Route::default();
        plain.options.set("pool", pool.clone());
        if *last == plain {
            door.options.set("pool", pool);
            door.routes.pop();
        }
    }
    if !door.options.has("pool") {
        let used =
            door.routes.iter().find_map(|it| it.options.get("pool")).and_then(|it| it.as_str());
        let pool =
            used.map(str::to_string).or_else(|| config.pools.first().map(|it| it.name.clone()));
        door.options.set("pool", pool.unwrap_or_else(|| "none".to_string()));
    }
}

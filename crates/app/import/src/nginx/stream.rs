//! `stream`: front doors for TCP and UDP.

use super::syntax::{Directive, milliseconds};
use super::{innermost, listen_options, sockets, target, upstream};
use crate::model::{Config, Door, Options, duration};
use crate::report::Report;

/// Adds the pools and front doors of a `stream` block.
pub(super) fn add(block: &[Directive], config: &mut Config, report: &mut Report) {
    for one in block.iter().filter(|it| it.name == "upstream") {
        let pool = upstream::pool(one, report);
        config.pools.push(pool);
    }
    let servers: Vec<_> = block.iter().filter(|it| it.name == "server").collect();
    for (socket, servers) in sockets(&servers, report) {
        let server = servers[0];
        let port = socket.listen.rsplit(':').next().unwrap_or_default().to_string();
        let mut door = Door { name: format!("stream-{port}"), ..Door::default() };
        door.options
            .set("listen", socket.listen.clone())
            .set("protocol", if socket.is_udp { "udp" } else { "tcp" });
        listen_options(&mut door, &servers, &socket);
        let scopes: [&[Directive]; 2] = [&server.block, block];
        if let Some(pass) = innermost(&scopes, "proxy_pass").first() {
            proxy_pass(&mut door, pass, block, config, report);
        } else {
            report.lost(server.number, "a front door has a pool; proxy_pass is missing");
            continue;
        }
        options(&mut door, &scopes, config, report);
        config.doors.push(door);
    }
}

fn proxy_pass(
    door: &mut Door,
    pass: &Directive,
    block: &[Directive],
    config: &mut Config,
    report: &mut Report,
) {
    let to = pass.arg(0);
    let Some(variable) = to.strip_prefix('$') else {
        let pool = target(config, to, 80);
        door.options.set("pool", pool);
        return;
    };
    let is_map =
        |it: &&Directive| it.name == "map" && it.arg(1).strip_prefix('$') == Some(variable);
    let Some(map) = block.iter().find(is_map).filter(|it| it.arg(0) == "$ssl_preread_server_name")
    else {
        report
            .lost(pass.number, "a tcp front door chooses by names of TLS alone ([[session.sni]])");
        return;
    };
    for entry in &map.block {
        let pool = target(config, entry.arg(0), 443);
        match entry.name.as_str() {
            "default" => {
                door.options.set("pool", pool);
            }
            "hostnames" => {}
            pattern if pattern.starts_with('~') => {
                report.lost(map.number, "names of [[session.sni]] are exact or *.example.com")
            }
            name => {
                let mut sni = Options::default();
                sni.push("names", name.trim_start_matches('.'));
                if name.starts_with('.') {
                    sni.push("names", format!("*{name}"));
                }
                sni.set("pool", pool);
                door.sni.push(sni);
            }
        }
    }
    if !door.options.has("pool")
        && let Some(pool) = door.sni.first().and_then(|it| it.get("pool")).cloned()
    {
        report.changes(
            map.number,
            "clients with other names come to the first pool, too; nginx refuses them",
        );
        door.options.set("pool", pool);
    }
}

fn options(door: &mut Door, scopes: &[&[Directive]], config: &mut Config, report: &mut Report) {
    let time = |name: &str| innermost(scopes, name).first().and_then(|it| milliseconds(it.arg(0)));
    // nginx's own default.
    let idle = time("proxy_timeout").unwrap_or(600_000);
    door.options.set("idle-timeout", duration(idle.clamp(100, 86_400_000)));
    if let Some(number) =
        innermost(scopes, "proxy_responses").first().and_then(|it| it.arg(0).parse::<i64>().ok())
    {
        door.options.set("responses", number.clamp(0, 1_000_000));
    }
    let pools: Vec<String> = std::iter::once(door.options.get("pool"))
        .chain(door.sni.iter().map(|it| it.get("pool")))
        .filter_map(|it| it?.as_str().map(str::to_string))
        .collect();
    let sends = innermost(scopes, "proxy_protocol").iter().any(|it| it.arg(0) == "on");
    for pool in config.pools.iter_mut().filter(|it| pools.contains(&it.name)) {
        if let Some(time) = time("proxy_connect_timeout") {
            pool.options.set("connect-timeout", duration(time.clamp(10, 600_000)));
        }
        if sends {
            pool.options.set("send-proxy", "v1");
        }
    }
    super::http::access(door, scopes);
    super::http::certificates(door, scopes, report);
    if innermost(scopes, "proxy_ssl").iter().any(|it| it.arg(0) == "on") {
        for pool in config.pools.iter_mut().filter(|it| pools.contains(&it.name)) {
            pool.tls = Some(super::http::backend_tls(scopes));
        }
    }
}

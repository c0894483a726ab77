//! nginx's configuration.

mod answer;
mod http;
mod known;
mod location;
mod pass;
mod redirect;
mod stream;
mod syntax;
mod upstream;

use std::collections::BTreeMap;

use self::syntax::Directive;
use crate::ImportError;
use crate::model::{Config, Door, Options, Pool, name};
use crate::report::Report;

/// Translates a file of nginx, or the output of `nginx -T`.
pub(crate) fn import(text: &str, report: &mut Report) -> Result<Config, ImportError> {
    let all = syntax::parse(text, report)?;
    known::note(&all, report);
    let mut config = Config::default();
    // A file of sites-enabled has servers without the block `http`.
    let is_part = all.iter().any(|it| it.name == "server" || it.name == "upstream");
    if is_part {
        http::add(&all, &mut config, report);
    }
    for directive in &all {
        match directive.name.as_str() {
            "http" => http::add(&directive.block, &mut config, report),
            "stream" => stream::add(&directive.block, &mut config, report),
            _ => {}
        }
    }
    if config.doors.is_empty() {
        return Err(ImportError::Empty { wanted: "a server in http or stream" });
    }
    Ok(config)
}

/// The value of a directive in the innermost of several blocks that has it.
fn innermost<'a>(scopes: &[&'a [Directive]], name: &str) -> Vec<&'a Directive> {
    let found = |scope: &&'a [Directive]| {
        let all: Vec<_> = scope.iter().filter(|it| it.name == name).collect();
        (!all.is_empty()).then_some(all)
    };
    scopes.iter().find_map(found).unwrap_or_default()
}

/// A socket: its address as `listen` has it, and whether it is for UDP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Socket {
    listen: String,
    is_udp: bool,
}

/// Servers by socket, in the order of the file. Sockets of both address families with equal servers
/// are one.
fn sockets<'a>(
    servers: &[&'a Directive],
    report: &mut Report,
) -> Vec<(Socket, Vec<&'a Directive>)> {
    let mut order: Vec<Socket> = Vec::new();
    let mut by_socket: BTreeMap<Socket, Vec<&'a Directive>> = BTreeMap::new();
    for server in servers {
        let mut lines: Vec<_> = server.block.iter().filter(|it| it.name == "listen").collect();
        let default = Directive {
            name: "listen".to_string(),
            args: vec!["80".to_string()],
            ..Directive::default()
        };
        if lines.is_empty() {
            lines.push(&default);
        }
        for line in lines {
            let Some(listen) = listen(line.arg(0)) else {
                report
                    .lost(line.number, "a front door listens on an address and a TCP or UDP port");
                continue;
            };
            let socket = Socket { listen, is_udp: line.has("udp") };
            let all = by_socket.entry(socket.clone()).or_insert_with(|| {
                order.push(socket);
                Vec::new()
            });
            if line.has("default_server") || line.has("default") {
                all.insert(0, server);
            } else {
                all.push(server);
            }
        }
    }
    let mut out: Vec<(Socket, Vec<&Directive>)> = Vec::new();
    for socket in order {
        let all = by_socket.remove(&socket).unwrap_or_default();
        let port = socket.listen.rsplit(':').next().unwrap_or_default();
        let is_same = |a: &[&Directive], b: &[&Directive]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| std::ptr::eq(*a, *b))
        };
        let twin = out.iter_mut().find(|(other, servers)| {
            let families = families(port);
            other.is_udp == socket.is_udp
                && families.contains(&other.listen)
                && families.contains(&socket.listen)
                && is_same(servers, &all)
        });
        match twin {
            Some((other, _)) => other.listen = format!("*:{port}"),
            None => out.push((socket, all)),
        }
    }
    out
}

fn listen(text: &str) -> Option<String> {
    if text.starts_with("unix:") {
        return None;
    }
    if text.parse::<u16>().is_ok() {
        return Some(format!("0.0.0.0:{text}"));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return port.parse::<u16>().ok().map(|port| format!("0.0.0.0:{port}"));
    }
    Some(upstream::address(text, 80))
}

/// The `listen` lines of a server that are one socket's.
fn listen_lines<'a>(server: &'a Directive, socket: &Socket) -> Vec<&'a Directive> {
    let is_it = |line: &&Directive| {
        let Some(own) = listen(line.arg(0)) else { return false };
        let is_family = |port: &str| families(port).contains(&own);
        line.has("udp") == socket.is_udp
            && (own == socket.listen || socket.listen.strip_prefix("*:").is_some_and(is_family))
    };
    server.block.iter().filter(|it| it.name == "listen").filter(is_it).collect()
}

/// The addresses of both families that together are `*:PORT`.
fn families(port: &str) -> [String; 2] {
    [format!("0.0.0.0:{port}"), format!("[::]:{port}")]
}

/// The options of a socket's `listen` lines.
fn listen_options(door: &mut Door, servers: &[&Directive], socket: &Socket) {
    for line in servers.iter().flat_map(|it| listen_lines(it, socket)) {
        if line.has("proxy_protocol") {
            door.options.set("accept-proxy", true);
        }
        if line.has("http2") {
            door.options.set("http2", true);
        }
        if line.has("ssl") {
            door.tls.get_or_insert_default();
        }
    }
}

/// The name of the pool of an address that a `proxy_pass` names: an `upstream`, or a new pool.
fn target(config: &mut Config, host: &str, port: u16) -> String {
    let pool_name = name(host);
    if !config.pools.iter().any(|it| it.name == pool_name) {
        let mut backend = Options::default();
        backend.set("address", upstream::address(host, port));
        config.pools.push(Pool {
            name: pool_name.clone(),
            backends: vec![backend],
            ..Pool::default()
        });
    }
    pool_name
}

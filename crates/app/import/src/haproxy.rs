//! HAProxy's configuration.

mod action;
mod balance;
mod bind;
mod check;
mod condition;
mod frontend;
mod global;
mod proxy;
mod rules;
mod server;
mod tcp;
mod words;

use std::collections::BTreeMap;

use self::proxy::Proxy;
use self::words::Line;
use crate::ImportError;
use crate::model::Config;
use crate::report::Report;

pub(crate) use self::action::hsts;

/// Translates a file of HAProxy.
pub(crate) fn import(text: &str, report: &mut Report) -> Result<Config, ImportError> {
    let mut sections = words::sections(text, report)?;
    let mut config = Config::default();
    let global = global::read(&mut sections, &mut config, report);
    let mut defaults: Vec<Line> = Vec::new();
    let mut named: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut proxies: Vec<Proxy> = Vec::new();
    let mut resolvers: Vec<String> = Vec::new();
    for section in &sections {
        match section.kind.as_str() {
            "defaults" => {
                let before = section.from.as_ref().and_then(|it| named.get(it)).cloned();
                defaults = [before.unwrap_or_default(), section.lines.clone()].concat();
                named.insert(section.name.clone(), defaults.clone());
            }
            "frontend" | "backend" | "listen" => {
                let own = section.from.as_ref().and_then(|it| named.get(it)).unwrap_or(&defaults);
                proxies.push(Proxy::read(section, own, report));
            }
            "global" => {}
            "resolvers" => {
                for line in &section.lines {
                    if line.word(0) == "nameserver" {
                        resolvers.push(line.word(2).to_string());
                        report.carried(line.number);
                    } else if line.word(0) == "hold" {
                        report.changes(line.number, "records are looked up again when they expire; ttl-min and ttl-max bound that");
                    }
                }
            }
            kind => section
                .lines
                .iter()
                .for_each(|line| report.lost(line.number, format!("equipoise has no {kind}"))),
        }
    }
    for proxy in proxies.iter().filter(|it| it.has_back && !it.is_empty()) {
        let mut pool = server::pool(proxy, report);
        if let Some(names) = &mut pool.names
            && !resolvers.is_empty()
        {
            resolvers.iter().for_each(|it| names.push("servers", it.clone()));
        }
        config.pools.push(pool);
    }
    for proxy in proxies.iter().filter(|it| it.has_front && !it.is_disabled && !it.is_empty()) {
        frontend::add_doors(proxy, &proxies, &mut config, report);
    }
    global.apply(&mut config, report);
    for proxy in &proxies {
        proxy.log(&mut config, report);
        proxy.unused(report);
    }
    let first = config.pools.first().map(|it| it.name.clone()).unwrap_or_default();
    for door in config.doors.iter_mut().filter(|it| !it.options.has("pool")) {
        door.options.set("pool", first.clone());
    }
    if config.doors.is_empty() {
        return Err(ImportError::Empty { wanted: "a frontend or listen with bind" });
    }
    Ok(config)
}

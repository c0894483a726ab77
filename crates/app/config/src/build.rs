//! Builds the typed configuration from values that were read.
//!
//! An element that lacks a required option is left out. The file then has errors and is not used.

use std::sync::Arc;

use equipoise_session::config::SessionConfig;

use super::doors::front_doors_of;
use super::pool_tls::System;
use super::pools::pool;
use super::problem::Findings;
use super::text::ApiListen;
use super::users::Users;
use super::values::{Values, chosen};
use super::{
    Config, Instance, Operations, Surroundings, Tracing, access_log, acme, api, authorities,
    cluster, discover, dispatch, dns, door_tls, loops, names, packet, planning, slice, tables,
};

/// Builds the whole configuration. Host names of backends stay unresolved.
pub(super) fn config(
    file: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Config {
    let of = |name: &str| file.table(name).expect("has a default: a test reads every one");
    let instance = of("instance");
    let users = Users::of(file);
    let system = System::default();
    let read = |values| pool(values, &users, &system, around, findings);
    let mut pools: Vec<_> = file.tables("pool").iter().filter_map(read).collect();
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
    let folder = acme::folder(file, &name);
    let doors = file.tables("session").iter();
    let mut front_doors: Vec<_> =
        doors.flat_map(|door| front_doors_of(door, folder.as_ref(), around, findings)).collect();
    if let Some((door, peers)) = dispatch::config(file, &name, &pools, around, findings) {
        front_doors.push(door);
        pools.push(peers);
    }
    acme::check(file, &front_doors, &dns.zones, findings);
    let acme = acme::config(file, folder, (&front_doors, &dns.zones), around, findings);
    planning.names = names::by_load(file, &dns, &planning.machines, findings);
    let session = SessionConfig { pools, front_doors };
    loops::check(file, &session, findings);
    Config {
        instance: Instance { name, threads: instance.amount("threads") },
        operations: operations(of("api"), of("log"), of("shutdown"), around, findings),
        session,
        discovery: discover::config(file, around, findings),
        packet,
        planning,
        cluster,
        acme,
        tracing: file.table("tracing").and_then(|it| tracing(it, around, findings)),
        dns,
        slices: slice::config(file, around),
    }
}

fn tracing(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Tracing> {
    let (url, ca) = (values.text("otlp")?, authorities::read(values, around, findings));
    if values.given("ca") && url.starts_with("http://") {
        let text = "has no effect: the URL of the collector is of http, which is not encrypted";
        findings.warning(values.at("ca"), &values.path_of("ca"), text.into());
    }
    Some(Tracing {
        otlp: url.to_owned(),
        ca,
        sample: values.share("sample"),
        service: values.text("service").unwrap_or_default().to_owned(),
    })
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
        api_tls: door_tls::of_api(api_values, around, findings),
        api_policy: api::policy(api_values, around, findings),
        audit: api::audit(api_values),
        log_level: chosen(log, "level", &tables::LOG_LEVEL),
        log_format: chosen(log, "format", &tables::LOG_FORMAT),
        access_log: log.parsed("access-log").unwrap_or_default(),
        access_format: access_log::format(log),
        stop_delay: shutdown.duration("delay"),
        grace: shutdown.duration("grace"),
        upgrade_grace: shutdown.duration("upgrade-grace"),
    }
}

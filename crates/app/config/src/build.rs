//! Builds the typed configuration from values that were read.
//!
//! An element that lacks a required option is left out. The file then has errors and is not used.

use std::sync::Arc;

use equipoise_session::config::SessionConfig;

use super::doors::front_doors_of;
use super::pool_tls::System;
use super::pools::pool;
use super::problem::Findings;
use super::tables::{File, Log, Shutdown};
use super::users::Users;
use super::view::View;
use super::{
    Config, Instance, Operations, Surroundings, Tracing, access_log, acme, api, authorities,
    cluster, discover, dispatch, dns, door_tls, loops, names, packet, planning, slice, tables,
};

/// Builds the whole configuration. Host names of backends stay unresolved.
pub(super) fn config(
    file: View<'_, File>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Config {
    let instance = file.get(File::INSTANCE);
    let users = Users::of(file);
    let system = System::default();
    let read = |values| pool(values, &users, &system, around, findings);
    let mut pools: Vec<_> = file.get(File::POOL).iter().filter_map(read).collect();
    let packet = packet::config(file, &pools, around, findings);
    for pool in &mut pools {
        // The packets of a VIP go to one address of its family, so the check has to report each
        // family.
        if let Some(health) = &mut pool.health {
            health.every_family = packet.vips.iter().any(|vip| vip.pool == pool.name);
        }
    }
    let mut planning = planning::config(file, &pools, around, findings);
    let name: Arc<str> = instance.get(tables::Instance::NAME).unwrap_or(&around.host_name).into();
    let cluster = cluster::config(file, &name, around, findings);
    let dns = dns::config(file, &pools, &name, around, findings);
    let folder = acme::folder(file, &name);
    let doors = file.get(File::SESSION).iter();
    let mut front_doors: Vec<_> =
        doors.flat_map(|door| front_doors_of(door, &folder, around, findings)).collect();
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
        instance: Instance {
            name,
            threads: instance.get(tables::Instance::THREADS),
            memory_max: instance.get(tables::Instance::MEMORY_MAX),
        },
        operations: operations(
            file.get(File::API),
            file.get(File::LOG),
            file.get(File::SHUTDOWN),
            around,
            findings,
        ),
        session,
        discovery: discover::config(file, around, findings),
        packet,
        planning,
        cluster,
        acme,
        tracing: file.get(File::TRACING).and_then(|it| tracing(it, around, findings)),
        dns,
        slices: slice::config(file, around),
    }
}

fn tracing(
    values: View<'_, tables::Tracing>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Tracing> {
    let url = values.get(tables::Tracing::OTLP)?;
    let ca = authorities::read(values, tables::Tracing::CA, around, findings);
    if values.given(tables::Tracing::CA) && url.starts_with("http://") {
        let text = "has no effect: the URL of the collector is of http, which is not encrypted";
        findings.warning(
            values.at(tables::Tracing::CA),
            &values.path_of(tables::Tracing::CA),
            text.into(),
        );
    }
    Some(Tracing {
        otlp: url.to_owned(),
        ca,
        sample: values.get(tables::Tracing::SAMPLE),
        service: values.get(tables::Tracing::SERVICE).to_owned(),
    })
}

fn operations(
    api_values: View<'_, tables::Api>,
    log: View<'_, Log>,
    shutdown: View<'_, Shutdown>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Operations {
    Operations {
        api_socket: api_values
            .get(tables::Api::SOCKET)
            .map_or_else(|| around.api_socket.clone(), Into::into),
        api_listen: api_values.get(tables::Api::LISTEN).0,
        api_tls: door_tls::of_api(api_values, around, findings),
        api_policy: api::policy(api_values, around, findings),
        api_write_config: api_values.get(tables::Api::WRITE_CONFIG),
        audit: api::audit(api_values),
        log_level: log.get(Log::LEVEL),
        log_format: log.get(Log::FORMAT),
        access_log: log.get(Log::ACCESS_LOG),
        access_format: access_log::format(log),
        stop_delay: shutdown.get(Shutdown::DELAY),
        grace: shutdown.get(Shutdown::GRACE),
        upgrade_grace: shutdown.get(Shutdown::UPGRADE_GRACE),
    }
}

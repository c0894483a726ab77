//! The difference between two configurations, level by level, and the connections that it ends.

use std::fmt;

use equipoise_config::Config;
use equipoise_packet::abi::Forward;
use equipoise_packet::config::VipConfig;
use equipoise_session::registry::{Changed, Changes};

/// The difference between two configurations.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Pools, backends and front doors.
    pub(crate) session: Changes,
    /// All else, each as a sentence without a full stop.
    pub(crate) others: Vec<String>,
    /// Established connections that the change ends.
    pub(crate) ends: Vec<String>,
}

impl Difference {
    pub(crate) fn between(before: &Config, after: &Config) -> Difference {
        Difference {
            session: session(before, after),
            others: others(before, after),
            ends: ends(before, after),
        }
    }

    /// Every change.
    pub(crate) fn lines(&self) -> Vec<String> {
        let session = (!self.session.is_empty()).then(|| self.session.to_string());
        session.into_iter().chain(self.others.iter().cloned()).collect()
    }
}

/// Compares objects with names.
fn changed<T: PartialEq, N: fmt::Display>(
    before: &[T],
    after: &[T],
    name: impl Fn(&T) -> N,
) -> Changed {
    let names = |all: &[T]| all.iter().map(|it| name(it).to_string()).collect::<Vec<_>>();
    let (had, has) = (names(before), names(after));
    let mut changed = Changed::default();
    for (name, now) in has.iter().zip(after) {
        match had.iter().position(|it| it == name) {
            None => changed.added.push(name.clone()),
            Some(at) if before[at] != *now => changed.changed.push(name.clone()),
            Some(_) => {}
        }
    }
    changed.removed = had.into_iter().filter(|name| !has.contains(name)).collect();
    changed
}

fn session(before: &Config, after: &Config) -> Changes {
    let pools = |config: &Config| {
        let mut pools = config.session.pools.clone();
        pools.iter_mut().for_each(|pool| pool.backends.clear());
        pools
    };
    let backends = |config: &Config| {
        let pools = config.session.pools.iter();
        let of =
            pools.flat_map(|pool| pool.backends.iter().map(|it| (pool.name.clone(), it.clone())));
        of.collect::<Vec<_>>()
    };
    let doors = |config: &Config| config.session.front_doors.clone();
    Changes {
        pools: changed(&pools(before), &pools(after), |pool| pool.name.clone()),
        backends: changed(&backends(before), &backends(after), |(pool, backend)| {
            format!("{pool}/{}", backend.name)
        }),
        front_doors: changed(&doors(before), &doors(after), |door| door.name.clone()),
    }
}

/// The changes of the other levels and of the process.
fn others(before: &Config, after: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let vips = changed(&before.packet.vips, &after.packet.vips, |vip| vip.vip);
    lines.extend(sentences("VIP", &vips));
    let zones = changed(&before.dns.zones, &after.dns.zones, |zone| zone.origin.clone());
    lines.extend(sentences("zone", &zones));
    let streams = changed(&before.slices, &after.slices, |stream| stream.name.clone());
    lines.extend(sentences("stream", &streams));
    let parts = [
        ("[flows]", before.packet.flows == after.packet.flows),
        ("the peers of [flows]", before.packet.fleet == after.packet.fleet),
        (
            "[nameserver]",
            before.dns.listen == after.dns.listen && before.dns.options == after.dns.options,
        ),
        ("the sources of pools", before.discovery == after.discovery),
        ("planning ([load], [controller], elastic pools)", before.planning == after.planning),
        ("[cluster]", before.cluster == after.cluster),
        ("[acme]", before.acme == after.acme),
        ("[tracing]", before.tracing == after.tracing),
        ("[instance]", before.instance == after.instance),
        ("[api], [log] or [shutdown]", before.operations == after.operations),
    ];
    let parts = parts.iter().filter(|(_, is_same)| !is_same);
    lines.extend(parts.map(|(part, _)| format!("{part} changed")));
    lines
}

fn sentences(noun: &str, changed: &Changed) -> Vec<String> {
    let verbs =
        [("added", &changed.added), ("changed", &changed.changed), ("removed", &changed.removed)];
    let verbs = verbs.iter().filter(|(_, names)| !names.is_empty());
    let line = |names: &[String], verb: &str| {
        let end = if names.len() == 1 { "" } else { "s" };
        format!("{} {noun}{end} {verb} ({})", names.len(), names.join(", "))
    };
    verbs.map(|(verb, names)| line(names, verb)).collect()
}

/// The connections of VIPs that the change ends.
fn ends(before: &Config, after: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    for now in &after.packet.vips {
        let Some(was) = before.packet.vips.iter().find(|it| it.vip == now.vip) else { continue };
        lines.extend(ends_of(was, now));
    }
    let capacity = |config: &Config| config.packet.flows.capacity(1, true);
    let new_tables =
        capacity(before) != capacity(after) || before.packet.flows.seed != after.packet.flows.seed;
    let is_full_nat = |vip: &&VipConfig| vip.forward == Forward::FullNat;
    if let Some(vip) = after.packet.vips.iter().find(is_full_nat).filter(|_| new_tables) {
        lines.push(format!(
            "{}: the next restart or upgrade makes new tables, because [flows] changed: backends reset the \
             established connections of full-nat",
            vip.vip
        ));
    }
    lines
}

/// The form of packets at the backends: a connection survives only in the same form.
fn form(forward: Forward) -> u8 {
    match forward {
        Forward::Nat => 1,
        Forward::FullNat => 2,
        // Client and VIP are as the client sent them.
        _ => 0,
    }
}

fn ends_of(was: &VipConfig, now: &VipConfig) -> Option<String> {
    let vip = now.vip;
    if form(was.forward) != form(now.forward) {
        let (was, now) = (was.forward.name(), now.forward.name());
        return Some(format!(
            "{vip}: `forward` changes from {was} to {now}, so backends reset its established connections"
        ));
    }
    (was.key != now.key).then(|| {
        format!("{vip}: `key` changes, so its flows begin anew, and may reach other backends")
    })
}

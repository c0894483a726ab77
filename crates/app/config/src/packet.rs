//! Builds the packet level's configuration, and checks VIPs against each other and against their
//! pools: families, ports, sizes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use equipoise_core::SourcePrefix;
use equipoise_packet::abi::{FlowKey, Forward, Pick, RANGES_MAX, SLOTS_MAX};
use equipoise_packet::config::{
    FleetConfig, FleetSecret, FlowsConfig, MacAddress, PacketConfig, PortRange, VipConfig,
};
use equipoise_packet::control::Timeouts;
use equipoise_packet::{
    Access, Capacity, FlowScheduler, OwnTimeouts, Ports, Protocol, SOURCE_BUCKETS, Sources, VipId,
};
use equipoise_session::config::{BackendConfig, Place, PoolConfig};

use super::key::{Key, Texts};
use super::problem::Findings;
use super::tables::{File, Flows, Packet};
use super::text::prefixes;
use super::view::View;
use super::{Surroundings, limits, quic, secret_file};

/// Builds the configuration from `[[packet]]` and `[flows]`.
pub(super) fn config(
    file: View<'_, File>,
    pools: &[PoolConfig],
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> PacketConfig {
    let flows_table = file.get(File::FLOWS);
    let flows = flows(flows_table, around, findings);
    let fleet = fleet(flows_table, findings);
    let tables = file.get(File::PACKET);
    let mut vips: Vec<VipConfig> = Vec::new();
    let mut read: Vec<View<'_, Packet>> = Vec::new();
    let pools = pools.iter().map(|pool| (Arc::clone(&pool.name), pool)).collect();
    let mut checks =
        Checks { pools, lines: Vec::new(), translated: BTreeMap::new(), prefixes: 0, findings };
    for values in tables {
        let Some(vip) = vip(values, around, checks.findings) else { continue };
        checks.vip(values, &vip, &vips);
        let of = |option: limits::Prefixes<Packet>| values.get(option.as_written());
        checks.prefixes += of(Packet::ALLOW).map_or(0, <[_]>::len);
        checks.prefixes += of(Packet::DENY).map_or(0, <[_]>::len);
        checks.lines.push(checks.findings.line(values.at(Packet::VIP)));
        vips.push(vip);
        read.push(values);
    }
    checks.loops(&read, &vips);
    checks.sizes(flows_table, &flows, &vips);
    checks.sources_used(&read, &vips);
    PacketConfig { vips, flows, fleet }
}

fn vip(
    values: View<'_, Packet>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<VipConfig> {
    let names = |option: Key<Packet, Option<Texts>>| {
        let mut names: Vec<Arc<str>> = Vec::new();
        for name in values.get(option).unwrap_or_default() {
            if !names.iter().any(|known| **known == **name) {
                names.push(name.as_str().into());
            }
        }
        names
    };
    let vip: VipId = values.get(Packet::VIP)?;
    let is_v4 = vip.address.is_ipv4();
    Some(VipConfig {
        vip,
        interfaces: Some(names(Packet::INTERFACE)).filter(|_| values.given(Packet::INTERFACE))?,
        accepted_macs: macs(values),
        reply_interfaces: names(Packet::REPLY_INTERFACE),
        forward: values.get(Packet::FORWARD)?,
        pool: values.get(Packet::POOL)?.into(),
        scheduler: values.get(Packet::SCHEDULER),
        key: key(values, is_v4),
        access: Access::new(
            is_v4,
            limits::access(values, Packet::ALLOW, Packet::DENY).changes(is_v4),
        ),
        timeouts: OwnTimeouts {
            open: values.get(Packet::TCP_TIMEOUT),
            closing: values.get(Packet::CLOSING_TIMEOUT),
            udp: values.get(Packet::UDP_TIMEOUT),
        },
        quic: quic::ids(values, around, findings),
        sources: sources(values),
        when_down: values.get(Packet::WHEN_DOWN),
        check_tunnel: values.get(Packet::CHECK_TUNNEL),
        second_chance: values.get(Packet::SECOND_CHANCE),
    })
}

fn key(values: View<'_, Packet>, is_v4: bool) -> FlowKey {
    match values.get(Packet::KEY) {
        FlowKey::SourcePrefix(_) => {
            let bits = values.get(Packet::KEY_PREFIX);
            let default = if is_v4 { SourcePrefix::BITS4 } else { SourcePrefix::BITS6 };
            FlowKey::SourcePrefix(bits.unwrap_or(default))
        }
        key => key,
    }
}

fn sources(values: View<'_, Packet>) -> Sources {
    let addresses = values.get(Packet::SOURCE_ADDRESSES).unwrap_or_default();
    let PortRange { first, last } = values.get(Packet::SOURCE_PORTS);
    Sources { addresses, absent: Vec::new(), port_first: first, port_last: last }
}

fn macs(values: View<'_, Packet>) -> Vec<MacAddress> {
    values.get(Packet::ACCEPT_MAC).unwrap_or_default()
}

fn flows(
    flows: View<'_, Flows>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> FlowsConfig {
    FlowsConfig {
        flows_max: flows.get(Flows::MAX),
        tags: flows.get(Flows::TAGS),
        pins_max: flows.get(Flows::PINS_MAX),
        pending_max: flows.get(Flows::PENDING_MAX),
        vips_max: flows.get(Flows::VIPS_MAX),
        backends_max: flows.get(Flows::BACKENDS_MAX),
        prefixes_max: flows.get(Flows::PREFIXES_MAX),
        full_nat_max: flows.get(Flows::FULL_NAT_MAX),
        timeouts: Timeouts {
            open: flows.get(Flows::TCP_TIMEOUT),
            closing: flows.get(Flows::CLOSING_TIMEOUT),
            reset: flows.get(Flows::RESET_TIMEOUT),
            udp: flows.get(Flows::UDP_TIMEOUT),
        },
        opening_timeout: flows.get(Flows::OPENING_TIMEOUT),
        transition: flows.get(Flows::TRANSITION),
        seed: seed(flows, around, findings),
        tunnel_source: flows.get(Flows::TUNNEL_SOURCE),
        tunnel_source6: flows.get(Flows::TUNNEL_SOURCE6),
        gue_port: flows.get(Flows::GUE_PORT),
        echo_per_second: flows.get(Flows::ECHO_LIMIT),
        too_big_per_second: flows.get(Flows::TOO_BIG_LIMIT),
        adjust_offloads: flows.get(Flows::ADJUST_OFFLOADS),
        elephants: flows.get(Flows::ELEPHANTS),
    }
}

fn seed(
    flows: View<'_, Flows>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<FleetSecret> {
    let (seed, file) = (flows.get(Flows::SEED), flows.get(Flows::SEED_FILE));
    let (at, option) = (flows.at(Flows::SEED_FILE), flows.path_of(Flows::SEED_FILE));
    let wrong = match (seed, file) {
        (Some(_), Some(_)) => "`seed` is given too; accepted: one of the two".to_string(),
        (Some(seed), None) => return FleetSecret::new(seed),
        (None, None) => return None,
        (None, Some(file)) => match secret_file::read_long(file, around) {
            Ok(secret) => return FleetSecret::new(&secret),
            Err(wrong) => wrong,
        },
    };
    findings.error(at, &option, wrong);
    None
}

/// Builds the sharing of flows; `peers`, `peers-listen` and a secret belong together.
fn fleet(flows: View<'_, Flows>, findings: &mut Findings<'_>) -> Option<FleetConfig> {
    let Some(peers) = flows.get(Flows::PEERS) else {
        if flows.given(Flows::PEERS_LISTEN) {
            let text = "has no effect without `peers`".into();
            findings.warning(
                flows.at(Flows::PEERS_LISTEN),
                &flows.path_of(Flows::PEERS_LISTEN),
                text,
            );
        }
        return None;
    };
    let mut error = |text: String| {
        findings.error(flows.at(Flows::PEERS), &flows.path_of(Flows::PEERS), text);
    };
    if peers.len() > FleetConfig::PEERS_MAX {
        let (given, max) = (peers.len(), FleetConfig::PEERS_MAX);
        error(format!("{given} peers; accepted: at most {max}"));
    }
    if !flows.given(Flows::SEED) && !flows.given(Flows::SEED_FILE) {
        let text = "given without the secret of the fleet; accepted with `seed` or `seed-file`, the same on all \
                    balancers";
        error(text.into());
    }
    let Some(listen) = flows.get(Flows::PEERS_LISTEN) else {
        let text = "given without `peers-listen`; accepted with the address that peers connect to";
        error(text.into());
        return None;
    };
    Some(FleetConfig { listen, peers })
}

/// Sources of replies that nat translates, by backend and protocol: first port, last port, and the
/// index of the VIP.
type Translated = BTreeMap<(IpAddr, Protocol), Vec<(u16, u16, usize)>>;

struct Checks<'c, 's> {
    pools: HashMap<Arc<str>, &'c PoolConfig>,
    /// Lines of the VIPs that were checked.
    lines: Vec<usize>,
    translated: Translated,
    /// Number of prefixes of `allow` and `deny`.
    prefixes: usize,
    findings: &'c mut Findings<'s>,
}

impl Checks<'_, '_> {
    fn error<T, V>(&mut self, values: View<'_, T>, option: Key<T, V>, text: String) {
        self.findings.error(values.at(option), &values.path_of(option), text);
    }

    fn warning<T, V>(&mut self, values: View<'_, T>, option: Key<T, V>, text: String) {
        self.findings.warning(values.at(option), &values.path_of(option), text);
    }

    fn vip(&mut self, values: View<'_, Packet>, vip: &VipConfig, before: &[VipConfig]) {
        if let Some(place) = before.iter().position(|other| other.vip.overlaps(&vip.vip)) {
            let text = format!(
                "\"{}\" overlaps \"{}\", on line {}; accepted: VIPs of which no two share an address, port and protocol",
                vip.vip, before[place].vip, self.lines[place]
            );
            self.error(values, Packet::VIP, text);
        }
        self.ranges(values, vip, before);
        self.interfaces(values, vip);
        self.access(values, vip);
        self.key_prefix(values, vip);
        self.second_chance(values, vip);
        self.sources(values, vip);
        let (of_other, other) = match vip.vip.protocol {
            Protocol::Tcp => (vec![Packet::UDP_TIMEOUT], "UDP"),
            Protocol::Udp => (vec![Packet::TCP_TIMEOUT, Packet::CLOSING_TIMEOUT], "TCP"),
        };
        for option in of_other.into_iter().filter(|option| values.given(*option)) {
            self.warning(values, option, format!("has no effect: the VIP is not of {other}"));
        }
        quic::check(values, vip, self.pools.get(&vip.pool).copied(), self.findings);
        let Some(pool) = self.pools.get(&vip.pool).copied() else { return };
        if pool.backends.len() > SLOTS_MAX {
            let text = format!(
                "pool \"{}\" has {} backends; accepted here: at most {SLOTS_MAX}",
                pool.name,
                pool.backends.len()
            );
            self.error(values, Packet::POOL, text);
        }
        if let Some(wrong) = pool.backends.iter().find_map(|backend| unreachable(vip, backend)) {
            self.error(values, Packet::POOL, wrong);
        }
        self.weights(values, vip, pool);
        if vip.forward == Forward::Nat {
            self.replies(values, vip, pool, before);
        }
    }

    /// Limits the number of port ranges of one address and protocol, because a lookup tries them
    /// one by one.
    fn ranges(&mut self, values: View<'_, Packet>, vip: &VipConfig, before: &[VipConfig]) {
        let ranged = |ports: Ports| !matches!(ports, Ports::One(_));
        let alike = |other: &&VipConfig| {
            let (one, other) = (&vip.vip, &other.vip);
            (one.address, one.protocol) == (other.address, other.protocol) && ranged(other.ports)
        };
        if ranged(vip.vip.ports) && before.iter().filter(alike).count() == RANGES_MAX {
            let text = format!(
                "{RANGES_MAX} port ranges of this address and protocol exist already; accepted: no more"
            );
            self.error(values, Packet::VIP, text);
        }
    }

    fn key_prefix(&mut self, values: View<'_, Packet>, vip: &VipConfig) {
        match vip.key {
            FlowKey::SourcePrefix(bits) if vip.vip.address.is_ipv4() && bits > 32 => {
                let text = format!("{bits}, and the VIP is IPv4; accepted: 1 to 32");
                self.error(values, Packet::KEY_PREFIX, text);
            }
            FlowKey::SourcePrefix(_) => {}
            _ if values.given(Packet::KEY_PREFIX) => {
                let text = "has no effect without key = \"source-prefix\"".into();
                self.warning(values, Packet::KEY_PREFIX, text);
            }
            _ => {}
        }
    }

    /// A second chance needs a field for the address, sockets that can be asked for the flow, and
    /// an answer that does not depend on the balancer's history.
    fn second_chance(&mut self, values: View<'_, Packet>, vip: &VipConfig) {
        if !vip.second_chance {
            return;
        }
        let mut error = |text: &str| self.error(values, Packet::SECOND_CHANCE, text.into());
        if vip.forward == Forward::Tunnel {
            error(
                "IP in IP has no field for the other backend's address; accepted with forward = \"gue\"",
            );
        } else if vip.forward != Forward::Gue {
            error(
                "the packet has no outer header for the other backend's address; accepted with forward = \"gue\"",
            );
        }
        if vip.vip.protocol == Protocol::Udp {
            error(
                "the VIP is UDP, and a backend does not know which flows of UDP it has; accepted for VIPs of TCP",
            );
        }
        if vip.scheduler.pick() != Pick::Ring {
            let name = vip.scheduler;
            let text = format!(
                "`{name}` places flows by the balancer's own history, so another balancer cannot know the backend of a \
                 flow; accepted with \"maglev\" or \"weighted-random\""
            );
            self.error(values, Packet::SECOND_CHANCE, text);
        }
    }

    fn sources(&mut self, values: View<'_, Packet>, vip: &VipConfig) {
        let addresses = &vip.sources.addresses;
        if vip.forward != Forward::FullNat {
            let options = [Packet::SOURCE_ADDRESSES.any(), Packet::SOURCE_PORTS.any()];
            for option in options.into_iter().filter(|option| values.given(*option)) {
                let text = "has no effect without forward = \"full-nat\"".into();
                self.warning(values, option, text);
            }
            return;
        }
        let is_v4 = vip.vip.address.is_ipv4();
        let wrong = addresses.iter().find(|address| address.is_ipv4() != is_v4);
        let twice = addresses.iter().enumerate().find(|(at, it)| addresses[..*at].contains(it));
        let most = Sources::ADDRESSES_MAX;
        let text = match (addresses.len(), wrong, twice) {
            (0, ..) => format!(
                "no valid address is given, and full-nat sends from addresses of its own; accepted: 1 to {most} addresses that nothing \
                 else uses"
            ),
            (len, ..) if len > most => format!("{len} addresses; accepted: at most {most}"),
            (_, Some(address), _) => {
                let (own, other) = if is_v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
                format!(
                    "\"{address}\" is {other} and the VIP {own}; accepted: addresses of the VIP's family"
                )
            }
            (_, None, Some((_, address))) => {
                format!("\"{address}\" stands twice; accepted: each address once")
            }
            (_, None, None) => return,
        };
        self.error(values, Packet::SOURCE_ADDRESSES, text);
    }

    /// Refuses a source address that is a VIP or a backend: packets to it are replies.
    fn sources_used(&mut self, tables: &[View<'_, Packet>], vips: &[VipConfig]) {
        let pools = vips.iter().filter_map(|vip| self.pools.get(&vip.pool));
        let backends: HashSet<IpAddr> =
            pools.flat_map(|pool| &pool.backends).map(|it| it.address.ip()).collect();
        let full_nat = |vip: &VipConfig| vip.forward == Forward::FullNat;
        for (values, vip) in tables.iter().copied().zip(vips).filter(|(_, vip)| full_nat(vip)) {
            for address in &vip.sources.addresses {
                let what = match address {
                    it if vips.iter().any(|other| other.vip.address == *it) => "VIP",
                    it if backends.contains(it) => "backend",
                    _ => continue,
                };
                let text = format!(
                    "\"{address}\" is the address of a {what}; accepted: addresses that nothing else uses"
                );
                self.error(values, Packet::SOURCE_ADDRESSES, text);
            }
        }
        let all = vips.iter().filter(|vip| full_nat(vip)).map(|vip| vip.sources.addresses.len());
        let (all, most) = (all.sum::<usize>(), Capacity::SOURCES_MAX as usize);
        if let Some(values) = tables.last().copied().filter(|_| all > most) {
            let text = format!("all VIPs have {all} addresses; accepted: at most {most} together");
            self.error(values, Packet::SOURCE_ADDRESSES, text);
        }
    }

    fn access(&mut self, values: View<'_, Packet>, vip: &VipConfig) {
        limits::check_access(values, Packet::ALLOW, Packet::DENY, self.findings);
        let is_v4 = vip.vip.address.is_ipv4();
        for option in [Packet::ALLOW, Packet::DENY] {
            let of_other = prefixes(values.get(option))
                .into_iter()
                .find(|(address, _)| address.is_ipv4() != is_v4);
            if let Some((address, length)) = of_other {
                let (own, other) = if is_v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
                let text = format!(
                    "\"{address}/{length}\" has no effect: it is {other}, and the VIP's clients are {own}"
                );
                self.warning(values, option, text);
            }
        }
    }

    fn interfaces(&mut self, values: View<'_, Packet>, vip: &VipConfig) {
        if vip.interfaces.is_empty() {
            let text = "an empty list, so no packet arrives; accepted: at least one name".into();
            self.error(values, Packet::INTERFACE, text);
        }
        if vip.reply_interfaces.is_empty() {
            return;
        }
        if !vip.forward.translates() {
            let text = "has no effect: only nat and full-nat see replies".into();
            self.warning(values, Packet::REPLY_INTERFACE, text);
        }
        if let Some(both) = vip.reply_interfaces.iter().find(|name| vip.interfaces.contains(name)) {
            let text = format!("\"{both}\" has no effect here: `interface` names it");
            self.warning(values, Packet::REPLY_INTERFACE, text);
        }
    }

    /// Refuses a backend with the address of a VIP: its packets would return to the balancer.
    fn loops(&mut self, tables: &[View<'_, Packet>], vips: &[VipConfig]) {
        let places = vips.iter().enumerate().rev();
        let places: HashMap<IpAddr, usize> = places.map(|(at, it)| (it.vip.address, at)).collect();
        for (values, vip) in tables.iter().copied().zip(vips) {
            let Some(pool) = self.pools.get(&vip.pool).copied() else { continue };
            let owner = |backend: &BackendConfig| places.get(&backend.address.ip()).copied();
            let found = pool.backends.iter().find_map(|it| Some((it, owner(it)?)));
            let Some((backend, place)) = found else { continue };
            let whose = if vips[place].vip.address == vip.vip.address {
                "the VIP's own address".to_string()
            } else {
                format!("the address of VIP \"{}\", on line {}", vips[place].vip, self.lines[place])
            };
            let text = format!(
                "backend `{}` has {whose}, so its packets would come back here; accepted: the address of the backend's \
                 own interface",
                backend.name
            );
            self.error(values, Packet::POOL, text);
        }
    }

    fn weights(&mut self, values: View<'_, Packet>, vip: &VipConfig, pool: &PoolConfig) {
        let weighted = match vip.scheduler {
            FlowScheduler::RoundRobin => "weighted-round-robin",
            FlowScheduler::LeastConnection => "weighted-least-connection",
            FlowScheduler::Sh => return self.buckets(values, pool),
            _ => return,
        };
        if let Some(backend) = pool.backends.iter().find(|backend| backend.weight.get() > 1) {
            let text =
                format!("ignores weights, and backend `{}` has one; use {weighted}", backend.name);
            self.warning(values, Packet::SCHEDULER, text);
        }
    }

    /// LVS's source hashing has a fixed number of buckets, and a backend takes as many as its
    /// weight.
    fn buckets(&mut self, values: View<'_, Packet>, pool: &PoolConfig) {
        let mut used = 0;
        let without = pool.backends.iter().find(|backend| {
            let is_without = used >= SOURCE_BUCKETS && backend.weight.get() > 0;
            used += usize::from(backend.weight.get());
            is_without
        });
        if let Some(backend) = without {
            let text = format!(
                "`sh` has {SOURCE_BUCKETS} buckets, and the weights before backend `{}` use them all, so it gets no \
                 clients; use smaller weights",
                backend.name
            );
            self.warning(values, Packet::SCHEDULER, text);
        }
    }

    /// With nat, the source of a reply must identify one VIP.
    fn replies(
        &mut self,
        values: View<'_, Packet>,
        vip: &VipConfig,
        pool: &PoolConfig,
        before: &[VipConfig],
    ) {
        for backend in &pool.backends {
            let (first, last) = match vip.vip.ports {
                Ports::One(_) => (backend.address.port(), backend.address.port()),
                _ => vip.vip.ports.bounds(),
            };
            let known =
                self.translated.entry((backend.address.ip(), vip.vip.protocol)).or_default();
            let clash = known
                .iter()
                .find(|(a, z, place)| *a <= last && first <= *z && before.get(*place).is_some());
            if let Some((.., place)) = clash.copied() {
                let text = format!(
                    "backend `{}` serves \"{}\", on line {}, by nat too, so its replies could belong to either VIP; \
                     accepted: another port of the backend, or another `forward`",
                    backend.name, before[place].vip, self.lines[place]
                );
                self.error(values, Packet::POOL, text);
                return;
            }
            known.push((first, last, before.len()));
        }
    }

    fn sizes(&mut self, table: View<'_, Flows>, flows: &FlowsConfig, vips: &[VipConfig]) {
        let needed = vips.len();
        if needed > flows.vips_max as usize {
            let text = format!("{}, but there are {needed} [[packet]] tables", flows.vips_max);
            self.error(table, Flows::VIPS_MAX, text + "; accepted: as many or more");
        }
        let backends =
            |vip: &VipConfig| self.pools.get(&vip.pool).map_or(0, |pool| pool.backends.len());
        let needed: usize = vips.iter().map(backends).sum();
        if needed > flows.backends_max as usize {
            let text = format!(
                "{}, but the pools of all [[packet]] tables have {needed} backends; accepted: as many or more",
                flows.backends_max
            );
            self.error(table, Flows::BACKENDS_MAX, text);
        }
        if self.prefixes > flows.prefixes_max as usize {
            let text = format!(
                "{}, but `allow` and `deny` of all [[packet]] tables have {} prefixes; accepted: as many or more",
                flows.prefixes_max, self.prefixes
            );
            self.error(table, Flows::PREFIXES_MAX, text);
        }
        if flows.pins_max > flows.flows_max {
            let option = if table.given(Flows::PINS_MAX) { Flows::PINS_MAX } else { Flows::MAX };
            let text = format!(
                "`pins-max` ({}) is above `max` ({}), which limits the number of flows",
                flows.pins_max, flows.flows_max
            );
            self.warning(table, option, text);
        }
    }
}

/// The reason why packets of a VIP would not reach a backend.
fn unreachable(vip: &VipConfig, backend: &BackendConfig) -> Option<String> {
    let BackendConfig { name, address, .. } = backend;
    let by = vip.forward.name();
    let is_named = matches!(backend.place, Place::Host { .. });
    let rewrites_address = !vip.forward.is_tunnel();
    // The addresses of a host name are not known yet; one of the VIP's family is used.
    if rewrites_address && !is_named && address.is_ipv4() != vip.vip.address.is_ipv4() {
        return Some(format!(
            "backend `{name}` is {} and the VIP {}, which {by} cannot join; accepted: backends of the VIP's family, or \
             forward = \"tunnel\"",
            family(*address),
            family(SocketAddr::new(vip.vip.address, 0))
        ));
    }
    match vip.vip.ports {
        Ports::One(port) if !vip.forward.translates() && address.port() != port => Some(format!(
            "backend `{name}` has port {} and the VIP {port}, and {by} does not change ports; accepted: the VIP's \
             port, or forward = \"nat\"",
            address.port()
        )),
        _ => None,
    }
}

fn family(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

//! The state of the packet level.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use equipoise_api::wire as api;
use equipoise_api::wire::packet as wire;
use equipoise_config::key_word;
use equipoise_packet::abi::{How, REASONS};
use equipoise_packet::config::VipConfig;
use equipoise_packet::control::{
    BackendBytes, BackendStatus, Elephant, Elephants, FlowId, FullNatFlow, Gone, Phase, PortsInUse,
    VipStatus,
};
use equipoise_packet::engine::{
    EngineStatus, Explanation, InterfaceState, InterfaceStatus, Role, SharingStatus, TunnelReport,
};
use equipoise_packet::fleet::{PeerState, PeerStatus};
use equipoise_packet::twin::{Decision, Verdict};
use equipoise_packet::{
    BackendId, FlowScheduler, Ports, Protocol, QuicConfig, Reason, Standing, VipId,
};
use equipoise_planes::{PacketWish, id};

use crate::session;

/// Checks through tunnels.
type Tunnels = BTreeMap<(VipId, BackendId), TunnelReport>;

/// Ways to a backend, with their names in status and metrics.
const HOWS: [(How, &str); 7] = [
    (How::Ring, "ring"),
    (How::Pin, "pin"),
    (How::Pending, "pending"),
    (How::Turn, "turn"),
    (How::Fallback, "fallback"),
    (How::Fragment, "fragment"),
    (How::ConnectionId, "connection-id"),
];

fn how_word(how: How) -> &'static str {
    HOWS.iter().find(|(of, _)| *of == how).map_or("", |(_, word)| word)
}

/// The status, zero counts included.
pub fn status(status: &EngineStatus, wish: &PacketWish, now: Instant) -> wire::PacketStatus {
    let control = &status.control;
    let count = |number: usize| number as u64;
    let (drops, notes) = reasons(&control.reasons);
    wire::PacketStatus {
        interfaces: status.interfaces.iter().map(interface).collect(),
        vips: control.vips.iter().map(|of_vip| vip(of_vip, status, wish)).collect(),
        flows: count(control.flows),
        flows_max: count(control.flows_max),
        flows_not_learnt_total: control.registry_full,
        flows_moved_total: control.moved,
        pins: count(control.pins),
        pins_max: count(control.pins_max),
        pins_full_total: control.pins_full,
        pending: count(control.pending),
        publications_total: control.publications,
        published_seconds_ago: control
            .published_at
            .map(|at| now.saturating_duration_since(at).as_secs_f64()),
        registry_bytes: count(control.registry_bytes),
        kernel_bytes: status.kernel_bytes,
        drops,
        notes,
        fleet: status.fleet.as_ref().map(fleet),
        heavy: status.heavy.as_ref().map(|traffic| heavy(traffic, wish)),
    }
}

fn fleet(status: &SharingStatus) -> wire::FleetStatus {
    let (exchange, totals) = (&status.exchange, &status.totals);
    wire::FleetStatus {
        listens: exchange.listens.map(|address| address.to_string()),
        connected: exchange.incoming as u64,
        refused_total: exchange.refused,
        received_total: totals.received,
        added_total: totals.added,
        unplaced_total: totals.unplaced,
        full_total: totals.full,
        conflicts_total: totals.conflicts,
        overtaken_total: totals.overtaken,
        held_back_total: totals.held_back,
        peers: exchange.peers.iter().map(fleet_peer).collect(),
    }
}

fn heavy(traffic: &Elephants, wish: &PacketWish) -> wire::HeavyTraffic {
    let seconds = traffic.window.as_secs_f64();
    let rate = |bytes: u64| bytes as f64 / seconds;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let of_vip = |vip: &VipId| -> u64 {
        traffic.backends.iter().filter(|it| it.vip == *vip).map(|it| it.bytes).sum()
    };
    let flow = |it: &Elephant| wire::HeavyFlow {
        vip: it.vip.to_string(),
        flow: flow_text(&it.flow, &it.vip),
        backend: it.backend.map(|backend| backend_name(&backend, &it.vip, wish)),
        bytes_per_second: rate(it.bytes),
        share: share(it.bytes, of_vip(&it.vip)),
        standard_error: it.error,
    };
    let backend = |it: &BackendBytes| wire::HeavyBackend {
        vip: it.vip.to_string(),
        backend: backend_name(&it.backend, &it.vip, wish),
        bytes_per_second: rate(it.bytes),
        heavy_bytes_per_second: rate(it.heavy_bytes),
        share: share(it.heavy_bytes, it.bytes),
    };
    wire::HeavyTraffic {
        seconds,
        sample_every: traffic.sample_every,
        flows: traffic.flows.iter().map(flow).collect(),
        backends: traffic.backends.iter().filter(|it| it.bytes > 0).map(backend).collect(),
    }
}

/// A flow in the form of its VIP's key.
pub fn flow_text(flow: &FlowId, vip: &VipId) -> String {
    match flow {
        FlowId::FiveTuple(client, to) => match vip.ports {
            Ports::One(_) => client.to_string(),
            _ => format!("{client}/{}", to.port()),
        },
        FlowId::SourceAddress(address) => address.to_string(),
        FlowId::SourcePrefix(address, bits) => format!("{address}/{bits}"),
        FlowId::SourceMac(mac) => mac.map(|byte| format!("{byte:02x}")).join(":"),
    }
}

fn fleet_peer(peer: &PeerStatus) -> wire::FleetPeer {
    let (state, detail) = match &peer.state {
        PeerState::Connecting => ("connecting", None),
        PeerState::Connected => ("connected", None),
        PeerState::Own => ("own", None),
        PeerState::Failed(why) => ("failed", Some(why.clone())),
    };
    wire::FleetPeer {
        address: peer.address.to_string(),
        state: state.into(),
        detail,
        has_all: peer.has_all,
        gave_all: peer.gave_all,
        sent_total: peer.flows_sent,
        sent_bytes_total: peer.bytes_sent,
        unplaced_total: peer.unplaced,
        full_total: peer.full,
    }
}

/// Removes zero counts, for people.
pub fn without_zeros(status: &mut wire::PacketStatus) {
    let mut counts = vec![&mut status.drops, &mut status.notes];
    for vip in &mut status.vips {
        counts.extend([&mut vip.decisions, &mut vip.drops, &mut vip.notes]);
    }
    counts.into_iter().for_each(|counts| counts.retain(|_, count| *count > 0));
}

fn interface(status: &InterfaceStatus) -> wire::InterfaceStatus {
    let (state, detail) = match &status.state {
        InterfaceState::Attached(mode) => (mode.name(), None),
        InterfaceState::Absent => ("absent", None),
        InterfaceState::Failed(why) => ("failed", Some(why.clone())),
    };
    let role = match status.role {
        Role::Clients => "clients",
        Role::Replies => "replies",
    };
    wire::InterfaceStatus {
        name: status.name.to_string(),
        role: role.into(),
        state: state.into(),
        detail,
    }
}

fn reasons(counts: &[u64; REASONS]) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let counted = Reason::ALL.iter().map(|reason| (*reason, counts[*reason as usize]));
    let (drops, notes): (Vec<_>, Vec<_>) = counted.partition(|(reason, _)| reason.is_drop());
    let named = |counted: Vec<(Reason, u64)>| {
        counted.into_iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
    };
    (named(drops), named(notes))
}

fn vip(status: &VipStatus, engine: &EngineStatus, wish: &PacketWish) -> wire::VipStatus {
    let config = wish.config.vips.iter().find(|vip| vip.vip == status.vip);
    let (drops, notes) = reasons(&status.reasons);
    let decisions = HOWS.iter().map(|(how, word)| ((*word).to_owned(), status.hows[*how as usize]));
    let word = |of: fn(&VipConfig) -> &'static str| config.map_or("", of).to_owned();
    wire::VipStatus {
        vip: status.vip.to_string(),
        pool: config.map_or_else(String::new, |vip| vip.pool.to_string()),
        forward: word(|vip| vip.forward.name()),
        scheduler: word(|vip| vip.scheduler.name()),
        key: word(|vip| key_word(vip.key)),
        phase: phase(status.phase).into(),
        flows: status.flows as u64,
        packets_total: status.packets,
        bytes_total: status.bytes,
        decisions: decisions.collect(),
        drops,
        notes,
        quic: quic(config, wish),
        source_ports: engine.ports.get(&status.vip).map(source_ports),
        source_addresses: config.map_or_else(Vec::new, |vip| source_addresses(vip, engine)),
        backends: backends(status, &engine.tunnels, wish),
    }
}

/// The values by which the servers of a VIP must make connection ids.
fn quic(vip: Option<&VipConfig>, wish: &PacketWish) -> Vec<wire::QuicStatus> {
    let Some(vip) = vip else { return Vec::new() };
    let ids = wish.quic(vip);
    let of = |config: &QuicConfig| {
        let servers = ids.iter().flat_map(|ids| &ids.servers);
        let servers = servers.filter(|((rotation, _), _)| *rotation == config.rotation);
        let servers = servers
            .map(|((_, backend), id)| (backend_name(backend, &vip.vip, wish), id.to_string()));
        wire::QuicStatus {
            config_rotation: config.rotation,
            server_id_length: config.server_id_bytes,
            nonce_length: config.nonce_bytes,
            algorithm: config.algorithm().into(),
            servers: servers.collect(),
        }
    };
    ids.iter().flat_map(|ids| &ids.configs).map(of).collect()
}

fn source_ports(ports: &PortsInUse) -> wire::SourcePortsStatus {
    let PortsInUse { in_use, fullest, max, .. } = *ports;
    wire::SourcePortsStatus { in_use, fullest, max }
}

/// The addresses in the configured order, then those that only known flows have.
fn source_addresses(vip: &VipConfig, engine: &EngineStatus) -> Vec<wire::SourceAddressStatus> {
    let used = engine.ports.get(&vip.vip).map(|ports| &ports.sources[..]).unwrap_or_default();
    let status = |address: IpAddr, state: &str| wire::SourceAddressStatus {
        address: address.to_string(),
        state: state.into(),
        ports_in_use: used.iter().find(|it| it.address == address).map_or(0, |it| it.in_use),
    };
    let wanted = &vip.sources.addresses;
    let configured = wanted.iter().map(|&address| {
        let is_absent = engine.absent_sources.contains(&address);
        status(address, if is_absent { "absent" } else { "own" })
    });
    let draining = used.iter().map(|it| it.address).filter(|it| !wanted.contains(it));
    configured.chain(draining.map(|address| status(address, "draining"))).collect()
}

/// The flows of a source of full-nat.
pub fn source_flows(flows: &[FullNatFlow], wish: &PacketWish) -> wire::SourceFlows {
    let flow = |it: &FullNatFlow| {
        let config = wish.config.vips.iter().find(|config| config.vip == it.vip);
        let to = SocketAddr::new(it.vip.address, it.vip_port);
        let protocol = if it.vip.protocol == Protocol::Udp { "udp" } else { "tcp" };
        wire::SourceFlow {
            client: it.client.to_string(),
            vip: format!("{to}/{protocol}"),
            pool: config.map_or_else(String::new, |vip| vip.pool.to_string()),
            backend: it.backend.map(|backend| backend_name(&backend, &it.vip, wish)),
            idle_seconds: it.idle_seconds,
        }
    };
    let mut flows: Vec<_> = flows.iter().map(flow).collect();
    flows.sort_by(|a, b| (&a.vip, &a.backend).cmp(&(&b.vip, &b.backend)));
    wire::SourceFlows { flows }
}

/// The backends of the engine, and those with an empty place.
fn backends(
    status: &VipStatus,
    tunnels: &Tunnels,
    wish: &PacketWish,
) -> Vec<wire::VipBackendStatus> {
    let seated = status.backends.iter().map(|b| backend(b, &status.vip, tunnels, wish));
    let mut backends: Vec<_> = seated.collect();
    let empty = wish.empty.iter().filter(|((vip, _), _)| *vip == status.vip);
    for (_, place) in empty {
        let detail = Some(place.detail.clone());
        // A backend that had packets at this address before may still drain.
        match backends.iter_mut().find(|it| *it.name == *place.name) {
            Some(draining) => draining.detail = detail,
            None => backends.push(wire::VipBackendStatus {
                name: place.name.to_string(),
                address: place.at.to_string(),
                state: "gone".into(),
                reason: None,
                listed: true,
                reachable: false,
                detail,
                tunnel: None,
                tunnel_detail: None,
                flows: 0,
                flows_closing: 0,
                packets_total: 0,
                bytes_total: 0,
                drops_total: 0,
            }),
        }
    }
    backends
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Steady => "steady",
        Phase::Waiting => "waiting",
        Phase::Transition => "transition",
        Phase::Absorbing => "absorbing",
    }
}

fn backend(
    status: &BackendStatus,
    vip: &VipId,
    tunnels: &Tunnels,
    wish: &PacketWish,
) -> wire::VipBackendStatus {
    let tunnel = tunnels.get(&(*vip, status.backend));
    let state = match status.standing {
        Standing::Eligible => "up",
        Standing::Draining if status.is_standby => "standby",
        Standing::Draining => "draining",
        Standing::Gone => "gone",
    };
    wire::VipBackendStatus {
        name: backend_name(&status.backend, vip, wish),
        address: status.backend.to_string(),
        state: state.into(),
        reason: status.gone.map(|gone| reason_of(gone).to_owned()),
        listed: status.listed,
        reachable: status.reachable,
        detail: None,
        tunnel: tunnel.map(|report| session::health(report.health)),
        tunnel_detail: tunnel.and_then(|report| Some(report.error.as_ref()?.to_string())),
        flows: status.active.into(),
        flows_closing: status.inactive.into(),
        packets_total: status.packets,
        bytes_total: status.bytes,
        drops_total: status.drops,
    }
}

fn reason_of(gone: Gone) -> &'static str {
    match gone {
        Gone::Disabled => {
            "disabled, so its flows went to other backends; `equipoise enable` ends it"
        }
        Gone::Unhealthy => {
            "its checks fail, so its flows went to other backends (when-down = \"move\")"
        }
    }
}

/// Adds flows and checks of the packet level to the session level's status of pools.
pub fn add_to_pools(
    pools: &mut [api::PoolStatus],
    packet: &wire::PacketStatus,
    has_door: impl Fn(&str) -> bool,
) {
    for pool in pools {
        let has_door = has_door(&pool.name);
        for backend in &mut pool.backends {
            add_to_backend(backend, &pool.name, packet, has_door);
        }
    }
}

/// Adds flows and tunnel checks to the session level's status of a backend. A backend with flows is
/// not drained. A backend that a VIP's packets do not reach is unhealthy; front doors (`has_door`)
/// continue to use it.
pub fn add_to_backend(
    backend: &mut api::BackendStatus,
    pool: &str,
    packet: &wire::PacketStatus,
    has_door: bool,
) {
    let vips = packet.vips.iter().filter(|vip| vip.pool == pool);
    let seen = vips.flat_map(|vip| vip.backends.iter().map(move |it| (vip, it)));
    let named: Vec<_> = seen.filter(|(_, it)| it.name == backend.name).collect();
    backend.flows = named.iter().map(|(_, it)| it.flows + it.flows_closing).sum();
    for (vip, it) in named {
        if it.tunnel == Some(api::Health::Unhealthy) || it.detail.is_some() {
            backend.health = api::Health::Unhealthy;
            if backend.state == api::BackendState::Up && !has_door {
                backend.state = api::BackendState::Unhealthy;
            }
        }
        for detail in [&it.detail, &it.tunnel_detail].into_iter().flatten() {
            let before = backend.health_detail.take().map(|it| it + "; ").unwrap_or_default();
            backend.health_detail = Some(format!("{before}{}: {detail}", vip.vip));
        }
    }
    if backend.flows > 0 && backend.state == api::BackendState::Drained {
        backend.state = api::BackendState::Draining;
    }
}

/// The backend's name in its pool; its address if the pool does not have it any more.
pub fn backend_name(backend: &BackendId, vip: &VipId, wish: &PacketWish) -> String {
    let config = wish.config.vips.iter().find(|config| config.vip == *vip);
    let named = config.and_then(|config| {
        let pool = wish.pools.iter().find(|pool| pool.name == config.pool)?;
        pool.backends.iter().find(|candidate| id(config, candidate) == *backend)
    });
    named.map_or_else(|| backend.to_string(), |backend| backend.name.to_string())
}

/// Explains in words where a flow goes.
pub fn answer(explanation: &Explanation, wish: &PacketWish) -> wire::FlowAnswer {
    let Explanation { decision, vip, source, registered, is_registered } = explanation;
    let config = vip.and_then(|id| wish.config.vips.iter().find(|config| config.vip == id));
    let turns = config.filter(|config| goes_by_turn(decision, config));
    let backend = backend_of(decision, config).filter(|_| turns.is_none());
    let name = |backend: &BackendId| vip.map(|vip| backend_name(backend, &vip, wish));
    let (verdict, reason) = match decision.verdict {
        Verdict::Pass => ("passed", None),
        Verdict::Drop(reason) => ("dropped", Some(reason)),
        _ => ("forwarded", None),
    };
    let pinned_to = registered.as_ref().and_then(|pin| name(&pin.backend));
    let why = match (decision.verdict, vip, decision.how) {
        (Verdict::Pass, None, _) => {
            "no [[packet]] table has this address, port and protocol: the kernel gets it".to_owned()
        }
        (Verdict::Pass, Some(_), _) => "the VIP's tables are not published yet".to_owned(),
        (Verdict::Drop(reason), ..) => dropped(reason),
        (_, _, Some(_)) if let Some(config) = turns => next_turn(config),
        (_, _, Some(how)) => forwarded(how, *is_registered, config),
        (_, _, None) => "the program answers it itself".to_owned(),
    };
    wire::FlowAnswer {
        verdict: verdict.into(),
        vip: vip.map(|vip| vip.to_string()),
        pool: config.map(|config| config.pool.to_string()),
        backend: backend.as_ref().and_then(name),
        address: backend.map(|backend| backend.to_string()),
        by: decision
            .how
            .map(|how| how_word(if turns.is_some() { How::Turn } else { how }).to_owned()),
        source: source.map(|source| source.to_string()),
        reason: reason.map(|reason| reason.name().to_owned()),
        digest: decision.digest.map(|digest| format!("{:016x}", digest.0)),
        pinned_to,
        why,
    }
}

fn backend_of(decision: &Decision, config: Option<&VipConfig>) -> Option<BackendId> {
    let (_, backend) = decision.backend?;
    let address = match backend.family {
        4 => std::net::IpAddr::from(*backend.address.first_chunk::<4>()?),
        _ => backend.address.into(),
    };
    let port = u16::from_be_bytes(backend.port);
    let translated = config.is_some_and(|vip| vip.forward.translates());
    Some(BackendId { address, port: (translated && port > 0).then_some(port) })
}

/// Whether the scheduler chooses the backend of an unknown flow at its first packet, because it is
/// not a hash.
fn goes_by_turn(decision: &Decision, config: &VipConfig) -> bool {
    let is_hash = matches!(config.scheduler, FlowScheduler::Maglev | FlowScheduler::WeightedRandom);
    !is_hash && matches!(decision.how, Some(How::Turn | How::Ring | How::Fallback))
}

fn next_turn(config: &VipConfig) -> String {
    let chosen = match config.scheduler {
        FlowScheduler::LeastConnection => "the backend with the fewest flows at that time",
        FlowScheduler::WeightedLeastConnection | FlowScheduler::Sed => {
            "the backend with the fewest flows for its weight at that time"
        }
        FlowScheduler::Nq => {
            "the first backend without flows at that time, or the one with the fewest for its weight"
        }
        FlowScheduler::Sh => "the backend with the bucket of the client's address",
        _ => "the backend whose turn it is",
    };
    format!(
        "the flow is not known, and {} is not a hash of it: its first packet goes to {chosen}",
        config.scheduler.name()
    )
}

fn forwarded(how: How, registered: bool, config: Option<&VipConfig>) -> String {
    let scheduler = config.map_or("", |vip| vip.scheduler.name());
    match how {
        How::Pin if registered => "it is pinned there by an operator or application".to_owned(),
        How::Pin => "it is pinned: it was established there before the VIP's table changed, or its scheduler \
                     chose that backend"
            .to_owned(),
        How::Pending => {
            "it has a pending record: it opened a moment ago, or its pool is changing".to_owned()
        }
        How::Ring => format!("the VIP's table ({scheduler}) has this backend, and the flow is not pinned"),
        How::Fallback => format!(
            "the VIP's table ({scheduler}) names a backend that takes no packets; this is the table's next answer"
        ),
        How::Turn => format!("it is new, and {scheduler} chose"),
        How::Fragment => "the first fragment of its datagram went there".to_owned(),
        How::ConnectionId => "its connection id has the backend's server id".to_owned(),
    }
}

fn dropped(reason: Reason) -> String {
    let what = match reason {
        Reason::NoBackend => "no backend of the pool takes packets; see `equipoise status`",
        Reason::NeighbourUnresolved => {
            "the MAC address of the next hop to its backend is not known; check the backend and the route"
        }
        Reason::SourceDenied => "`allow` and `deny` of the VIP do not accept the client's address",
        Reason::Family => {
            "VIP and backend have different IP families, which this forwarding method does not support"
        }
        _ => "docs/operations/drops.md explains the reason",
    };
    format!("{}: {what}", reason.name())
}

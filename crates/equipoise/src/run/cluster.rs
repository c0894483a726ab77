//! This machine's part in a cluster: a controller's store and server, or a node's client.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::cluster::{ClusterStanding, ControllerContact, OwnLoad};
use equipoise_cluster::{
    Authority, Cluster, ClusterRole, ClusterServer, ControllerAddress, Journal, Lookout, Name,
    NodeClient, NodeOptions, NodeStatus, ReportStatus, ServerOptions, Sightings, TokenPlace,
    TokenSource,
};
use equipoise_controller::{Instructions, Intake, NodeKind, NodeReport};
use equipoise_core::load::{Coefficients, Signals};
use equipoise_monitor::Utilisation;
use equipoise_session::config::Protocol;
use equipoise_store::{EtcdPlace, Store};
use tokio::sync::watch;

use super::planning::capacity;
use equipoise_config::Config;

/// Peers that a node probes in each period.
const PEERS_LOOKED_FOR: usize = 3;

/// The part of this machine in a cluster.
pub(super) enum Seat {
    /// In no cluster.
    Alone,
    /// Plans, and serves nodes.
    Controller(ControllerSeat),
    /// Sends reports, and follows instructions.
    Node(NodeSeat),
}

pub(super) struct ControllerSeat {
    cluster: Cluster,
    listen: SocketAddr,
    etcd: Option<Box<EtcdPlace>>,
    front_door: Option<SocketAddr>,
    addresses: OnceLock<Vec<IpAddr>>,
    journal: Arc<dyn Journal>,
}

pub(super) struct NodeSeat {
    cluster: Cluster,
    pub(super) client: NodeClient,
    front_door: Option<SocketAddr>,
    addresses: OnceLock<Vec<IpAddr>>,
}

impl Seat {
    /// Takes the part that the configuration names. A node begins to join.
    pub(super) fn take(
        config: &Config,
        instance: &Arc<str>,
        journal: Arc<dyn Journal>,
    ) -> anyhow::Result<Seat> {
        let Some(cluster) = config.cluster.clone() else { return Ok(Seat::Alone) };
        let doors = config.session.front_doors.iter();
        let doors = doors.filter(|door| door.protocol != Protocol::Udp);
        // The address at which peers reach this node; a front door that accepts delegated requests
        // is preferred.
        let front_door = doors.min_by_key(|door| door.dispatch.is_none()).map(|door| door.listen);
        let addresses = OnceLock::new();
        Ok(match cluster.role.clone() {
            ClusterRole::Controller { listen, etcd, .. } => Seat::Controller(ControllerSeat {
                cluster,
                listen,
                etcd: etcd.map(Box::new),
                front_door,
                addresses,
                journal,
            }),
            ClusterRole::Node { controllers, token } => {
                let options = node(&cluster, &controllers, token.as_ref(), instance)?;
                let client = NodeClient::start(options);
                Seat::Node(NodeSeat { cluster, client, front_door, addresses })
            }
        })
    }

    /// The `[cluster]` table as it was at the start.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Seat::Alone => None,
            Seat::Controller(controller) => Some(&controller.cluster),
            Seat::Node(node) => Some(&node.cluster),
        }
    }

    pub(super) fn client(&self) -> Option<&NodeClient> {
        match self {
            Seat::Node(node) => Some(&node.client),
            Seat::Alone | Seat::Controller(_) => None,
        }
    }

    pub(super) fn etcd(&self) -> Option<&EtcdPlace> {
        match self {
            Seat::Controller(controller) => controller.etcd.as_deref(),
            Seat::Alone | Seat::Node(_) => None,
        }
    }

    /// Starts the server for nodes, if this machine is a controller of a cluster.
    pub(super) async fn serve(
        &self,
        instance: &Arc<str>,
        store: Arc<dyn Store>,
        intake: Arc<dyn Intake>,
    ) -> anyhow::Result<Option<ClusterServer>> {
        let Seat::Controller(ControllerSeat { cluster, listen, etcd, journal, .. }) = self else {
            return Ok(None);
        };
        let authority = Authority::load(&cluster.folder())?;
        let name: Name = instance.parse()?;
        let mut options = ServerOptions::new(*listen, name, cluster.hosts(*listen, instance));
        options.journal = Arc::clone(journal);
        if etcd.is_some() {
            options.advertise = Some(cluster.first_host(*listen, instance));
        }
        let server = ClusterServer::start(options, authority, store, intake).await?;
        tracing::info!(address = %server.address(), "cluster API");
        Ok(Some(server))
    }

    /// A member's observations of its peers, with the peers of the newest instructions.
    pub(super) fn look_out(
        &self,
        instance: &Arc<str>,
        newest: watch::Receiver<Arc<Instructions>>,
        period: Duration,
    ) -> Option<watch::Receiver<Sightings>> {
        self.cluster().map(|_| look_out(instance, newest, period))
    }

    /// The part of a report that gives this machine's addresses.
    pub(super) async fn place(&self) -> NodeReport {
        let (cluster, front_door, known) = match self {
            Seat::Alone => return NodeReport::default(),
            Seat::Controller(it) => (&it.cluster, it.front_door, &it.addresses),
            Seat::Node(it) => (&it.cluster, it.front_door, &it.addresses),
        };
        let addresses = match known.get() {
            Some(addresses) => addresses.clone(),
            None => addresses(cluster).await,
        };
        // If the network comes up later, the addresses are looked up again.
        if !addresses.is_empty() {
            let _ = known.set(addresses.clone());
        }
        let endpoint = front_door.and_then(|mut door| {
            if door.ip().is_unspecified() {
                door.set_ip(*addresses.first()?);
            }
            Some(door)
        });
        NodeReport { endpoint, addresses, ..NodeReport::default() }
    }
}

/// Options for a node that joins the cluster.
pub(super) fn node(
    cluster: &Cluster,
    controllers: &[ControllerAddress],
    token: Option<&TokenPlace>,
    instance: &Arc<str>,
) -> anyhow::Result<NodeOptions> {
    let token = token.map(|place| match place {
        TokenPlace::Given(token) => TokenSource::Given(token.clone()),
        TokenPlace::File(path) => TokenSource::File(path.clone()),
    });
    let name: Name = instance.parse()?;
    Ok(NodeOptions::new(name, controllers.to_vec(), token, cluster.folder()))
}

/// This machine's addresses as other members reach it: those stated, or else the one from which it
/// reaches a controller.
pub(super) async fn addresses(cluster: &Cluster) -> Vec<IpAddr> {
    let stated: Vec<IpAddr> =
        cluster.advertise.iter().filter_map(|host| host.parse().ok()).collect();
    let controllers = match &cluster.role {
        _ if !stated.is_empty() => return stated,
        ClusterRole::Node { controllers, .. } => controllers,
        ClusterRole::Controller { listen, .. } if listen.ip().is_unspecified() => {
            return Vec::new();
        }
        ClusterRole::Controller { listen, .. } => return vec![listen.ip()],
    };
    for controller in controllers {
        let place = (controller.host(), controller.port());
        let Ok(mut found) = tokio::net::lookup_host(place).await else { continue };
        if let Some(own) = found.find_map(|there| address_towards(there).ok()) {
            return vec![own];
        }
    }
    Vec::new()
}

/// The local address that the kernel's routing chooses; nothing is sent.
fn address_towards(there: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr =
        if there.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

/// Probes some peers in each period. The receiver has the last observations.
pub(super) fn look_out(
    instance: &Arc<str>,
    instructions: watch::Receiver<Arc<Instructions>>,
    period: Duration,
) -> watch::Receiver<Sightings> {
    let patience = (period / 2).clamp(Duration::from_millis(50), Duration::from_secs(1));
    let mut lookout = Lookout::new(&**instance, PEERS_LOOKED_FOR, patience);
    let (tell, seen) = watch::channel(Sightings::default());
    tokio::spawn(async move {
        let mut turns = tokio::time::interval(period);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The process ends: all receivers were dropped.
        while !tell.is_closed() {
            turns.tick().await;
            let now = Arc::clone(&instructions.borrow());
            tell.send_replace(lookout.look(&now).await);
        }
    });
    seen
}

/// The state of a node or agent in its cluster, in the API's form.
pub(super) fn standing(
    kind: NodeKind,
    status: &NodeStatus,
    load: Option<OwnLoad>,
) -> ClusterStanding {
    let reports = status.reports.values().filter_map(|one| one.problem.as_ref());
    let problems = [&status.certificate_problem, &status.follow_problem, &status.keep_problem];
    let problems = problems.into_iter().flatten();
    let mut problems: Vec<String> = problems.chain(reports).cloned().collect();
    problems.sort();
    problems.dedup();
    let left = |until: SystemTime| until.duration_since(SystemTime::now()).unwrap_or_default();
    let seconds = |ago: Option<Duration>| ago.map(|ago| ago.as_secs_f64());
    let contact = |(address, one): (&String, &ReportStatus)| ControllerContact {
        address: address.clone(),
        tried_seconds: seconds(one.tried),
        heard_seconds: seconds(one.heard),
        reports_taken_total: one.taken,
        reports_failed_total: one.failed,
        problem: one.problem.clone(),
    };
    ClusterStanding {
        kind: kind.to_string(),
        following: status.following.clone(),
        term: status.edition.map(|edition| edition.term),
        generation: status.edition.map(|edition| edition.generation),
        age_seconds: seconds(status.instructions_age),
        heard_seconds: seconds(status.heard()),
        controllers: status.reports.iter().map(contact).collect(),
        load,
        kept: status.is_kept,
        certificate_seconds: status.certificate_until.map(|until| left(until).as_secs_f64()),
        problems,
        stale: status.stale,
        not_understood: status.not_understood,
    }
}

/// The load of this machine by its own measurement.
pub(super) fn own_load(used: &Utilisation, weigh: &Coefficients) -> OwnLoad {
    let signals = used.cpu_percent.zip(used.memory_percent);
    let signals = signals.map(|(cpu, memory)| Signals { cpu, memory, net: used.net_percent });
    OwnLoad {
        capacity: capacity(Some(used)),
        cpu_percent: used.cpu_percent,
        machine_cpu_percent: used.cpu_machine_percent,
        memory_percent: used.memory_percent,
        net_percent: used.net_percent,
        l1: signals.map(|signals| weigh.l1(&signals).get()),
        l2: signals.map(|signals| weigh.l2(&signals)),
    }
}

/// Where to run a command that a node cannot serve: at the controller that it follows, or else at
/// the first one.
pub(super) fn ask_there(status: &NodeStatus, command: &str) -> String {
    let first = status.following.as_deref();
    let first = first.or(status.reports.keys().next().map(String::as_str));
    let first = first.and_then(|address| address.parse::<ControllerAddress>().ok());
    let on_this_machine = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    };
    let line = match first {
        Some(it) if on_this_machine(it.host()) => {
            format!("equipoise {command} --api SOCKET, with the `api.socket` of {it}")
        }
        Some(it) => format!("ssh {} equipoise {command}", it.host()),
        None => format!("`equipoise {command}` on a controller's machine"),
    };
    format!("run it on a controller: {line}; the controllers are {}", names(status))
}

/// The controllers in a node's file.
pub(super) fn names(status: &NodeStatus) -> String {
    status.reports.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A node's figures about its cluster, for metrics. `up` is the time in which it could have
/// received instructions.
pub(super) fn reading(status: &NodeStatus, up: Duration) -> PlanningReading {
    let edition = status.edition.unwrap_or_default();
    PlanningReading {
        term: edition.term,
        generation: edition.generation,
        age_seconds: status.instructions_age.unwrap_or(up).as_secs_f64(),
        cluster: vec![
            ("instructions_stale".to_string(), status.stale),
            ("instructions_not_understood".to_string(), status.not_understood),
            ("reports_taken".to_string(), status.reports.values().map(|it| it.taken).sum()),
            ("reports_failed".to_string(), status.reports.values().map(|it| it.failed).sum()),
        ],
        ..PlanningReading::default()
    }
}

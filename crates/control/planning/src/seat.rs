//! This machine's part in a cluster: a controller's store and server, or a node's client.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use equipoise_basics::source_towards;
use equipoise_cluster::{
    Authority, CertificateDesk, Cluster, ClusterRole, ClusterServer, ControllerAddress, Journal,
    Lookout, Name, NodeClient, NodeOptions, NotAName, ServerOptions, Sightings, TokenPlace,
    TokenSource,
};
use equipoise_controller::{Instructions, Intake, NodeReport};
use equipoise_store::{EtcdPlace, Store};
use tokio::sync::watch;

use crate::error::PlanningError;

/// Peers that a node probes in each period.
const PEERS_LOOKED_FOR: usize = 3;

/// The part of this machine in a cluster.
pub(crate) enum Seat {
    /// In no cluster.
    Alone,
    /// Plans, and serves nodes.
    Controller(ControllerSeat),
    /// Sends reports, and follows instructions.
    Node(NodeSeat),
}

pub(crate) struct ControllerSeat {
    cluster: Cluster,
    listen: SocketAddr,
    etcd: Option<Box<EtcdPlace>>,
    front_door: Option<SocketAddr>,
    addresses: OnceLock<Vec<IpAddr>>,
    journal: Arc<dyn Journal>,
    certificates: Arc<dyn CertificateDesk>,
}

pub(crate) struct NodeSeat {
    cluster: Cluster,
    pub(crate) client: NodeClient,
    front_door: Option<SocketAddr>,
    addresses: OnceLock<Vec<IpAddr>>,
}

impl Seat {
    /// Takes the part that the configuration names. A node begins to join. `front_door` is the
    /// address at which peers reach this node.
    pub(crate) fn take(
        cluster: Option<Cluster>,
        front_door: Option<SocketAddr>,
        instance: &Arc<str>,
        (journal, certificates): (Arc<dyn Journal>, Arc<dyn CertificateDesk>),
    ) -> Result<Seat, NotAName> {
        let Some(cluster) = cluster else { return Ok(Seat::Alone) };
        let addresses = OnceLock::new();
        Ok(match cluster.role.clone() {
            ClusterRole::Controller { listen, etcd, .. } => Seat::Controller(ControllerSeat {
                cluster,
                listen,
                etcd: etcd.map(Box::new),
                front_door,
                addresses,
                journal,
                certificates,
            }),
            ClusterRole::Node { controllers, token } => {
                let options = member(&cluster, &controllers, token.as_ref(), instance)?;
                let client = NodeClient::start(options);
                Seat::Node(NodeSeat { cluster, client, front_door, addresses })
            }
        })
    }

    /// The `[cluster]` table as it was at the start.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Seat::Alone => None,
            Seat::Controller(controller) => Some(&controller.cluster),
            Seat::Node(node) => Some(&node.cluster),
        }
    }

    pub(crate) fn client(&self) -> Option<&NodeClient> {
        match self {
            Seat::Node(node) => Some(&node.client),
            Seat::Alone | Seat::Controller(_) => None,
        }
    }

    pub(crate) fn etcd(&self) -> Option<&EtcdPlace> {
        match self {
            Seat::Controller(controller) => controller.etcd.as_deref(),
            Seat::Alone | Seat::Node(_) => None,
        }
    }

    /// Starts the server for nodes, if this machine is a controller of a cluster.
    pub(crate) async fn serve(
        &self,
        instance: &Arc<str>,
        store: Arc<dyn Store>,
        intake: Arc<dyn Intake>,
    ) -> Result<Option<ClusterServer>, PlanningError> {
        let Seat::Controller(controller) = self else { return Ok(None) };
        let ControllerSeat { cluster, listen, etcd, journal, certificates, .. } = controller;
        let authority = Authority::load(&cluster.folder())?;
        let name: Name = instance.parse()?;
        let mut options = ServerOptions::new(*listen, name, cluster.hosts(*listen, instance));
        options.journal = Arc::clone(journal);
        options.certificates = Arc::clone(certificates);
        if etcd.is_some() {
            options.advertise = Some(cluster.first_host(*listen, instance));
        }
        let server = ClusterServer::start(options, authority, store, intake).await?;
        tracing::info!(address = %server.address(), "cluster API");
        Ok(Some(server))
    }

    /// A member's observations of its peers, with the peers of the newest instructions.
    pub(crate) fn look_out(
        &self,
        instance: &Arc<str>,
        newest: watch::Receiver<Arc<Instructions>>,
        period: Duration,
    ) -> Option<watch::Receiver<Sightings>> {
        self.cluster().map(|_| look_out(instance, newest, period))
    }

    /// The part of a report that gives this machine's addresses.
    pub(crate) async fn place(&self) -> NodeReport {
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
        let endpoint = front_door.and_then(|door| endpoint(door, &addresses));
        NodeReport { endpoint, addresses, ..NodeReport::default() }
    }
}

/// The address at which other members reach a front door. `addresses` are this machine's towards
/// them. An address of loopback is only known to members of one machine: elsewhere it would lead
/// them to themselves.
fn endpoint(door: SocketAddr, addresses: &[IpAddr]) -> Option<SocketAddr> {
    let own = addresses.first().copied();
    match door.ip() {
        ip if ip.is_unspecified() => own.map(|own| SocketAddr::new(own, door.port())),
        ip if ip.is_loopback() => own.is_some_and(|own| own.is_loopback()).then_some(door),
        _ => Some(door),
    }
}

/// Options for a node that joins the cluster.
///
/// # Errors
/// The instance's name cannot be a member's.
pub fn member(
    cluster: &Cluster,
    controllers: &[ControllerAddress],
    token: Option<&TokenPlace>,
    instance: &Arc<str>,
) -> Result<NodeOptions, NotAName> {
    let token = token.map(|place| match place {
        TokenPlace::Given(token) => TokenSource::Given(token.clone()),
        TokenPlace::File(path) => TokenSource::File(path.clone()),
    });
    let name: Name = instance.parse()?;
    Ok(NodeOptions::new(name, controllers.to_vec(), token, cluster.folder()))
}

/// This machine's addresses as other members reach it: those stated, or else the one from which it
/// reaches a controller.
pub async fn addresses(cluster: &Cluster) -> Vec<IpAddr> {
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
        if let Some(own) = found.find_map(|there| source_towards(there).ok()) {
            return vec![own];
        }
    }
    Vec::new()
}

/// Probes some peers in each period. The receiver has the last observations.
pub fn look_out(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_front_door_is_an_endpoint_on_one_machine_only() {
        let reported = |door: &str, own: &[&str]| {
            let own: Vec<IpAddr> = own.iter().map(|it| it.parse().expect("an address")).collect();
            endpoint(door.parse().expect("an address"), &own).map(|it| it.to_string())
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(reported("127.0.0.1:80", &["192.0.2.1"]), None);
        assert_eq!(reported("127.0.0.1:80", &[]), None);
        assert_eq!(reported("127.0.0.1:80", &["127.0.0.1"]), some("127.0.0.1:80"));
        assert_eq!(reported("0.0.0.0:80", &["192.0.2.1"]), some("192.0.2.1:80"));
        assert_eq!(reported("0.0.0.0:80", &[]), None);
        assert_eq!(reported("192.0.2.9:80", &[]), some("192.0.2.9:80"));
    }
}

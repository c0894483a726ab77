//! Several balancers on a bridge that floods: they leave frames to other stations alone.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use equipoise_testkit::netns::{Guest, Host, SiteShape, Switch};

use crate::bed::{Bed, PATIENCE, start, wait_for_text};
use crate::common::{Folder, text};
use crate::method::DIRECT;

const SITE: SiteShape = SiteShape { backends: 1, two_arms: false };
const PORT: u16 = 5300;
/// Datagrams of the client that must arrive.
const SENT: usize = 50;

/// A second balancer on the same bridge as the site's.
struct Neighbour {
    host: Host,
    balancer: Guest,
    folder: Folder,
}

impl Neighbour {
    /// Starts it with the configuration of `vip`, on an interface that accepts every frame.
    fn new(bed: &Bed, number: u8, vip: &str) -> Neighbour {
        let host = Host::new(&format!("balancer-{number}")).unwrap();
        Switch::on(&bed.site.router, "lan").plug(&host, "eth0").unwrap();
        host.address("eth0", format!("192.0.2.{number}").parse().unwrap(), 24).unwrap();
        host.ip("link set eth0 promisc on").unwrap();
        let folder = Folder::new(&format!("packet-bridge-{number}"));
        let head = format!(
            "[instance]\nname = \"bridge-{number}-{}\"\n[api]\nsocket = \"{}\"\n\
             [flows]\nmax = 65536\npins-max = 16384\nvips-max = 32\n",
            std::process::id(),
            folder.path("api.sock").display(),
        );
        let file = folder.write("equipoise.toml", &(head + vip));
        let balancer = start(&host, &["run", text(&file)]);
        wait_for_text(&balancer, " ready ");
        Neighbour { host, balancer, folder }
    }

    /// Datagrams for the VIP that it left alone because their frames were for another station.
    fn left_alone(&self) -> u64 {
        let socket = self.folder.path("api.sock");
        let output = crate::common::equipoise(&["status", "--json", "--api", text(&socket)]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let notes = &status["packet"]["vips"][0]["notes"];
        notes["foreign_mac"].as_u64().unwrap_or_default()
    }
}

impl Drop for Neighbour {
    /// Stops the balancer as an operator would, so that it removes its pinned objects.
    fn drop(&mut self) {
        self.balancer.signal(rustix::process::Signal::TERM);
        let _ = self.balancer.wait();
        let _ = self.host.ip("link set eth0 promisc off");
    }
}

/// Makes the switch flood every frame to the backend, as it does before it has learned the address.
/// The switch keeps its own addresses, one of which may be its port's.
fn never_learn_the_backend(bed: &Bed) {
    let port = "link set dev backend-1-eth0 type bridge_slave";
    bed.site.router.ip(&format!("{port} learning off")).unwrap();
    bed.site.router.ip(&format!("{port} fdb_flush")).unwrap();
}

/// The datagrams that reach the backend, until [`SENT`] have arrived. The client numbers them, and
/// sends the next one when one has arrived or is lost.
fn received(bed: &Bed, vip: SocketAddr) -> Vec<u16> {
    let server = bed.site.backends[0].enter(|| UdpSocket::bind(vip)).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let client = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let mut received = Vec::new();
    let mut number = [0; 2];
    let end = Instant::now() + PATIENCE;
    for sent in 0_u16.. {
        client.send_to(&sent.to_ne_bytes(), vip).unwrap();
        while received.last() != Some(&sent) && server.recv_from(&mut number).is_ok() {
            received.push(u16::from_ne_bytes(number));
        }
        if received.len() >= SENT {
            break;
        }
        assert!(Instant::now() < end, "{} of {sent} datagrams arrive", received.len());
    }
    // A datagram in a loop arrives again within a millisecond.
    while received.len() < 2 * SENT && server.recv_from(&mut number).is_ok() {
        received.push(u16::from_ne_bytes(number));
    }
    received
}

#[test]
fn balancers_on_a_flooding_bridge_forward_a_packet_once() {
    let Some(mut bed) = Bed::new("bridge", SITE) else { return };
    bed.prepare(&[DIRECT]);
    let vip = SocketAddr::new(DIRECT.vip_address(), PORT);
    let config = format!(
        "[[pool]]\nname = \"datagrams\"\nbackends = [\"{}\"]\n\
         [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\nforward = \"direct-routing\"\n\
         pool = \"datagrams\"\n",
        SocketAddr::new(bed.site.backend_address(0, false), PORT),
    );
    bed.configure(&config);
    bed.balance();
    let mut neighbours = vec![];
    for number in [3, 4] {
        neighbours.push(Neighbour::new(&bed, number, &config));
        never_learn_the_backend(&bed);
        let received = received(&bed, vip);
        let distinct = BTreeSet::from_iter(&received);
        assert_eq!(
            distinct.len(),
            received.len(),
            "{received:?} by {} balancers",
            1 + neighbours.len()
        );
        for neighbour in &neighbours {
            let left_alone = neighbour.left_alone();
            assert!(left_alone >= SENT as u64 / 2, "the bridge floods: {left_alone}");
        }
    }
}

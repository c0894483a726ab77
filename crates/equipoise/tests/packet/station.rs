//! The balancer's own MAC address, which changes while the program runs.

use std::net::{SocketAddr, UdpSocket};

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::method::DIRECT;

const SITE: SiteShape = SiteShape { backends: 1, two_arms: false };
const PORT: u16 = 5300;
const NEW_MAC: &str = "02:00:00:00:0e:99";

/// A client that sends numbered datagrams to the VIP, and the backend's socket.
struct Datagrams {
    client: UdpSocket,
    server: UdpSocket,
    vip: SocketAddr,
    sent: u32,
}

impl Datagrams {
    fn new(bed: &Bed, vip: SocketAddr) -> Datagrams {
        let server = bed.site.backends[0].enter(|| UdpSocket::bind(vip)).unwrap();
        server.set_nonblocking(true).unwrap();
        let client = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        Datagrams { client, server, vip, sent: 0 }
    }

    fn send(&mut self) {
        self.sent += 1;
        self.client.send_to(&self.sent.to_ne_bytes(), self.vip).unwrap();
    }

    /// The largest number that has arrived; 0 if none has.
    fn last_received(&self) -> u32 {
        let mut last = 0;
        let mut number = [0; 4];
        while self.server.recv_from(&mut number).is_ok() {
            last = last.max(u32::from_ne_bytes(number));
        }
        last
    }

    /// Sends until a datagram arrives that was sent after this call.
    fn arrive(&mut self) -> bool {
        let before = self.sent;
        soon(|| {
            self.send();
            self.last_received() > before
        })
    }
}

/// Makes the router send the VIP's packets to this MAC address.
fn aim(bed: &Bed, mac: &str) {
    let balancer = bed.site.balancer_address(false);
    let neighbour = format!("neigh replace {balancer} lladdr {mac} dev lan nud permanent");
    bed.site.router.ip(&neighbour).unwrap();
}

/// Datagrams for the VIP in frames to other stations.
fn foreign(bed: &Bed) -> u64 {
    let status = bed.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["packet"]["vips"][0]["notes"]["foreign_mac"].as_u64().unwrap_or_default()
}

#[test]
fn an_interface_is_served_only_at_its_new_mac_address() {
    let Some(mut bed) = Bed::new("station", SITE) else { return };
    bed.prepare(&[DIRECT]);
    let vip = SocketAddr::new(DIRECT.vip_address(), PORT);
    bed.configure(&format!(
        "[[pool]]\nname = \"datagrams\"\nbackends = [\"{}\"]\n\
         [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\nforward = \"direct-routing\"\n\
         pool = \"datagrams\"\n",
        SocketAddr::new(bed.site.backend_address(0, false), PORT),
    ));
    bed.balance();
    let shown = bed.site.balancer.ip("link show dev eth0").unwrap();
    let old_mac = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    let old_mac = old_mac.unwrap_or_else(|| panic!("no address: {shown}")).to_owned();
    let mut datagrams = Datagrams::new(&bed, vip);
    assert!(datagrams.arrive(), "{}", bed.command(&["status"]));
    bed.site.balancer.ip(&format!("link set dev eth0 address {NEW_MAC}")).unwrap();
    aim(&bed, NEW_MAC);
    assert!(datagrams.arrive(), "{}", bed.command(&["status"]));
    // The switch floods frames to an unknown station.
    aim(&bed, &old_mac);
    let (before, noted_before) = (datagrams.sent, foreign(&bed));
    let noted = soon(|| {
        datagrams.send();
        foreign(&bed) > noted_before
    });
    assert!(noted, "{}", bed.command(&["status"]));
    assert!(datagrams.last_received() <= before, "a frame to the old address was forwarded");
    aim(&bed, NEW_MAC);
    assert!(datagrams.arrive(), "{}", bed.command(&["status"]));
}

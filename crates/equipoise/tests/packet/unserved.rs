//! Packets to a VIP's address for which no VIP exists.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::method::{NAT, Service};

const SITE: SiteShape = SiteShape { backends: 1, two_arms: false };
/// A port without a VIP.
const PORT: u16 = 81;

/// Packets to the address of the only VIP, for other ports, counted for that VIP.
fn dropped(bed: &Bed) -> u64 {
    let status = bed.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["packet"]["drops"]["no_service"].as_u64().unwrap_or_default(), 0);
    status["packet"]["vips"][0]["drops"]["no_service"].as_u64().unwrap_or_default()
}

/// The router sends the VIP's packets to the balancer, which has that router as its default route.
#[test]
fn a_packet_to_an_unlisted_port_of_a_routed_vip_is_dropped_once() {
    let Some(mut bed) = Bed::new("unserved", SITE) else { return };
    bed.configure(&NAT.config(Service::Web, &bed.site, ""));
    bed.balance();
    let vip = SocketAddr::new(NAT.vip_address(), PORT);
    let client = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let mut sent = 0;
    let arrives = soon(|| {
        client.send_to(b"x", vip).unwrap();
        sent += 1;
        dropped(&bed) > 0
    });
    assert!(arrives, "{}", bed.command(&["status"]));
    // A packet in a loop passes the balancer 63 times within milliseconds.
    std::thread::sleep(Duration::from_millis(200));
    let dropped = dropped(&bed);
    assert!(dropped <= sent, "{dropped} drops of {sent} datagrams");
}

#[test]
fn an_unlisted_port_of_an_address_that_the_balancer_has_itself_is_the_balancers() {
    let Some(mut bed) = Bed::new("own-address", SITE) else { return };
    bed.site.balancer.address("lo", NAT.vip_address(), 32).unwrap();
    bed.configure(&NAT.config(Service::Web, &bed.site, ""));
    bed.balance();
    let vip = SocketAddr::new(NAT.vip_address(), PORT);
    let server = bed.site.balancer.enter(|| UdpSocket::bind(vip)).unwrap();
    server.set_nonblocking(true).unwrap();
    let client = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let mut number = [0];
    let arrived = soon(|| {
        client.send_to(b"x", vip).unwrap();
        server.recv_from(&mut number).is_ok()
    });
    assert!(arrived, "{}", bed.command(&["status"]));
    assert_eq!(dropped(&bed), 0);
    // Replies from its own address would be dropped by its kernel.
    let log = bed.log();
    assert!(log.contains("sysctl net.ipv4.conf.eth0.accept_local=1"), "{log}");
}

//! Options of VIPs, with real clients: keys, times, backups, counts of backends, other protocols.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use equipoise_testkit::netns::SiteShape;
use serde_json::Value;

use crate::bed::{Bed, soon};
use crate::method::{DIRECT, NAT, NAT6, Service};

const PORT: u16 = 5300;

fn status(bed: &Bed) -> Value {
    serde_json::from_str(&bed.command(&["status", "--json"])).unwrap()
}

/// The backends that answer the client from these addresses.
fn backends_of(bed: &Bed, vip: SocketAddr, sources: &[IpAddr]) -> BTreeSet<String> {
    let url = format!("http://{vip}/who");
    let ask = |source: &IpAddr| {
        let answer = bed.curl(&["--interface", &source.to_string(), &url]).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["backend"].as_str().unwrap().to_owned()
    };
    sources.iter().map(ask).collect()
}

#[test]
fn neighbours_have_one_backend_if_their_prefix_is_the_key() {
    let shape = SiteShape { backends: 3, two_arms: false };
    let Some(mut bed) = Bed::new("prefix", shape) else { return };
    let key = "key = \"source-prefix\"\n";
    let config = [NAT, NAT6].map(|method| method.config(Service::Web, &bed.site, key));
    bed.configure(&config.concat());
    bed.balance();
    for method in [NAT, NAT6] {
        let own = bed.site.client_address(method.vip_v6);
        let others = (100..106).map(|number: u8| match own {
            IpAddr::V4(own) => {
                let [a, b, c, _] = own.octets();
                IpAddr::from([a, b, c, number])
            }
            IpAddr::V6(own) => {
                IpAddr::from((own.to_bits() >> 8 << 8 | u128::from(number)).to_be_bytes())
            }
        });
        let sources: Vec<IpAddr> = others.collect();
        for source in &sources {
            let length = if source.is_ipv4() { 24 } else { 64 };
            bed.site.client.address("eth0", *source, length).unwrap();
        }
        let all = backends_of(&bed, method.vip(Service::Web), &sources);
        assert_eq!(all.len(), 1, "{}: {all:?}", method.name);
    }
}

#[test]
fn a_backup_serves_only_while_no_other_backend_does() {
    let shape = SiteShape { backends: 2, two_arms: false };
    let Some(mut bed) = Bed::new("backup", shape) else { return };
    let config = NAT.config(Service::Web, &bed.site, "");
    let place = config.rfind("\" }").unwrap();
    let config = format!("{}, backup = true }}{}", &config[..=place], &config[place + 3..]);
    bed.configure(&config);
    bed.balance();
    let url = format!("http://{}/who", NAT.vip(Service::Web));
    let serves = |bed: &Bed, backend: &str| {
        let expected = format!("\"backend\":\"{backend}\"");
        let all = || (0..8).all(|_| bed.curl(&[&url]).is_ok_and(|it| it.contains(&expected)));
        assert!(soon(all), "{backend}: {}", bed.command(&["status"]));
    };
    let state = |bed: &Bed| status(bed)["packet"]["vips"][0]["backends"][1]["state"].clone();
    serves(&bed, "backend-1");
    assert_eq!(state(&bed), "standby");
    bed.servers[0] = None;
    serves(&bed, "backend-2");
    assert_eq!(state(&bed), "up");
    bed.serve_again(0);
    serves(&bed, "backend-1");
}

#[test]
fn packets_that_do_not_reach_a_backend_count_for_it() {
    let shape = SiteShape { backends: 1, two_arms: false };
    let Some(mut bed) = Bed::new("drops", shape) else { return };
    let vip = SocketAddr::new(DIRECT.vip_address(), PORT);
    let IpAddr::V4(there) = bed.site.backend_address(0, false) else { panic!("an IPv4 address") };
    let [a, b, c, _] = there.octets();
    bed.configure(&format!(
        "[[pool]]\nname = \"none\"\nbackends = [\"{a}.{b}.{c}.222:{PORT}\"]\n\
         [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\n\
         forward = \"direct-routing\"\npool = \"none\"\n",
    ));
    bed.balance();
    let socket = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let counted = soon(|| {
        socket.send_to(b"x", vip).unwrap();
        let vip = &status(&bed)["packet"]["vips"][0];
        let dropped = vip["drops"]["neighbour_unresolved"].as_u64().unwrap_or_default();
        dropped > 0 && vip["backends"][0]["drops_total"].as_u64() == Some(dropped)
    });
    assert!(counted, "{}", bed.command(&["status"]));
}

/// The shortest times that a VIP can have.
#[test]
fn a_vip_forgets_flows_in_its_own_time() {
    let shape = SiteShape { backends: 1, two_arms: false };
    let Some(mut bed) = Bed::new("times", shape) else { return };
    let backend = bed.site.backend_address(0, false);
    let vips = [PORT, PORT + 1].map(|port| SocketAddr::new(DIRECT.vip_address(), port));
    let config = vips.iter().zip(["udp-timeout = \"20s\"\n", ""]).map(|(vip, more)| {
        let port = vip.port();
        format!(
            "[[pool]]\nname = \"p{port}\"\nbackends = [\"{backend}:{port}\"]\n\
             [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\n\
             forward = \"direct-routing\"\npool = \"p{port}\"\n{more}"
        )
    });
    bed.configure(&config.collect::<String>());
    bed.balance();
    let socket = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let flows = |bed: &Bed| {
        let status = status(bed);
        [0, 1].map(|index| status["packet"]["vips"][index]["flows"].as_u64().unwrap())
    };
    let known = soon(|| {
        vips.iter().for_each(|vip| drop(socket.send_to(b"x", vip)));
        flows(&bed) == [1, 1]
    });
    assert!(known, "{}", bed.command(&["status"]));
    assert!(soon(|| flows(&bed) == [0, 1]), "{}", bed.command(&["status"]));
}

/// A packet of SCTP, from a raw socket: the VIP's address, and no VIP of its protocol.
#[test]
fn sctp_to_the_address_of_a_vip_is_refused_and_counted() {
    let shape = SiteShape { backends: 1, two_arms: false };
    let Some(mut bed) = Bed::new("sctp", shape) else { return };
    bed.configure(&NAT.config(Service::Web, &bed.site, ""));
    bed.balance();
    let sctp = Some(socket2::Protocol::from(libc::IPPROTO_SCTP));
    let socket = bed
        .site
        .client
        .enter(|| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, sctp));
    let socket = socket.unwrap();
    let to = socket2::SockAddr::from(SocketAddr::new(NAT.vip_address(), 0));
    // The common header and an INIT chunk's, from port 5000 to port 80; nothing checks more.
    let mut packet = [0_u8; 32];
    packet[..4].copy_from_slice(&[0x13, 0x88, 0, 80]);
    packet[12..16].copy_from_slice(&[1, 0, 0, 20]);
    let refused = soon(|| {
        socket.send_to(&packet, &to).unwrap();
        let drops = &status(&bed)["packet"]["vips"][0]["drops"];
        drops["no_service"].as_u64().unwrap_or_default() > 0
    });
    assert!(refused, "{}", bed.command(&["status"]));
}

/// As with keepalived: the kernel drops packets from its own addresses, replies of the VIP among
/// them, so that it does not resolve the next hop for them.
#[test]
fn replies_reach_clients_while_the_next_hops_mac_address_is_unknown() {
    let shape = SiteShape { backends: 1, two_arms: false };
    let Some(mut bed) = Bed::new("no-neighbour", shape) else { return };
    bed.site.balancer.address("lo", NAT.vip_address(), 32).unwrap();
    bed.configure(&NAT.config(Service::Web, &bed.site, ""));
    bed.balance();
    let url = format!("http://{}/who", NAT.vip(Service::Web));
    assert!(soon(|| bed.curl(&[&url]).is_ok()), "{}", bed.command(&["status"]));
    let router = bed.site.router_address(false);
    for round in 0..5 {
        let unknown = "lladdr 02:00:00:00:00:99 dev eth0 nud failed";
        bed.site.balancer.ip(&format!("neigh replace {router} {unknown}")).unwrap();
        // The router asks again after five seconds.
        let arguments = ["-q", "-sS", "--fail", "--noproxy", "*", "--max-time", "4", &url];
        let answer = bed.site.client.run("curl", &arguments);
        assert!(answer.is_ok(), "{round}: {answer:?}\n{}", bed.command(&["status"]));
    }
}

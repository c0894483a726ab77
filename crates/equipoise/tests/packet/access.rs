//! Sources that a VIP accepts or refuses, with real clients, and reloads of the lists.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::method::{DIRECT, IP6IP6, NAT, NAT6, Service};

const SITE: SiteShape = SiteShape { backends: 1, two_arms: false };
const PORT: u16 = 5300;

fn denied(bed: &Bed) -> u64 {
    let status = bed.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let vips = status["packet"]["vips"].as_array().unwrap();
    let of = |vip: &serde_json::Value| vip["drops"]["source_denied"].as_u64().unwrap_or_default();
    vips.iter().map(of).sum()
}

/// Whether the client is answered, within a second.
fn is_served(bed: &Bed, vip: SocketAddr) -> bool {
    let url = format!("http://{vip}/who");
    let arguments = ["-q", "-sS", "--fail", "--noproxy", "*", "--max-time", "1", &url];
    bed.site.client.run("curl", &arguments).is_ok()
}

#[test]
fn the_longest_prefix_of_a_client_decides_and_a_reload_changes_it() {
    let Some(mut bed) = Bed::new("access", SITE) else { return };
    let methods = [NAT, NAT6, IP6IP6];
    bed.prepare(&methods);
    let write = |bed: &Bed, lists: &dyn Fn(IpAddr) -> String| {
        let config = methods.map(|method| {
            let client = bed.site.client_address(method.vip_v6);
            method.config(Service::Web, &bed.site, &lists(client))
        });
        bed.configure(&config.concat());
    };
    let all = |client: IpAddr| if client.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let one = |client: IpAddr| format!("{client}/{}", if client.is_ipv4() { 32 } else { 128 });
    write(&bed, &|_| String::new());
    bed.balance();
    let served = |bed: &Bed| methods.map(|method| is_served(bed, method.vip(Service::Web)));
    let first = |bed: &Bed| {
        let all = || served(bed) == [true; 3];
        assert!(soon(all), "{}", bed.command(&["status"]));
    };
    first(&bed);
    assert_eq!(denied(&bed), 0);
    for (name, lists, expected) in [
        ("deny", &(|it| format!("deny = [\"{}\"]\n", one(it))) as &dyn Fn(IpAddr) -> String, false),
        ("allow", &|it| format!("allow = [\"{}\"]\ndeny = [\"{}\"]\n", one(it), all(it)), true),
        (
            "another",
            &|it| {
                let other = if it.is_ipv4() { "203.0.113.0/24" } else { "2001:db8:ffff::/48" };
                format!("allow = [\"{other}\"]\n")
            },
            false,
        ),
        ("none", &|_| String::new(), true),
    ] {
        let before = denied(&bed);
        write(&bed, lists);
        bed.command(&["reload"]);
        assert_eq!(served(&bed), [expected; 3], "{name}: {}", bed.command(&["status"]));
        assert_eq!(denied(&bed) > before, !expected, "{name}");
        if name == "deny" {
            let client = bed.site.client_address(false);
            let (flow, vip) = (format!("{client}:40000"), format!("{}/tcp", NAT.vip(Service::Web)));
            let why = bed.command(&["flow", &flow, &vip]);
            assert!(why.contains("`allow` and `deny` of the VIP do not accept"), "{why}");
        }
    }
}

#[test]
fn a_reload_of_lists_loses_no_packet() {
    let Some(mut bed) = Bed::new("access-reload", SITE) else { return };
    bed.prepare(&[DIRECT]);
    let vip = SocketAddr::new(DIRECT.vip_address(), PORT);
    let backend = SocketAddr::new(bed.site.backend_address(0, false), PORT);
    let client = bed.site.client_address(false);
    let write = |bed: &Bed, lists: &str| {
        bed.configure(&format!(
            "[[pool]]\nname = \"datagrams\"\nbackends = [\"{backend}\"]\n\
             [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\n\
             forward = \"direct-routing\"\npool = \"datagrams\"\n{lists}"
        ))
    };
    write(&bed, "");
    bed.balance();
    let server = bed.site.backends[0].enter(|| UdpSocket::bind(vip)).unwrap();
    server.set_nonblocking(true).unwrap();
    let socket = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let received = || (0..).take_while(|_| server.recv_from(&mut [0; 8]).is_ok()).count();
    let arrives = soon(|| {
        socket.send_to(b"x", vip).unwrap();
        received() > 0
    });
    assert!(arrives, "{}", bed.command(&["status"]));
    // Datagrams on their way.
    std::thread::sleep(Duration::from_millis(200));
    received();
    let is_over = AtomicBool::new(false);
    let (sent, arrived) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let (mut sent, mut arrived) = (0, 0);
            while !is_over.load(Relaxed) {
                socket.send_to(b"x", vip).unwrap();
                sent += 1;
                std::thread::sleep(Duration::from_micros(100));
                arrived += received();
            }
            soon(|| {
                arrived += received();
                arrived >= sent
            });
            (sent, arrived)
        });
        for round in 0..10_u8 {
            let many: Vec<String> = (0..500)
                .map(|at| format!("\"10.{round}.{}.{}/32\"", at / 250, at % 250 + 1))
                .collect();
            let many = many.join(", ");
            let lists = match round % 3 {
                0 => format!("deny = [{many}]\n"),
                1 => format!("allow = [\"{client}/32\", {many}]\n"),
                _ => format!("allow = [{many}, \"{client}/32\"]\ndeny = [\"0.0.0.0/0\"]\n"),
            };
            write(&bed, &lists);
            bed.command(&["reload"]);
        }
        is_over.store(true, Relaxed);
        sender.join().unwrap()
    });
    assert!(sent > 1000, "{sent} datagrams in ten reloads");
    assert_eq!((arrived, denied(&bed)), (sent, 0), "{}", bed.command(&["status"]));
}

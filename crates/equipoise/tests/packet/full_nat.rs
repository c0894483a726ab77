//! full-nat with real hosts. The backends' default route does not lead to the balancer.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use equipoise_testkit::netns::{Guest, Host, Site, SiteShape, Switch};
use rustix::process::Signal;
use serde_json::Value;

use crate::bed::{Bed, PATIENCE, soon, start, wait_for_text};
use crate::changes::newcomers;
use crate::common::text;
use crate::load::{Load, failures};
use crate::method::{FULL_NAT, FULL_NAT6, Method, NAT, Service};

const SHAPE: SiteShape = SiteShape { backends: 3, two_arms: false };
const ONE: SiteShape = SiteShape { backends: 1, two_arms: false };
const CONNECTIONS: usize = 36;
/// Last parts of source addresses on the backends' network.
const SOURCES: [u8; 2] = [200, 201];

/// A source address: the balancer's, with another last part.
fn source(site: &Site, number: u8, v6: bool) -> IpAddr {
    match site.balancer_address(v6) {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            IpAddr::from([a, b, c, number])
        }
        IpAddr::V6(address) => {
            IpAddr::from((address.to_bits() >> 8 << 8 | u128::from(number)).to_be_bytes())
        }
    }
}

/// The options of a VIP.
fn options(site: &Site, numbers: &[u8], method: Method, more: &str) -> String {
    let source = |number: &u8| format!("\"{}\"", source(site, *number, method.vip_v6));
    let sources = numbers.iter().map(source).collect::<Vec<_>>().join(", ");
    format!("source-addresses = [{sources}]\n{more}")
}

/// Gives a balancer the source addresses, so that it answers for them on the link. Its own
/// connections do not use them.
fn give(balancer: &Host, site: &Site, numbers: &[u8]) {
    for number in numbers {
        balancer.address("eth0", source(site, *number, false), 32).unwrap();
        let v6 = source(site, *number, true);
        let words = format!("addr add {v6}/128 dev eth0 nodad preferred_lft 0");
        balancer.ip(&words).unwrap();
    }
}

/// A site with the router as the default route of its backends.
fn site(test: &str, shape: SiteShape) -> Option<Bed> {
    let bed = Bed::new(test, shape)?;
    for backend in &bed.site.backends {
        for (family, v6) in [("-4", false), ("-6", true)] {
            let router = bed.site.router_address(v6);
            backend.ip(&format!("{family} route replace default via {router}")).unwrap();
        }
    }
    give(&bed.site.balancer, &bed.site, &SOURCES);
    Some(bed)
}

fn vip_status(bed: &Bed) -> Value {
    let status: Value = serde_json::from_str(&bed.command(&["status", "--json"])).unwrap();
    status["packet"]["vips"][0].clone()
}

#[test]
fn curl_is_served_where_replies_to_clients_do_not_return_through_the_balancer() {
    let Some(mut bed) = site("full-curl", SHAPE) else { return };
    let methods = [FULL_NAT, FULL_NAT6];
    let mut config = NAT.config(Service::Web, &bed.site, "");
    for method in methods {
        let options = options(&bed.site, &SOURCES, method, "");
        config += &method.config(Service::Web, &bed.site, &options);
    }
    bed.configure(&config);
    bed.balance();
    let nat = format!("http://{}/who", NAT.vip(Service::Web));
    let arguments = ["-q", "-sS", "--noproxy", "*", "--max-time", "2", &nat];
    assert!(bed.site.client.run("curl", &arguments).is_err(), "nat needs the route");
    for method in methods {
        let (mut clients, mut names) = (BTreeSet::new(), BTreeSet::new());
        let url = format!("http://{}/who", method.vip(Service::Web));
        for _ in 0..24 {
            let answer: Value = serde_json::from_str(&bed.curl(&[&url]).unwrap()).unwrap();
            clients.insert(answer["client"].as_str().unwrap().to_owned());
            names.insert(answer["backend"].as_str().unwrap().to_owned());
        }
        let sources = SOURCES.map(|number| source(&bed.site, number, method.vip_v6).to_string());
        assert_eq!(clients, BTreeSet::from(sources), "{}", method.name);
        assert!(names.len() > 1, "{names:?}");
        let (file, back) = (bed.large_file(8 << 20), bed.path("back"));
        let url = format!("http://{}/echo", method.vip(Service::Web));
        let upload = format!("@{}", text(&file));
        let body = ["--data-binary", &upload, "-H", "Expect:", "-o", text(&back), &url];
        bed.curl(&body).unwrap();
        assert!(std::fs::read(&file).unwrap() == std::fs::read(&back).unwrap(), "another body");
    }
    let log = bed.log();
    assert!(!log.contains("source address"), "{log}");
}

/// Each socket of the client gets the answer to its own question.
#[test]
fn datagrams_of_many_clients_come_back_to_them() {
    const PORT: u16 = 5300;
    let Some(mut bed) = site("full-udp", ONE) else { return };
    let mut config = String::new();
    for method in [FULL_NAT, FULL_NAT6] {
        let (vip, number) = (SocketAddr::new(method.vip_address(), PORT), method.number);
        let backend = SocketAddr::new(bed.site.backend_address(0, method.vip_v6), PORT);
        let options = options(&bed.site, &SOURCES[..1], method, "");
        config += &format!(
            "[[pool]]\nname = \"p{number}\"\nbackends = [\"{backend}\"]\n\
             [[packet]]\nvip = \"{vip}/udp\"\ninterface = \"eth0\"\nforward = \"full-nat\"\n\
             pool = \"p{number}\"\n{options}"
        );
    }
    bed.configure(&config);
    let server = bed.site.backends[0].enter(|| UdpSocket::bind(("::", PORT))).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((len, from)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(&bytes[..len], from);
        }
    });
    bed.balance();
    for method in [FULL_NAT, FULL_NAT6] {
        let vip = SocketAddr::new(method.vip_address(), PORT);
        let any = if method.vip_v6 { "[::]:0" } else { "0.0.0.0:0" };
        let bind = || (0..300).map(|_| UdpSocket::bind(any)).collect::<Result<Vec<_>, _>>();
        let sockets = bed.site.client.enter(bind).unwrap();
        for (number, socket) in sockets.iter().enumerate() {
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let question = number.to_string();
            let mut answer = [0; 64];
            let answered = soon(|| {
                socket.send_to(question.as_bytes(), vip).unwrap();
                socket.recv(&mut answer).is_ok_and(|len| answer[..len] == *question.as_bytes())
            });
            assert!(answered, "{}: {number}\n{}", method.name, bed.command(&["status"]));
        }
    }
    let mut ports = Value::Null;
    let counted = soon(|| {
        ports = vip_status(&bed)["source_ports"].clone();
        ports["in_use"].as_u64() >= Some(300)
    });
    assert!(counted, "{ports}");
    assert_eq!(ports["max"], 64_512, "{ports}");
}

/// The router sends packets of both sources to the balancer, which has one of the addresses.
#[test]
fn packets_of_no_flow_reach_an_own_source_address_and_do_not_loop_at_another() {
    let Some(mut bed) = site("full-strangers", ONE) else { return };
    let [own, other] = SOURCES.map(|number| source(&bed.site, number, false));
    let router = bed.site.router_address(false);
    bed.site.balancer.ip(&format!("addr del {other}/32 dev eth0")).unwrap();
    bed.site.balancer.ip(&format!("route add {other}/32 via {router}")).unwrap();
    let via = bed.site.balancer_address(false);
    bed.site.router.ip(&format!("route add {other}/32 via {via}")).unwrap();
    let options = options(&bed.site, &SOURCES, FULL_NAT, "");
    bed.configure(&FULL_NAT.config(Service::Web, &bed.site, &options));
    bed.balance();
    let dropped = |bed: &Bed| {
        let status: Value = serde_json::from_str(&bed.command(&["status", "--json"])).unwrap();
        status["packet"]["drops"]["no_service"].as_u64().unwrap_or_default()
    };
    let server = bed.site.balancer.enter(|| UdpSocket::bind((own, 81))).unwrap();
    server.set_nonblocking(true).unwrap();
    let socket = bed.site.client.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let reaches = soon(|| {
        socket.send_to(b"x", (own, 81)).unwrap();
        server.recv_from(&mut [0]).is_ok()
    });
    assert!(reaches, "{}", bed.command(&["status"]));
    assert_eq!(dropped(&bed), 0);
    let mut sent = 0;
    let arrives = soon(|| {
        socket.send_to(b"x", (other, 81)).unwrap();
        sent += 1;
        dropped(&bed) > 0
    });
    assert!(arrives, "{}", bed.command(&["status"]));
    // A packet in a loop passes the balancer 63 times within milliseconds.
    std::thread::sleep(Duration::from_millis(200));
    let dropped = dropped(&bed);
    assert!(dropped <= sent, "{dropped} drops of {sent} datagrams");
}

/// A connection to the line service.
fn open(client: &Host, vip: SocketAddr, patience: Duration) -> Result<TcpStream, ErrorKind> {
    let stream = client.enter(|| TcpStream::connect_timeout(&vip, patience));
    stream.map_err(|error| error.kind())
}

fn ask(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ask\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn without_a_free_port_new_connections_are_refused_until_one_expires() {
    let Some(mut bed) = site("full-ports", ONE) else { return };
    let more = "source-ports = \"5000-5003\"\nclosing-timeout = \"10s\"\n";
    let options = options(&bed.site, &SOURCES[..1], FULL_NAT, more);
    bed.configure(&FULL_NAT.config(Service::Lines, &bed.site, &options));
    bed.balance();
    let vip = FULL_NAT.vip(Service::Lines);
    let client = &bed.site.client;
    let mut held: Vec<TcpStream> = (0..4).map(|_| open(client, vip, PATIENCE).unwrap()).collect();
    for stream in &mut held {
        assert_eq!(ask(stream), "backend-1: ask\n");
    }
    // The count is up to 10 s old.
    let mut ports = Value::Null;
    let counted = soon(|| {
        ports = vip_status(&bed)["source_ports"].clone();
        [&ports["in_use"], &ports["fullest"], &ports["max"]].map(Value::as_u64) == [Some(4); 3]
    });
    assert!(counted, "{ports}");
    let refused = open(client, vip, Duration::from_secs(2));
    assert_eq!(refused.unwrap_err(), ErrorKind::TimedOut);
    let exhausted = vip_status(&bed)["drops"]["ports_exhausted"].as_u64();
    assert!(exhausted > Some(0), "{}", bed.command(&["status"]));
    let shown = bed.command(&["status"]);
    assert!(shown.contains("4 in use, 4 of 4 at the fullest backend"), "{shown}");
    let log = bed.log();
    assert_eq!(log.matches("no source port was free (ports_exhausted)").count(), 1, "{log}");
    // Established connections are not disturbed.
    held.iter_mut().for_each(|stream| assert_eq!(ask(stream), "backend-1: ask\n"));
    held.pop();
    let again = soon(|| {
        open(client, vip, Duration::from_secs(2)).is_ok_and(|mut it| ask(&mut it).contains("ask"))
    });
    assert!(again, "{}", bed.command(&["status"]));
}

#[test]
fn connections_survive_a_kill_upgrades_and_other_sources() {
    let Some(mut bed) = site("full-restart", SHAPE) else { return };
    let method = FULL_NAT;
    let configure = |bed: &Bed, sources: &[u8]| {
        let options = options(&bed.site, sources, method, "");
        bed.configure(&method.config(Service::Lines, &bed.site, &options))
    };
    configure(&bed, &SOURCES[..1]);
    bed.balance();
    let vip = method.vip(Service::Lines);
    let load = Load::start(&bed.site.client, vip, CONNECTIONS);
    load.wait_for(5);
    let name = format!("{}/backend-1", method.pool(Service::Lines));
    bed.command(&["drain", &name]);
    load.wait_for(20);
    let before = load.by_backend();
    assert_eq!(before.len(), 3, "{before:?}");
    let mut balancer = bed.balancer.take().expect("it runs");
    balancer.signal(Signal::KILL);
    balancer.wait().expect("it is our child");
    load.wait_for(20);
    bed.balance();
    load.wait_for(20);
    bed.command(&["upgrade"]);
    load.wait_for(20);
    // Another source for new flows, beside that of the known ones.
    configure(&bed, &SOURCES);
    bed.command(&["reload"]);
    load.wait_for(20);
    let (_, failed) = newcomers(&bed, vip, CONNECTIONS);
    assert_eq!(failed, [""; 0], "{}", bed.log());
    assert_eq!(load.by_backend(), before);
    assert_eq!(failures(&load.finish()), [""; 0], "{}", bed.log());
    bed.stop_newest();
}

/// The router's error about a reply reaches the backend, and the balancer's about a request the
/// client.
#[test]
fn client_and_backend_learn_the_path_mtu() {
    for method in [FULL_NAT, FULL_NAT6] {
        let Some(mut bed) = site("full-pmtu", ONE) else { return };
        let options = options(&bed.site, &SOURCES[..1], method, "");
        bed.configure(&method.config(Service::Web, &bed.site, &options));
        let (site, v6) = (&bed.site, method.vip_v6);
        let client = site.client_address(v6);
        let backend = site.backend_address(0, v6);
        let length = if v6 { 128 } else { 32 };
        // Behind the router, so that neither end sees it.
        site.router.ip(&format!("route add {client}/{length} dev clients mtu 1400")).unwrap();
        site.balancer.ip(&format!("route add {backend}/{length} dev eth0 mtu 1300")).unwrap();
        bed.balance();
        let (file, back) = (bed.large_file(2 << 20), bed.path("back"));
        let url = format!("http://{}/echo", method.vip(Service::Web));
        let upload = format!("@{}", text(&file));
        let body = ["--data-binary", &upload, "-H", "Expect:", "-o", text(&back), &url];
        bed.curl(&body).unwrap_or_else(|error| panic!("{}: {error}", method.name));
        assert!(std::fs::read(&file).unwrap() == std::fs::read(&back).unwrap(), "another body");
        let vip = method.vip_address();
        let route = bed.site.client.ip(&format!("route get {vip}")).unwrap();
        assert!(route.contains(" mtu 1300 "), "{}: {route}", method.name);
        let source = source(&bed.site, SOURCES[0], v6);
        let route = bed.site.backends[0].ip(&format!("route get {source}")).unwrap();
        assert!(route.contains(" mtu 1400 "), "{}: {route}", method.name);
    }
}

/// A second balancer on the backends' network.
struct Second {
    host: Host,
    guest: Option<Guest>,
    file: PathBuf,
}

impl Drop for Second {
    fn drop(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.signal(Signal::TERM);
            let _ = guest.wait();
        }
    }
}

/// Each has sources of its own, so that replies return to the one that forwarded.
#[test]
fn two_balancers_have_their_own_sources() {
    let Some(mut bed) = site("full-two", ONE) else { return };
    let vip = FULL_NAT.vip(Service::Web);
    let config = |numbers: &[u8]| {
        let options = options(&bed.site, numbers, FULL_NAT, "");
        FULL_NAT.config(Service::Web, &bed.site, &options)
    };
    let (first, second) = (config(&SOURCES[..1]), config(&SOURCES[1..]));
    bed.site
        .balancer
        .ip(&format!("addr del {}/32 dev eth0", source(&bed.site, SOURCES[1], false)))
        .unwrap();
    let host = Host::new("balancer-2").unwrap();
    Switch::on(&bed.site.router, "lan").plug(&host, "eth0").unwrap();
    let own = source(&bed.site, 3, false);
    host.address("eth0", own, 24).unwrap();
    host.forward().unwrap();
    host.route("default", bed.site.router_address(false)).unwrap();
    give(&host, &bed.site, &SOURCES[1..]);
    let file = bed.path("second.toml");
    let instance = format!("test-full-second-{}", std::process::id());
    let socket = bed.path("second.sock");
    let head = format!(
        "[instance]\nname = \"{instance}\"\n\n[api]\nsocket = \"{}\"\n\n\
         [flows]\nmax = 65536\npins-max = 16384\nvips-max = 32\n",
        socket.display()
    );
    std::fs::write(&file, head + &second).unwrap();
    let mut other = Second { host, guest: None, file };
    let guest = other.guest.insert(start(&other.host, &["run", text(&other.file)]));
    wait_for_text(guest, " ready ");
    bed.configure(&first);
    bed.balance();
    let url = format!("http://{vip}/who");
    for (via, number) in [(bed.site.balancer_address(false), 0), (own, 1), (own, 1)] {
        let route = format!("route replace {}/32 via {via}", vip.ip());
        bed.site.router.ip(&route).unwrap();
        for _ in 0..8 {
            let answer: Value = serde_json::from_str(&bed.curl(&[&url]).unwrap()).unwrap();
            let expected = source(&bed.site, SOURCES[number], false).to_string();
            assert_eq!(answer["client"], expected.as_str());
        }
    }
}

/// The source of a connection at its backend.
fn source_of(bed: &Bed, stream: &TcpStream, vip: SocketAddr) -> SocketAddr {
    let (client, vip) = (stream.local_addr().unwrap().to_string(), format!("{vip}/tcp"));
    // Either order.
    let answers = [[&client, &vip], [&vip, &client]].map(|[first, second]| -> Value {
        serde_json::from_str(&bed.command(&["flow", first, second, "--json"])).unwrap()
    });
    assert_eq!(answers[0], answers[1]);
    let source = answers[0]["source"].as_str().unwrap_or_else(|| panic!("{}", answers[0]));
    let found = bed.command(&["flow", "--source", source, "--json"]);
    let found: Value = serde_json::from_str(&found).unwrap();
    let is_it = |flow: &Value| flow["client"] == *client && flow["vip"] == *vip;
    assert!(found["flows"].as_array().unwrap().iter().any(is_it), "{source}: {found}");
    source.parse().unwrap()
}

#[test]
fn a_removed_source_address_keeps_old_flows_and_receives_no_more() {
    let Some(mut bed) = site("full-removed", ONE) else { return };
    let configure = |bed: &Bed, numbers: &[u8]| {
        let options = options(&bed.site, numbers, FULL_NAT, "closing-timeout = \"10s\"\n");
        bed.configure(&FULL_NAT.config(Service::Lines, &bed.site, &options))
    };
    configure(&bed, &SOURCES);
    bed.balance();
    let vip = FULL_NAT.vip(Service::Lines);
    let open_all = |bed: &Bed| -> Vec<TcpStream> {
        let one = |_| {
            let mut stream = open(&bed.site.client, vip, PATIENCE).unwrap();
            assert_eq!(ask(&mut stream), "backend-1: ask\n");
            stream
        };
        (0..16).map(one).collect()
    };
    let sources = |bed: &Bed, held: &[TcpStream]| -> BTreeSet<IpAddr> {
        held.iter().map(|stream| source_of(bed, stream, vip).ip()).collect()
    };
    let [removed, kept] = SOURCES.map(|number| source(&bed.site, number, false));
    let mut before = open_all(&bed);
    assert_eq!(sources(&bed, &before), BTreeSet::from([removed, kept]));
    configure(&bed, &SOURCES[1..]);
    let would = bed.command(&["reload", "--dry-run"]);
    assert!(would.contains("1 VIP changed"), "{would}");
    let reloaded = bed.command(&["reload"]);
    assert!(reloaded.contains("1 VIP changed"), "{reloaded}");
    assert!(bed.log().contains(&format!("1 VIP changed ({vip}/tcp)")), "{}", bed.log());
    before.iter_mut().for_each(|stream| assert_eq!(ask(stream), "backend-1: ask\n"));
    let after = open_all(&bed);
    assert_eq!(sources(&bed, &after), BTreeSet::from([kept]));
    let drains = format!("source address {removed} drains: ");
    assert!(soon(|| bed.command(&["status"]).contains(&drains)), "{}", bed.command(&["status"]));
    // A later process knows the address from the tables.
    let mut balancer = bed.balancer.take().expect("it runs");
    balancer.signal(Signal::KILL);
    balancer.wait().expect("it is our child");
    bed.balance();
    before.iter_mut().for_each(|stream| assert_eq!(ask(stream), "backend-1: ask\n"));
    drop(before);
    let drained = format!("no flow has the source address {removed} any more");
    assert!(soon(|| bed.log().contains(&drained)), "{}", bed.log());
    assert!(!bed.command(&["status"]).contains(&drains));
}

#[test]
fn a_lost_source_address_is_reported_and_gets_no_new_flows() {
    let Some(mut bed) = site("full-lost", ONE) else { return };
    let options = options(&bed.site, &SOURCES, FULL_NAT, "");
    bed.configure(&FULL_NAT.config(Service::Web, &bed.site, &options));
    bed.balance();
    let vip = FULL_NAT.vip(Service::Web);
    let [lost, other] = SOURCES.map(|number| source(&bed.site, number, false));
    let address = |verb: &str, address: IpAddr| {
        bed.site.balancer.ip(&format!("addr {verb} {address}/32 dev eth0")).unwrap();
    };
    let vip_address = vip.ip().to_string();
    assert!(soon(|| bed.command(&["status"]).contains(" up ")), "{}", bed.command(&["status"]));
    bed.command(&["ready", &vip_address]);
    address("del", lost);
    let said = format!("this machine does not have the source address {lost}");
    assert!(soon(|| bed.log().contains(&said)), "{}", bed.log());
    let status = bed.command(&["status"]);
    assert!(status.contains(&said), "{status}");
    bed.command(&["ready", &vip_address]);
    let url = format!("http://{vip}/who");
    for _ in 0..16 {
        let answer: Value = serde_json::from_str(&bed.curl(&[&url]).unwrap()).unwrap();
        assert_eq!(answer["client"], other.to_string().as_str());
    }
    address("del", other);
    let lacks = || bed.command(&["status", "--json"]).matches("\"absent\"").count() == 2;
    assert!(soon(lacks), "{}", bed.command(&["status"]));
    let ready = bed.denied(&["ready", &vip_address]);
    assert!(ready.contains("none of its source addresses"), "{ready}");
    address("add", lost);
    assert!(soon(|| bed.log().contains(&format!("the source address {lost} again"))));
    bed.command(&["ready", &vip_address]);
    let answer: Value = serde_json::from_str(&bed.curl(&[&url]).unwrap()).unwrap();
    assert_eq!(answer["client"], lost.to_string().as_str());
}

#[test]
fn a_forward_change_is_reported_by_dry_run_reload_and_log() {
    let Some(mut bed) = site("full-forward", ONE) else { return };
    let nat = FULL_NAT.config(Service::Lines, &bed.site, "").replace("full-nat", "nat");
    bed.site.balancer.run("sysctl", &["-q", "net.ipv4.ip_forward=0"]).unwrap();
    let options = options(&bed.site, &SOURCES, FULL_NAT, "");
    bed.configure(&FULL_NAT.config(Service::Lines, &bed.site, &options));
    bed.balance();
    let name = format!("{}/backend-1", FULL_NAT.pool(Service::Lines));
    bed.command(&["drain", &name]);
    bed.command(&["undrain", &name]);
    bed.configure(&nat);
    let vip = FULL_NAT.vip(Service::Lines);
    let said = format!("{vip}/tcp: `forward` changes from full-nat to nat, so backends reset");
    let would = bed.command(&["reload", "--dry-run"]);
    assert!(would.contains(&said), "{would}");
    assert!(!bed.log().contains(&said), "nothing was changed");
    let reloaded = bed.command(&["reload"]);
    assert!(reloaded.contains(&said), "{reloaded}");
    let log = bed.log();
    assert!(log.contains(&said), "{log}");
    assert_eq!(log.matches("does not forward what comes by").count(), 1, "{log}");
}

//! Routes by BGP, with Debian's BIRD: a router spreads new connections over two balancers. The
//! network is IPv6, in which every kernel has equal paths.

use std::path::Path;

use equipoise_testkit::netns::{Host, Switch, veth};

use crate::bed::{Load, Machine, can_run};
use crate::common::{Folder, Process, kill, text};

const BIRD: &str = "/usr/sbin/bird";
/// The address that both balancers serve.
const VIP: &str = "fd00:80::80";
const ROUTER: &str = "fd00:50::254";

fn address(place: usize) -> String {
    format!("fd00:50::{}", place + 1)
}

/// The BIRD of a machine.
fn bird(host: &Host, folder: &Folder, config: &str) -> Process {
    let file = folder.write("bird.conf", config);
    let (socket, pid) = (folder.path("bird.ctl"), folder.path("bird.pid"));
    let checked = std::process::Command::new(BIRD).args(["-p", "-c", text(&file)]).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut command = host.command(BIRD);
    command.args(["-f", "-c", text(&file), "-s", text(&socket), "-P", text(&pid)]);
    let process = Process::of(command);
    assert!(equipoise_testkit::eventually(|| socket.exists()), "{}", process.printed());
    process
}

/// A balancer with its BIRD and its announcer.
struct Balancer {
    machine: Machine,
    _bird: Process,
    announcer: Process,
}

impl Balancer {
    fn start(switch: &Switch<'_>, name: &'static str, place: usize) -> Balancer {
        let mut machine = Machine::new("announce-bird", name, &format!("[{VIP}]"));
        switch.plug(&machine.host, "eth0").unwrap();
        let own = address(place);
        machine.host.address("eth0", own.parse().unwrap(), 64).unwrap();
        machine.host.route("default", ROUTER.parse().unwrap()).unwrap();
        machine.host.address("lo", VIP.parse().unwrap(), 128).unwrap();
        let routes = machine.folder.write("routes.conf", "");
        let config = format!(
            "router id 10.50.1.1{place};\nlog \"{}\" all;\nprotocol device {{}}\ninclude \"{}\";\n\
             protocol bgp uplink {{\n local {own} as 65001;\n neighbor {ROUTER} as 65000;\n \
             connect delay time 1;\n ipv6 {{ import none; next hop self;\n \
             export where proto = \"equipoise6\"; }};\n}}\n",
            machine.folder.path("bird.log").display(),
            routes.display(),
        );
        let bird = bird(&machine.host, &machine.folder, &config);
        machine.start();
        let announcer = announce(&machine, &routes);
        Balancer { machine, _bird: bird, announcer }
    }
}

fn announce(machine: &Machine, routes: &Path) -> Process {
    let reload = format!("birdc -s {} configure", machine.folder.path("bird.ctl").display());
    let socket = machine.folder.path("api.sock");
    let options = ["--reload", &reload, "--every", "0.2", "--back-after", "1", "--patience", "1"];
    let args = ["announce", "--bird", text(routes), "--api", text(&socket)];
    machine.of(&[&args[..], &options].concat())
}

/// The router's side of BGP, with equal paths to both balancers in the kernel.
fn router_config(folder: &Folder) -> String {
    let peers: Vec<_> = (0..2)
        .map(|place| {
            format!(
                "protocol bgp b{place} {{\n local {ROUTER} as 65000;\n neighbor {} as 65001;\n \
                 passive;\n ipv6 {{ import all; export none; }};\n}}\n",
                address(place)
            )
        })
        .collect();
    format!(
        "router id 10.50.0.254;\nlog \"{}\" all;\nprotocol device {{}}\n\
         protocol kernel {{ merge paths on; ipv6 {{ export all; }}; }}\n{}",
        folder.path("bird.log").display(),
        peers.concat()
    )
}

/// The process of an upgrade, which is no child of the test.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        kill(self.0, libc::SIGKILL);
    }
}

#[test]
fn new_connections_follow_the_routes_of_balancers_that_serve() {
    if !can_run(&[BIRD]) {
        return;
    }
    let (router, client) = (Host::new("router").unwrap(), Host::new("client").unwrap());
    let folder = Folder::new("announce-router");
    let switch = Switch::new(&router, "lan").unwrap();
    router.address("lan", ROUTER.parse().unwrap(), 64).unwrap();
    router.forward().unwrap();
    router.sysctl("net/ipv6/fib_multipath_hash_policy", "1").unwrap();
    veth((&router, "clients"), (&client, "eth0")).unwrap();
    router.address("clients", "fd00:51::254".parse().unwrap(), 64).unwrap();
    client.address("eth0", "fd00:51::1".parse().unwrap(), 64).unwrap();
    client.route("default", "fd00:51::254".parse().unwrap()).unwrap();
    let _bird = bird(&router, &folder, &router_config(&folder));
    let mut one = Balancer::start(&switch, "b1", 0);
    let mut two = Balancer::start(&switch, "b2", 1);

    let load = Load::start(&client, VIP);
    load.until_served_by(&["b1", "b2"]);
    load.forget();

    // It stops: the route goes before the process refuses anything.
    let mut equipoise = one.machine.equipoise.take().unwrap();
    equipoise.signal(libc::SIGTERM);
    one.announcer.wait_for_text(&format!("withdrawn {VIP}: equipoise is stopping"));
    load.until_served_by(&["b2"]);
    assert!(equipoise.ended().success(), "{}", equipoise.printed());
    // It comes back.
    one.machine.start();
    load.until_served_by(&["b1", "b2"]);
    // The announcer is replaced, without a change of its routes.
    let routes = one.machine.folder.path("routes.conf");
    one.announcer.signal(libc::SIGKILL);
    one.announcer.ended();
    one.announcer = announce(&one.machine, &routes);
    // Its end withdraws them.
    two.announcer.signal(libc::SIGTERM);
    assert!(two.announcer.ended().success(), "{}", two.announcer.printed());
    load.until_served_by(&["b1"]);
    two.announcer = announce(&two.machine, &two.machine.folder.path("routes.conf"));
    load.until_served_by(&["b1", "b2"]);
    // An upgrade changes no route.
    let (succeeded, said) = two.machine.command(&["upgrade"]);
    assert!(succeeded, "{said}");
    let _new = Successor(said.split(' ').nth(1).unwrap().parse().unwrap());
    two.machine.equipoise.take().unwrap().ended();
    load.until_served_by(&["b1", "b2"]);
    assert!(!two.announcer.printed().contains("withdrawn"), "{}", two.announcer.printed());
    // The router changed its paths four times, and a connection that was open then may have come to
    // the other balancer, which resets it. None was refused.
    let (failures, _) = load.failures();
    assert!(failures.len() <= 4, "{failures:?}");
    assert!(failures.iter().all(|it| !it.contains("refused")), "{failures:?}");

    // It dies: connections are refused until the route is gone.
    let mut equipoise = one.machine.equipoise.take().unwrap();
    equipoise.signal(libc::SIGKILL);
    equipoise.ended();
    one.announcer.wait_for_text(&format!("withdrawn {VIP}: no equipoise answers at"));
    load.until_served_by(&["b2"]);
    let (failures, gap) = load.failures();
    println!("killed: {} connections failed, within {gap:?}", failures.len());
    one.machine.start();
    load.until_served_by(&["b1", "b2"]);

    // It stands still: the announcer waits for its patience.
    load.forget();
    let paused = one.machine.equipoise.as_ref().unwrap();
    paused.signal(libc::SIGSTOP);
    one.announcer.wait_for_text(&format!("withdrawn {VIP}: equipoise has not answered for"));
    load.until_served_by(&["b2"]);
    let (failures, gap) = load.failures();
    println!("stopped by SIGSTOP: {} connections failed, within {gap:?}", failures.len());
    paused.signal(libc::SIGCONT);
    load.until_served_by(&["b1", "b2"]);

    // Its backend is gone.
    assert!(one.machine.command(&["disable", "web/b"]).0);
    one.announcer.wait_for_text(&format!("withdrawn {VIP}: door: no backend of its pools"));
    load.until_served_by(&["b2"]);
    load.finish();
}

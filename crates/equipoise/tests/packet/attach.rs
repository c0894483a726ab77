//! Interfaces on which the program would lose packets: settings that attaching corrects, and
//! refusals.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use equipoise_testkit::netns::{Guest, Host, SiteShape, unavailable, veth};
use rustix::process::Signal;

use crate::bed::{Bed, PATIENCE, soon, start, wait_for_text};
use crate::common::{Folder, text};
use crate::method::{DIRECT, Service};

/// Size of an upload. At half a megabit per second, the rate before the correction, it would take
/// more than twice [`PATIENCE`].
const UPLOAD_BYTES: usize = 8 << 20;

/// Puts an interface of the balancer into a bridge, which has no native XDP, and moves its address
/// there.
fn bridge(host: &Host, port: &str, address: IpAddr) {
    host.ip("link add br0 type bridge").unwrap();
    host.ip(&format!("link set {port} master br0")).unwrap();
    host.ip(&format!("addr flush dev {port}")).unwrap();
    host.ip("link set br0 up").unwrap();
    host.address("br0", address, 24).unwrap();
}

/// A site with one arm. The balancer has its address on a bridge over `eth0`; GRO of `eth0` is on.
fn merging(test: &str, flows: &str) -> Option<Bed> {
    let mut bed = Bed::new(test, SiteShape { backends: 1, two_arms: false })?;
    bed.prepare(&[DIRECT]);
    let site = &bed.site;
    bridge(&site.balancer, "eth0", site.balancer_address(false));
    site.balancer.route("default", site.router_address(false)).unwrap();
    site.balancer.set_merging("eth0", true).unwrap();
    let config = DIRECT.config(Service::Web, site, "").replace("\"eth0\"", "\"br0\"");
    bed.configure(&format!("{flows}{config}"));
    bed.balance();
    Some(bed)
}

fn upload(bed: &Bed) -> Duration {
    let file = format!("@{}", text(&bed.large_file(UPLOAD_BYTES)));
    let url = format!("http://{}/echo", DIRECT.vip(Service::Web));
    let begin = Instant::now();
    let arguments = ["--data-binary", &file, "-H", "Expect:", "-o", "/dev/null", &url];
    bed.curl(&arguments).unwrap_or_else(|why| panic!("{why}\n{}", bed.command(&["status"])));
    begin.elapsed()
}

fn state(bed: &Bed) -> serde_json::Value {
    let status = bed.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["packet"]["interfaces"][0]["state"].clone()
}

/// GRO below a bridge passes the program packets of up to 64 KB, which it dropped as too big: 0.2
/// Mbit/s arrived.
#[test]
fn merging_below_an_interface_in_generic_mode_is_turned_off_and_on_again() {
    let Some(mut bed) = merging("merging", "") else { return };
    assert_eq!(state(&bed), "generic");
    assert!(!bed.site.balancer.merges("eth0").unwrap());
    println!("{UPLOAD_BYTES} bytes in {:?}", upload(&bed));
    let mut balancer = bed.balancer.take().unwrap();
    balancer.signal(Signal::TERM);
    let _ = balancer.wait();
    let printed = balancer.printed();
    assert!(printed.contains("turned gro of eth0 off"), "{printed}");
    assert!(bed.site.balancer.merges("eth0").unwrap(), "{printed}");
}

#[test]
fn an_offload_that_is_turned_on_while_the_program_runs_is_turned_off_again() {
    let Some(bed) = merging("toggled", "") else { return };
    let merges = || bed.site.balancer.merges("eth0").unwrap();
    for _ in 0..3 {
        assert!(soon(|| !merges()), "{}", bed.log());
        bed.site.balancer.set_merging("eth0", true).unwrap();
    }
    assert!(soon(|| !merges()), "{}", bed.log());
    assert_eq!(state(&bed), "generic");
}

#[test]
fn an_interface_is_refused_with_the_command_to_run_if_offloads_may_not_be_changed() {
    let Some(bed) = merging("refused", "adjust-offloads = false\n") else { return };
    assert_eq!(state(&bed), "failed");
    let log = bed.log();
    assert!(log.contains("`ethtool -K eth0 gro off`"), "{log}");
    assert!(bed.site.balancer.merges("eth0").unwrap());
    bed.site.balancer.set_merging("eth0", false).unwrap();
    assert!(soon(|| state(&bed) == "generic"), "{}", bed.log());
    upload(&bed);
}

/// A bridge does not transmit frames that native XDP redirects to it: all were lost, without a
/// counter.
#[test]
fn backends_behind_a_device_that_transmits_no_xdp_frames_are_served() {
    let shape = SiteShape { backends: 2, two_arms: true };
    let Some(mut bed) = Bed::new("no-transmit", shape) else { return };
    bed.prepare(&[DIRECT]);
    bridge(&bed.site.balancer, "eth1", "198.18.1.2".parse().unwrap());
    assert!(bed.site.balancer.strips_tags("eth0").unwrap());
    bed.configure(&DIRECT.config(Service::Web, &bed.site, ""));
    bed.balance();
    assert_eq!(state(&bed), "generic");
    let log = bed.log();
    assert!(log.contains("packets leave by br0, which does not transmit"), "{log}");
    assert!(!bed.site.balancer.strips_tags("eth0").unwrap(), "{log}");
    upload(&bed);
    let mut balancer = bed.balancer.take().unwrap();
    balancer.signal(Signal::TERM);
    let _ = balancer.wait();
    assert!(bed.site.balancer.strips_tags("eth0").unwrap());
}

/// Client, balancer and backend on a bridge. Its ports have no XDP program, so a veth accepts no
/// redirected frames.
struct Lan {
    client: Host,
    balancer: Host,
    backend: Host,
    _switch: Host,
    guest: Option<Guest>,
    folder: Folder,
    test: &'static str,
}

const VIP: &str = "203.0.113.10";

impl Lan {
    fn new(test: &'static str) -> Lan {
        let host = |name: &str| Host::new(name).unwrap();
        let (client, balancer, backend) = (host("client"), host("balancer"), host("backend"));
        let switch = host("switch");
        switch.ip("link add lan type bridge stp_state 0 forward_delay 0 mcast_snooping 0").unwrap();
        switch.ip("link set lan up").unwrap();
        for (number, host) in [(1, &client), (2, &balancer), (3, &backend)] {
            let port = format!("port{number}");
            veth((host, "eth0"), (&switch, &port)).unwrap();
            switch.ip(&format!("link set {port} master lan")).unwrap();
            host.address("eth0", IpAddr::from([192, 0, 2, number]), 24).unwrap();
        }
        client.route(VIP, [192, 0, 2, 2].into()).unwrap();
        backend.hidden_address(VIP.parse().unwrap()).unwrap();
        let folder = Folder::new(&format!("packet-{test}"));
        Lan { client, balancer, backend, _switch: switch, guest: None, folder, test }
    }

    fn balance(&mut self) -> &Guest {
        let config = format!(
            "[instance]\nname = \"{}-{}\"\n[api]\nsocket = \"{}\"\nlisten = \"off\"\n\
             [flows]\nmax = 65536\npins-max = 16384\n\
             [[pool]]\nname = \"web\"\nbackends = [\"192.0.2.3:7000\"]\n\
             [[packet]]\nvip = \"{VIP}:7000/tcp\"\ninterface = \"eth0\"\nforward = \"direct-routing\"\n\
             pool = \"web\"\n",
            self.test,
            std::process::id(),
            self.folder.path("api.sock").display(),
        );
        let file = self.folder.write("equipoise.toml", &config);
        let guest = self.guest.insert(start(&self.balancer, &["run", text(&file)]));
        wait_for_text(guest, " ready ");
        guest
    }
}

impl Drop for Lan {
    /// Stops the balancer as an operator would, so that it removes its pinned objects.
    fn drop(&mut self) {
        if let Some(guest) = &mut self.guest {
            guest.signal(Signal::TERM);
            let _ = guest.wait();
        }
    }
}

/// Without the correction all frames were lost, without a counter.
#[test]
fn a_veth_with_a_non_xdp_peer_serves_in_generic_mode() {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    let mut lan = Lan::new("veth");
    let vip: SocketAddr = format!("{VIP}:7000").parse().unwrap();
    let listener = lan.backend.enter(|| TcpListener::bind(vip)).unwrap();
    let log = lan.balance().printed();
    assert!(log.contains("a veth whose other end takes none that XDP sends"), "{log}");
    assert!(log.contains("eth0: attached, generic"), "{log}");
    let received = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::io::copy(&mut (&mut stream).take(UPLOAD_BYTES as u64), &mut std::io::sink()).unwrap()
    });
    let mut stream = lan.client.enter(|| TcpStream::connect_timeout(&vip, PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&vec![7; UPLOAD_BYTES]).unwrap();
    assert_eq!(received.join().unwrap(), UPLOAD_BYTES as u64);
}

/// The other ends of the ports accept no XDP frames, so our program would run in generic mode,
/// while the other program runs in native mode.
#[test]
fn an_interface_with_another_xdp_program_is_refused_with_its_id_and_the_command_to_run() {
    if let Some(reason) = unavailable() {
        println!("skipped: {reason}");
        return;
    }
    let mut lan = Lan::new("occupied");
    lan.balancer.pass_everything("eth0").unwrap();
    let shown = lan.balancer.ip("link show dev eth0").unwrap();
    let id = shown.split("prog/xdp id ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let id = id.unwrap_or_else(|| panic!("no program: {shown}")).to_owned();
    let guest = lan.balance();
    for text in [
        format!("another XDP program is attached there: id {id}, in native mode"),
        format!("`bpftool prog show id {id}`"),
        "`ip link set dev eth0 xdpdrv off`".to_owned(),
    ] {
        wait_for_text(guest, &text);
    }
}

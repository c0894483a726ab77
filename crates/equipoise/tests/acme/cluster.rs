//! Certificates that the controllers of a cluster share.

use std::net::SocketAddr;
use std::path::PathBuf;

use equipoise_testkit::{EtcdMembers, HttpBackend, ReservedPort, UdpPort, eventually, free_port};

use crate::common::{Process, equipoise, stderr, text};
use crate::dns::zone;
use crate::pebble::Pebble;
use crate::{DAY, api, ask, serial};

const NAMES: [&str; 3] = ["a.example.org", "b.example.org", "c.example.org"];

/// The way in which the directory verifies the names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Http,
    Alpn,
    /// By a member that has a zone and no front door.
    Dns,
}

/// A controller that also balances. Each has an address of its own, at ports that all share.
struct Member {
    name: String,
    file: PathBuf,
    https: SocketAddr,
    process: Option<Process>,
}

struct Cluster {
    pebble: Pebble,
    etcd: EtcdMembers,
    members: Vec<Member>,
    _ports: (Vec<ReservedPort>, UdpPort),
    _backend: HttpBackend,
}

impl Cluster {
    /// Three members of `auto` names that are verified in this way.
    fn new(test: &str, way: Way, names: &[&str]) -> Option<Cluster> {
        let has_http = way == Way::Http;
        let (http, https, nowhere) = (free_port(), free_port(), free_port());
        let dns = UdpPort::reserve();
        let (http_port, https_port) = (http.address().port(), https.address().port());
        let verified = if has_http { &http } else { &nowhere };
        let tls = if way == Way::Alpn { &https } else { &nowhere };
        let mut pebble = Pebble::stopped(test, verified.address(), tls.address(), 90 * DAY);
        pebble.is_slow = way != Way::Dns;
        if way == Way::Dns {
            pebble.resolver = SocketAddr::new([127, 0, 0, 2].into(), dns.address().port());
        }
        pebble.start_again();
        let state = pebble.folder.path("etcd");
        std::fs::create_dir_all(&state).expect("a folder");
        let etcd = EtcdMembers::start(&state, 1, "http", &[])?;
        let backend = HttpBackend::echo();
        let mut ports = vec![http, https, nowhere];
        let mut members = Vec::new();
        for place in 0..3u8 {
            let (name, ip) = (format!("c{}", place + 1), format!("127.0.0.{}", place + 2));
            let (folder, cluster) = (&pebble.folder, free_port());
            let door = |port: u16, more: &str| {
                format!(
                    "[[session]]\nlisten = \"{ip}:{port}\"\nprotocol = \"http\"\npool = \"web\"\n{more}\n"
                )
            };
            let config = format!(
                "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[instance]\nname = \"{name}\"\nthreads = 1\n\
                 [controller]\nstate = \"{state}\"\n[cluster]\nname = \"test\"\nlisten = \"{}\"\n\
                 state = \"{state}\"\nstore = {{ etcd = {:?} }}\n[acme]\nterms-agreed = true\n\
                 directory = \"https://{}/dir\"\nca = \"{}\"\n{}{}[[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n",
                text(&folder.path(&format!("{name}.sock"))),
                cluster.address(),
                etcd.endpoints(),
                pebble.listen.address(),
                text(&folder.path("ca.pem")),
                match (way, place) {
                    (Way::Dns, 0) => String::new(),
                    _ => door(https_port, &format!("tls = {{ auto = {names:?} }}")),
                },
                match way {
                    Way::Http => door(http_port, ""),
                    Way::Alpn => String::new(),
                    Way::Dns => zone(format!("{ip}:{}", dns.address().port()).parse().expect("it")),
                },
                backend.address(),
                state = text(&folder.path(&name)),
            );
            let file = folder.write(&format!("{name}.toml"), &config);
            let https = SocketAddr::new(ip.parse().expect("an address"), https_port);
            members.push(Member { name, file, https, process: None });
            ports.push(cluster);
        }
        let cluster = Cluster { pebble, etcd, members, _ports: (ports, dns), _backend: backend };
        cluster.authority();
        Some(cluster)
    }

    /// Creates the cluster's authority, and gives it to every member.
    fn authority(&self) {
        let made = equipoise(&["cluster", "init", "--config", text(&self.members[0].file)]);
        assert!(made.status.success(), "{}", stderr(&made));
        let folder = &self.pebble.folder;
        for other in &self.members[1..] {
            std::fs::create_dir_all(folder.path(&other.name)).expect("a folder");
            for file in ["ca.pem", "ca.key"] {
                let from = folder.path(&self.members[0].name).join(file);
                std::fs::copy(from, folder.path(&other.name).join(file)).expect("a copy");
            }
        }
    }

    /// Lets each name lead to one of these members.
    fn point(&self, members: &[usize]) {
        for (name, place) in NAMES.iter().zip(members.iter().cycle()) {
            self.pebble.point(name, self.members[*place].https.ip());
        }
    }

    fn start(&mut self, place: usize) {
        let member = &mut self.members[place];
        let process = Process::start(&["run", text(&member.file)]);
        process.wait_for_text(" ready ");
        member.process = Some(process);
    }

    /// Whether a member is ordering.
    fn orders(&self, place: usize) -> bool {
        let socket = self.members[place].file.with_extension("sock");
        api(&socket, "/v1/status").contains(r#""stage":"ordering""#)
    }

    /// The serial numbers that a member presents, by name; an empty one for none.
    fn serials(&self, place: usize) -> Vec<String> {
        NAMES.iter().map(|name| serial(name, self.members[place].https)).collect()
    }

    fn printed(&self, place: usize) -> String {
        self.members[place].process.as_ref().map(Process::printed).unwrap_or_default()
    }
}

/// The member that orders is killed in the middle of an order. Another one continues, every name is
/// verified at a member that may not be the one that orders, and all present the same certificates.
fn survives(test: &str, way: Way) {
    let Some(mut cluster) = Cluster::new(test, way, &NAMES) else { return };
    cluster.point(&[0, 1, 2]);
    (0..3).for_each(|place| cluster.start(place));
    let mut ordering = None;
    let begun = eventually(|| {
        ordering = (0..3).find(|place| cluster.orders(*place));
        ordering.is_some()
    });
    assert!(begun, "{}", cluster.printed(0));
    let dead = ordering.expect("one orders");
    // As `kill -9`.
    cluster.members[dead].process = None;
    let others: Vec<usize> = (0..3).filter(|place| *place != dead).collect();
    // The directory reaches the others, of which one orders.
    cluster.point(&others);
    let mut serials = vec![Vec::new(); 3];
    let issued = eventually(|| {
        others.iter().for_each(|place| serials[*place] = cluster.serials(*place));
        let [first, second] = [&serials[others[0]], &serials[others[1]]];
        first == second && first.iter().all(|serial| !serial.is_empty())
    });
    let printed = || others.iter().map(|place| cluster.printed(*place)).collect::<String>();
    assert!(issued, "{serials:?}\n{}", printed());
    for place in &others {
        for name in NAMES {
            let answer = ask(&cluster.pebble, name, cluster.members[*place].https);
            assert!(answer.is_ok(), "{name}: {answer:?}");
        }
    }
    // One member orders each name. The dead one may have finished one.
    let ordered = printed().matches("certificate issued").count();
    assert!((2..=3).contains(&ordered), "{ordered}\n{}", printed());
    // The member that was away takes them from the store, and orders none.
    cluster.start(dead);
    let expected = serials[others[0]].clone();
    let taken = eventually(|| cluster.serials(dead) == expected);
    assert!(taken, "{:?} {expected:?}\n{}", cluster.serials(dead), cluster.printed(dead));
    assert!(!cluster.printed(dead).contains("certificate issued"), "{}", cluster.printed(dead));
    // The store has keys and account only encrypted.
    let found = std::process::Command::new("grep")
        .args([
            "--recursive",
            "--text",
            "--files-with-matches",
            "-e",
            "PRIVATE KEY",
            "-e",
            "key_pkcs8",
        ])
        .arg(cluster.pebble.folder.path("etcd"))
        .output()
        .expect("grep runs");
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    drop(cluster.etcd);
}

#[test]
fn members_share_certificates_by_http_01_and_survive_the_one_that_orders() {
    survives("acme-cluster-http", Way::Http);
}

#[test]
fn members_share_certificates_by_tls_alpn_01_and_survive_the_one_that_orders() {
    survives("acme-cluster-alpn", Way::Alpn);
}

#[test]
fn every_member_with_the_zone_answers_dns_01_for_the_one_that_orders() {
    let names = ["*.example.org", "www.example.org"];
    let Some(mut cluster) = Cluster::new("acme-cluster-dns", Way::Dns, &names) else { return };
    (0..3).for_each(|place| cluster.start(place));
    for place in [1, 2] {
        for name in ["x.example.org", "www.example.org"] {
            let https = cluster.members[place].https;
            let is_served = || ask(&cluster.pebble, name, https).is_ok();
            assert!(eventually(is_served), "{name} {place}\n{}", cluster.printed(place));
        }
    }
    // The directory asks a member that orders nothing.
    assert!(!cluster.printed(0).contains("certificate issued"), "{}", cluster.printed(0));
}

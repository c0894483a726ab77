//! `[[dns]]` through the real binary: queried by our own client, by `dig`, and through unbound.
#![allow(clippy::unwrap_used, reason = "the functions that tests share are tests, too")]

mod common;
#[path = "dns/elastic.rs"]
mod elastic;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::dns::{A, addresses, ask, query};
use common::{Folder, Process, equipoise, stderr, stdout, text};
use equipoise_testkit::{Client, HttpBackend, UdpPort, eventually, free_port};

struct Instance {
    process: Process,
    folder: Folder,
    port: UdpPort,
}

impl Instance {
    fn start(test: &str, config: &str) -> Instance {
        Instance::start_with(test, config, &[])
    }

    /// Starts an instance with these files in its folder.
    fn start_with(test: &str, config: &str, files: &[(&str, &str)]) -> Instance {
        let (folder, port) = (Folder::new(test), UdpPort::reserve());
        for (name, content) in files {
            folder.write(name, content);
        }
        folder.write("static.zone", "text 300 IN TXT \"hello\"\n");
        let file = folder.write("equipoise.toml", &filled(&folder, &port, config));
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, folder, port }
    }

    fn rewrite(&self, config: &str) {
        self.folder.write("equipoise.toml", &filled(&self.folder, &self.port, config));
    }

    fn command(&self, args: &[&str]) -> String {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The output of a command with the exit code 1.
    fn refused(&self, args: &[&str]) -> String {
        let socket = self.folder.path("api.sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The addresses of a name, and the answer's TTL.
    fn addresses(&self, name: &str) -> (Vec<[u8; 4]>, u32) {
        addresses(&ask(self.port.address(), name, A))
    }
}

fn filled(folder: &Folder, port: &UdpPort, config: &str) -> String {
    let socket = folder.path("api.sock");
    let config = config
        .replace("LISTEN", &port.address().to_string())
        .replace("FOLDER", text(&folder.path("")))
        .replace("ZONEFILE", text(&folder.path("static.zone")));
    format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[log]\naccess-log = \"{}\"\n[instance]\nthreads = 2\n{config}",
        socket.display(),
        folder.path("access.log").display()
    )
}

const CONFIG: &str = "
[[pool]]
name = \"nodes\"
backends = [
  { name = \"n1\", address = \"192.0.2.11:80\" },
  { name = \"n2\", address = \"192.0.2.12:80\", weight = 2 },
  { name = \"n3\", address = \"192.0.2.13:80\" },
]
[[dns]]
zone = \"cluster.example.\"
listen = \"LISTEN\"
zone-file = \"ZONEFILE\"
pool = \"nodes\"
mode = \"ordered\"
ns = [{ name = \"ns1\", addresses = \"192.0.2.1\" }]
names = [\"www\", { name = \"some\", backends = [\"n1\", \"n3\"] }, { name = \"one\", mode = \"single\" }]
nodes = [{ backend = \"n3\", addresses = [\"203.0.113.13\", \"2001:db8::13\"] }]
[nameserver]
rate-limit = 0
";

const N1: [u8; 4] = [192, 0, 2, 11];
const N2: [u8; 4] = [192, 0, 2, 12];
const N3: [u8; 4] = [203, 0, 113, 13];

#[test]
fn answers_follow_drains_and_reloads_and_status_shows_the_shares() {
    let instance = Instance::start("dns-operate", CONFIG);
    assert_eq!(instance.addresses("cluster.example"), (vec![N1, N2, N3], 60));
    assert_eq!(instance.addresses("www.cluster.example").0, [N1, N2, N3]);
    assert_eq!(instance.addresses("some.cluster.example").0, [N1, N3]);
    assert_eq!(instance.addresses("one.cluster.example").0.len(), 1);

    let status = instance.command(&["status"]);
    for row in ["www.cluster.example.", "nodes/n2", "50.0%", "25.0%", "203.0.113.13 2001:db8::13"] {
        assert!(status.contains(row), "{row}:\n{status}");
    }

    // When the command returns, the next answer does not have it.
    instance.command(&["drain", "nodes/n2"]);
    assert_eq!(instance.addresses("www.cluster.example"), (vec![N1, N3], 10));
    instance.command(&["undrain", "nodes/n2"]);
    assert_eq!(instance.addresses("www.cluster.example"), (vec![N1, N2, N3], 60));
    instance.command(&["disable", "nodes/n1"]);
    assert_eq!(instance.addresses("www.cluster.example").0, [N2, N3]);

    instance.rewrite(
        &CONFIG
            .replace("\"www\"", "\"web\"")
            .replace("[nameserver]", "[nameserver]\nheavy-share = 0.5"),
    );
    instance.command(&["reload"]);
    assert_eq!(instance.addresses("web.cluster.example").0, [N2, N3], "what operators set stays");
    assert_eq!(instance.addresses("www.cluster.example").0.len(), 0);

    instance.rewrite(&CONFIG.replace("[nameserver]", "[nameserver]\nquery-log = 1.0"));
    instance.command(&["reload"]);
    instance.addresses("some.cluster.example");
    let logged = || fs::read_to_string(instance.folder.path("access.log")).unwrap();
    assert!(eventually(|| logged().ends_with('\n')));
    let line = "kind=query client=127.0.0.1 transport=udp name=\"some.cluster.example\" type=A rcode=NOERROR";
    assert!(logged().starts_with("time=") && logged().contains(line), "{}", logged());

    // A wrong file changes nothing.
    instance.rewrite(&CONFIG.replace("192.0.2.1\"", "ns\""));
    let socket = instance.folder.path("api.sock");
    assert!(!equipoise(&["reload", "--api", text(&socket)]).status.success());
    assert_eq!(instance.addresses("www.cluster.example").0, [N2, N3]);
}

#[test]
fn why_name_explains_an_answer_and_counts_no_query() {
    let instance = Instance::start("dns-why", CONFIG);
    instance.command(&["drain", "nodes/n2"]);
    let why = instance.command(&["why", "name", "www.cluster.example"]);
    let subject = "www.cluster.example. A from 127.0.0.1 (assumed): A 192.0.2.11, A 203.0.113.13";
    let turned = "www.cluster.example. A from 127.0.0.1 (assumed): A 203.0.113.13, A 192.0.2.11";
    assert!(why.starts_with(subject) || why.starts_with(turned), "{why}");
    for line in [
        "dns: www.cluster.example. is balanced (ordered, TTL 10 s): the backends are drawn by share",
        "dns: backend nodes/n1 (192.0.2.11): in, 50 % of clients: serving\n",
        "dns: backend nodes/n2 (192.0.2.12): out: draining\n",
        "dns: backend nodes/n3 (203.0.113.13, 2001:db8::13): in, 50 % of clients: serving\n",
    ] {
        assert!(why.contains(line), "{line}\nin\n{why}");
    }
    let name = |name: &str, of: &str| instance.command(&["why", "name", name, of]);
    let aaaa = name("www.cluster.example", "aaaa");
    assert!(aaaa.contains(" AAAA from") && aaaa.contains(": AAAA 2001:db8::13\n"), "{aaaa}");
    let fixed = name("text.cluster.example", "TXT");
    assert!(fixed.contains("dns: text.cluster.example.: text.cluster.example. 300 TXT"), "{fixed}");
    let missing = name("missing.cluster.example", "A");
    assert!(missing.contains("the zone has no such name"), "{missing}");
    let url = instance.refused(&["why", "http://www.cluster.example/"]);
    let line = "dns: www.cluster.example. has the address ";
    assert!(url.contains(line) && url.contains("no front door takes it"), "{url}");
    let away = instance.refused(&["why", "http://a.example/"]);
    assert!(away.contains("dns: a.example.: no zone of this process has it\n"), "{away}");
    let status = instance.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let queries = &status["dns"]["queries"];
    assert_eq!((&queries["udp"], &queries["tcp"]), (&0.into(), &0.into()), "{status:#}");
    let answers = status["dns"]["answers"].as_array().unwrap();
    assert!(answers.iter().all(|it| it["answers_total"] == 0), "{status:#}");
}

#[test]
fn labels_select_the_backends_of_a_name_also_after_a_reload() {
    let labelled = |n1: &str, n3: &str| {
        CONFIG
            .replace("192.0.2.11:80\"", &format!("192.0.2.11:80\", labels = [{n1}]"))
            .replace("192.0.2.13:80\"", &format!("192.0.2.13:80\", labels = [{n3}]"))
            .replace("backends = [\"n1\", \"n3\"]", "labels = [\"region=eu\", \"tier=front\"]")
    };
    let both = "\"tier=front\", \"rack=7\", \"region=eu\"";
    let instance = Instance::start("dns-labels", &labelled(both, "\"region=eu\""));
    assert_eq!(instance.addresses("some.cluster.example").0, [N1]);
    assert_eq!(instance.addresses("www.cluster.example").0, [N1, N2, N3]);
    instance.rewrite(&labelled("\"region=us\", \"tier=front\"", both));
    instance.command(&["reload"]);
    assert_eq!(instance.addresses("some.cluster.example").0, [N3]);
}

#[test]
fn an_unhealthy_node_leaves_the_answers_until_it_recovers_unless_all_are_unhealthy() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let config = format!(
        "[[pool]]\nname = \"nodes\"\nbackends = [{{ name = \"a\", address = \"{}\" }}, {{ name = \"b\", address = \"{}\" }}]\n\
         health = {{ tcp = true, interval = \"100ms\", timeout = \"100ms\", rise = 1, fall = 1 }}\n\
         [[dns]]\nzone = \"cluster.example.\"\nlisten = \"LISTEN\"\npool = \"nodes\"\nmode = \"ordered\"\n\
         ns = [{{ name = \"ns1\", addresses = \"192.0.2.1\" }}]\n\
         nodes = [{{ backend = \"a\", addresses = \"192.0.2.11\" }}, {{ backend = \"b\", addresses = \"192.0.2.12\" }}]\n\
         [nameserver]\nrate-limit = 0\n",
        a.address(),
        b.address()
    );
    let instance = Instance::start("dns-health", &config);
    let answers = |nodes: &[[u8; 4]]| {
        let answered = eventually(|| instance.addresses("cluster.example").0 == nodes);
        assert!(answered, "{nodes:?}: {}", instance.process.printed());
    };
    answers(&[N1, N2]);
    b.acceptor().stop();
    answers(&[N1]);
    b.acceptor().restart();
    answers(&[N1, N2]);
    b.acceptor().stop();
    answers(&[N1]);
    a.acceptor().stop();
    // No backend is healthy: the answers have all of them, and the status shows it.
    answers(&[N1, N2]);
    assert!(eventually(|| instance.command(&["status"]).contains("fail open")));
    b.acceptor().restart();
    answers(&[N2]);
    a.acceptor().restart();
    answers(&[N1, N2]);
}

#[test]
fn subnets_are_assigned_by_the_work_that_their_clients_bring() {
    if !have("dig", "subnets_are_assigned_by_the_work_that_their_clients_bring") {
        return;
    }
    let (backend, front) = (HttpBackend::named("a"), free_port());
    let nodes: Vec<_> =
        (1..=4).map(|n| format!("{{ name = \"n{n}\", address = \"192.0.2.{n}:80\" }}")).collect();
    let config = format!(
        "[[pool]]\nname = \"nodes\"\nbackends = [{}]\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccept-proxy = true\ntrusted = \"127.0.0.1\"\n\
         [[dns]]\nzone = \"cluster.example.\"\nlisten = \"LISTEN\"\nttl = \"1s\"\npool = \"nodes\"\nmode = \"single\"\n\
         ns = [{{ name = \"ns1\", addresses = \"127.0.0.1\" }}]\n",
        nodes.join(", "),
        backend.address(),
        front.address()
    );
    let instance = Instance::start("dns-loads", &config);
    // Twelve subnets have the same load, each a third of a node's share. Without knowledge of it,
    // the first four that ask would be assigned to all four nodes once in 11 times.
    let subnets: Vec<_> = (0..12).map(|n| format!("100.64.{n}")).collect();
    let bring = |subnet: &str, requests: usize| {
        let mut client = Client::connect(front.address());
        client.send(format!("PROXY TCP4 {subnet}.9 127.0.0.1 4711 80\r\n"));
        for _ in 0..requests {
            let answer = client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            assert_eq!(answer.status(), 200);
        }
    };
    let known = || {
        let status: serde_json::Value =
            serde_json::from_str(&instance.command(&["status", "--json"])).unwrap();
        status["dns"]["sources_known"].as_u64().unwrap()
    };
    // Loads count only from the first reading on, some time after the start.
    let has_begun = || {
        bring("100.65.0", 40);
        known() == 1
    };
    assert!(eventually(has_begun), "{}", instance.command(&["status"]));
    subnets.iter().for_each(|subnet| bring(subnet, 400));
    assert!(eventually(|| known() == 13), "{}", instance.command(&["status"]));
    let port = instance.port.address().port().to_string();
    let given: BTreeSet<String> = subnets
        .iter()
        .take(4)
        .map(|subnet| {
            let subnet = format!("+subnet={subnet}.0/24");
            let mut dig = Command::new("dig");
            dig.args(["@127.0.0.1", "-p", &port, "+short", "+tries=1", "+time=5", &subnet]);
            stdout(&dig.args(["cluster.example", "A"]).output().unwrap())
        })
        .collect();
    assert_eq!(given.len(), 4, "{given:?}");
    assert!(instance.command(&["status", "--json"]).contains("by_deficit"));
}

/// More prefixes than nodes report: a server that is in no cluster need not leave any out.
#[test]
fn a_server_outside_a_cluster_tracks_every_loaded_prefix() {
    const MANY: u8 = 129;
    const FEW: u8 = 30;
    let (backend, front) = (HttpBackend::named("a"), free_port());
    let config = format!(
        "[[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\naccept-proxy = true\ntrusted = \"127.0.0.1\"\n\
         [[dns]]\nzone = \"cluster.example.\"\nlisten = \"LISTEN\"\npool = \"web\"\n\
         ns = [{{ name = \"ns1\", addresses = \"127.0.0.1\" }}]\n",
        backend.address(),
        front.address()
    );
    let instance = Instance::start("dns-many-prefixes", &config);
    // In one burst, because a thread samples requests in turn: of 64 requests in a row it records
    // at least one.
    let bring = |subnet: u8, requests: usize| {
        let mut client = Client::connect(front.address());
        client.send(format!("PROXY TCP4 100.64.{subnet}.9 127.0.0.1 4711 80\r\n"));
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(requests));
        for _ in 0..requests {
            assert_eq!(client.response().unwrap().status(), 200);
        }
    };
    let known = || {
        let status: serde_json::Value =
            serde_json::from_str(&instance.command(&["status", "--json"])).unwrap();
        status["dns"]["sources_known"].as_u64().unwrap()
    };
    let begins = || {
        bring(0, 64);
        known() == 1
    };
    assert!(eventually(begins), "it looks where work comes from");
    (1..MANY).for_each(|subnet| bring(subnet, 128));
    // These prefixes have less load than the others.
    (MANY..MANY + FEW).for_each(|subnet| bring(subnet, 64));
    let all = u64::from(MANY + FEW);
    assert!(eventually(|| known() == all), "{} of {all}", known());
}

#[test]
fn a_start_with_a_taken_dns_port_fails_naming_the_listener() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new("dns-taken");
    let config = CONFIG
        .replace("LISTEN", &taken.local_addr().unwrap().to_string())
        .replace("zone-file = \"ZONEFILE\"\n", "");
    let socket = folder.path("api.sock");
    let file = folder.write(
        "equipoise.toml",
        &format!("[api]\nsocket = \"{}\"\nlisten = \"off\"\n{config}", socket.display()),
    );
    let output = equipoise(&["run", text(&file)]);
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains(") listens there") && said.contains("(UDP)"), "{said}");
}

/// Whether a program is installed. Without it, the test prints that it was skipped.
fn have(program: &str, test: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        println!("skipped {test}: {program} is not installed");
    }
    found.status.success()
}

#[test]
fn dig_gets_whole_answers_over_udp_and_tcp() {
    if !have("dig", "dig_gets_whole_answers_over_udp_and_tcp") {
        return;
    }
    let instance = Instance::start("dns-dig", CONFIG);
    let address = instance.port.address();
    let dig = |args: &[&str]| {
        let port = address.port().to_string();
        let output = Command::new("dig")
            .args(["@127.0.0.1", "-p", &port, "+tries=3", "+time=10"])
            .args(args)
            .output()
            .unwrap();
        stdout(&output)
    };
    for transport in ["+notcp", "+tcp"] {
        let told = dig(&["text.cluster.example", "TXT", transport, "+nsid"]);
        assert!(told.contains("status: NOERROR") && told.contains("\"hello\""), "{told}");
        assert!(told.contains("flags: qr aa rd;") && told.contains("NSID:"), "{told}");
        assert!(told.contains("(good)"), "the cookie is ours: {told}");
        assert!(!told.contains("Warning: Message parser reports malformed"), "{told}");
        let told = dig(&["nothing.cluster.example", "A", transport]);
        assert!(told.contains("status: NXDOMAIN") && told.contains("SOA"), "{told}");
        let told = dig(&["cluster.example", "NS", transport]);
        assert!(told.contains("ADDITIONAL: 2"), "glue and OPT: {told}");
    }
    let told = dig(&["cluster.example", "A", "+ednsopt=8:00011800c00002"]);
    assert!(told.contains("CLIENT-SUBNET: 192.0.2.0/24/0"), "{told}");
}

#[test]
fn dig_finds_the_addresses_of_srv_and_https_targets_behind_the_answer() {
    if !have("dig", "dig_finds_the_addresses_of_srv_and_https_targets_behind_the_answer") {
        return;
    }
    let names =
        "[{ name = \"_web._tcp\", mode = \"srv\" }, { name = \"app\", mode = \"https\" }, \"www\"]";
    let start = CONFIG.find("names = ").unwrap();
    let end = start + CONFIG[start..].find('\n').unwrap();
    let config = CONFIG.replace(&CONFIG[start..end], &format!("names = {names}"));
    let config = config.replace("ZONEFILE", "FOLDERpointing.zone");
    let zone = "$TTL 300\nmail IN MX 10 www\nwww IN HTTPS 1 . alpn=h2\nfront IN HTTPS 0 app\n";
    let instance = Instance::start_with("dns-additional", &config, &[("pointing.zone", zone)]);
    let port = instance.port.address().port().to_string();
    // The additional section as dig prints it: owner, TTL, type and data.
    let additional = |name: &str, rtype: &str, options: &[&str]| {
        let output = Command::new("dig")
            .args(["@127.0.0.1", "-p", &port, "+tries=3", "+time=10", "+noall", "+additional"])
            .args(["+comments", name, rtype])
            .args(options)
            .output()
            .unwrap();
        let said = stdout(&output);
        assert!(said.contains("status: NOERROR") && !said.contains("malformed"), "{said}");
        assert!(!said.contains("flags: qr aa tc"), "{said}");
        let records = said.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
        let words = |line: &str| {
            let words: Vec<_> = line.split_whitespace().filter(|word| *word != "IN").collect();
            words.join(" ")
        };
        records.map(words).collect::<BTreeSet<_>>()
    };
    let nodes = [
        "n1.cluster.example. 60 A 192.0.2.11",
        "n2.cluster.example. 60 A 192.0.2.12",
        "n3.cluster.example. 60 A 203.0.113.13",
        "n3.cluster.example. 60 AAAA 2001:db8::13",
    ];
    for options in [&["+notcp"][..], &["+tcp"], &["+notcp", "+noedns"], &["+notcp", "+bufsize=512"]]
    {
        for (name, rtype) in
            [("_Web._tcP.clusTer.example", "SRV"), ("app.cluster.example", "HTTPS")]
        {
            let found = additional(name, rtype, options);
            assert_eq!(found, nodes.map(String::from).into(), "{name} {options:?}");
        }
        for (name, rtype) in [("mail.cluster.example", "MX"), ("www.cluster.example", "HTTPS")] {
            let found = additional(name, rtype, options);
            assert_eq!(found.len(), 4, "{name} {options:?}: {found:?}");
            assert!(found.iter().all(|record| record.starts_with("www.cluster.example. 20 A")));
        }
        let found = additional("front.cluster.example", "HTTPS", options);
        assert_eq!(
            found.iter().filter(|record| record.contains(" HTTPS ")).count(),
            3,
            "{found:?}"
        );
        // A name of mode `https` has two addresses, or only one node with half of the weight.
        let addresses = found.iter().filter(|record| record.contains(" A ")).count();
        assert!((1..=2).contains(&addresses), "{found:?}");
    }
}

#[test]
fn shares_survive_a_resolver_that_shuffles() {
    if !have("unbound", "shares_survive_a_resolver_that_shuffles") {
        return;
    }
    // The four nodes of the design, with the weights 10, 20, 30 and 40.
    let backends: Vec<_> = (1..=4)
        .map(|n| format!("{{ name = \"n{n}\", address = \"192.0.2.{n}:80\", weight = {n}0 }}"))
        .collect();
    let config = format!(
        "[[pool]]\nname = \"nodes\"\nbackends = [{}]\n[[dns]]\nzone = \"cluster.example.\"\nlisten = \"LISTEN\"\nttl = \"1s\"\npool = \"nodes\"\n\
         ns = [{{ name = \"ns1\", addresses = \"127.0.0.1\" }}]\n\
         names = [{{ name = \"pair\", mode = \"pair\" }}, {{ name = \"single\", mode = \"single\" }}, {{ name = \"ordered\", mode = \"ordered\" }}]\n\
         [nameserver]\nrate-limit = 0\n",
        backends.join(", ")
    );
    let instance = Instance::start("dns-unbound", &config);
    let resolver = UdpPort::reserve();
    let unbound_config = instance.folder.write("unbound.conf", &format!(
        "server:\n directory: \"{0}\"\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n use-syslog: no\n do-daemonize: no\n interface: 127.0.0.1@{1}\n \
         do-not-query-localhost: no\n cache-max-ttl: 0\n cache-min-ttl: 0\n rrset-roundrobin: yes\n module-config: \"iterator\"\n num-threads: 1\n \
         stub-zone:\n name: \"cluster.example\"\n stub-addr: 127.0.0.1@{2}\nremote-control:\n control-enable: no\n",
        instance.folder.root().display(),
        resolver.address().port(),
        instance.port.address().port()
    ));
    let mut command = Command::new("unbound");
    command.args(["-d", "-c", text(&unbound_config)]).stdin(Stdio::null());
    let unbound = Process::of(command);
    let ready = eventually(|| {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let asked = query("ns1.cluster.example", A);
        client.send_to(&asked, resolver.address()).is_ok()
            && client.recv_from(&mut [0; 512]).is_ok()
    });
    assert!(ready, "unbound answers; it printed:\n{}", unbound.printed());
    const ASKED: usize = 2000;
    for (mode, within) in [("pair", true), ("single", true), ("ordered", false)] {
        let mut first: BTreeMap<u8, usize> = BTreeMap::new();
        for _ in 0..ASKED {
            let records = ask(resolver.address(), &format!("{mode}.cluster.example"), A);
            // Unsorted: a client takes the first address.
            *first.entry(records[15]).or_default() += 1;
        }
        let worst = (1..=4u8)
            .map(|n| {
                (first.get(&n).copied().unwrap_or_default() as f64 / ASKED as f64 * 100.0
                    - f64::from(n) * 10.0)
                    .abs()
            })
            .fold(0.0, f64::max);
        println!(
            "{mode} through unbound, every answer fresh: worst node {worst:.1} points from its share"
        );
        assert_eq!(worst < 5.0, within, "{mode}: {first:?}");
    }
}

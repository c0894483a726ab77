//! keepalived's configuration: virtual servers and their checks.

use crate::ImportError;
use crate::ipvs::schedule;
use crate::model::{Config, Options, Pool, Vip, duration, name};
use crate::report::Report;

/// A line of words with the block behind it.
#[derive(Clone, Debug, Default)]
struct Node {
    number: usize,
    words: Vec<String>,
    block: Vec<Node>,
}

impl Node {
    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The first node of this name in the block.
    fn find(&self, name: &str) -> Option<&Node> {
        self.block.iter().find(|it| it.word(0) == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.find(name).map(|it| it.word(1)).filter(|it| !it.is_empty())
    }

    /// A time in seconds, with a fraction, in milliseconds.
    fn time(&self, name: &str) -> Option<u64> {
        let seconds: f64 = self.value(name)?.parse().ok()?;
        (seconds > 0.0 && seconds < 86_400.0).then_some((seconds * 1000.0) as u64)
    }
}

const DEPTH_MAX: usize = 32;

/// Translates a file of keepalived.
pub(crate) fn import(text: &str, report: &mut Report) -> Result<Config, ImportError> {
    let mut lines: Vec<(usize, Vec<String>)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let code = line.split(['#', '!']).next().unwrap_or_default();
        let words: Vec<String> = code
            .replace('{', " { ")
            .replace('}', " } ")
            .split_whitespace()
            .map(str::to_string)
            .collect();
        if !words.is_empty() {
            if words.iter().any(|it| it != "{" && it != "}") {
                report.open(at + 1, line);
            }
            lines.push((at + 1, words));
        }
    }
    let mut rest = lines.into_iter().flat_map(|(number, words)| {
        let end = (number, "\n".to_string());
        words.into_iter().map(move |word| (number, word)).chain([end])
    });
    let all = nodes(&mut rest, 0)?;
    let mut config = Config::default();
    for node in &all {
        match node.word(0) {
            "virtual_server" => virtual_server(node, &all, &mut config, report),
            "virtual_server_group" => carried(node, report),
            "vrrp_instance" | "vrrp_sync_group" | "vrrp_script" | "vrrp_track_process" => {
                let nearest = "keep keepalived for the address: equipoise announce --keepalived writes its check script";
                report.lost(node.number, nearest);
            }
            "global_defs" => global(node, &mut config, report),
            "static_ipaddress" | "static_routes" | "static_rules" => {
                report.lost(node.number, "the system's own network configuration has them")
            }
            "include" => report.lost(node.number, "translate the included file, too"),
            _ => {}
        }
    }
    if config.vips.is_empty() {
        return Err(ImportError::Empty { wanted: "a virtual_server" });
    }
    Ok(config)
}

/// `global_defs`: time-outs of LVS, and mail.
fn global(node: &Node, config: &mut Config, report: &mut Report) {
    for line in &node.block {
        match line.word(0) {
            "notification_email" | "notification_email_from" | "smtp_server" => {
                report.lost(line.number, "equipoise events --follow, and rules on /metrics");
            }
            "lvs_sync_daemon" => {
                report.lost(line.number, "a fleet of balancers with the same [flows] seed");
            }
            "lvs_timeouts" => {
                let keys = [
                    ("tcp", "tcp-timeout", 20),
                    ("tcpfin", "closing-timeout", 10),
                    ("udp", "udp-timeout", 20),
                ];
                for pair in line.words[1..].chunks(2) {
                    let Some((_, key, least)) = keys.iter().find(|it| it.0 == pair[0]) else {
                        continue;
                    };
                    let time =
                        pair.get(1).and_then(|it| it.parse::<u64>().ok()).filter(|it| *it > 0);
                    if let Some(seconds) = time {
                        config.flows.set(key, duration(seconds.clamp(*least, 86_400) * 1000));
                        report.carried(line.number);
                    }
                }
            }
            _ => {}
        }
    }
}

fn carried(node: &Node, report: &mut Report) {
    report.carried(node.number);
    node.block.iter().for_each(|it| carried(it, report));
}

fn nodes(
    rest: &mut impl Iterator<Item = (usize, String)>,
    depth: usize,
) -> Result<Vec<Node>, ImportError> {
    let mut all: Vec<Node> = Vec::new();
    let mut node = Node::default();
    let mut last = 1;
    while let Some((number, word)) = rest.next() {
        last = number;
        match word.as_str() {
            "{" => {
                let problem = |problem: &str| ImportError::Syntax {
                    line: number,
                    problem: problem.to_string(),
                };
                if depth >= DEPTH_MAX {
                    return Err(problem("more than 32 blocks in one another"));
                }
                // The brace may stand on the next line.
                let mut open = if node.words.is_empty() {
                    all.pop().ok_or_else(|| problem("a block without a name"))?
                } else {
                    std::mem::take(&mut node)
                };
                open.block = nodes(rest, depth + 1)?;
                all.push(open);
            }
            "}" if depth == 0 => {
                return Err(ImportError::Syntax {
                    line: number,
                    problem: "`}` without a block".to_string(),
                });
            }
            "}" => {
                if !node.words.is_empty() {
                    all.push(node);
                }
                return Ok(all);
            }
            "\n" => {
                if !node.words.is_empty() {
                    all.push(std::mem::take(&mut node));
                }
            }
            _ => {
                node.number = number;
                node.words.push(word);
            }
        }
    }
    if depth > 0 {
        return Err(ImportError::Syntax {
            line: last,
            problem: "a block is not closed".to_string(),
        });
    }
    Ok(all)
}

/// Options of a virtual server that need no counterpart.
const NOTHING: &[&str] = &[
    "delay_loop",
    "lb_algo",
    "lvs_sched",
    "lb_kind",
    "lvs_method",
    "protocol",
    "real_server",
    "virtualhost",
    "persistence_timeout",
    "persistence_granularity",
    "sorry_server",
    "delay_before_retry",
    "retry",
    "alpha",
    "omega",
    "hysteresis",
    "nat_mask",
    "connect_timeout",
    "weight",
    "inhibit_on_failure",
    "ip_family",
    "ha_suspend",
    "quorum",
    "quorum_up",
    "quorum_down",
    "HTTP_GET",
    "SSL_GET",
    "TCP_CHECK",
    "UDP_CHECK",
    "MISC_CHECK",
    "SMTP_CHECK",
    "DNS_CHECK",
    "PING_CHECK",
    "notify_up",
    "notify_down",
    "uthreshold",
    "lthreshold",
    "lb_port",
    "ops",
    "sorry_server_inhibit",
    "delay",
    "warmup",
    "snmp_name",
];

fn virtual_server(node: &Node, all: &[Node], config: &mut Config, report: &mut Report) {
    report.carried(node.number);
    for one in &node.block {
        if NOTHING.contains(&one.word(0)) {
            carried(one, report);
        } else {
            report.lost(one.number, format!("a VIP has no {}", one.word(0)));
        }
    }
    let protocol = node.value("protocol").unwrap_or("TCP").to_lowercase();
    let addresses: Vec<(String, String)> = match node.word(1) {
        "fwmark" => {
            report.lost(node.number, "a [[packet]] for each address and port of the mark");
            Vec::new()
        }
        "group" => group(node, all, report),
        address => vec![(address.to_string(), node.word(2).to_string())],
    };
    if protocol == "sctp" {
        report.lost(node.number, "a VIP is for TCP or UDP");
        return;
    }
    for (address, port) in addresses {
        let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let pool_name = name(&format!("{}-{port}-{protocol}", address.replace(':', "-")));
        let mut options = Options::default();
        let port = if port == "0" || port.is_empty() { "*".to_string() } else { port };
        options.set("vip", format!("{host}:{port}/{protocol}")).set("interface", "eth0");
        report.changes(
            node.number,
            "set `interface` to the one at which the packets arrive; it is eth0 now",
        );
        let forward =
            match node.value("lb_kind").or_else(|| node.value("lvs_method")).unwrap_or("NAT") {
                "DR" => "direct-routing",
                "TUN" => "tunnel",
                _ => "nat",
            };
        options.set("forward", forward);
        let how = node.find("lb_algo").or_else(|| node.find("lvs_sched"));
        let number = how.map_or(node.number, |it| it.number);
        let mask = node.value("persistence_granularity").unwrap_or_default();
        let persistence = node.find("persistence_timeout").map(|_| mask);
        schedule(&mut options, how.map_or("rr", |it| it.word(1)), persistence, number, report);
        options.set("pool", pool_name.clone());
        let mut pool = pool(node, pool_name, &port, report);
        if let Some(server) = node.find("sorry_server") {
            let vip = Sorry { node, server, port: &port, forward, protocol: &protocol };
            vip.add(&mut pool, config, report);
        }
        config.pools.push(pool);
        config.vips.push(Vip { options });
    }
}

/// The addresses and ports of a group.
fn group(node: &Node, all: &[Node], report: &mut Report) -> Vec<(String, String)> {
    let is_group = |it: &&Node| it.word(0) == "virtual_server_group" && it.word(1) == node.word(2);
    let Some(group) = all.iter().find(is_group) else {
        report.lost(node.number, "the group is not in this file");
        return Vec::new();
    };
    let mut out = Vec::new();
    for line in &group.block {
        if line.word(0).parse::<std::net::IpAddr>().is_ok() {
            out.push((line.word(0).to_string(), line.word(1).to_string()));
        } else {
            report.lost(line.number, "a [[packet]] for each address and port of the range or mark");
        }
    }
    out
}

fn pool(node: &Node, name: String, port: &str, report: &mut Report) -> Pool {
    let mut pool = Pool { name, ..Pool::default() };
    let servers: Vec<_> = node.block.iter().filter(|it| it.word(0) == "real_server").collect();
    for server in &servers {
        let mut backend = Options::default();
        backend.set("address", address(server, port));
        if let Some(weight) = server.value("weight").and_then(|it| it.parse::<i64>().ok()) {
            backend.set("weight", weight.clamp(0, 1000));
        }
        pool.backends.push(backend);
        for one in &server.block {
            match one.word(0) {
                "notify_up" | "notify_down" => {
                    report.changes(one.number, "equipoise events --follow")
                }
                "uthreshold" | "lthreshold" => {
                    report.lost(one.number, "a VIP has no limit of flows")
                }
                "inhibit_on_failure" => report.changes(
                    one.number,
                    "when-down = \"keep\" of the VIP keeps the flows of a failed backend",
                ),
                _ => {}
            }
        }
    }
    for (key, how) in [
        ("quorum_up", "equipoise events --follow"),
        ("quorum_down", "equipoise events --follow"),
        ("ops", "datagrams of one client port stay at one backend"),
        ("ha_suspend", "checks run whether or not the machine has the address"),
        ("delay_before_retry", "a failed check is repeated after `interval`"),
    ] {
        if let Some(line) = node.find(key) {
            report.changes(line.number, how);
        }
    }
    if let Some(quorum) = node.find("quorum") {
        report.changes(quorum.number, "equipoise announce withdraws an address without backends");
    }
    if let Some(first) = servers.first() {
        check(&mut pool, node, first, &servers, report);
    }
    pool
}

/// `sorry_server` of a VIP: a backup.
struct Sorry<'a> {
    node: &'a Node,
    server: &'a Node,
    /// The VIP's.
    port: &'a str,
    forward: &'a str,
    protocol: &'a str,
}

impl Sorry<'_> {
    fn add(&self, pool: &mut Pool, config: &Config, report: &mut Report) {
        let Sorry { node, server, .. } = *self;
        let address = self.address();
        if let Some(why) = self.obstacle(pool, config, &address) {
            report.lost(server.number, why);
            return;
        }
        let mut backend = Options::default();
        backend.set("address", address).set("backup", true);
        pool.backends.push(backend);
        if !pool.health.is_empty() {
            report.changes(
                server.number,
                "the pool's checks are for the backup, too; keepalived does not check it",
            );
        }
        if node.find("persistence_timeout").is_some() {
            report.changes(
                server.number,
                "a client that it has served stays with it while the client's flow lives, because \
                 this VIP keeps clients by their address; other clients go to the servers as soon \
                 as one is healthy again",
            );
        }
    }

    /// Without nat IPVS does not change the port.
    fn address(&self) -> String {
        match (self.forward, self.port) {
            ("nat", _) | (_, "*") => address(self.server, self.port),
            (_, port) => host_and_port(self.server.word(1), port),
        }
    }

    /// Why the VIP cannot have it.
    fn obstacle(&self, pool: &Pool, config: &Config, address: &str) -> Option<&'static str> {
        let has = |pool: &Pool| pool.backends.iter().any(|it| it.text("address") == Some(address));
        if has(pool) {
            return Some("a pool has an address once: it is a real server already");
        }
        let ip = self.server.word(1).parse::<std::net::IpAddr>();
        if ip.is_ok_and(|it| it.is_loopback()) {
            return Some("a VIP sends no packets to its own machine: name a web server on another");
        }
        let is_like = |vip: &&Vip| {
            let is_protocol = |it: &str| it.rsplit('/').next() == Some(self.protocol);
            let options = &vip.options;
            options.text("forward") == Some("nat") && options.text("vip").is_some_and(is_protocol)
        };
        let has_vips = |pool: &&Pool| {
            let mut vips = config.vips.iter().filter(is_like);
            vips.any(|it| it.options.text("pool") == Some(pool.name.as_str()))
        };
        let is_shared = self.forward == "nat" && config.pools.iter().filter(has_vips).any(has);
        is_shared.then_some(
            "by nat a backend serves one VIP, and another one has this address already: give each \
             VIP a sorry server of its own",
        )
    }
}

/// The address of a server; without a port it has the VIP's.
fn address(server: &Node, port: &str) -> String {
    let (address, own) = (server.word(1), server.word(2));
    let port = if own.is_empty() || own == "0" { port.trim_matches('*') } else { own };
    let port = if port.is_empty() { "80" } else { port };
    host_and_port(address, port)
}

fn host_and_port(address: &str, port: &str) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn check(pool: &mut Pool, node: &Node, first: &Node, servers: &[&Node], report: &mut Report) {
    let kinds = [
        "HTTP_GET",
        "SSL_GET",
        "TCP_CHECK",
        "UDP_CHECK",
        "MISC_CHECK",
        "SMTP_CHECK",
        "DNS_CHECK",
        "PING_CHECK",
    ];
    let Some(check) = first.block.iter().find(|it| kinds.contains(&it.word(0))) else { return };
    for server in servers {
        let other = server.block.iter().find(|it| kinds.contains(&it.word(0)));
        if other.map(|it| it.word(0)) != Some(check.word(0)) {
            report.changes(server.number, "the check is that of the first real server");
        }
    }
    let health = &mut pool.health;
    match check.word(0) {
        "HTTP_GET" | "SSL_GET" => {
            let url = check.find("url");
            health.set("http", url.and_then(|it| it.value("path")).unwrap_or("/"));
            health.set(
                "status",
                url.and_then(|it| it.value("status_code")).unwrap_or("200-299").replace(' ', ","),
            );
            if let Some(host) = node.value("virtualhost").or_else(|| url?.value("virtualhost")) {
                health.set("host", host);
            }
            if let Some(digest) = url.and_then(|it| it.find("digest")) {
                report.changes(digest.number, "health has `body`, a text that the answer contains");
            }
            if check.word(0) == "SSL_GET" {
                let mut tls = Options::default();
                tls.set("verify", false);
                pool.tls = Some(tls);
                report.changes(
                    check.number,
                    "the check uses the pool's TLS and does not verify, as keepalived",
                );
            }
        }
        "TCP_CHECK" => {
            health.set("tcp", true);
        }
        kind => {
            for server in servers {
                let lines = server.block.iter().filter(|it| it.word(0) == kind);
                lines.for_each(|it| report.lost(it.number, "health has tcp, http and grpc"));
            }
            return;
        }
    }
    let health = &mut pool.health;
    if let Some(port) = check.value("connect_port").and_then(|it| it.parse::<i64>().ok()) {
        health.set("port", port);
    }
    let delay = check.time("delay_loop").or_else(|| node.time("delay_loop")).unwrap_or(60_000);
    health.set("interval", duration(delay.clamp(100, 3_600_000)));
    let timeout =
        check.time("connect_timeout").or_else(|| node.time("connect_timeout")).unwrap_or(5000);
    health.set("timeout", duration(timeout.min(delay).clamp(10, 600_000)));
    let retries: i64 = check
        .value("retry")
        .or_else(|| node.value("retry"))
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    health.set("rise", 1).set("fall", (retries + 1).clamp(1, 100));
}

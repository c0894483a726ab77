//! QUIC clients that change their address, with aioquic at both ends.
//!
//! Needs Python: `make quic-python`.

use std::collections::BTreeMap;

use equipoise_testkit::netns::{Guest, SiteShape};
use equipoise_testkit::{python_programs, workspace};
use rustix::process::Signal;
use serde_json::Value;

use crate::bed::{Bed, soon, wait_for_text};
use crate::common::text;
use crate::method::{DIRECT, Method, NAT};

const SHAPE: SiteShape = SiteShape { backends: 3, two_arms: false };
const PORT: u16 = 4433;
const CONNECTIONS: usize = 9;
const KEY: &str = "8f95f09245765f80256934e50c66207f";

/// The pool with these backends, and the VIP. Of the three configurations, one is plaintext and two
/// are encrypted, in one pass and in four.
fn config(bed: &Bed, method: Method, backends: &[usize]) -> String {
    std::fs::write(bed.path("key"), KEY).expect("the folder is ours");
    let key = bed.path("key");
    let backend = |index: &usize| {
        let address = bed.site.backend_address(*index, method.backend_v6);
        format!("{{ name = \"backend-{}\", address = \"{address}:{PORT}\" }}", index + 1)
    };
    let backends: Vec<_> = backends.iter().map(backend).collect();
    format!(
        "\n[[pool]]\nname = \"quic\"\nbackends = [{}]\n\n[[packet]]\nvip = \"{}:{PORT}/udp\"\n\
         interface = \"eth0\"\nforward = \"{}\"\npool = \"quic\"\n\n\
         [[packet.quic]]\nserver-id-length = 3\nnonce-length = 7\n\
         server-ids = [\"backend-1=00000a\", \"backend-2=00000b\"]\n\n\
         [[packet.quic]]\nconfig-rotation = 1\nserver-id-length = 4\nnonce-length = 12\n\
         key-file = \"{key}\"\n\n\
         [[packet.quic]]\nconfig-rotation = 2\nserver-id-length = 6\nnonce-length = 5\n\
         key-file = \"{key}\"\n",
        backends.join(", "),
        method.vip_address(),
        method.forward,
        key = text(&key),
    )
}

fn vip_status(bed: &Bed) -> Value {
    let status: Value = serde_json::from_str(&bed.command(&["status", "--json"])).unwrap();
    status["packet"]["vips"][0].clone()
}

/// The configurations of each server, from the status of the balancer.
fn server_configs(bed: &Bed) -> BTreeMap<String, Vec<Value>> {
    let mut servers = BTreeMap::<String, Vec<Value>>::new();
    for config in vip_status(bed)["quic"].as_array().expect("the VIP has configurations") {
        for (name, id) in config["servers"].as_object().expect("by name") {
            let key = (config["algorithm"] != "plaintext").then_some(KEY);
            servers.entry(name.clone()).or_default().push(serde_json::json!({
                "rotation": config["config_rotation"],
                "server_id": id,
                "nonce_length": config["nonce_length"],
                "key": key,
            }));
        }
    }
    servers
}

/// Connections over the VIP, and the servers that they had at first.
struct Clients {
    clients: Guest,
    rounds: usize,
    _servers: Vec<Guest>,
}

impl Clients {
    /// Starts the servers with the connection ids that the balancer expects.
    fn open(bed: &Bed, method: Method) -> Option<Clients> {
        let python = python_programs("quic-python")?.join("python");
        let peers = workspace().join("crates/equipoise/tests/quic_peers");
        let [server, client] = ["server.py", "client.py"].map(|name| peers.join(name));
        let vip = method.vip_address().to_string();
        let port = PORT.to_string();
        let mut servers = Vec::new();
        for (index, (name, configs)) in server_configs(bed).into_iter().enumerate() {
            assert_eq!(configs.len(), 3, "{configs:?}");
            let own = bed.site.backend_address(index, method.backend_v6).to_string();
            let address = if method.translates() { &own } else { &vip };
            let configs = serde_json::to_string(&configs).unwrap();
            let arguments = [text(&server), address, &port, &name, &configs];
            let host = &bed.site.backends[index];
            servers.push(host.start(text(&python), &arguments).expect("Python runs"));
        }
        servers.iter().for_each(|server| wait_for_text(server, "ready"));
        let arguments = [text(&client), &vip, &port, &CONNECTIONS.to_string()];
        let clients = bed.site.client.start(text(&python), &arguments).expect("Python runs");
        wait_for_text(&clients, "opened");
        Some(Clients { clients, rounds: 0, _servers: servers })
    }

    /// The number of servers that have connections.
    fn servers(&self) -> usize {
        let printed = self.clients.printed();
        let opened = printed.lines().find(|line| line.starts_with("opened")).unwrap_or_default();
        opened.split(' ').skip(1).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Changes the address of each connection in the middle of a transfer. Returns the connections
    /// that did not stay at their servers.
    fn change_addresses(&mut self) -> String {
        self.rounds += 1;
        self.clients.signal(Signal::USR1);
        let head = format!("round {}:", self.rounds);
        wait_for_text(&self.clients, &head);
        let printed = self.clients.printed();
        let line = printed.lines().find_map(|line| line.strip_prefix(&head));
        line.unwrap_or_default().trim().to_owned()
    }
}

/// Applies the configuration with these backends, and waits until its change is complete.
fn reload(bed: &Bed, method: Method, backends: &[usize]) {
    bed.configure(&config(bed, method, backends));
    bed.command(&["reload"]);
    let is_steady = || {
        let vip = vip_status(bed);
        let listed = vip["backends"].as_array().into_iter().flatten();
        let listed = listed.filter(|it| it["listed"] == true).count();
        vip["phase"] == "steady" && listed == backends.len()
    };
    assert!(soon(is_steady), "{}", bed.command(&["status"]));
}

#[test]
fn connections_stay_at_their_servers_when_addresses_and_pools_change() {
    for method in [DIRECT, NAT] {
        let Some(mut bed) = Bed::new("quic", SHAPE) else { return };
        bed.prepare(&[method]);
        bed.configure(&config(&bed, method, &[0, 1, 2]));
        bed.balance();
        let Some(mut clients) = Clients::open(&bed, method) else { return };
        assert!(clients.servers() > 1, "{}", clients.clients.printed());
        assert_eq!(clients.change_addresses(), "", "{}", method.name);
        // Removed backends drain.
        reload(&bed, method, &[1]);
        assert_eq!(clients.change_addresses(), "", "{}: {}", method.name, bed.command(&["status"]));
        reload(&bed, method, &[0, 1, 2]);
        assert_eq!(clients.change_addresses(), "", "{}", method.name);
        let vip = vip_status(&bed);
        let by_id = vip["decisions"]["connection-id"].as_u64().unwrap();
        assert!(by_id > 100, "{vip}");
        assert!(vip["notes"]["quic_client_id"].as_u64().unwrap() > 0, "{vip}");
        for reason in ["quic_id_short", "quic_config_unknown", "quic_server_unknown"] {
            assert!(vip["notes"].get(reason).is_none(), "{vip}");
        }
        println!("{:<22} {by_id} packets by connection id", method.name);
    }
}

//! Servers and clients with aioquic, in processes.
//!
//! Needs Python: `make quic-python`.

use std::collections::BTreeSet;

use equipoise_testkit::netns::Guest;
use equipoise_testkit::{python_programs, workspace};
use rustix::process::Signal;

use super::{CONNECTIONS, IdConfig, KEY, PORT, Peers, id_configs, server_address, server_name};
use crate::bed::{Bed, wait_for_text};
use crate::common::text;
use crate::method::Method;

/// The clients' process, and those of the servers.
pub(super) struct Processes {
    clients: Guest,
    rounds: usize,
    _servers: Vec<Guest>,
}

impl Peers for Processes {
    fn open(bed: &Bed, method: Method) -> Option<Processes> {
        let python = python_programs("quic-python")?.join("python");
        let peers = workspace().join("crates/equipoise/tests/quic_peers");
        let [server, client] = ["server.py", "client.py"].map(|name| peers.join(name));
        let port = PORT.to_string();
        let mut servers = Vec::new();
        for (index, host) in bed.site.backends.iter().enumerate() {
            let (name, address) = (server_name(index), server_address(bed, method, index));
            let (address, configs) = (address.to_string(), as_json(&id_configs(bed, &name)));
            let arguments = [text(&server), &address, &port, &name, &configs];
            servers.push(host.start(text(&python), &arguments).expect("Python runs"));
        }
        servers.iter().for_each(|server| wait_for_text(server, "ready"));
        let (vip, count) = (method.vip_address().to_string(), CONNECTIONS.to_string());
        let arguments = [text(&client), &vip, &port, &count];
        let clients = bed.site.client.start(text(&python), &arguments).expect("Python runs");
        wait_for_text(&clients, "opened");
        Some(Processes { clients, rounds: 0, _servers: servers })
    }

    fn servers(&self) -> usize {
        let printed = self.clients.printed();
        let opened = printed.lines().find(|line| line.starts_with("opened")).unwrap_or_default();
        opened.split(' ').skip(1).collect::<BTreeSet<_>>().len()
    }

    fn change_addresses(&mut self, meanwhile: impl FnOnce()) -> String {
        self.rounds += 1;
        self.clients.signal(Signal::USR1);
        meanwhile();
        let head = format!("round {}:", self.rounds);
        wait_for_text(&self.clients, &head);
        let printed = self.clients.printed();
        let line = printed.lines().find_map(|line| line.strip_prefix(&head));
        line.unwrap_or_default().trim().to_owned()
    }
}

fn as_json(configs: &[IdConfig]) -> String {
    let configs = configs.iter().map(|config| {
        serde_json::json!({
            "rotation": config.rotation,
            "server_id": config.server_id,
            "nonce_length": config.nonce_bytes,
            "key": config.is_encrypted.then_some(KEY),
        })
    });
    serde_json::Value::from_iter(configs).to_string()
}

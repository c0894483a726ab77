//! QUIC clients that change their address, with aioquic or quinn at both ends.

mod aioquic;
#[path = "../../../levels/packet/tests/fixtures/connection_ids.rs"]
mod connection_ids;
mod quinn;

use std::net::IpAddr;

use equipoise_testkit::netns::SiteShape;
use serde_json::Value;

use crate::bed::{Bed, soon};
use crate::common::text;
use crate::method::{DIRECT, Method, NAT};

const SHAPE: SiteShape = SiteShape { backends: 3, two_arms: false };
const PORT: u16 = 4433;
const CONNECTIONS: usize = 9;
const KEY: &str = "8f95f09245765f80256934e50c66207f";

/// Clients with connections over the VIP, and the servers on the backends' hosts.
trait Peers: Sized {
    /// Starts the servers with the connection ids that the balancer expects, and opens the
    /// connections. Prints the reason and returns `None` if the library is not installed.
    fn open(bed: &Bed, method: Method) -> Option<Self>;

    /// The number of servers that had connections at first.
    fn servers(&self) -> usize;

    /// Changes the address of each connection in the middle of a transfer, and calls `meanwhile`.
    /// Returns the connections that did not stay at their servers.
    fn change_addresses(&mut self, meanwhile: impl FnOnce()) -> String;
}

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

/// A configuration of connection ids, for one server.
struct IdConfig {
    rotation: u8,
    server_id: String,
    nonce_bytes: u8,
    is_encrypted: bool,
}

/// The configurations of the server with this name, from the status of the balancer.
fn id_configs(bed: &Bed, name: &str) -> Vec<IdConfig> {
    let vip = vip_status(bed);
    let number = |value: &Value| value.as_u64().and_then(|number| number.try_into().ok());
    let configs = vip["quic"].as_array().expect("the VIP has configurations").iter();
    let configs: Vec<_> = configs
        .map(|config| IdConfig {
            rotation: number(&config["config_rotation"]).unwrap(),
            server_id: config["servers"][name].as_str().expect("by name").to_owned(),
            nonce_bytes: number(&config["nonce_length"]).unwrap(),
            is_encrypted: config["algorithm"] != "plaintext",
        })
        .collect();
    assert_eq!(configs.len(), 3, "{vip}");
    configs
}

/// The address of the server on this backend's host.
fn server_address(bed: &Bed, method: Method, index: usize) -> IpAddr {
    if method.translates() {
        bed.site.backend_address(index, method.backend_v6)
    } else {
        method.vip_address()
    }
}

fn server_name(index: usize) -> String {
    format!("backend-{}", index + 1)
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

/// Clients change their addresses before, during and after changes of the pool.
fn connections_stay_at_their_servers<P: Peers>(test: &str) {
    for method in [DIRECT, NAT] {
        let Some(mut bed) = Bed::new(test, SHAPE) else { return };
        bed.prepare(&[method]);
        bed.configure(&config(&bed, method, &[0, 1, 2]));
        bed.balance();
        let Some(mut peers) = P::open(&bed, method) else { return };
        assert!(peers.servers() > 1, "all connections have one server");
        let mut change = |meanwhile: &dyn Fn()| {
            let moved = peers.change_addresses(meanwhile);
            assert_eq!(moved, "", "{}: {}", method.name, bed.command(&["status"]));
        };
        change(&|| {});
        // Removed backends drain.
        change(&|| reload(&bed, method, &[1]));
        change(&|| {});
        change(&|| reload(&bed, method, &[0, 1, 2]));
        change(&|| {});
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

#[test]
fn connections_of_aioquic_stay_at_their_servers_when_addresses_and_pools_change() {
    connections_stay_at_their_servers::<aioquic::Processes>("aioquic");
}

#[test]
fn connections_of_quinn_stay_at_their_servers_when_addresses_and_pools_change() {
    connections_stay_at_their_servers::<quinn::Endpoints>("quinn");
}

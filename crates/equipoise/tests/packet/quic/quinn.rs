//! Servers and clients with quinn, on a thread of this process.
//!
//! A socket belongs to the namespace in which it was bound, whichever thread uses it.

mod client;
mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use ::quinn::{TransportConfig, VarInt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::client::Network;
use self::server::Server;
use super::Peers;
use crate::bed::{Bed, PATIENCE};
use crate::method::Method;

/// The name in the servers' certificate.
const SERVER_NAME: &str = "quic";

/// Connections on their thread, which ends with this.
pub(super) struct Endpoints {
    rounds: UnboundedSender<Round>,
    /// The server of each connection.
    names: Vec<String>,
}

/// All connections change their addresses until `is_over`.
struct Round {
    is_over: Arc<AtomicBool>,
    failures: mpsc::Sender<String>,
}

impl Peers for Endpoints {
    fn open(bed: &Bed, method: Method) -> Option<Endpoints> {
        let servers = (0..bed.site.backends.len()).map(|index| Server::bind(bed, method, index));
        let (servers, network) = (servers.collect::<Vec<_>>(), Network::new(bed, method));
        let certificate = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]);
        let certificate = certificate.expect("a certificate");
        let (rounds, asked) = unbounded_channel();
        let (opened, names) = mpsc::channel();
        bed.site.client.spawn_thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                servers.into_iter().for_each(|server| server.serve(&certificate));
                client::work(network, &certificate, &opened, asked).await;
            });
        });
        let names = names.recv_timeout(PATIENCE).expect("the connections open");
        Some(Endpoints { rounds, names })
    }

    fn servers(&self) -> usize {
        self.names.iter().collect::<BTreeSet<_>>().len()
    }

    fn change_addresses(&mut self, meanwhile: impl FnOnce()) -> String {
        let (is_over, (failures, failed)) = (Arc::default(), mpsc::channel());
        let round = Round { is_over: Arc::clone(&is_over), failures };
        self.rounds.send(round).expect("the thread works");
        meanwhile();
        is_over.store(true, Relaxed);
        failed.recv_timeout(PATIENCE).expect("the round ends")
    }
}

/// A connection outlives pauses of a busy machine.
fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = Duration::from_secs(120).try_into().expect("QUIC can express it");
    transport.max_idle_timeout(Some(idle));
    transport.stream_receive_window(VarInt::from_u32(client::WINDOW));
    transport
}

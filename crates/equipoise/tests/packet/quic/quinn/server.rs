//! Servers with their server id in connection ids.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use ::quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use ::quinn::{
    ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, Incoming, RecvStream,
    SendStream, ServerConfig, TokioRuntime,
};
use equipoise_packet::{QuicConfig, ServerId};
use rcgen::{CertifiedKey, KeyPair};

use super::super::connection_ids::connection_id;
use super::super::{IdConfig, KEY, PORT, id_configs, server_address, server_name};
use crate::bed::Bed;
use crate::method::Method;

/// Length of connection ids: that of the longest configuration, as quinn's ids have one length.
const ID_BYTES: usize = 17;
/// Longest question.
const QUESTION_BYTES: usize = 16;

/// A server before it serves.
pub(super) struct Server {
    name: String,
    socket: UdpSocket,
    ids: Ids,
}

impl Server {
    /// Binds the socket on this backend's host, and learns the server's connection ids.
    pub(super) fn bind(bed: &Bed, method: Method, index: usize) -> Server {
        let (name, address) = (server_name(index), server_address(bed, method, index));
        let bind = || UdpSocket::bind((address, PORT)).expect("the host has the address");
        let socket = bed.site.backends[index].enter(bind);
        let ids = Ids(id_configs(bed, &name).iter().map(parsed).collect());
        Server { name, socket, ids }
    }

    /// Serves on the current runtime until it ends.
    pub(super) fn serve(self, certificate: &CertifiedKey<KeyPair>) {
        let Server { name, socket, ids } = self;
        let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
        let chain = vec![certificate.cert.der().clone()];
        let mut config =
            ServerConfig::with_single_cert(chain, key.into()).expect("the certificate's key");
        config.transport_config(Arc::new(super::transport()));
        let mut endpoint = EndpointConfig::default();
        endpoint.cid_generator(move || Box::new(ids.clone()));
        let endpoint = Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime));
        let endpoint = endpoint.expect("a socket");
        tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(answer_all(incoming, name.clone()));
            }
        });
    }
}

fn parsed(config: &IdConfig) -> (QuicConfig, ServerId) {
    let server_id: ServerId = config.server_id.parse().unwrap();
    let form = QuicConfig {
        rotation: config.rotation,
        server_id_bytes: server_id.bytes().len() as u8,
        nonce_bytes: config.nonce_bytes,
        key: config.is_encrypted.then(|| KEY.parse().unwrap()),
    };
    (form, server_id)
}

async fn answer_all(incoming: Incoming, name: String) {
    let Ok(connection) = incoming.await else { return };
    while let Ok((send, receive)) = connection.accept_bi().await {
        tokio::spawn(answer(send, receive, name.clone()));
    }
}

/// Sends the server's name to the question `who`; to others, bytes until the client stops them.
async fn answer(mut send: SendStream, mut receive: RecvStream, name: String) {
    let asked = receive.read_to_end(QUESTION_BYTES).await;
    if asked.is_ok_and(|asked| asked == b"who") {
        // If it fails, the client finds no answer.
        let _ = send.write_all(name.as_bytes()).await;
        let _ = send.finish();
        return;
    }
    while send.write_all(&[0; 1 << 14]).await.is_ok() {}
}

/// Connection ids, each by one of the server's configurations.
#[derive(Clone)]
struct Ids(Vec<(QuicConfig, ServerId)>);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        // Bytes behind the nonce are random.
        let mut bytes: [u8; ID_BYTES] = rand::random();
        let (config, server_id) = &self.0[usize::from(bytes[0]) % self.0.len()];
        let nonce: [u8; ID_BYTES] = rand::random();
        let nonce = &nonce[..usize::from(config.nonce_bytes)];
        let made = connection_id(config, rand::random(), server_id.bytes(), nonce);
        bytes[..made.len()].copy_from_slice(&made);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

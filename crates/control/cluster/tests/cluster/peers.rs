//! Nodes that trust each other by their certificates of the cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_cluster::{Authority, NodeClient, PeerCredentials};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::bed::{Bed, eventually, name, until};

/// Performs a handshake in memory. Returns the certificates of both ends (the server's first), or
/// the error.
fn meet(
    client: &PeerCredentials,
    server: &PeerCredentials,
) -> Result<[CertificateDer<'static>; 2], String> {
    let any = "peer.invalid".try_into().unwrap();
    let mut ends: [Connection; 2] = [
        ClientConnection::new(Arc::clone(client.client()), any).unwrap().into(),
        ServerConnection::new(Arc::clone(server.server())).unwrap().into(),
    ];
    // More flights than TLS 1.3 has, and an alert.
    for _ in 0..4 {
        for from in [0, 1] {
            let mut wire = Vec::new();
            while ends[from].wants_write() {
                ends[from].write_tls(&mut wire).unwrap();
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                ends[1 - from].read_tls(&mut rest).unwrap();
                ends[1 - from].process_new_packets().map_err(|error| error.to_string())?;
            }
        }
    }
    assert!(ends.iter().all(|end| !end.is_handshaking()));
    let shown = ends.map(|end| end.peer_certificates().unwrap()[0].clone().into_owned());
    Ok(shown)
}

/// The names that each side reads in the other's certificate.
fn known(client: &PeerCredentials, server: &PeerCredentials) -> [Vec<String>; 2] {
    let [of_server, of_client] = meet(client, server).unwrap();
    [client.read(&of_server).unwrap().nodes, server.read(&of_client).unwrap().nodes]
}

async fn joined(bed: &Bed, server: &equipoise_cluster::ClusterServer, node: &str) -> NodeClient {
    bed.joined(node, &[server]).await
}

#[tokio::test]
async fn nodes_and_the_controllers_own_node_authenticate_each_other() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let (a, b) = (joined(&bed, &server, "a").await, joined(&bed, &server, "b").await);
    let (a, b, c) = (a.peer_credentials(), b.peer_credentials(), server.peer_credentials());
    assert_eq!(known(&a, &b), [["b"], ["a"]]);
    eventually("its own certificate", || meet(&a, &c).is_ok()).await;
    assert_eq!(known(&a, &c), [["c"], ["a"]]);
    assert_eq!(known(&c, &b), [["b"], ["c"]]);
}

#[tokio::test]
async fn a_node_that_has_not_joined_fails_every_peer_handshake() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let a = joined(&bed, &server, "a").await.peer_credentials();
    let waiting = NodeClient::start(bed.options("w", &[&server], None));
    let w = waiting.peer_credentials();
    assert!(meet(&a, &w).is_err() && meet(&w, &a).is_err());
}

#[tokio::test]
async fn nodes_of_different_clusters_fail_the_peer_handshake() {
    let (one, other) = (Bed::new().await, Bed::new().await);
    let ((first, _), (second, _)) = (one.controller().await, other.controller().await);
    let a = joined(&one, &first, "a").await.peer_credentials();
    let b = joined(&other, &second, "b").await.peer_credentials();
    assert!(meet(&a, &b).is_err() && meet(&b, &a).is_err());
}

#[tokio::test]
async fn peers_refuse_an_evicted_node_in_new_and_open_sessions() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let clients = [joined(&bed, &server, "a").await, joined(&bed, &server, "b").await];
    desk.plan(1, 1);
    for client in &clients {
        until(client, |status| status.edition.is_some()).await;
    }
    let (a, b) = (clients[0].peer_credentials(), clients[1].peer_credentials());
    let [_, of_a] = meet(&a, &b).unwrap();
    let epoch = b.epoch();
    bed.operator(&server).evict(&name("a")).await.unwrap();
    eventually("what was said of it", || b.epoch() > epoch).await;
    assert_eq!(b.read(&of_a), None, "of a session that is open");
    assert!(meet(&a, &b).is_err());
    assert!(meet(&b, &a).unwrap_err().contains("Revoked"));
    let c = server.peer_credentials();
    eventually("at the controller", || meet(&a, &c).is_err()).await;
    eventually("its own certificate", || meet(&b, &c).is_ok()).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_to_peers() {
    let bed = Bed::new().await;
    // A certificate is valid from five minutes before its creation, so this one is renewed at once,
    // and again.
    let (server, _desk) =
        bed.controller_with(|options| options.node_lifetime = Duration::from_secs(152)).await;
    let (a, b) = (joined(&bed, &server, "a").await, joined(&bed, &server, "b").await);
    let (a, b) = (a.peer_credentials(), b.peer_credentials());
    let (_kept, first) = ((&server, &bed), meet(&a, &b).unwrap());
    eventually("another one", || {
        meet(&a, &b).is_ok_and(|shown| shown[0] != first[0] && shown[1] != first[1])
    })
    .await;
}

/// PEM of a certificate for these hosts, and of its key.
fn issued(authority: &Authority, hosts: &[&str]) -> (String, String) {
    use base64::Engine;
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let lifetime = Duration::from_secs(600);
    let issued =
        authority.issue_controller(&name("x"), &hosts, SystemTime::now(), lifetime).unwrap();
    let pem = |label: &str, der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    (pem("CERTIFICATE", &issued.chain[0]), pem("PRIVATE KEY", issued.key.secret_der()))
}

#[test]
fn credential_files_name_the_node_and_equal_files_have_equal_identity() {
    let authority = Authority::new(&name("x"), SystemTime::now()).unwrap();
    let of = authority.certificate_pem();
    let credentials = |node: &str| {
        let (certificate, key) = issued(&authority, &[node]);
        PeerCredentials::from_pem(&certificate, &key, &of, node).unwrap()
    };
    let (a, b) = (credentials("edge-a"), credentials("10.0.0.2"));
    assert_eq!(known(&a, &b), [["10.0.0.2"], ["edge-a"]]);
    let other = Authority::new(&name("x"), SystemTime::now()).unwrap();
    let (certificate, key) = issued(&other, &["edge-a"]);
    let foreign = PeerCredentials::from_pem(&certificate, &key, &of, "edge-a").unwrap();
    assert!(meet(&foreign, &b).is_err() && meet(&b, &foreign).is_err());
    let both = format!("{of}{}", other.certificate_pem());
    let (mine, my_key) = issued(&authority, &["edge-b"]);
    let wide = PeerCredentials::from_pem(&mine, &my_key, &both, "edge-b").unwrap();
    let foreign = PeerCredentials::from_pem(&certificate, &key, &both, "edge-a").unwrap();
    assert_eq!(known(&foreign, &wide), [["edge-b"], ["edge-a"]], "one takes the other's place");
    let again = PeerCredentials::from_pem(&mine, &my_key, &both, "edge-b").unwrap();
    assert_eq!(wide.identity(), again.identity());
    assert_ne!(wide.identity(), a.identity());
}

#[test]
fn an_error_names_the_wrong_credential_file() {
    let authority = Authority::new(&name("x"), SystemTime::now()).unwrap();
    let of = authority.certificate_pem();
    let (certificate, key) = issued(&authority, &["a"]);
    let (other, _) = issued(&authority, &["a"]);
    let wrong = |certificate: &str, key: &str, of: &str, node: &str| {
        let (which, error) =
            PeerCredentials::from_pem(certificate, key, of, node).expect_err("something is wrong");
        (which, error.to_string())
    };
    assert_eq!(wrong("", &key, &of, "a").0, 0);
    assert_eq!(wrong(&certificate, "x", &of, "a").0, 1);
    assert_eq!(wrong(&other, &key, &of, "a").0, 1, "of another certificate");
    assert_eq!(wrong(&certificate, &key, "-----BEGIN CERTIFICATE-----\n", "a").0, 2);
    let (which, said) = wrong(&certificate, &key, &of, "b");
    assert_eq!(which, 0);
    assert!(said.contains("a certificate for a, and this node is `b`"), "{said}");
}

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore,
    ServerConnection, SupportedProtocolVersion,
};

use super::*;
use crate::TicketKeys;
use crate::certificate::CertificateFiles;

fn server(options: TlsOptions) -> ServerTls {
    server_of(&["a.example"], options)
}

fn server_of(names: &[&str], options: TlsOptions) -> ServerTls {
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let params = CertificateParams::new(names).unwrap();
    let chain = params.self_signed(&key).unwrap().pem();
    let certificate = Certificate::from_pem(&chain, &key.serialize_pem()).unwrap();
    ServerTls::new(options, vec![certificate]).unwrap()
}

fn client(server: &ServerTls, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificates()[0].key().cert[0].clone()).unwrap();
    ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A handshake in memory; the error is the server's.
fn handshake(
    client: &Arc<ClientConfig>,
    server: &ServerTls,
) -> Result<ServerConnection, rustls::Error> {
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server.config())).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        read_all(&wire, |from| server.read_tls(from));
        server.process_new_packets()?;
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        read_all(&wire, |from| client.read_tls(from));
        client.process_new_packets().unwrap();
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(server)
}

fn read_all(mut wire: &[u8], mut read: impl FnMut(&mut &[u8]) -> io::Result<usize>) {
    while !wire.is_empty() {
        read(&mut wire).unwrap();
    }
}

/// The version that client and server agree on.
fn version(
    server: &ServerTls,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ProtocolVersion, rustls::Error> {
    let client = Arc::new(client(server, versions));
    handshake(&client, server).map(|it| it.protocol_version().unwrap())
}

#[test]
fn profiles_differ_in_their_versions() {
    let usual = server(TlsOptions::default());
    let modern = server(TlsOptions { profile: Profile::Modern, ..TlsOptions::default() });
    assert_eq!(version(&usual, &[&TLS12]), Ok(ProtocolVersion::TLSv1_2));
    assert_eq!(version(&usual, &[&TLS12, &TLS13]), Ok(ProtocolVersion::TLSv1_3));
    assert_eq!(version(&modern, &[&TLS13]), Ok(ProtocolVersion::TLSv1_3));
    assert!(version(&modern, &[&TLS12]).is_err());
}

#[test]
fn sessions_are_resumed_by_tickets_in_both_versions() {
    let server = server(TlsOptions::default());
    for version in [&TLS12, &TLS13] {
        let client = Arc::new(client(&server, &[version]));
        let kinds: Vec<_> = (0..2)
            .map(|_| handshake(&client, &server).unwrap().handshake_kind().unwrap())
            .collect();
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed], "{version:?}");
    }
}

/// Whether a session of the first is resumed at the second.
fn resumes(
    version: &'static SupportedProtocolVersion,
    first: &ServerTls,
    second: &ServerTls,
) -> bool {
    let mut roots = RootCertStore::empty();
    for server in [first, second] {
        roots.add(server.certificates()[0].key().cert[0].clone()).unwrap();
    }
    let client = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    handshake(&client, first).unwrap();
    handshake(&client, second).unwrap().handshake_kind() == Some(HandshakeKind::Resumed)
}

#[test]
fn tickets_of_shared_keys_are_valid_at_listeners_of_the_same_names_and_rules_alone() {
    let keys = TicketKeys::default().rotated(SystemTime::now()).unwrap().unwrap();
    let machine = || {
        let tickets = Tickets::new().unwrap();
        tickets.share(keys.clone());
        tickets
    };
    let (here, there) = (machine(), machine());
    // A machine that has the keys for one scope.
    let scoped = Tickets::new().unwrap();
    let names = server(TlsOptions::default()).ticket_names().unwrap();
    scoped.share_for([(names.clone(), here.for_names(&names).unwrap())]);
    let authority = {
        let key = KeyPair::generate().unwrap();
        CertificateParams::default().self_signed(&key).unwrap().pem()
    };
    let asking = || TlsOptions {
        clients: Some(Clients::from_pem(&authority, false).unwrap()),
        ..TlsOptions::default()
    };
    let plain = |tickets: &Tickets| server(TlsOptions::default()).with_tickets(tickets);
    for version in [&TLS12, &TLS13] {
        // The certificates differ; their names are the same.
        assert!(resumes(version, &plain(&here), &plain(&there)));
        assert!(resumes(version, &plain(&here), &plain(&scoped)));
        assert!(resumes(version, &plain(&scoped), &plain(&there)));
        let renewed = plain(&here).with_certificates(plain(&here).certificates().to_vec());
        assert!(resumes(version, &plain(&there), &renewed));
        assert!(!resumes(version, &plain(&here), &plain(&Tickets::new().unwrap())));
        let more = server_of(&["a.example", "b.example"], TlsOptions::default());
        assert!(!resumes(version, &plain(&here), &more.with_tickets(&there)));
        assert!(!resumes(version, &plain(&here), &more.with_tickets(&scoped)));
        // A listener that asks for certificates takes no ticket of another machine, and none of a
        // listener that does not ask.
        let asks = |tickets: &Tickets| server(asking()).with_tickets(tickets);
        assert!(resumes(version, &asks(&here), &asks(&here)));
        assert!(!resumes(version, &asks(&here), &asks(&there)));
        assert!(!resumes(version, &plain(&here), &asks(&here)));
        assert!(!resumes(version, &asks(&here), &plain(&here)));
    }
    assert_eq!(server(asking()).ticket_names(), None);
}

#[test]
fn http_is_chosen_in_the_order_of_the_server_and_nothing_else_accepted() {
    let http = TlsOptions { protocols: Protocols::Http1, ..TlsOptions::default() };
    let both = TlsOptions { protocols: Protocols::Http2, ..TlsOptions::default() };
    let (http, both, any) = (server(http), server(both), server(TlsOptions::default()));
    let chosen = |server: &ServerTls, offered: &[&str]| {
        let mut client = client(server, &[&TLS13]);
        client.alpn_protocols = offered.iter().map(|it| it.as_bytes().to_vec()).collect();
        let done = handshake(&Arc::new(client), server).map_err(|error| error.to_string())?;
        Ok::<_, String>(done.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(chosen(&http, &["h2", "http/1.1"]), Ok(Some(b"http/1.1".to_vec())));
    assert_eq!(chosen(&http, &[]), Ok(None));
    assert!(chosen(&http, &["h2"]).is_err());
    assert_eq!(chosen(&both, &["http/1.1", "h2"]), Ok(Some(b"h2".to_vec())));
    assert_eq!(chosen(&both, &["http/1.1"]), Ok(Some(b"http/1.1".to_vec())));
    assert_eq!(chosen(&both, &[]), Ok(None));
    assert!(chosen(&both, &["h3"]).is_err());
    assert_eq!(chosen(&any, &["h2"]), Ok(None));
}

#[test]
fn certificates_of_automatic_names_come_in_the_order_of_the_names() {
    let automatic = |name: &str| AutomaticName {
        name: name.into(),
        files: CertificateFiles { chain: format!("/{name}.pem").into(), key: None, ocsp: None },
    };
    let names = ["a.example", "b.example"].map(automatic);
    let of = |name: &AutomaticName| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.name.clone()]).unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        let certificate = Certificate::from_pem(&chain, &key.serialize_pem()).unwrap();
        certificate.of_files(name.files.clone())
    };
    let options = TlsOptions { automatic: names.to_vec(), ..TlsOptions::default() };
    let none = ServerTls::new(options, Vec::new()).unwrap();
    assert!(none.awaits(None) && none.awaits(Some("a.example")) && none.awaits(Some("c.example")));
    let [a, b] = names.each_ref().map(of);
    let one = none.with_certificates(vec![b.clone()]);
    assert!(one.awaits(Some("a.example")) && !one.awaits(Some("b.example")) && !one.awaits(None));
    let both = one.with_certificates(vec![b.clone(), a.clone()]);
    assert_eq!(both.certificates(), [a, b]);
    assert_eq!(both.awaited().count(), 0);
}

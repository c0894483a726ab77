#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::{ClientConnection, Error, HandshakeKind, ServerConnection};

use super::*;
use crate::clients::Clients;
use crate::fault::{Fault, FaultKind};
use crate::server::{ServerTls, TlsOptions};

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

fn issue(by: &CertifiedIssuer<'static, KeyPair>, params: &CertificateParams) -> Certificate {
    let key = KeyPair::generate().unwrap();
    let chain = params.signed_by(&key, by).unwrap().pem();
    Certificate::from_pem(&chain, &key.serialize_pem()).unwrap()
}

fn options(trust: Trust) -> ClientOptions {
    ClientOptions {
        trust,
        certificate: None,
        profile: Profile::default(),
        server_name: None,
        protocols: Protocols::Http1,
    }
}

fn server(certificate: &Certificate, options: TlsOptions) -> ServerTls {
    ServerTls::new(options, vec![certificate.clone()]).unwrap()
}

/// A handshake in memory; the first error of either side.
fn handshake(
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
    server: &ServerTls,
) -> Result<ClientConnection, Error> {
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(Arc::clone(server.config()))?;
    while client.wants_write() || server.wants_write() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        read_all(&wire, |from| server.read_tls(from));
        server.process_new_packets()?;
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        read_all(&wire, |from| client.read_tls(from));
        client.process_new_packets()?;
    }
    Ok(client)
}

fn read_all(mut wire: &[u8], mut read: impl FnMut(&mut &[u8]) -> io::Result<usize>) {
    while !wire.is_empty() {
        read(&mut wire).unwrap();
    }
}

/// The fault of a handshake with this host.
fn fault(trust: &Trust, host: &str, certificate: &Certificate) -> Option<(FaultKind, String)> {
    let client = ClientTls::new(options(trust.clone())).unwrap();
    let name = client.server_name(Some(host), None);
    let server = server(certificate, TlsOptions::default());
    let failed = handshake(Arc::clone(client.config()), name, &server).err()?;
    let Fault { kind, text } = Fault::of(&failed);
    Some((kind, text))
}

#[test]
fn each_fault_of_a_certificate_is_named() {
    let (ours, other) = (authority("ours"), authority("other"));
    let trust = Trust::from_pem(&ours.pem()).unwrap();
    let host = "a.example";
    let good = issue(&ours, &params(&[host, "*.b.example"]));
    assert_eq!(fault(&trust, host, &good), None);
    assert_eq!(fault(&trust, "x.b.example", &good), None);

    let (kind, text) = fault(&trust, "c.example", &good).unwrap();
    assert_eq!(kind, FaultKind::Name);
    assert_eq!(text, "its certificate is for `a.example`, `*.b.example`, not for `c.example`");
    let (kind, text) = fault(&trust, "192.0.2.1", &good).unwrap();
    assert_eq!(kind, FaultKind::Name);
    assert!(text.ends_with("not for `192.0.2.1`"), "{text}");
    let (kind, text) = fault(&trust, host, &issue(&ours, &params(&[]))).unwrap();
    assert_eq!(kind, FaultKind::Name);
    assert!(text.contains("no names (subjectAltName)"), "{text}");

    let mut old = params(&[host]);
    old.not_after = date_time_ymd(2001, 1, 1);
    let (kind, text) = fault(&trust, host, &issue(&ours, &old)).unwrap();
    assert_eq!(kind, FaultKind::Expired);
    assert!(text.starts_with("its certificate expired "), "{text}");
    let mut new = params(&[host]);
    new.not_before = date_time_ymd(3000, 1, 1);
    let (kind, text) = fault(&trust, host, &issue(&ours, &new)).unwrap();
    assert_eq!(kind, FaultKind::Expired);
    assert!(text.starts_with("its certificate becomes valid in "), "{text}");

    let unknown =
        Some((FaultKind::Issuer, "no trusted authority issued its certificate".to_string()));
    assert_eq!(fault(&trust, host, &issue(&other, &params(&[host]))), unknown);
    assert_eq!(fault(&Trust::Anyone, "c.example", &issue(&other, &old)), None);
}

#[test]
fn a_listed_certificate_is_trusted_for_its_names_while_it_is_valid() {
    let host = "a.example";
    let self_signed = |is_ca: bool, until: i32| {
        let key = KeyPair::generate().unwrap();
        let mut params = params(&[host]);
        params.not_after = date_time_ymd(until, 1, 1);
        if is_ca {
            // As `openssl req -x509` makes them.
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let chain = params.self_signed(&key).unwrap().pem();
        let certificate = Certificate::from_pem(&chain, &key.serialize_pem()).unwrap();
        (Trust::from_pem(&chain).unwrap(), certificate)
    };
    for is_ca in [false, true] {
        let (listed, certificate) = self_signed(is_ca, 3000);
        assert_eq!(fault(&listed, host, &certificate), None, "{is_ca}");
        let kind = |trust, host| fault(trust, host, &certificate).unwrap().0;
        assert_eq!(kind(&listed, "b.example"), FaultKind::Name, "{is_ca}");
        let (others, _) = self_signed(is_ca, 3000);
        assert_eq!(kind(&others, host), FaultKind::Issuer, "{is_ca}");
        let (old, certificate) = self_signed(is_ca, 2001);
        assert_eq!(fault(&old, host, &certificate).unwrap().0, FaultKind::Expired, "{is_ca}");
    }
}

#[test]
fn a_server_that_asks_gets_the_certificate_and_others_do_not() {
    let ours = authority("ours");
    let site = issue(&ours, &params(&["a.example"]));
    let asks = TlsOptions {
        clients: Some(Clients::from_pem(&ours.pem(), true).unwrap()),
        ..TlsOptions::default()
    };
    let server = server(&site, asks);
    let bare = ClientTls::new(options(Trust::from_pem(&ours.pem()).unwrap())).unwrap();
    let name = bare.server_name(Some("a.example"), None);
    assert!(handshake(Arc::clone(bare.config()), name.clone(), &server).is_err());
    let shown = bare.with_certificate(issue(&ours, &params(&["client"]))).unwrap();
    assert!(handshake(Arc::clone(shown.config()), name, &server).is_ok());
    assert_ne!(bare, shown);
    assert_eq!(shown, shown.with_certificate(shown.certificate().unwrap().clone()).unwrap());
}

#[test]
fn sessions_are_resumed_for_one_server_and_not_in_checks() {
    let ours = authority("ours");
    let server = server(&issue(&ours, &params(&["a.example"])), TlsOptions::default());
    let client = ClientTls::new(options(Trust::from_pem(&ours.pem()).unwrap())).unwrap();
    let name = client.server_name(Some("a.example"), None);
    let kind = |config: &Arc<ClientConfig>| {
        let done = handshake(Arc::clone(config), name.clone(), &server).unwrap();
        assert_eq!(done.alpn_protocol(), None);
        done.handshake_kind().unwrap()
    };
    let one = client.config_for_one();
    assert_eq!([kind(&one), kind(&one)], [HandshakeKind::Full, HandshakeKind::Resumed]);
    let checks = client.config();
    assert_eq!([kind(checks), kind(checks)], [HandshakeKind::Full, HandshakeKind::Full]);
}

#[test]
fn the_name_is_the_stated_one_or_that_of_the_address() {
    let of = |stated: Option<&str>| {
        let server_name = stated.map(|it| ServerName::try_from(it.to_string()).unwrap());
        ClientTls::new(ClientOptions { server_name, ..options(Trust::Anyone) }).unwrap()
    };
    let ip = Some([192, 0, 2, 1].into());
    let text = |tls: &ClientTls, host, ip| tls.server_name(host, ip).to_str().into_owned();
    assert_eq!(text(&of(Some("b.example")), Some("a.example"), ip), "b.example");
    assert_eq!(text(&of(None), Some("a.example"), ip), "a.example");
    assert_eq!(text(&of(None), None, ip), "192.0.2.1");
    assert_eq!(text(&of(None), None, None), "localhost");
}

//! TCP front doors with TLS: both directions and their ends.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common_net;
mod common_tls;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common_net::{PATIENCE, Rig, backend, is_reset, until};
use common_tls::{NAME, Site, finish, rest};
use equipoise_session::Reason;
use equipoise_session::config::{Protocol, ProxyProtocol, TrustedSources};
use equipoise_testkit::Pattern;
use equipoise_tls::{Clients, Protocols, TlsOptions, Trust};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn rig(site: &Site, backend: SocketAddr) -> Rig {
    Rig::start(Protocol::Tcp, &[backend], |wishes| wishes.door.tls = site.tcp())
}

fn echo(mut stream: TcpStream) {
    let mut writer = stream.try_clone().unwrap();
    let _ = io::copy(&mut stream, &mut writer);
    let _ = writer.shutdown(Shutdown::Write);
}

/// A backend that hands its connections to the test.
fn handed_over() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let (sender, receiver) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let address = backend(move |stream| {
        let _ = sender.lock().unwrap().send(stream);
    });
    (address, receiver)
}

#[test]
fn bytes_pass_both_ways_unchanged() {
    let site = Site::new();
    let rig = rig(&site, backend(echo));
    for bytes in [0, 1, 1000, 16_384, 100_000, 2_000_000] {
        let mut tls = site.connect(rig.address);
        let sent = Pattern::bytes(bytes as u64, bytes);
        let mut back = vec![0; bytes];
        for (piece, into) in sent.chunks(50_000).zip(back.chunks_mut(50_000)) {
            tls.write_all(piece).unwrap();
            tls.read_exact(into).unwrap();
        }
        assert!(back == sent, "{bytes} bytes");
        if bytes == 0 {
            tls.conn.complete_io(&mut tls.sock).unwrap();
        }
        finish(&mut tls);
        assert_eq!(rest(&mut tls).unwrap(), "", "{bytes} bytes");
    }
    rig.settle();
    assert_eq!(rig.count(|stats| &stats.drops[Reason::ClientGone as usize]), 0);
}

#[test]
fn either_side_may_end_first_and_still_receive() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = rig(&site, address);
    // The client ends first.
    let mut tls = site.connect(rig.address);
    tls.write_all(b"question").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    finish(&mut tls);
    let mut question = String::new();
    behind.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    behind.write_all(b"answer").unwrap();
    drop(behind);
    assert_eq!(rest(&mut tls).unwrap(), "answer");
    // The backend ends first.
    let mut tls = site.connect(rig.address);
    tls.write_all(b"first").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    behind.write_all(b"greeting").unwrap();
    behind.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut tls).unwrap(), "greeting");
    tls.write_all(b" and more").unwrap();
    finish(&mut tls);
    let mut all = String::new();
    behind.read_to_string(&mut all).unwrap();
    assert_eq!(all, "first and more");
    drop(behind);
    rig.settle();
    for reason in [Reason::ClientGone, Reason::UpstreamClosed] {
        assert_eq!(rig.drops(reason), 0, "{reason:?}");
    }
}

#[test]
fn a_stream_that_is_cut_is_not_taken_for_complete() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = rig(&site, address);
    let mut tls = site.connect(rig.address);
    tls.write_all(b"half of").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    behind.read_exact(&mut [0; 7]).unwrap();
    // TCP's end without TLS's: an attacker may have sent it.
    tls.sock.shutdown(Shutdown::Write).unwrap();
    assert!(is_reset(&mut behind));
    // The other way round: the backend resets.
    let mut tls = site.connect(rig.address);
    tls.write_all(b"a").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    behind.read_exact(&mut [0; 1]).unwrap();
    tls.write_all(b"b").unwrap();
    common_net::reset(behind);
    assert!(rest(&mut tls).is_err(), "no end is announced");
    rig.settle();
    assert_eq!((rig.drops(Reason::ClientGone), rig.drops(Reason::UpstreamClosed)), (1, 1));
}

/// nginx and many clients do so.
#[test]
fn a_side_that_was_sent_the_end_may_close_without_an_announcement() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = rig(&site, address);
    let mut tls = site.connect(rig.address);
    tls.write_all(b"a").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    behind.read_exact(&mut [0; 1]).unwrap();
    behind.write_all(b"all").unwrap();
    behind.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut tls).unwrap(), "all");
    tls.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(behind.read(&mut [0; 1]).unwrap(), 0);
    drop(behind);
    rig.settle();
    for reason in [Reason::ClientGone, Reason::UpstreamClosed] {
        assert_eq!(rig.drops(reason), 0, "{reason:?}");
    }
}

#[test]
fn a_client_without_tls_gets_an_alert_and_no_backend() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = rig(&site, address);
    let mut client = rig.connect();
    client.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [21, 3, 1, 0, 2, 2, 10]);
    until("it is counted", || rig.drops(Reason::TlsMissing) == 1);
    assert!(accepted.try_recv().is_err());
}

#[test]
fn a_silent_client_is_cut_and_has_no_backend() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
        wishes.door.tls = site.tcp();
        wishes.door.timeouts.header = Duration::from_millis(200);
    });
    let mut client = rig.connect();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    until("it is counted", || rig.drops(Reason::TlsTimeout) == 1);
    assert!(accepted.try_recv().is_err());
}

#[test]
fn proxy_headers_go_in_before_the_handshake_and_out_before_the_bytes() {
    let site = Site::new();
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
        wishes.door.tls = site.tcp();
        wishes.door.accept_proxy = true;
        wishes.door.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
        wishes.options.send_proxy = Some(ProxyProtocol::V1);
    });
    let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n";
    let mut stream = TcpStream::connect(rig.address).unwrap();
    stream.write_all(header).unwrap();
    let mut tls = site.over(stream, NAME);
    tls.write_all(b"bytes").unwrap();
    let mut behind = accepted.recv_timeout(PATIENCE).unwrap();
    let mut read = vec![0; header.len() + 5];
    behind.read_exact(&mut read).unwrap();
    assert_eq!(read, [&header[..], b"bytes"].concat());
}

/// A client configuration with a certificate of `alice`, and the PEM that signs for it.
fn alice(site: &Site) -> (String, ClientConfig) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "alice");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params.clone(), key).unwrap();
    let key = KeyPair::generate().unwrap();
    params.is_ca = IsCa::NoCa;
    let certificate = params.signed_by(&key, &authority).unwrap();
    let Trust::Authorities(roots) = site.trust() else { panic!("it has authorities") };
    let mut store = RootCertStore::empty();
    roots.into_iter().for_each(|root| store.add(root).unwrap());
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(store);
    let config = config.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap();
    (authority.pem(), config)
}

#[test]
fn a_header_of_version_2_has_the_facts_of_the_tls_that_ended_here() {
    let site = Site::new();
    let (authority, mut config) = alice(&site);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    for with_certificate in [true, false] {
        let (address, accepted) = handed_over();
        let clients = with_certificate.then(|| Clients::from_pem(&authority, true).unwrap());
        let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
            let protocols = Protocols::Http1;
            wishes.door.tls = site.tls(TlsOptions { clients, protocols, ..TlsOptions::default() });
            wishes.options.send_proxy = Some(ProxyProtocol::V2);
        });
        let name = ServerName::try_from(NAME).unwrap();
        let client = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let stream = TcpStream::connect(rig.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut tls = StreamOwned::new(client, stream);
        tls.write_all(b"payload").unwrap();
        let mut server = accepted.recv_timeout(PATIENCE).unwrap();
        let mut fixed = [0; 16 + 12];
        server.read_exact(&mut fixed).unwrap();
        let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]])) - 12;
        let mut rest = vec![0; length + 7];
        server.read_exact(&mut rest).unwrap();
        assert!(rest.ends_with(b"payload"));
        let tlv = |kind: u8, value: &[u8]| {
            [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
        };
        let mut facts = if with_certificate { vec![7, 0, 0, 0, 0] } else { vec![1, 0, 0, 0, 1] };
        facts.extend(tlv(0x21, b"TLSv1.3"));
        if with_certificate {
            facts.extend(tlv(0x22, b"alice"));
        }
        facts.extend(tlv(0x23, b"TLS_AES_256_GCM_SHA384"));
        let all = [tlv(1, b"http/1.1"), tlv(2, NAME.as_bytes()), tlv(0x20, &facts)].concat();
        assert_eq!(rest[..length], all, "{}", String::from_utf8_lossy(&rest));
    }
}

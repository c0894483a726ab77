//! TCP front doors that choose a pool by the server name of the clients' TLS, which passes.

mod common;
mod common_tls;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{Plan, Proxy};
use common_tls::{NAME, Site, client_hello, closing, get, rest};
use equipoise_session::config::{FrontDoor, Protocol, SniRoute, Upstream};
use equipoise_session::{Reason, SniTable};
use equipoise_testkit::{Answer, HttpBackend, Step};
use equipoise_tls::TlsOptions;

const OTHER: &str = "other.example";

/// Two TLS backends, each with a site of its own, behind one door.
struct Rig {
    named: Site,
    default: Site,
    _backends: [(Proxy, HttpBackend); 2],
    proxy: Proxy,
}

fn tcp(front: &mut FrontDoor) {
    *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
}

fn rig(change: impl FnOnce(&mut FrontDoor)) -> Rig {
    let (named, default) = (Site::new(), Site::of(&[OTHER]));
    let backend = |site: &Site, text: &str| {
        let plain = HttpBackend::always(Answer::ok(text).then(Step::Close));
        let plan = Plan::new(Upstream::Exclusive, &[plain.address()]).front(|front| {
            tcp(front);
            front.tls = site.tls(TlsOptions::default());
        });
        (plan.start(), plain)
    };
    let (by_name, other) = (backend(&named, "named"), backend(&default, "default"));
    let plan = Plan::new(Upstream::Exclusive, &[other.0.address]).front(tcp).front(|front| {
        front.sni = [SniRoute { names: vec!["*.example.com".into()], pool: "named".into() }].into();
    });
    let mut proxy = plan.front(change).start();
    proxy.add_named_pool(by_name.0.address);
    proxy.publish().expect("nothing is bound");
    Rig { named, default, _backends: [by_name, other], proxy }
}

impl Rig {
    /// The answer to a client that asks for this name, and sends its ClientHello in pieces.
    fn ask(&self, site: &Site, name: &str, piece: usize) -> String {
        let stream = TcpStream::connect(self.proxy.address).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        let mut tls = site.over(stream, name);
        let mut hello = Vec::new();
        tls.conn.write_tls(&mut hello).expect("memory");
        for piece in hello.chunks(piece) {
            tls.sock.write_all(piece).expect("it is taken");
        }
        tls.write_all(closing(&get("/")).as_bytes()).expect("it is taken");
        rest(&mut tls).expect("an announced end")
    }
}

#[test]
fn the_name_chooses_the_pool_and_the_backend_ends_the_tls() {
    let rig = rig(|_| ());
    for piece in [usize::MAX, 100, 1] {
        assert!(rig.ask(&rig.named, NAME, piece).ends_with("named"), "{piece}");
        assert!(rig.ask(&rig.named, "WWW.example.COM", piece).ends_with("named"), "{piece}");
        assert!(rig.ask(&rig.default, OTHER, piece).ends_with("default"), "{piece}");
    }
    rig.proxy.assert_drops(&[]);
}

/// The ClientHello in records of at most this length.
fn in_records(hello: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in hello[5..].chunks(length) {
        out.extend_from_slice(&hello[..3]);
        out.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        out.extend_from_slice(piece);
    }
    out
}

#[test]
fn a_hello_in_many_records_is_one() {
    let rig = rig(|_| ());
    let stream = TcpStream::connect(rig.proxy.address).expect("it listens");
    let mut tls = rig.named.over(stream, NAME);
    let mut hello = Vec::new();
    tls.conn.write_tls(&mut hello).expect("memory");
    tls.sock.write_all(&in_records(&hello, 30)).expect("it is taken");
    tls.write_all(closing(&get("/")).as_bytes()).expect("it is taken");
    assert!(rest(&mut tls).expect("an announced end").ends_with("named"));
}

#[test]
fn clients_without_a_readable_hello_are_refused_and_counted() {
    let rig = rig(|front| front.timeouts.header = Duration::from_millis(300));
    let ask = |bytes: &[u8], finish: bool| {
        let mut client = TcpStream::connect(rig.proxy.address).expect("it listens");
        client.write_all(bytes).expect("it is taken");
        if finish {
            client.shutdown(Shutdown::Write).expect("it is open");
        }
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        answer
    };
    let hello = client_hello(&rig.named);
    assert_eq!(ask(b"GET / HTTP/1.1\r\n\r\n", false), [21, 3, 1, 0, 2, 2, 10]);
    rig.proxy.assert_drops(&[(Reason::TlsMissing, 1)]);
    // An alert says what is wrong.
    let mut wrong = hello.clone();
    wrong[9..11].copy_from_slice(&[9, 9]);
    wrong[43] = 255;
    assert_eq!(ask(&wrong, false).first(), Some(&21));
    assert!(ask(&hello[..100], false).is_empty(), "it is late");
    assert!(ask(&hello[..100], true).is_empty(), "it left");
    // A hello beyond the bound.
    let mut large = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    large.resize(16 << 10, 0);
    let _ = ask(&large, false);
    assert!(ask(b"", true).is_empty(), "it wanted nothing");
    rig.proxy.assert_drops(&[
        (Reason::ClientGone, 1),
        (Reason::TlsMissing, 1),
        (Reason::TlsHandshake, 2),
        (Reason::TlsTimeout, 1),
    ]);
}

#[test]
fn a_table_is_part_of_the_view() {
    let routes = [SniRoute { names: vec![NAME.into()], pool: "a".into() }];
    assert_ne!(Arc::new(SniTable::new(&routes, &[1])), Arc::new(SniTable::new(&routes, &[2])));
}

//! Kinds of answers, and kinds of front doors over names.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use equipoise_testkit::{UdpPort, eventually, free_port};

use crate::bed::{Instance, may_mount, serve_at};
use crate::common::get;
use crate::resolver::{A, Answer, Question, Resolver};

/// A resolver with an answer that can be replaced.
fn changeable(first: Answer) -> (Resolver, Arc<Mutex<Answer>>) {
    let answer = Arc::new(Mutex::new(first));
    let newest = Arc::clone(&answer);
    (Resolver::start(move |_: &Question| newest.lock().unwrap().clone()), answer)
}

#[test]
fn a_name_that_is_denied_for_a_while_keeps_its_addresses_and_follows_when_it_is_back() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a"), ("127.0.0.2", "b")]);
    let (resolver, answer) = changeable(Answer::of(&["127.0.0.1"], 0));
    let pool = format!("backends = ['app.names.test:{port}']");
    let instance = Instance::start("names-denied", resolver.address, &pool);
    instance.arrives_at("a");
    let is_stale = || {
        let detail = instance.backend()["health_detail"].to_string();
        detail.contains("its name could not be resolved again")
    };
    for denial in [Answer::NoName, Answer::Failure] {
        *answer.lock().unwrap() = denial;
        assert!(eventually(is_stale), "{:#}", instance.backend());
        assert_eq!(instance.ask(), (200, "a".to_owned()));
        *answer.lock().unwrap() = Answer::of(&["127.0.0.1"], 0);
        assert!(eventually(|| !is_stale()), "{:#}", instance.backend());
    }
    *answer.lock().unwrap() = Answer::of(&["127.0.0.2"], 0);
    instance.arrives_at("b");
}

#[test]
fn aliases_many_addresses_and_truncated_answers_resolve() {
    if !may_mount() {
        return;
    }
    let port = serve_at(&[("127.0.0.1", "a")]);
    let resolver = Resolver::start(|question| {
        let aliases = match question.name.as_str() {
            "alias.names.test" => vec!["second.names.test".to_owned(), "third.test".to_owned()],
            _ => Vec::new(),
        };
        let count = if question.name == "many.names.test" { 200 } else { 1 };
        let addresses = (1..=count).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        Answer::Addresses { aliases, addresses: addresses.rev().collect(), ttl: 60 }
    });
    let pool = format!("backends = ['many.names.test:{port}', 'alias.names.test:{port}']");
    let instance = Instance::start("names-many", resolver.address, &pool);
    let resolved = || {
        let status = instance.status();
        let count =
            |at: usize| status["pools"][0]["backends"][at]["resolved"].as_array().map(Vec::len);
        (count(0), count(1))
    };
    assert!(eventually(|| resolved() == (Some(16), Some(1))), "{:#}", instance.status());
    for _ in 0..4 {
        assert_eq!(instance.ask(), (200, "a".to_owned()));
    }
}

#[test]
fn a_name_in_two_pools_serves_tcp_and_udp_at_the_address_that_passes_its_checks() {
    if !may_mount() {
        return;
    }
    let mut bound = None;
    let is_bound = eventually(|| {
        let port = serve_at(&[("127.0.0.3", "live")]);
        bound = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 3), port)).ok().map(|it| (port, it));
        bound.is_some()
    });
    assert!(is_bound);
    let (port, echo) = bound.unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, client)) = echo.recv_from(&mut datagram) {
            // A client that has ended needs no answer.
            let _ = echo.send_to(&datagram[..length], client);
        }
    });
    let resolver = Resolver::start(|question| match question.kind {
        A => Answer::of(&["127.0.0.2", "127.0.0.3"], 1),
        _ => Answer::of(&[], 1),
    });
    let (tcp, udp) = (free_port(), UdpPort::reserve());
    let health = "[pool.health]\ntcp = true\ninterval = '200ms'\ntimeout = '5s'";
    let pool = format!(
        "backends = ['app.names.test:{port}']\n{health}\n\
         [[pool]]\nname = 'other'\nbackends = ['app.names.test:{port}']\n{health}\n\
         [[session]]\nlisten = '{}'\nprotocol = 'tcp'\npool = 'other'\n\
         [[session]]\nlisten = '{}'\nprotocol = 'udp'\npool = 'other'",
        tcp.address(),
        udp.address()
    );
    let instance = Instance::start("names-doors", resolver.address, &pool);
    let health = || {
        let status = instance.status();
        [0, 1].map(|pool| status["pools"][pool]["backends"][0]["health"].clone())
    };
    assert!(eventually(|| health() == ["healthy", "healthy"]), "{:#}", instance.status());
    instance.arrives_at("live");
    assert_eq!(get(tcp.address(), "/").text(), "live");
    let is_echoed = |text: &[u8]| {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(udp.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut answer = [0; 64];
        // A refused datagram shows as an error of either call.
        let _ = client.send(text);
        client.recv(&mut answer).is_ok_and(|length| &answer[..length] == text)
    };
    assert!(eventually(|| is_echoed(b"datagram")), "{:#}", instance.status());
    let (worked, said) = instance.command(&["drain", &format!("other/app.names.test:{port}")]);
    assert!(worked, "{said}");
    assert_eq!(instance.ask(), (200, "live".to_owned()), "the other pool's backend is another");
}

#[test]
fn a_name_of_a_family_that_this_machine_lacks_is_unhealthy() {
    if !may_mount() {
        return;
    }
    let pool = "backends = ['six.test:80']\n[pool.health]\ntcp = true\ninterval = '200ms'";
    let instance = Instance::start_without_ipv6("names-no-ipv6", pool);
    let is_unhealthy = || instance.backend()["health"] == "unhealthy";
    assert!(eventually(is_unhealthy), "{:#}", instance.backend());
}

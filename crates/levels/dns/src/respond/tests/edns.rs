//! EDNS and its options, sizes and truncation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::base::Message;
use domain::base::opt::UnknownOptData;

use super::*;
use crate::{LoadTable, ResolverLoads, Source, Transport};

/// All options of a response's OPT record.
fn options(answer: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let message = Message::from_octets(answer).unwrap();
    let opt = message.opt().expect("an OPT record");
    assert_eq!(opt.udp_payload_size(), 1232);
    let found = opt.opt().iter::<UnknownOptData<_>>().map(|option| option.unwrap());
    found.map(|option| (option.code().to_int(), option.data().to_vec())).collect()
}

#[test]
fn only_queries_with_opt_are_answered_with_an_opt_record() {
    let mut server = Server::new();
    for name in
        ["www.cluster.example", "none.cluster.example", "other.example", "sub.cluster.example"]
    {
        let plain = server.udp(&query(name, A));
        assert!(Message::from_octets(&plain[..]).unwrap().opt().is_none());
        let answer = server.udp(&with_opt(query(name, A), 1232, 0, &[]));
        assert_eq!(options(&answer), []);
        told(&answer);
    }
}

#[test]
fn a_later_edns_version_is_answered_with_badvers_and_version_0() {
    let mut server = Server::new();
    let answer =
        server.udp(&with_opt(query("www.cluster.example", A), 1232, 0x0001_8000, &[0, 3, 0, 0]));
    let told = told(&answer);
    assert_eq!((told.code.as_str(), told.sections[0].len()), ("BADVERS", 0));
    let message = Message::from_octets(&answer[..]).unwrap();
    assert_eq!(message.opt().unwrap().version(), 0);
    assert_eq!(options(&answer), []);
}

#[test]
fn the_do_bit_is_copied_into_the_response() {
    let mut server = Server::new();
    for wanted in [false, true] {
        let ttl = if wanted { 0x8000 } else { 0x7fff };
        let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, ttl, &[]));
        let message = Message::from_octets(&answer[..]).unwrap();
        assert_eq!(message.opt().unwrap().dnssec_ok(), wanted);
    }
}

#[test]
fn nsid_is_returned_on_request() {
    let mut server = Server::new();
    let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &[0, 3, 0, 0]));
    assert_eq!(options(&answer), [(3, b"node-a".to_vec())]);
}

#[test]
fn a_client_cookie_is_answered_with_a_valid_server_cookie() {
    let mut server = Server::new();
    let client = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &client));
    let [(10, cookie)] = &options(&answer)[..] else { panic!("{answer:?}") };
    assert_eq!((cookie.len(), &cookie[..8]), (24, &client[4..]));
    assert_eq!(server.stats.cookies_valid.get(), 0);
    let mut back = vec![0, 10, 0, 24];
    back.extend(cookie);
    let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &back));
    assert_eq!(options(&answer)[0].1, *cookie);
    assert_eq!(server.stats.cookies_valid.get(), 1);
    back[25] ^= 1;
    let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &back));
    assert_eq!(options(&answer)[0].1, *cookie, "a forged one is answered with a good one");
    assert_eq!(server.stats.cookies_valid.get(), 1);
}

#[test]
fn a_query_with_a_cookie_but_no_question_is_answered() {
    let mut server = Server::new();
    let mut asked = vec![0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    asked = with_opt(asked, 1232, 0, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let answer = server.udp(&asked);
    assert_eq!(told(&answer).code, "NOERROR");
    assert_eq!(answer[4..6], [0, 0]);
    assert_eq!(options(&answer)[0].1.len(), 24);
}

#[test]
fn the_keepalive_option_is_returned_over_tcp_only() {
    let mut server = Server::new();
    let asked = with_opt(query("www.cluster.example", A), 1232, 0, &[0, 11, 0, 0]);
    assert_eq!(options(&server.udp(&asked)), []);
    let answer = server.over(Transport::Tcp, &asked).unwrap();
    assert_eq!(options(&answer), [(11, vec![0, 100])]);
}

/// A table with the loads of one subnet and one resolver.
fn loads(server: &Server) -> LoadTable {
    let mut loads = ResolverLoads::new(16, Duration::from_secs(60));
    let now = Instant::now();
    loads.observe(Source::subnet("203.0.113.0".parse().unwrap()), 99.0, now);
    loads.observe(Source::resolver("198.51.100.7".parse().unwrap()), 1.0, now);
    loads.table(now, 0.02, &server.published.snapshot.layout, &LoadTable::default())
}

#[test]
fn a_client_subnet_is_returned_with_the_scope_of_the_answer() {
    let subnet24 = [0, 8, 0, 7, 0, 1, 24, 0, 203, 0, 113];
    let subnet16 = [0, 8, 0, 6, 0, 1, 16, 0, 203, 0];
    let back = |subnet: &[u8], scope: u8| {
        let mut option = subnet[4..].to_vec();
        option[3] = scope;
        option
    };
    let mut server = Server::new();
    // Without loads, an answer does not depend on the client.
    for subnet in [&subnet24[..], &subnet16] {
        let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, subnet));
        assert_eq!(options(&answer), [(8, back(subnet, 0))]);
    }
    server.published.loads = Arc::new(loads(&server));
    for (subnet, name, rtype, scope) in [
        (&subnet24[..], "www", A, 24),
        (&subnet16, "www", A, 0),
        (&subnet24, "one", A, 24),
        (&subnet24, "app", A, 24),
        // Modes that answer with all nodes do not use the client's load.
        (&subnet24, "all", A, 0),
        (&subnet24, "app", HTTPS, 0),
        (&subnet24, "_web._tcp", SRV, 0),
        (&subnet24, "text", A, 0),
        (&subnet24, "none", A, 0),
    ] {
        let name = format!("{name}.cluster.example");
        let answer = server.udp(&with_opt(query(&name, rtype), 1232, 0, subnet));
        assert_eq!(options(&answer), [(8, back(subnet, scope))], "{name}");
    }
    assert!(server.stats.by_deficit.get() > 0);
}

#[test]
fn a_client_subnet_without_a_family_is_ignored_and_echoed() {
    let mut server = Server::new();
    let none = [0, 8, 0, 4, 0, 0, 0, 0];
    for _ in 0..2 {
        let answer = server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &none));
        let found = told(&answer);
        assert_eq!((found.code.as_str(), found.sections[0].len()), ("NOERROR", 2));
        assert_eq!(options(&answer), [(8, vec![0; 4])]);
        server.published.loads = Arc::new(loads(&server));
    }
}

#[test]
fn a_heavy_resolver_gets_the_shorter_ttl() {
    let mut server = Server::new();
    server.published.loads = Arc::new(loads(&server));
    let subnet = [0, 8, 0, 7, 0, 1, 24, 0, 203, 0, 113];
    let heavy = told(&server.udp(&with_opt(query("www.cluster.example", A), 1232, 0, &subnet)));
    assert!(heavy.sections[0].iter().all(|record| record.contains(" 20 A ")), "{heavy:?}");
    let light = ask(&mut server, "www.cluster.example", A);
    assert!(light.sections[0].iter().all(|record| record.contains(" 60 A ")), "{light:?}");
}

#[test]
fn a_response_that_is_too_long_is_cut_at_a_record_and_whole_over_tcp() {
    let mut server = Server::new();
    let name = "large.more.cluster.example";
    // The client's payload size; the records that fit, 115 bytes each.
    for (size, limit) in [
        (None, 512),
        (Some(0), 512),
        (Some(512), 512),
        (Some(900), 900),
        (Some(1232), 1232),
        (Some(4096), 1232),
        (Some(65_535), 1232),
    ] {
        let asked = query(name, TXT);
        let asked = match size {
            Some(size) => with_opt(asked, size, 0, &[]),
            None => asked,
        };
        let answer = server.udp(&asked);
        let told = told(&answer);
        assert!(answer.len() <= limit, "{size:?}");
        assert!(answer.len() > limit - 115 - 11, "{size:?}: as many as fit");
        assert_eq!(told.flags, "aa tc rd");
        assert!((3..12).contains(&told.sections[0].len()), "{size:?}");
    }
    let answer = server.over(Transport::Tcp, &query(name, TXT)).unwrap();
    let told = told(&answer);
    assert_eq!((told.flags.as_str(), told.sections[0].len()), ("aa rd", 12));
    assert_eq!(server.stats.truncated.get(), 7);
}

#[test]
fn no_answer_over_udp_is_longer_than_1232_bytes() {
    let mut server = Server::new();
    let long_label = "a".repeat(63);
    let long = format!("{long_label}.{long_label}.{long_label}.{}.cluster.example", "b".repeat(40));
    let options: Vec<u8> = [
        &[0, 3, 0, 0][..],
        &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 8, 0, 20, 0, 2, 128, 0],
        &[9; 16],
    ]
    .concat();
    for name in [
        &long,
        "www.cluster.example",
        "all.cluster.example",
        "large.more.cluster.example",
        "sub.cluster.example",
    ] {
        for rtype in [A, AAAA, TXT, ANY, NS, SRV, HTTPS] {
            for size in [0, 512, 700, 1232, 4096, 65_535] {
                let answer = server.udp(&with_opt(query(name, rtype), size, 0, &options));
                assert!(
                    answer.len() <= usize::from(size).clamp(512, 1232),
                    "{name} {rtype} {size} {}",
                    answer.len()
                );
                told(&answer);
            }
        }
    }
}

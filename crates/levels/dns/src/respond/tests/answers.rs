//! Answers to names of every kind.

use super::*;
use crate::config::NodeConfig;
use crate::{Mode, Standing};

const SOA_LINE: &str =
    "cluster.example 30 SOA ns1.cluster.example. hostmaster.cluster.example. 7 3600 600 1209600 30";

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn static_names_are_answered_according_to_the_zone_file() {
    let mut server = Server::new();
    // Name, type; code, flags, answer, authority, additional.
    type Row<'r> = (&'r str, u16, &'r str, &'r str, &'r [&'r str], &'r [&'r str], &'r [&'r str]);
    let rows: &[Row<'_>] = &[
        (
            "text.cluster.example",
            TXT,
            "NOERROR",
            "aa rd",
            &["text.cluster.example 300 TXT \"hello\""],
            &[],
            &[],
        ),
        (
            "TEXT.Cluster.EXAMPLE",
            TXT,
            "NOERROR",
            "aa rd",
            &["TEXT.Cluster.EXAMPLE 300 TXT \"hello\""],
            &[],
            &[],
        ),
        ("text.cluster.example", A, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        ("text.cluster.example", 65_280, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        ("none.cluster.example", A, "NXDOMAIN", "aa rd", &[], &[SOA_LINE], &[]),
        ("a.b.c.none.cluster.example", A, "NXDOMAIN", "aa rd", &[], &[SOA_LINE], &[]),
        ("x.text.cluster.example", A, "NXDOMAIN", "aa rd", &[], &[SOA_LINE], &[]),
        // Names that only have names below them exist.
        ("er.est.cluster.example", A, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        ("est.cluster.example", ANY, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        (
            "deep.er.est.cluster.example",
            A,
            "NOERROR",
            "aa rd",
            &["deep.er.est.cluster.example 300 A 192.0.2.77"],
            &[],
            &[],
        ),
        (
            "mail.cluster.example",
            MX,
            "NOERROR",
            "aa rd",
            &[
                "mail.cluster.example 60 MX 10 mx.cluster.example.",
                "mail.cluster.example 60 MX 20 mx.other.example.",
            ],
            &[],
            &["mx.cluster.example 300 A 192.0.2.25", "mx.cluster.example 300 AAAA 2001:db8::25"],
        ),
        // A minimal ANY (RFC 8482).
        (
            "mail.cluster.example",
            ANY,
            "NOERROR",
            "aa rd",
            &["mail.cluster.example 3600 HINFO \"RFC8482\" \"\""],
            &[],
            &[],
        ),
        (
            "www.cluster.example",
            ANY,
            "NOERROR",
            "aa rd",
            &["www.cluster.example 3600 HINFO \"RFC8482\" \"\""],
            &[],
            &[],
        ),
        // A wildcard.
        (
            "a.wild.cluster.example",
            TXT,
            "NOERROR",
            "aa rd",
            &["a.wild.cluster.example 300 TXT \"star\""],
            &[],
            &[],
        ),
        (
            "b.a.wild.cluster.example",
            TXT,
            "NOERROR",
            "aa rd",
            &["b.a.wild.cluster.example 300 TXT \"star\""],
            &[],
            &[],
        ),
        ("a.wild.cluster.example", A, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        ("wild.cluster.example", TXT, "NOERROR", "aa rd", &[], &[SOA_LINE], &[]),
        // Outside the zone.
        ("other.example", A, "REFUSED", "rd", &[], &[], &[]),
        ("example", A, "REFUSED", "rd", &[], &[], &[]),
        (".", A, "REFUSED", "rd", &[], &[], &[]),
        (".", NS, "REFUSED", "rd", &[], &[], &[]),
        ("xcluster.example", A, "REFUSED", "rd", &[], &[], &[]),
    ];
    for (name, rtype, code, flags, answer, authority, additional) in rows {
        let found = ask(&mut server, name, *rtype);
        let sections = [*answer, *authority, *additional]
            .map(|s| s.iter().map(|line| line.to_string()).collect());
        let wanted = Told { code: code.to_string(), flags: flags.to_string(), sections };
        assert_eq!(found, wanted, "{name} {rtype}");
    }
}

#[test]
fn the_zone_returns_its_soa_and_name_servers_with_their_addresses() {
    let mut server = Server::new();
    let soa = ask(&mut server, "cluster.example", SOA);
    assert_eq!(
        soa.sections[0],
        [
            "cluster.example 3600 SOA ns1.cluster.example. hostmaster.cluster.example. 7 3600 600 1209600 30"
        ]
    );
    let ns = ask(&mut server, "cluster.example", NS);
    assert_eq!(
        ns.sections[0],
        [
            "cluster.example 3600 NS ns1.cluster.example.",
            "cluster.example 3600 NS ns2.other.example."
        ]
    );
    assert_eq!(
        ns.sections[2],
        ["ns1.cluster.example 3600 A 192.0.2.1", "ns1.cluster.example 3600 AAAA 2001:db8::1"]
    );
    assert_eq!(ask(&mut server, "ns1.cluster.example", A).sections[0].len(), 1);
}

#[test]
fn a_static_https_record_brings_the_addresses_of_its_target() {
    let told = ask(&mut Server::new(), "svc.cluster.example", HTTPS);
    assert_eq!(told.sections[0].len(), 1);
    // The owner has the spelling of the target that the record points to.
    let addresses =
        ["MX.cluster.example 300 A 192.0.2.25", "MX.cluster.example 300 AAAA 2001:db8::25"];
    assert_eq!(told.sections[2], addresses);
}

#[test]
fn a_delegation_is_a_referral_with_glue_and_ds_is_authoritative() {
    let mut server = Server::new();
    for name in [
        "sub.cluster.example",
        "www.sub.cluster.example",
        "ns.sub.cluster.example",
        "a.b.c.sub.cluster.example",
    ] {
        for rtype in [A, NS, SOA, TXT, ANY] {
            let told = ask(&mut server, name, rtype);
            assert_eq!((told.code.as_str(), told.flags.as_str()), ("NOERROR", "rd"), "{name}");
            assert_eq!(told.sections[0], [""; 0]);
            assert_eq!(
                told.sections[1],
                [
                    "sub.cluster.example 300 NS ns.sub.cluster.example.",
                    "sub.cluster.example 300 NS ns.other.example."
                ]
            );
            assert_eq!(
                told.sections[2],
                [
                    "ns.sub.cluster.example 300 A 192.0.2.99",
                    "ns.sub.cluster.example 300 AAAA 2001:db8::99"
                ]
            );
        }
    }
    let ds = ask(&mut server, "sub.cluster.example", DS);
    assert_eq!((ds.flags.as_str(), &ds.sections[1][..]), ("aa rd", &[SOA_LINE.to_string()][..]));
    for below in ["www.sub.cluster.example", "ns.sub.cluster.example"] {
        let ds = ask(&mut server, below, DS);
        assert_eq!((ds.flags.as_str(), ds.sections[1].len()), ("rd", 2), "{below}");
    }
}

#[test]
fn an_alias_is_followed_within_its_zone() {
    let mut server = Server::new();
    let rows: &[(&str, u16, &str, &[&str], usize)] = &[
        (
            "alias.cluster.example",
            TXT,
            "NOERROR",
            &[
                "alias.cluster.example 300 CNAME text.cluster.example.",
                "text.cluster.example 300 TXT \"hello\"",
            ],
            0,
        ),
        (
            "alias.cluster.example",
            CNAME,
            "NOERROR",
            &["alias.cluster.example 300 CNAME text.cluster.example."],
            0,
        ),
        (
            "alias.cluster.example",
            A,
            "NOERROR",
            &["alias.cluster.example 300 CNAME text.cluster.example."],
            1,
        ),
        (
            "far.cluster.example",
            A,
            "NOERROR",
            &["far.cluster.example 300 CNAME www.other.example."],
            0,
        ),
        (
            "lost.cluster.example",
            A,
            "NXDOMAIN",
            &["lost.cluster.example 300 CNAME nowhere.cluster.example."],
            1,
        ),
        (
            "chain.cluster.example",
            TXT,
            "NOERROR",
            &[
                "chain.cluster.example 300 CNAME alias.cluster.example.",
                "alias.cluster.example 300 CNAME text.cluster.example.",
                "text.cluster.example 300 TXT \"hello\"",
            ],
            0,
        ),
    ];
    for (name, rtype, code, answer, authority) in rows {
        let told = ask(&mut server, name, *rtype);
        assert_eq!((told.code.as_str(), told.flags.as_str()), (*code, "aa rd"), "{name}");
        assert_eq!(told.sections[0], *answer, "{name} {rtype}");
        assert_eq!(told.sections[1].len(), *authority, "{name}");
    }
    let ring = ask(&mut server, "ring.cluster.example", A);
    assert_eq!(ring.sections[0].len(), 2, "a circle ends: {ring:?}");
}

#[test]
fn an_alias_of_a_balanced_name_leads_to_its_nodes() {
    let mut server = Server::new();
    let told = ask(&mut server, "spread.cluster.example", A);
    assert_eq!(told.sections[0].len(), 3, "{told:?}");
    assert_eq!(told.sections[0][0], "spread.cluster.example 300 CNAME www.cluster.example.");
    assert!(told.sections[0][1].starts_with("www.cluster.example 60 A 192.0.2.1"), "{told:?}");
}

#[test]
fn an_alias_of_a_balanced_name_without_the_type_has_the_soa() {
    let mut config = config();
    let mut zone = crate::fixture::zone();
    zone.nodes.iter_mut().for_each(|node| node.v6.clear());
    config.zones = vec![std::sync::Arc::new(zone)];
    let mut server = Server::of(&config, &[]);
    let alias = ["spread.cluster.example 300 CNAME www.cluster.example."];
    for rtype in [AAAA, TXT, 65_280] {
        let told = ask(&mut server, "spread.cluster.example", rtype);
        assert_eq!(
            (told.code.as_str(), &told.sections[0][..]),
            ("NOERROR", &alias.map(String::from)[..])
        );
        assert_eq!(told.sections[1], [SOA_LINE], "{rtype}");
    }
    for rtype in [CNAME, ANY] {
        let told = ask(&mut server, "spread.cluster.example", rtype);
        assert_eq!(told.sections[0], alias);
        assert!(told.sections[1].is_empty(), "{told:?}");
    }
}

#[test]
fn each_address_family_fails_open_independently() {
    // The first two of the four nodes have IPv6.
    let states = crate::fixture::states([
        (Standing::Unhealthy, 1.0),
        (Standing::Draining, 1.0),
        (Standing::Serving, 1.0),
        (Standing::Serving, 1.0),
    ]);
    let mut server = Server::of(&config(), &states);
    let mut v4 = last_words_of(&mut server, A);
    v4.sort();
    assert_eq!(v4, ["192.0.2.13", "192.0.2.14"]);
    assert_eq!(server.stats.fail_open.get(), 0);
    assert_eq!(last_words_of(&mut server, AAAA), ["2001:db8::12"]);
    assert_eq!(server.stats.fail_open.get(), 1);
    let told = &server.published.snapshot.names_told;
    let told = told.iter().find(|told| told.name == "all.cluster.example.").unwrap();
    assert!(told.fail_open, "{told:?}");
    let shares: Vec<_> = told.nodes.iter().map(|node| node.share).collect();
    assert_eq!(shares, [0.0, 1.0, 0.5, 0.5], "of its family");
}

fn last_words_of(server: &mut Server, rtype: u16) -> Vec<String> {
    let told = ask(server, "all.cluster.example", rtype);
    last_words(&told.sections[0]).into_iter().map(String::from).collect()
}

#[test]
fn each_record_mode_returns_its_number_of_addresses() {
    let mut server = Server::new();
    let nodes = ["192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14"];
    for _ in 0..50 {
        for (name, count) in [
            ("cluster.example", 2),
            ("www.cluster.example", 2),
            ("one.cluster.example", 1),
            ("all.cluster.example", 4),
            ("app.cluster.example", 2),
        ] {
            let told = ask(&mut server, name, A);
            let mut addresses = last_words(&told.sections[0]);
            addresses.sort_unstable();
            addresses.dedup();
            assert_eq!(addresses.len(), count, "{told:?}");
            assert!(addresses.iter().all(|address| nodes.contains(address)));
            assert!(told.sections[0].iter().all(|record| record.contains(" 60 A ")));
        }
        // Two of the nodes have IPv6.
        let told = ask(&mut server, "all.cluster.example", AAAA);
        assert_eq!(told.sections[0].len(), 2);
    }
    assert_eq!(server.stats_of_mode(Mode::Single), 50);
}

#[test]
fn srv_returns_each_node_with_its_weight_and_resolvable_host_name() {
    let shares = [1.0, 2.0, 3.0, 4.0].map(|share| (Standing::Serving, share));
    let mut server = Server::of(&config(), &states(shares));
    let told = ask(&mut server, "_web._tcp.cluster.example", SRV);
    assert_eq!(
        told.sections[0],
        [("250", 1), ("500", 2), ("750", 3), ("1000", 4)].map(|(weight, n)| format!(
            "_web._tcp.cluster.example 60 SRV 0 {weight} 8080 n{n}.cluster.example"
        ))
    );
    assert_eq!(
        ask(&mut server, "n3.cluster.example", A).sections[0],
        ["n3.cluster.example 3600 A 192.0.2.13"]
    );
    assert_eq!(ask(&mut server, "_web._tcp.cluster.example", A).sections[1], [SOA_LINE]);
    assert_eq!(ask(&mut server, "_tcp.cluster.example", SRV).code, "NOERROR");
}

#[test]
fn answers_truncated_over_udp_are_complete_over_tcp_and_counted() {
    let mut config = config();
    let mut zone = crate::fixture::zone();
    let template = zone.nodes[0].clone();
    zone.nodes =
        (0..64).map(|n| NodeConfig { name: format!("m{n}").into(), ..template.clone() }).collect();
    let srv = zone.names.iter_mut().find(|name| name.mode == Mode::Srv).unwrap();
    srv.nodes = (0..64).collect();
    // A node with more addresses than fit into a datagram.
    zone.nodes[0].v4 = (0..100).map(|n| [192, 0, 2, n].into()).collect();
    zone.names
        .iter_mut()
        .filter(|name| name.mode == Mode::Single)
        .for_each(|name| name.nodes = vec![0]);
    config.zones = vec![std::sync::Arc::new(zone)];
    let mut server = Server::of(&config, &[]);
    let counted = |server: &Server| {
        let sums = server.published.snapshot.tallies.sums();
        sums.iter().map(|(_, count)| count).sum::<u64>()
    };
    for (name, rtype, all) in
        [("_web._tcp.cluster.example", SRV, 64), ("one.cluster.example", A, 100)]
    {
        let asked = query(name, rtype);
        let before = counted(&server);
        let short = told(&server.udp(&asked));
        assert_eq!(short.flags, "aa tc rd", "{name}");
        assert!(short.sections[0].len() < all);
        let given = if rtype == SRV { short.sections[0].len() as u64 } else { 0 };
        assert_eq!(counted(&server) - before, given, "{name}");
        let whole = told(&server.over(crate::Transport::Tcp, &asked).unwrap());
        assert_eq!((whole.flags.as_str(), whole.sections[0].len()), ("aa rd", all), "{name}");
        assert_eq!(counted(&server) - before, given + if rtype == SRV { 64 } else { 1 }, "{name}");
    }
}

#[test]
fn https_returns_each_node_with_its_own_priority_in_random_order() {
    let mut server = Server::new();
    let mut first = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let told = ask(&mut server, "app.cluster.example", HTTPS);
        let records = &told.sections[0];
        assert_eq!(records.len(), 4);
        for (place, record) in records.iter().enumerate() {
            assert!(
                record.starts_with(&format!("app.cluster.example 60 HTTPS {} n", place + 1)),
                "{record}"
            );
            assert!(
                record.contains("alpn=h2,http/1.1") && record.contains("ipv4hint=192.0.2.1"),
                "{record}"
            );
        }
        first.insert(records[0].clone());
    }
    assert_eq!(first.len(), 4, "each node is first at times");
}

#[test]
fn nodes_that_do_not_serve_leave_the_answer_and_draining_shortens_the_ttl() {
    use Standing::{Down, Draining, DrainingUnhealthy, Serving, Unhealthy};
    // Standings; the addresses of `all`; its TTL; whether it fails open.
    let rows = [
        ([Serving, Serving, Serving, Serving], "11 12 13 14", 60, false),
        ([Serving, Unhealthy, Serving, Serving], "11 13 14", 60, false),
        ([Serving, Draining, Unhealthy, Down], "11", 10, false),
        ([Unhealthy, Unhealthy, Unhealthy, Unhealthy], "11 12 13 14", 60, true),
        // Draining nodes are alive, so the answer has them.
        ([Unhealthy, Draining, Down, Unhealthy], "12", 10, true),
        ([Unhealthy, DrainingUnhealthy, Down, Unhealthy], "11 14", 10, true),
        ([Down, DrainingUnhealthy, Down, DrainingUnhealthy], "12 14", 10, true),
        ([Draining, Down, Down, Draining], "11 14", 10, true),
        ([Down, Down, Down, Down], "", 0, false),
    ];
    for (standings, nodes, ttl, open) in rows {
        let mut server = Server::of(&config(), &states(standings.map(|standing| (standing, 1.0))));
        let told = ask(&mut server, "all.cluster.example", A);
        let mut addresses: Vec<_> = last_words(&told.sections[0])
            .into_iter()
            .map(|a| a.rsplit('.').next().unwrap().to_owned())
            .collect();
        addresses.sort();
        assert_eq!(addresses.join(" "), nodes, "{standings:?}");
        assert!(
            told.sections[0].iter().all(|record| record.contains(&format!(" {ttl} A "))),
            "{told:?}"
        );
        assert_eq!(server.stats.fail_open.get(), u64::from(open), "{standings:?}");
        if nodes.is_empty() {
            assert_eq!(
                (told.code.as_str(), &told.sections[1][..]),
                ("NOERROR", &[SOA_LINE.to_owned()][..])
            );
        }
    }
}

#[test]
fn nodes_with_a_share_of_zero_are_never_returned() {
    let shares = [0.0, 1.0, 0.0, 3.0].map(|share| (Standing::Serving, share));
    let mut server = Server::of(&config(), &states(shares));
    for _ in 0..100 {
        let told = ask(&mut server, "www.cluster.example", A);
        assert!(
            told.sections[0].iter().all(|r| r.ends_with(".12") || r.ends_with(".14")),
            "{told:?}"
        );
    }
}

#[test]
fn chaos_queries_return_the_node_id_and_the_version() {
    let mut server = Server::new();
    for (name, wanted) in [
        ("id.server", Some("node-a")),
        ("hostname.bind", Some("node-a")),
        ("version.bind", Some("equipoise")),
        ("VERSION.server", Some("equipoise")),
        ("authors.bind", None),
    ] {
        let mut asked = query(name, TXT);
        let class_at = asked.len() - 1;
        asked[class_at] = 3;
        let answer = server.udp(&asked);
        let rcode = answer[3] & 0x0f;
        assert_eq!(rcode, if wanted.is_some() { 0 } else { 5 }, "{name}");
        if let Some(text) = wanted {
            assert!(answer.ends_with(text.as_bytes()), "{name}");
        }
    }
}

#[test]
fn per_node_answers_are_counted() {
    let mut server = Server::new();
    for _ in 0..400 {
        ask(&mut server, "one.cluster.example", A);
    }
    let sums = server.published.snapshot.tallies.sums();
    assert_eq!(sums.iter().map(|(_, count)| count).sum::<u64>(), 400);
    assert!(sums.iter().all(|(_, count)| *count > 60), "{sums:?}");
}

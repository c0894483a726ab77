//! Additional records: addresses of the names that an answer points to.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::base::Message;
use domain::base::iana::Rtype;
use proptest::prelude::*;

use super::*;
use crate::config::{NodeConfig, ZoneConfig};
use crate::fixture::{records, zone};
use crate::{DnsConfig, Mode, Standing, Transport};

/// Records of a zone file that point to balanced names, and to names with static addresses.
const POINTING: &str = "
$TTL 300
to-www      IN MX    10 www.cluster.example.
            IN MX    20 mx.cluster.example.
            IN MX    30 mx.other.example.
cased       IN MX    10 WwW.Cluster.Example.
upper       IN CNAME WWW.CLUSTER.EXAMPLE.
_sip._udp   IN SRV   1 1 5060 all.cluster.example.
            IN SRV   1 1 5061 all.cluster.example.
            IN SRV   2 1 5060 .
front       IN HTTPS 0 app.cluster.example.
moved       IN HTTPS 0 svc.cluster.example.
www         IN HTTPS 1 . alpn=h2
mx          IN HTTPS 1 .
gone        IN HTTPS 0 .
gone        IN A     192.0.2.66
generic     IN SVCB  1 mx.cluster.example. alpn=h2
to-svc      IN CNAME www.cluster.example.
to-mx       IN CNAME mx.cluster.example.
*.mail      IN MX    10 one.cluster.example.
*.mail      IN HTTPS 1 .
*.mail      IN AAAA  2001:db8::66
glued       IN MX    10 ns.sub.cluster.example.
lower       IN NS    www.cluster.example.
lower       IN NS    ns.lower.cluster.example.
ns.lower    IN A     192.0.2.98
";

fn pointing() -> ZoneConfig {
    let mut zone = zone();
    zone.records.extend(records(POINTING, &zone.origin));
    zone
}

fn config_of(zone: ZoneConfig) -> DnsConfig {
    assert_eq!(crate::zone::check(&zone), []);
    DnsConfig { zones: vec![Arc::new(zone)], ..config() }
}

/// The additional records of an answer, in lower case.
fn additional(server: &mut Server, name: &str, rtype: u16) -> Vec<String> {
    let told = ask(server, name, rtype);
    assert_eq!((told.code.as_str(), told.sections[0].is_empty()), ("NOERROR", false), "{name}");
    told.sections[2].iter().map(|record| record.trim_end().to_ascii_lowercase()).collect()
}

#[test]
fn srv_and_https_records_of_nodes_bring_the_addresses_of_the_nodes_in_their_order() {
    let mut server = Server::new();
    for (name, rtype) in [("_web._tcp.cluster.example", SRV), ("app.cluster.example", HTTPS)] {
        for _ in 0..20 {
            let told = ask(&mut server, name, rtype);
            let word = if rtype == SRV { 6 } else { 4 };
            let hosts = told.sections[0].iter().map(|r| r.split(' ').nth(word).unwrap());
            let hosts = hosts.map(|host| host.trim_end_matches('.'));
            let expected: Vec<_> = hosts
                .flat_map(|host| {
                    let n: u8 = host[1..2].parse().unwrap();
                    let v4 = format!("{host} 60 A 192.0.2.1{n}");
                    [Some(v4), (n < 3).then(|| format!("{host} 60 AAAA 2001:db8::1{n}"))]
                })
                .flatten()
                .collect();
            assert_eq!(expected.len(), 6);
            assert_eq!(told.sections[2], expected, "{told:?}");
        }
    }
}

#[test]
fn nodes_that_an_answer_leaves_out_have_no_additional_addresses() {
    use Standing::{Down, Draining, Serving, Unhealthy};
    for (standings, given, ttl) in [
        (
            [Serving, Unhealthy, Down, Serving],
            ["n1 192.0.2.11", "n1 2001:db8::11", "n4 192.0.2.14"],
            60,
        ),
        ([Unhealthy, Down, Serving, Draining], ["n3 192.0.2.13", "", ""], 10),
        // No node serves: fail open.
        ([Down, Unhealthy, Down, Down], ["n2 192.0.2.12", "n2 2001:db8::12", ""], 60),
    ] {
        let mut server = Server::of(&config(), &states(standings.map(|s| (s, 1.0))));
        for (name, rtype) in [("_web._tcp.cluster.example", SRV), ("app.cluster.example", HTTPS)] {
            let mut found = additional(&mut server, name, rtype);
            found.sort();
            let expected: Vec<_> = given
                .iter()
                .filter_map(|line| line.split_once(' '))
                .map(|(node, address)| {
                    let rtype = if address.contains(':') { "aaaa" } else { "a" };
                    format!("{node}.cluster.example {ttl} {rtype} {address}")
                })
                .collect();
            assert_eq!(found, expected, "{name} {standings:?}");
        }
    }
}

/// Returns the records without those of the fixture's nodes, which are random, and the count of the
/// latter by owner, TTL and type.
fn without_nodes(records: Vec<String>) -> (Vec<String>, BTreeMap<String, usize>) {
    let mut drawn = BTreeMap::new();
    let is_of_node = |record: &String| {
        let address = record.rsplit(' ').next().unwrap_or_default();
        ["192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14"].contains(&address)
            || ["2001:db8::11", "2001:db8::12"].contains(&address)
            || record.contains("ipv4hint=192.0.2.1")
    };
    let (nodes, rest): (Vec<_>, Vec<_>) = records.into_iter().partition(is_of_node);
    for record in nodes {
        let head: Vec<_> = record.split(' ').take(3).collect();
        *drawn.entry(head.join(" ")).or_insert(0) += 1;
    }
    (rest, drawn)
}

#[test]
fn static_records_that_point_to_balanced_names_bring_a_draw_of_their_nodes() {
    let mut server = Server::of(&config_of(pointing()), &[]);
    let mx = ["mx.cluster.example 300 a 192.0.2.25", "mx.cluster.example 300 aaaa 2001:db8::25"];
    let https = "mx.cluster.example 300 https 1 .";
    // The question; additional records with fixed data; owners, TTLs, types and counts of the
    // others.
    type Row<'r> = (&'r str, u16, &'r [&'r str], &'r [(&'r str, usize)]);
    let rows: &[Row<'_>] = &[
        ("to-www", MX, &mx, &[("www.cluster.example 20 a", 2), ("www.cluster.example 20 aaaa", 2)]),
        ("cased", MX, &[], &[("www.cluster.example 20 a", 2), ("www.cluster.example 20 aaaa", 2)]),
        (
            "_sip._udp",
            SRV,
            &[],
            &[("all.cluster.example 20 a", 4), ("all.cluster.example 20 aaaa", 2)],
        ),
        (
            "front",
            HTTPS,
            &[],
            &[
                ("app.cluster.example 20 https", 4),
                ("app.cluster.example 20 a", 2),
                ("app.cluster.example 20 aaaa", 2),
            ],
        ),
        (
            "moved",
            HTTPS,
            &["svc.cluster.example 300 https 1 mx.cluster.example. alpn=h2 port=8443"],
            &[],
        ),
        ("svc", HTTPS, &[https, mx[0], mx[1]], &[]),
        ("www", HTTPS, &[], &[("www.cluster.example 20 a", 2), ("www.cluster.example 20 aaaa", 2)]),
        (
            "to-svc",
            HTTPS,
            &[],
            &[("www.cluster.example 20 a", 2), ("www.cluster.example 20 aaaa", 2)],
        ),
        ("mx", HTTPS, &mx, &[]),
        ("to-mx", HTTPS, &mx, &[]),
        ("gone", HTTPS, &[], &[]),
        ("generic", SVCB, &mx, &[]),
        ("x.mail", MX, &[], &[("one.cluster.example 20 a", 1), ("one.cluster.example 20 aaaa", 1)]),
        ("x.y.mail", HTTPS, &["x.y.mail.cluster.example 300 aaaa 2001:db8::66"], &[]),
        (
            "glued",
            MX,
            &[
                "ns.sub.cluster.example 300 a 192.0.2.99",
                "ns.sub.cluster.example 300 aaaa 2001:db8::99",
            ],
            &[],
        ),
    ];
    for (name, rtype, fixed, drawn) in rows {
        for _ in 0..20 {
            let found = additional(&mut server, &format!("{name}.cluster.example"), *rtype);
            let (rest, nodes) = without_nodes(found);
            assert_eq!(rest, *fixed, "{name}");
            // A draw may select a node twice; the answer then has it once.
            for (head, count) in *drawn {
                assert!(
                    (1..=*count).contains(&nodes.get(*head).copied().unwrap_or(0)),
                    "{name}: {nodes:?}"
                );
            }
            assert_eq!(nodes.len(), drawn.len(), "{name}: {nodes:?}");
        }
    }
    let before = server.published.snapshot.tallies.sums();
    additional(&mut server, "to-www.cluster.example", MX);
    assert_eq!(server.published.snapshot.tallies.sums(), before, "no answer of a node");
}

#[test]
fn a_referral_to_a_balanced_name_brings_its_nodes_behind_the_glue() {
    let mut server = Server::of(&config_of(pointing()), &[]);
    let told = ask(&mut server, "x.lower.cluster.example", A);
    assert_eq!((told.flags.as_str(), told.sections[1].len()), ("rd", 2));
    assert_eq!(told.sections[2][0], "ns.lower.cluster.example 300 A 192.0.2.98");
    let (_, nodes) = without_nodes(told.sections[2][1..].to_vec());
    let heads: Vec<_> = nodes.keys().map(String::as_str).collect();
    assert_eq!(heads, ["www.cluster.example 20 A", "www.cluster.example 20 AAAA"]);
}

#[test]
fn an_alias_in_other_letters_leads_to_a_balanced_name_too() {
    let mut server = Server::of(&config_of(pointing()), &[]);
    let told = ask(&mut server, "upper.cluster.example", A);
    assert_eq!((told.sections[0].len(), told.sections[1].len()), (3, 0), "{told:?}");
}

#[test]
fn the_letters_of_the_question_and_of_the_target_come_back_as_they_came() {
    let mut server = Server::of(&config_of(pointing()), &[]);
    let told = ask(&mut server, "wWw.CLuster.exAMPLE", HTTPS);
    assert!(told.sections[2].iter().all(|record| record.starts_with("wWw.CLuster.exAMPLE 20 ")));
    let told = ask(&mut server, "caSED.clUSTer.example", MX);
    assert!(told.sections[2].iter().all(|r| r.starts_with("WwW.Cluster.Example 20 ")), "{told:?}");
}

#[test]
fn a_node_of_two_pools_has_its_addresses_once() {
    let mut zone = zone();
    zone.nodes[3] = NodeConfig { pool: "api".into(), port: 81, ..zone.nodes[0].clone() };
    let mut server = Server::of(&config_of(zone), &[]);
    let found = additional(&mut server, "_web._tcp.cluster.example", SRV);
    let of_n1 = found.iter().filter(|record| record.starts_with("n1.")).count();
    assert_eq!((of_n1, found.len()), (2, 5), "{found:?}");
}

/// A zone with nodes of so many IPv4 addresses, so many IPv6 addresses and a name of this length.
fn zone_of(nodes: &[(u8, u8, usize)]) -> ZoneConfig {
    let mut zone = zone();
    zone.records.clear();
    let node = |(n, (v4, v6, length)): (usize, &(u8, u8, usize))| NodeConfig {
        pool: "web".into(),
        name: format!("{}{n}", "n".repeat(*length)).into(),
        port: 80,
        v4: (0..*v4).map(|place| [10, n as u8, 0, place].into()).collect(),
        v6: (0..*v6)
            .map(|place| [0x2001, 0xdb8, 0, 0, 0, 0, n as u16, place.into()].into())
            .collect(),
    };
    zone.nodes = nodes.iter().enumerate().map(node).collect();
    zone.names.retain(|name| matches!(name.mode, Mode::Srv | Mode::Https));
    zone.names.iter_mut().for_each(|name| name.nodes = (0..nodes.len()).collect());
    zone
}

/// Contents of a response: records of the answer section, additional records by owner and type,
/// truncation, and whether its last record is OPT.
type Read = (Vec<String>, BTreeMap<(String, Rtype), usize>, bool, bool);

fn sections(bytes: &[u8]) -> Read {
    let text = told(bytes);
    let message = Message::from_octets(bytes).unwrap();
    let mut by_set = BTreeMap::new();
    let mut last = None;
    for record in message.additional().unwrap() {
        let record = record.unwrap();
        last = Some(record.rtype());
        if record.rtype() != Rtype::OPT {
            let key = (record.owner().to_string().to_ascii_lowercase(), record.rtype());
            *by_set.entry(key).or_insert(0) += 1;
        }
    }
    let [answer, _, _] = text.sections;
    (answer, by_set, message.header().tc(), last == Some(Rtype::OPT))
}

#[test]
fn a_name_that_no_pointer_reaches_has_no_additional_addresses() {
    // Over TCP, with an answer of more than 16 KiB.
    let mut server = Server::of(&config_of(zone_of(&[(1, 20, 50); 64])), &[]);
    let bytes = server.over(Transport::Tcp, &query("app.cluster.example", HTTPS)).unwrap();
    let (answer, sets, truncated, _) = sections(&bytes);
    assert_eq!((answer.len(), truncated), (64, false));
    assert!(bytes.len() > 0x4000 && (30..126).contains(&sets.len()), "{}", sets.len());
    for ((host, rtype), count) in &sets {
        assert_eq!(*count, if *rtype == Rtype::A { 1 } else { 20 });
        assert!(answer.iter().any(|record| record.contains(host)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn additional_addresses_are_whole_sets_that_never_truncate(
        nodes in proptest::collection::vec((0u8..4, 0u8..4, 1usize..60), 1..64),
        sizes in proptest::collection::vec(proptest::option::of(0u16..1400), 1..8),
        capitals in any::<u64>(),
    ) {
        let zone = zone_of(&nodes);
        let mut server = Server::of(&config_of(zone.clone()), &[]);
        for (name, rtype) in [("_web._tcp.cluster.example", SRV), ("app.cluster.example", HTTPS)] {
            let mut asked = query(name, rtype);
            for (at, byte) in asked[12..12 + name.len() + 1].iter_mut().enumerate() {
                if capitals >> (at % 64) & 1 == 1 {
                    *byte = byte.to_ascii_uppercase();
                }
            }
            let whole = server.over(Transport::Tcp, &asked).unwrap();
            let (answer, sets, truncated, _) = sections(&whole);
            prop_assert_eq!((answer.len(), truncated), (nodes.len(), false));
            let expected: BTreeMap<_, _> = zone.nodes.iter().flat_map(|node| {
                let host = format!("{}.cluster.example", node.name);
                let counts = [(Rtype::A, node.v4.len()), (Rtype::AAAA, node.v6.len())];
                counts.map(|(rtype, count)| ((host.clone(), rtype), count))
            }).filter(|(_, count)| *count > 0).collect();
            prop_assert_eq!(&sets, &expected, "over TCP");
            for size in &sizes {
                let limit = usize::from(size.unwrap_or(0)).clamp(512, 1232);
                let asked = match size {
                    Some(size) => with_opt(asked.clone(), *size, 0, &[]),
                    None => asked.clone(),
                };
                let bytes = server.udp(&asked);
                let (answer, sets, truncated, has_opt) = sections(&bytes);
                prop_assert!(bytes.len() <= limit);
                prop_assert_eq!(bytes[12..12 + name.len() + 6].to_vec(), asked[12..12 + name.len() + 6].to_vec());
                prop_assert_eq!(has_opt, size.is_some(), "OPT is the last record");
                let is_cut = if rtype == SRV { answer.len() < nodes.len() } else { answer.is_empty() };
                prop_assert_eq!(truncated, is_cut);
                prop_assert!(!truncated || sets.is_empty());
                let room = limit - bytes.len();
                for (set, count) in &expected {
                    let (host, rtype) = set;
                    let is_answer = answer.iter().any(|r| r.contains(&format!(" {host}")));
                    let size = count * if *rtype == Rtype::A { 16 } else { 28 };
                    match sets.get(set) {
                        Some(found) => prop_assert!(is_answer && found == count, "a whole set"),
                        None => prop_assert!(!is_answer || truncated || size > room, "{size} fit"),
                    }
                }
                prop_assert!(sets.keys().all(|set| expected.contains_key(set)));
            }
        }
    }
}

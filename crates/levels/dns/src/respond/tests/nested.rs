//! Zones below other zones of the same process.

use std::sync::Arc;

use super::*;
use crate::config::{NameServer, ZoneConfig};
use crate::fixture::zone;
use crate::zone::{ZoneTree, check_below};
use crate::{Mode, ZoneError};

const ABOVE: &str = "
$TTL 300
sub      IN NS ns.sub
sub      IN DS 7 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
ns.sub   IN A  192.0.2.99
old.sub  IN A  192.0.2.98
far      IN CNAME www.plain
www.plain IN A 192.0.2.97
";

fn zone_of(origin: &str, records: &str) -> ZoneConfig {
    let own = zone();
    let origin = name(origin);
    let server = NameServer {
        name: name("ns.sub.cluster.example."),
        addresses: vec!["192.0.2.99".parse().unwrap()],
    };
    ZoneConfig {
        servers: vec![server],
        nodes: Vec::new(),
        names: Vec::new(),
        records: crate::fixture::records(records, &origin),
        mailbox: name("hostmaster.other.example."),
        origin,
        ..own
    }
}

/// A zone, a zone below it that it delegates, one below that, and one without a delegation.
fn zones() -> Vec<Arc<ZoneConfig>> {
    let above = crate::fixture::records(ABOVE, &name("cluster.example."));
    let zones = [
        ZoneConfig { records: above, ..zone() },
        zone_of("sub.cluster.example.", "www 300 IN A 192.0.2.100\n"),
        zone_of("a.deep.sub.cluster.example.", "@ 300 IN A 192.0.2.101\n"),
        zone_of("plain.cluster.example.", "x 300 IN A 192.0.2.102\n"),
    ];
    zones.map(Arc::new).into()
}

#[test]
fn names_are_answered_from_the_closest_zone_in_any_zone_order() {
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]];
    for order in orders {
        let mut config = config();
        config.zones = order.map(|place| Arc::clone(&zones()[place])).into();
        let mut server = Server::of(&config, &[]);
        // Name, type; code, records of the answer, the zone of the SOA record.
        let rows: [(&str, u16, &str, usize, &str); 13] = [
            ("sub.cluster.example", SOA, "NOERROR", 1, ""),
            ("sub.cluster.example", NS, "NOERROR", 1, ""),
            ("ns.sub.cluster.example", A, "NOERROR", 1, ""),
            ("ns.sub.cluster.example", AAAA, "NOERROR", 0, "sub.cluster.example"),
            ("www.sub.cluster.example", A, "NOERROR", 1, ""),
            ("none.sub.cluster.example", A, "NXDOMAIN", 0, "sub.cluster.example"),
            ("old.sub.cluster.example", A, "NXDOMAIN", 0, "sub.cluster.example"),
            ("deep.sub.cluster.example", A, "NOERROR", 0, "sub.cluster.example"),
            ("a.deep.sub.cluster.example", A, "NOERROR", 1, ""),
            ("b.a.deep.sub.cluster.example", A, "NXDOMAIN", 0, "a.deep.sub.cluster.example"),
            ("www.plain.cluster.example", A, "NXDOMAIN", 0, "plain.cluster.example"),
            ("none.cluster.example", A, "NXDOMAIN", 0, "cluster.example"),
            // An alias into another zone is not followed.
            ("far.cluster.example", A, "NOERROR", 1, ""),
        ];
        for (name, rtype, code, answers, soa) in rows {
            let told = ask(&mut server, name, rtype);
            let found = (told.code.as_str(), told.flags.as_str(), told.sections[0].len());
            assert_eq!(found, (code, "aa rd", answers), "{name} {rtype} {order:?} {told:?}");
            let authority =
                told.sections[1].first().map_or("", |line| line.split(' ').next().unwrap());
            assert_eq!(authority, soa, "{name} {rtype} {order:?}");
        }
    }
}

#[test]
fn the_parent_zone_answers_ds_queries() {
    for reversed in [false, true] {
        let mut config = config();
        config.zones = zones();
        if reversed {
            config.zones.reverse();
        }
        let mut server = Server::of(&config, &[]);
        let signed = ask(&mut server, "sub.cluster.example", DS);
        assert_eq!((signed.flags.as_str(), signed.sections[0].len()), ("aa rd", 1), "{signed:?}");
        for (name, above) in [
            ("a.deep.sub.cluster.example", "sub.cluster.example"),
            ("plain.cluster.example", "cluster.example"),
        ] {
            let unsigned = ask(&mut server, name, DS);
            assert_eq!((unsigned.code.as_str(), unsigned.flags.as_str()), ("NOERROR", "aa rd"));
            assert!(unsigned.sections[1][0].starts_with(&format!("{above} ")), "{unsigned:?}");
        }
    }
}

#[test]
fn names_within_a_nested_zone_are_rejected_in_its_parent() {
    let [above, below] = [0, 1].map(|place| (*zones()[place]).clone());
    let tree = ZoneTree::new([&above.origin, &below.origin]);
    assert_eq!(check_below(&above, &tree), []);
    let mut wrong = above.clone();
    wrong.names[1].name = name("www.sub.cluster.example.");
    let said = check_below(&wrong, &tree);
    assert!(
        matches!(&said[..], [ZoneError::Elsewhere { zone, .. }] if zone == "sub.cluster.example.")
    );
    let mut wrong = above;
    wrong.nodes[2].name = "sub".into();
    assert!(wrong.names.iter().any(|name| name.mode == Mode::Srv));
    assert_eq!(check_below(&wrong, &tree).len(), 1, "a host name of SRV");
}

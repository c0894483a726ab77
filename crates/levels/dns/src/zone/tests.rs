use std::sync::Arc;

use equipoise_core::Generation;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::config::ZoneConfig;
use crate::fixture::{config, name, records, zone};
use crate::standing::Standing;
use crate::{Mode, SnapshotInput, build};

/// The first error of a modified zone.
fn wrong(change: impl Fn(&mut ZoneConfig)) -> Option<ZoneError> {
    let mut zone = zone();
    change(&mut zone);
    check(&zone).into_iter().next()
}

fn with_records(text: &str) -> Option<ZoneError> {
    wrong(|zone| zone.records = records(text, &zone.origin))
}

#[test]
fn invalid_zones_are_rejected_with_a_specific_error() {
    use ZoneError as E;
    assert_eq!(wrong(|_| {}), None);
    assert!(matches!(wrong(|z| z.servers.clear()), Some(E::NoServers(_))));
    assert!(matches!(wrong(|z| z.servers[0].addresses.clear()), Some(E::ServerWithoutAddress(_))));
    assert!(matches!(wrong(|z| z.names[1].name = name("www.other.")), Some(E::OutOfZone { .. })));
    assert!(matches!(wrong(|z| z.names[1].name = z.names[2].name.clone()), Some(E::Twice(_))));
    assert!(matches!(wrong(|z| z.names[1].nodes.clear()), Some(E::NoNodes(_))));
    let many = |mode: Mode, nodes: usize| {
        wrong(|z| {
            z.names[1].mode = mode;
            z.names[1].nodes = vec![0; nodes];
        })
    };
    assert!(matches!(many(Mode::Ordered, 65), Some(E::TooManyNodes { .. })));
    assert_eq!(many(Mode::Ordered, 64), None);
    assert_eq!(many(Mode::Pair, 4096), None);
    assert!(matches!(many(Mode::Pair, 4097), Some(E::TooManyNodes { .. })));
    let below_cut = |z: &mut ZoneConfig| z.names[1].name = name("www.sub.cluster.example.");
    assert!(matches!(wrong(below_cut), Some(E::Delegated { .. })));
    let wildcard = |z: &mut ZoneConfig| z.names[1].name = name("*.cluster.example.");
    assert!(matches!(wrong(wildcard), Some(E::Wildcard(_))));
    assert!(matches!(wrong(|z| z.nodes[0].name = "10.0.0.1:80".into()), Some(E::NodeName { .. })));
    assert!(matches!(wrong(|z| z.nodes[0].name = "n2".into()), Some(E::NodeNames(_))));
    assert!(matches!(with_records("www IN A 192.0.2.1\n"), Some(E::Balanced { .. })));
    assert!(matches!(with_records("@ IN CNAME x\n"), Some(E::AliasBeside(_))));
    assert!(matches!(with_records("a IN CNAME b\na IN CNAME c\n"), Some(E::Aliases(_))));
    assert!(matches!(with_records("a IN DNAME b\n"), Some(E::NotServed { .. })));
    let delegated = ["* IN NS ns.other.example.\n", "*.x IN NS ns.other.example.\n"];
    for text in delegated {
        assert!(matches!(with_records(text), Some(E::WildcardServers(_))), "{text}");
    }
    assert_eq!(with_records("x.* IN NS ns.other.example.\n"), None);
    let soa = "a IN SOA ns1 mail 1 2 3 4 5\n";
    assert!(matches!(with_records(soa), Some(E::SoaElsewhere(_))));
}

#[test]
fn answer_counts_of_nodes_continue_when_nodes_are_added() {
    let make = |nodes: usize, generation: u64, before: Option<&crate::Snapshot>| {
        let mut config = config();
        let mut zone = zone();
        zone.nodes.truncate(nodes);
        zone.names.iter_mut().for_each(|name| name.nodes.retain(|node| *node < nodes));
        config.zones = vec![Arc::new(zone)];
        let input = SnapshotInput {
            generation: Generation(generation),
            config: &config,
            states: &[],
            threads: 2,
            before,
            secrets: (1, 2),
        };
        build(&input, &mut SmallRng::seed_from_u64(1))
    };
    let first = make(3, 1, None);
    first.tallies.count(0, 1);
    first.tallies.count(1, 1);
    let same = make(3, 2, Some(&first));
    assert!(Arc::ptr_eq(&first.tallies, &same.tallies));
    assert!(Arc::ptr_eq(&first.limiter, &same.limiter));
    let more = make(4, 3, Some(&same));
    more.tallies.count(0, 1);
    let sums: Vec<_> = more.tallies().sums().into_iter().map(|(_, count)| count).collect();
    assert_eq!(sums, [0, 3, 0, 0]);
}

#[test]
fn a_name_status_reports_the_share_of_each_node() {
    let shares = [1.0, 2.0, 0.0, 1.0].map(|share| (Standing::Serving, share));
    let snapshot = crate::fixture::snapshot(&config(), &crate::fixture::states(shares));
    let told = snapshot.names_told.iter().find(|told| told.name == "www.cluster.example.").unwrap();
    let shares: Vec<_> = told.nodes.iter().map(|node| node.share).collect();
    assert_eq!(shares, [0.25, 0.5, 0.0, 0.25]);
    assert!(!told.fail_open);
}

#[test]
fn node_independent_data_is_reused_while_the_configuration_is_unchanged() {
    let config = config();
    let make = |config: &crate::DnsConfig, share: f64, before: Option<&crate::Snapshot>| {
        let states = crate::fixture::states([(Standing::Serving, share); 4]);
        let input = SnapshotInput {
            generation: Generation(1),
            config,
            states: &states,
            threads: 1,
            before,
            secrets: (1, 2),
        };
        build(&input, &mut SmallRng::seed_from_u64(1))
    };
    let first = make(&config, 1.0, None);
    let second = make(&config, 0.0, Some(&first));
    assert!(Arc::ptr_eq(&first.fixed, &second.fixed));
    let shares = |snapshot: &crate::Snapshot| snapshot.names_told[0].nodes[0].share;
    assert_eq!((shares(&first), shares(&second)), (0.25, 0.0), "what depends on them is not");
    let mut other = config.clone();
    other.zones = vec![Arc::new(zone())];
    assert!(!Arc::ptr_eq(&first.fixed, &make(&other, 1.0, Some(&first)).fixed));
}

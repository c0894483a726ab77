use super::*;
use crate::abi::{BACKEND_LIVE, FlowKey};
use crate::directory::bytes::{bytes, get};
use crate::limits::Capacity;
use crate::ring::Ring;
use crate::snapshot::{Protocol, Sources};

fn limits() -> Limits {
    Limits::new(&Capacity {
        services: 16,
        backends: 64,
        rings: 4,
        ring_entries: 251,
        ..Capacity::default()
    })
}

fn vip(text: &str, ports: Ports) -> VipId {
    let (address, protocol) = text.split_once('/').unwrap();
    let protocol = if protocol == "tcp" { Protocol::Tcp } else { Protocol::Udp };
    VipId { address: address.parse().unwrap(), ports, protocol }.normal()
}

fn record(vip: VipId, forward: Forward, backends: &[(&str, u16)]) -> ServiceRecord {
    let backend = |&(text, port): &(&str, u16)| {
        let (address, family) = address_bytes(text.parse().unwrap());
        Backend {
            address,
            family,
            port: port.to_be_bytes(),
            flags: BACKEND_LIVE,
            ..Backend::default()
        }
    };
    let service = Service {
        forward: forward as u8,
        key: FlowKey::FiveTuple.number(),
        ring_len: 3,
        ..Service::default()
    };
    let backends = backends.iter().map(backend).collect();
    let (quic, servers, sources) = (Vec::new(), Vec::new(), Sources::default());
    let access = Access::new(true, [3, 5]);
    ServiceRecord { vip, service, backends, access, quic, servers, sources }
}

/// The maximum number of stations.
fn stations() -> BTreeSet<Station> {
    let station = |number: usize| Station {
        ifindex: 1 + number as u32 % 4,
        mac: [2, 0, 0, 0, (number / 256) as u8, number as u8],
    };
    (0..Station::MAX).map(station).collect()
}

fn written(records: &[ServiceRecord]) -> (Limits, Vec<u64>) {
    let limits = limits();
    let mut words = vec![u64::MAX; limits.directory_bytes() / 8];
    let head = Directory { vip_seed: 7, ..Directory::default() };
    write(&limits, head, records, &leaving(), &stations(), &mut words).unwrap();
    write_ring(&limits, 0, &[0, 1, 0], &mut words);
    (limits, words)
}

/// A source address that only known flows have.
fn leaving() -> BTreeSet<IpAddr> {
    BTreeSet::from(["10.0.0.202".parse().unwrap()])
}

fn full_nat(text: &str, number: u16, sources: &[&str]) -> ServiceRecord {
    let mut record = record(vip(text, Ports::One(80)), Forward::FullNat, &[]);
    record.service.number = number;
    let addresses = sources.iter().map(|source| source.parse().unwrap()).collect();
    record.sources = Sources { addresses, port_first: 5000, port_last: 5009, ..Sources::default() };
    record
}

fn every_kind() -> Vec<ServiceRecord> {
    vec![
        record(
            vip("192.0.2.1/tcp", Ports::One(443)),
            Forward::Nat,
            &[("10.0.0.1", 8080), ("10.0.0.2", 0)],
        ),
        record(vip("192.0.2.1/udp", Ports::Any), Forward::Nat, &[("10.0.0.1", 0)]),
        record(vip("192.0.2.1/udp", Ports::Range(10, 20)), Forward::Tunnel, &[]),
        record(vip("2001:db8::1/tcp", Ports::Range(8000, 8100)), Forward::Gue, &[("10.9.9.9", 0)]),
        record(vip("192.0.2.1/udp", Ports::One(53)), Forward::DirectRouting, &[("10.0.0.3", 0)]),
        record(vip("192.0.2.1/tcp", Ports::One(0)), Forward::Tunnel, &[]),
        full_nat("192.0.2.2/tcp", 14, &["10.0.0.200", "10.0.0.201"]),
        full_nat("2001:db8::2/tcp", 15, &["2001:db8::c8"]),
    ]
}

#[test]
fn a_written_directory_reads_back_equal() {
    let records = every_kind();
    let (limits, words) = written(&records);
    let published = read(&limits, &words).unwrap();
    assert_eq!(published.services.len(), records.len());
    let sources = records.iter().flat_map(|record| record.sources.addresses.clone());
    assert_eq!(published.sources, sources.chain(leaving()).collect());
    let (mut first, mut changes_first) = (0, 0);
    for (record, found) in records.iter().zip(&published.services) {
        assert_eq!(found.vip, record.vip);
        assert_eq!(found.backends, record.backends);
        if record.service.forward == Forward::FullNat as u8 {
            assert_eq!(found.sources, record.sources);
        }
        let slots = record.backends.len() as u32;
        let changes = record.access.changes().len() as u32;
        let expected =
            Service { backends_first: first, slots, changes_first, changes, ..record.service };
        assert_eq!(found.service, expected);
        first += slots;
        changes_first += changes;
        assert_eq!((&found.ring, &found.next), (&Ring::of(vec![0, 1, 0]), &Ring::default()));
    }
}

#[test]
fn the_lookup_of_the_program_finds_every_vip() {
    let (limits, words) = written(&every_kind());
    let head: Directory = get(bytes(&words), 0, 0).unwrap();
    let start = (limits.vips_offset - limits.directory_offset) as usize;
    let at = |index| get::<Vip>(bytes(&words), start, index).unwrap();
    let find = |address: &str, port: u16, protocol: u8| {
        let (address, _) = address_bytes(address.parse().unwrap());
        lookup::probe(at, head.vip_mask, head.vip_seed, (&address, port.to_be_bytes(), protocol))
    };
    assert_eq!(find("192.0.2.1", 443, 6).unwrap().service, 0);
    assert_eq!(find("192.0.2.1", 53, 17).unwrap().service, 4);
    // For each address, the first services of TCP and UDP; if one is missing, the other.
    for (address, service, udp_service) in [("192.0.2.1", 0, 1), ("2001:db8::1", 3, 3)] {
        let found = find(address, 0, 0).unwrap();
        assert_eq!(found.kind, vip_kind::ADDRESS);
        assert_eq!((found.service, found.udp_service), (service, udp_service), "{address}");
    }
    for source in ["10.0.0.200", "10.0.0.201", "2001:db8::c8"] {
        assert_eq!(find(source, 0, 0).unwrap().kind, vip_kind::SOURCE);
    }
    assert_ne!(head.flags & DIRECTORY_PORTS, 0);
    assert_eq!(find("192.0.2.1", 444, 6), None);
    let ranges = find("192.0.2.1", 0, 17).unwrap();
    let start = (limits.ranges_offset - limits.directory_offset) as usize;
    let of =
        |at| get::<Range>(bytes(&words), start, usize::from(ranges.ranges_first) + at).unwrap();
    assert_eq!((ranges.kind, ranges.ranges), (vip_kind::RANGES, 2));
    assert_eq!((of(0).first, of(0).last, of(0).service), (10, 20, 2));
    assert_eq!((of(1).first, of(1).last, of(1).service), (0, 65535, 1), "any port comes last");
}

#[test]
fn the_reverse_table_maps_replies_to_their_vips() {
    let (limits, words) = written(&every_kind());
    let head: Directory = get(bytes(&words), 0, 0).unwrap();
    let start = (limits.reverse_offset - limits.directory_offset) as usize;
    let mut found: Vec<Reverse> = (0..=head.reverse_mask as usize)
        .map(|index| get::<Reverse>(bytes(&words), start, index).unwrap())
        .filter(|reverse| reverse.family != 0)
        .collect();
    found.sort_by_key(|reverse| (reverse.service, reverse.backend));
    let ports = |it: &Reverse| {
        (it.service, it.backend, u16::from_be_bytes(it.port), u16::from_be_bytes(it.vip_port))
    };
    let expected = [(0, 0, 8080, 443), (0, 1, 443, 443), (1, 2, 0, 0)];
    assert_eq!(found.iter().map(ports).collect::<Vec<_>>(), expected);
    assert_eq!(head.flags, DIRECTORY_REVERSE | DIRECTORY_PORTS);
    assert_eq!(found[0].vip, address_bytes("192.0.2.1".parse().unwrap()).0);
}

#[test]
fn a_directory_holds_as_many_vips_as_its_capacity() {
    let limits = Limits::new(&Capacity {
        services: 500,
        backends: 500,
        rings: 2,
        ring_entries: 5,
        ..Capacity::default()
    });
    let records: Vec<_> = (0..500_u16)
        .map(|number| {
            let address = IpAddr::from([192, 0, (number >> 8) as u8, number as u8]);
            let id = VipId { address, ports: Ports::One(80), protocol: Protocol::Tcp };
            record(id, Forward::Nat, &[(&format!("10.0.{}.{}", number >> 8, number & 255), 0)])
        })
        .collect();
    let mut words = vec![0; limits.directory_bytes() / 8];
    write(&limits, Directory::default(), &records, &leaving(), &stations(), &mut words).unwrap();
    let published = read(&limits, &words).unwrap();
    assert!(published.services.iter().zip(&records).all(|(a, b)| a.vip == b.vip));
}

#[test]
fn an_inconsistent_directory_is_rejected() {
    let (limits, words) = written(&every_kind());
    for (offset, words_to_spoil) in [(0, 16), (limits.services_offset - limits.directory_offset, 8)]
    {
        let mut spoilt = words.clone();
        let at = (offset / 8) as usize;
        spoilt[at..at + words_to_spoil].fill(u64::MAX);
        assert!(read(&limits, &spoilt).is_none());
    }
}

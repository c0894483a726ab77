//! The Rust mirror of `abi.h` against the types in what clang built of it: names, offsets, sizes,
//! numbers.

use equipoise_packet::abi::{
    AccessChange, Backend, Capture, Captured, Counter, Cpu, DecapsulationBackend,
    DecapsulationConstants, Directory, Event, EventKind, FlowKey, Forward, Heavy, How, Mac,
    Opening, PendingShare, Pick, Port, QuicConfig, QuicServer, Range, Reverse, SKETCH_LAYOUT,
    Sender, Service, Source, SourceSet, StateHeader, Vip, quic_form, vip_kind,
};
use equipoise_packet::{Limits, OBJECT, Reason};
use libbpf_rs::HasSize;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, MemberAttr, Struct};

const LAYOUT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layout.bpf.o"));

fn types(object: &[u8]) -> Btf<'_> {
    Btf::from_raw("object", object).expect("the object has type information").expect("BTF")
}

/// Size, and each field's name and offset.
fn layout(btf: &Btf<'_>, name: &str) -> (usize, Vec<(String, usize)>) {
    let found = btf.type_by_name::<Struct<'_>>(name).unwrap_or_else(|| panic!("no struct {name}"));
    let fields = found.iter().map(|member| {
        let MemberAttr::Normal { offset } = member.attr else { panic!("a bit field in {name}") };
        let field = member.name.expect("a name").to_str().expect("ASCII");
        (field.to_string(), offset as usize / 8)
    });
    (found.size(), fields.collect())
}

fn named(fields: &[(&str, usize)]) -> Vec<(String, usize)> {
    fields.iter().map(|(name, offset)| (name.to_string(), *offset)).collect()
}

#[test]
fn every_struct_has_the_fields_of_its_mirror() {
    let btf = types(LAYOUT);
    let mirrors = [
        ("eqp_directory", Directory::LAYOUT),
        ("eqp_vip", Vip::LAYOUT),
        ("eqp_range", Range::LAYOUT),
        ("eqp_mac", Mac::LAYOUT),
        ("eqp_reverse", Reverse::LAYOUT),
        ("eqp_service", Service::LAYOUT),
        ("eqp_access_change", AccessChange::LAYOUT),
        ("eqp_quic_config", QuicConfig::LAYOUT),
        ("eqp_quic_server", QuicServer::LAYOUT),
        ("eqp_backend", Backend::LAYOUT),
        ("eqp_source", Source::LAYOUT),
        ("eqp_source_set", SourceSet::LAYOUT),
        ("eqp_port", Port::LAYOUT),
        ("eqp_state_header", StateHeader::LAYOUT),
        ("eqp_pending_share", PendingShare::LAYOUT),
        ("eqp_opening", Opening::LAYOUT),
        ("eqp_sender", Sender::LAYOUT),
        ("eqp_counter", Counter::LAYOUT),
        ("eqp_event", Event::LAYOUT),
        ("eqp_cpu", Cpu::LAYOUT),
        ("eqp_heavy", Heavy::LAYOUT),
        ("eqp_sketch", SKETCH_LAYOUT),
        ("eqp_capture", Capture::LAYOUT),
        ("eqp_captured", Captured::LAYOUT),
        ("eqp_decapsulation", DecapsulationConstants::LAYOUT),
        ("eqp_decapsulation_backend", DecapsulationBackend::LAYOUT),
    ];
    for (name, (size, fields)) in mirrors {
        assert_eq!(layout(&btf, name), (size, named(fields)), "{name}");
    }
}

#[test]
fn the_limits_are_all_of_the_constants() {
    let btf = types(OBJECT);
    let offsets: Vec<_> =
        Limits::FIELDS.iter().enumerate().map(|(index, name)| (*name, 4 * index)).collect();
    assert_eq!(layout(&btf, "eqp_limits"), (size_of::<Limits>(), named(&offsets)));
    let section = btf
        .type_by_name::<libbpf_rs::btf::types::DataSec<'_>>(".rodata")
        .expect("the program has constants");
    assert_eq!(section.size(), size_of::<Limits>(), "Program::load writes nothing else");
}

/// The values of an enumeration, except those with names that mark them as counts.
fn numbers(btf: &Btf<'_>, name: &str, prefix: &str) -> Vec<(String, i64)> {
    let found = btf.type_by_name::<Enum<'_>>(name).unwrap_or_else(|| panic!("no enum {name}"));
    found
        .iter()
        .filter_map(|value| {
            let name = value.name?.to_str()?;
            let short = name.strip_prefix(prefix)?;
            Some((short.to_lowercase(), value.value))
        })
        .collect()
}

#[test]
fn every_enumeration_has_the_numbers_of_its_mirror() {
    let btf = types(LAYOUT);
    let of = |values: &[(&str, i64)]| -> Vec<(String, i64)> {
        values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    };
    let kinds = [
        ("free", vip_kind::FREE.into()),
        ("exact", vip_kind::EXACT.into()),
        ("ranges", vip_kind::RANGES.into()),
        ("address", vip_kind::ADDRESS.into()),
        ("source", vip_kind::SOURCE.into()),
    ];
    assert_eq!(numbers(&btf, "eqp_vip_kind", "EQP_VIP_"), of(&kinds));
    let forward = [
        ("nat", Forward::Nat as i64),
        ("tunnel", Forward::Tunnel as i64),
        ("gue", Forward::Gue as i64),
        ("direct", Forward::DirectRouting as i64),
        ("full_nat", Forward::FullNat as i64),
    ];
    assert_eq!(numbers(&btf, "eqp_forward", "EQP_"), of(&forward));
    let key = [
        ("five_tuple", FlowKey::FiveTuple.number().into()),
        ("source_address", FlowKey::SourceAddress.number().into()),
        ("source_mac", FlowKey::SourceMac.number().into()),
        ("source_prefix", FlowKey::SourcePrefix(24).number().into()),
    ];
    assert_eq!(numbers(&btf, "eqp_key", "EQP_"), of(&key));
    let pick = [
        ("ring", Pick::Ring as i64),
        ("sequence", Pick::Sequence as i64),
        ("least", Pick::Least as i64),
        ("least_weighted", Pick::LeastWeighted as i64),
        ("expected_delay", Pick::ExpectedDelay as i64),
        ("never_queue", Pick::NeverQueue as i64),
        ("source_bucket", Pick::SourceBucket as i64),
    ];
    assert_eq!(numbers(&btf, "eqp_pick", "EQP_PICK_"), of(&pick));
    let form = [
        ("free", quic_form::FREE.into()),
        ("plaintext", quic_form::PLAINTEXT.into()),
        ("single_pass", quic_form::SINGLE_PASS.into()),
        ("four_pass", quic_form::FOUR_PASS.into()),
    ];
    assert_eq!(numbers(&btf, "eqp_quic_form", "EQP_QUIC_"), of(&form));
    let kind = [
        ("touch", EventKind::Touch as i64),
        ("fin", EventKind::Fin as i64),
        ("rst", EventKind::Rst as i64),
    ];
    assert_eq!(numbers(&btf, "eqp_event_kind", "EQP_"), of(&kind));
    let how = [
        ("ring", How::Ring as i64),
        ("pin", How::Pin as i64),
        ("pending", How::Pending as i64),
        ("turn", How::Turn as i64),
        ("fallback", How::Fallback as i64),
        ("fragment", How::Fragment as i64),
        ("connection_id", How::ConnectionId as i64),
    ];
    assert_eq!(numbers(&btf, "eqp_how", "EQP_BY_"), of(&how));
}

#[test]
fn every_reason_has_the_name_and_number_of_its_mirror() {
    let btf = types(LAYOUT);
    let (drops, notes) =
        (numbers(&btf, "eqp_reason", "EQP_DROP_"), numbers(&btf, "eqp_reason", "EQP_NOTE_"));
    let named = |drop: bool| -> Vec<(String, i64)> {
        let of_kind = Reason::ALL.iter().filter(|reason| reason.is_drop() == drop);
        of_kind.map(|reason| (reason.name().replace('-', "_"), *reason as i64)).collect()
    };
    assert_eq!(drops, named(true));
    assert_eq!(notes, named(false));
}

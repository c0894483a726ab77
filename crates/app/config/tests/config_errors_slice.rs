//! Messages about wrong `[[slice]]` tables.

mod common;

use common::said_among;

fn said(text: &str) -> String {
    said_among(&[], text)
}

/// A stream on line 1. The additional text begins on line 4.
fn stream(more: &str) -> String {
    format!("[[slice]]\nname = 'images'\nslices = 50\n{more}\n")
}

#[test]
fn a_valid_stream_loads_without_warnings_or_a_front_door() {
    for more in [
        "",
        "domain = 7\ninterfaces = ['eth0', '10.0.0.7']\npeers = 'w2.internal:7410'\nmulticast = 'off'\norder = 'strict'",
        "order = 'stateful'\ncheckpoint = {}",
        "order = 'stateful'\ncheckpoint = { every = '250ms', items = 10, folder = '/shared' }",
        "more = '<Domain/>'\n[slice.balancing]\nshare-max = 0\n[slice.workers]\nlease = '8s'",
        "[[slice]]\nname = 'other'\nslices = 1\ndomain = 1\nlease = '400ms'",
        "[[slice]]\nname = 'other'\nslices = 1\nitems = 'rt/items'\ncontrol = 'other'",
        "item-type = 'my_msgs::msg::dds_::DataItem_'\nreply-type = 'Reply'",
        "item-type = 'a::msg::dds_::B_'\nkey = 'of.id'\n\
         idl = ['module a { module msg { struct C { string id; };', 'struct B { C of; }; }; };']",
    ] {
        assert_eq!(said(&stream(more)), "", "{more}");
    }
}

#[test]
fn invalid_or_ineffective_stream_options_are_reported() {
    let rows: &[(&str, &str)] = &[
        (
            "slice = 3",
            "f:4:1: slice.images.slice: unknown option in this version; did you mean `slices`?",
        ),
        (
            "domain = 233",
            "f:4:10: slice.images.domain: 233 is too large; accepted: a whole number, 0 to 232",
        ),
        (
            "items = 'a b'",
            "slice.images.items: 'a b' is not a topic's name; accepted: 1 to 120 letters",
        ),
        (
            "item-type = 'a b'",
            "slice.images.item-type: 'a b' is not a type's name; accepted: 1 to 200 letters",
        ),
        #[cfg(not(feature = "dds-security"))]
        (
            "more = '<CycloneDDS><Domain><Security/></Domain></CycloneDDS>'",
            "f:4:8: slice.images.more: asks for DDS Security, which this equipoise was built without: nothing would be protected",
        ),
        (
            "order = 'strict'\ncheckpoint = {}",
            "f:5:14: slice.images.checkpoint: saves the state of slices, which workers export with `order = \"stateful\"` only; accepted: that order, or no `checkpoint`",
        ),
        ("order = 'stric'", "is none of them (did you mean \"strict\"?)"),
        ("interfaces = ['eth0', '']", "is not an interface; accepted: a name or address"),
        ("peers = 'a\\\"/>'", "is not a peer"),
        ("multicast = true", "slice.images.multicast: true is a boolean"),
        ("lease = 300", "has no unit: \"300s\" would be seconds"),
        (
            "more = 'domain.xml'",
            "is not a configuration of Cyclone DDS; accepted: XML that begins with `<`",
        ),
        (
            "[slice.balancing]\nstop = 0.5",
            "f:5:8: slice.images.balancing.stop: `stop` (0.5) is above `begin` (0.08); accepted: as large or smaller",
        ),
        ("[slice.workers]\nlease = '100ms'", "slice.images.workers.lease: '100ms' is too short"),
        ("[[slice]]\nname = 'images'\nslices = 1\ndomain = 1", "\"images\" is in use, on line 2"),
        (
            "[[slice]]\nname = 'other'\nslices = 1\ncontrol = 'other'",
            "slice.other.items: \"items\" is that of the stream on line 1, in the same domain",
        ),
        (
            "[[slice]]\nname = 'other'\nslices = 1\nitems = 'other'",
            "slice.other.control: \"equipoise/slice\" is that of the stream on line 1",
        ),
        (
            "[[slice]]\nname = 'other'\nslices = 1\nitems = 'x'\ncontrol = 'y'\ninterfaces = 'lo'",
            "f:9:14: slice.other.interfaces: differs from that of the stream on line 1, in the same domain",
        ),
        (
            "lease = '10s'",
            "warning: slice.images.lease: `lease` (10s) is longer than `workers.lease` and `workers.margin` (5100ms)",
        ),
        (
            "[cluster]\ncontrollers = 'c:1'\nstate = '/s'",
            "warning: slice.images: has no effect on a node of a cluster: slices are moved by its controllers",
        ),
    ];
    for (more, expected) in rows {
        let found = said(&stream(more));
        assert!(found.contains(expected), "{more}\n{found}\nlacks: {expected}");
    }
    let bare = said("[[slice]]");
    for option in ["name", "slices"] {
        assert!(bare.contains(&format!("slice[#1].{option}: missing")), "{bare}");
    }
}

#[test]
fn a_key_needs_an_idl_type_with_that_field() {
    let rows: &[(&str, &str)] = &[
        (
            "key = 'a.'",
            "slice.images.key: 'a.' is not a field; accepted: a member's name, or a path",
        ),
        (
            "key = 'id'",
            "f:4:7: slice.images.key: needs `idl`, which declares the type that `item-type` names",
        ),
        (
            "idl = 'struct A { long id; };'",
            "f:4:7: slice.images.idl: has no effect without `key`: accepted: `key = \"FIELD\"`",
        ),
        (
            "key = 'id'\nitem-type = 'A'\nidl = '/nowhere/a.idl'",
            "slice.images.idl: \"/nowhere/a.idl\" cannot be read: ",
        ),
        #[cfg(feature = "slice")]
        (
            "key = 'key'\nitem-type = 'A'\nidl = 'struct A { long id; };'",
            "slice.images.idl: `A` has no field `key`; it has id",
        ),
        #[cfg(feature = "slice")]
        (
            "key = 'id'\nidl = 'struct A { wstring id; };'",
            "slice.images.idl: line 1 of the IDL: `wstring` is not supported",
        ),
        #[cfg(feature = "slice")]
        (
            "key = 'id'\nidl = 'struct A { long id; };'",
            "slice.images.idl: the IDL declares no struct `dpslb::DataItem`; it has A",
        ),
    ];
    for (more, expected) in rows {
        let found = said(&stream(more));
        assert!(found.contains(expected), "{more}\n{found}\nlacks: {expected}");
    }
}

#[test]
fn a_relative_checkpoint_folder_is_rejected() {
    let shown = said(&stream("order = 'stateful'\ncheckpoint = { folder = 'states' }"));
    let wrong = "f:5:25: slice.images.checkpoint.folder: 'states' is not a folder; accepted: an absolute path";
    assert!(shown.starts_with(wrong), "{shown}");
}

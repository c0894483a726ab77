//! The slice level's options.

use equipoise_slice::Order;

use super::super::option::{Choices, Form, Kind, Opt, Table};
use super::super::slice::Multicast;
use super::{HOUR, NAME, ms, secs};

/// Largest number of slices of a stream: its record is one entry of the store.
const SLICES_MAX: u64 = 10_000;

pub(super) static SLICE: Table = Table {
    title: "[[slice]]",
    help: "The slice level: a stream of items over DDS, whose slices are spread over workers (`equipoise slice worker`). One table for each stream, on the controllers of a cluster or on a machine of its own; the elected one moves slices. docs/slice.md has the topics' types.",
    options: &[
        Opt::required(
            "name",
            Kind::Text(&NAME),
            "What operators, metrics and the store call the stream. Unique.",
        ),
        Opt::required(
            "slices",
            Kind::Count(1, SLICES_MAX),
            "Slices of the stream: items are of slice 0 to one less than this. Some tens for each worker; workers have to have the same.",
        ),
        Opt::default(
            "domain",
            Kind::Count(0, 232),
            "0",
            "The DDS domain. On Linux 0 to 101 are safe: the ports of 102 to 214 are among those that any socket may be given.",
        ),
        Opt::default("items", Kind::Text(&TOPIC), "\"items\"", "The topic of items."),
        Opt::default("replies", Kind::Text(&TOPIC), "\"replies\"", "The topic of replies."),
        Opt::default(
            "item-type",
            Kind::Text(&TYPE),
            "\"dpslb::DataItem\"",
            "The name of items' type; workers have to have the same. Of a name as ROS 2 makes them (`PACKAGE::msg::dds_::NAME_`) items have no key, and the name alone has to match, as ROS 2 does it.",
        ),
        Opt::default(
            "reply-type",
            Kind::Text(&TYPE),
            "\"dpslb::Reply\"",
            "The name of replies' type, likewise.",
        ),
        Opt::optional(
            "key",
            Kind::Text(&FIELD),
            "none",
            "Items are of the clients' own type, which `idl` declares and `item-type` names: this field of it says their slice, by a hash of its value. A number, an enum or a string; `header.frame_id` is a field of a struct within. Programs get the serialized sample. Workers have to have the same.",
        ),
        Opt::default(
            "idl",
            Kind::Texts(&IDL),
            "[]",
            "Files of IDL, or IDL itself, that declare `item-type`; each stands before those that need it, and `#include` is ignored. If they declare `reply-type`, too, programs answer with a serialized sample of that. A type's name as ROS 2 makes it is that of its message.",
        ),
        Opt::default(
            "control",
            Kind::Text(&TOPIC),
            "\"equipoise/slice\"",
            "Of the topics between workers and controllers, what comes before `/up` and `/down`. Streams of one domain have different ones.",
        ),
        Opt::default(
            "order",
            Kind::Choice(&ORDER),
            "\"free\"",
            "In which order items of one writer in one slice are done while the slice moves; workers have to have the same.",
        ),
        Opt::default(
            "standby",
            Kind::Flag,
            "false",
            "Workers stand by for each other's slices: what a lost one had in hand is done though its publisher does not publish it again. Each item then goes to two workers.",
        ),
        Opt::default(
            "interfaces",
            Kind::Texts(&INTERFACE),
            "[]",
            "Network interfaces that DDS uses, by name or address. None: Cyclone DDS chooses one.",
        ),
        Opt::default(
            "peers",
            Kind::Texts(&PEER),
            "[]",
            "Hosts that are asked for participants, where multicast does not reach them.",
        ),
        Opt::default(
            "multicast",
            Kind::Choice(&MULTICAST),
            "\"full\"",
            "What multicast is used for.",
        ),
        Opt::default(
            "lease",
            Kind::Duration(ms(100), HOUR),
            "\"5s\"",
            "A participant of DDS that is silent for this long is taken for dead. A shorter pause loses nothing; until then a participant that has died may hold up writers.",
        ),
        Opt::optional(
            "more",
            Kind::Text(&MORE),
            "none",
            "More configuration of Cyclone DDS. It comes last and wins; DDS Security is configured by it, and is an error in an equipoise that was built without the feature `dds-security`.",
        ),
        Opt::default("balancing", Kind::Table(&BALANCING), "{}", BALANCING.help),
        Opt::default("workers", Kind::Table(&WORKERS), "{}", WORKERS.help),
    ],
};

static BALANCING: Table = Table {
    title: "[slice.balancing]",
    help: "How eagerly slices are moved. `equipoise slice plan` shows what would be moved now.",
    options: &[
        Opt::default(
            "every",
            Kind::Duration(ms(100), HOUR),
            "\"500ms\"",
            "From one balancing round to the next.",
        ),
        Opt::default(
            "smoothing",
            Kind::Duration(ms(100), HOUR),
            "\"1s\"",
            "What was measured this long ago counts by 1/e. Of slices with few items, what came longer ago counts, too.",
        ),
        Opt::default(
            "queue-horizon",
            Kind::Duration(ms(10), HOUR),
            "\"10s\"",
            "Items that wait count as load as if they came within this time: queues are evened out as loads are.",
        ),
        Opt::default(
            "stuck",
            Kind::Duration(secs(1), HOUR),
            "\"10s\"",
            "A worker whose program has had items for this long, and for four times what items take, and has acknowledged none is stuck: it gets no slices, and its own go to others, unless `order` keeps them.",
        ),
        Opt::default(
            "begin",
            Kind::Number(0.0, 100.0),
            "0.08",
            "Balancing begins when the most loaded worker has this much over the mean, as a share of the mean.",
        ),
        Opt::default(
            "stop",
            Kind::Number(0.0, 100.0),
            "0.02",
            "And goes on until it has no more than this; not above `begin`.",
        ),
        Opt::default(
            "share-max",
            Kind::Share,
            "0.25",
            "Of the whole load, what one round moves at most. 0: slices are moved only where operators say so, and off workers that leave or are stuck.",
        ),
        Opt::default("batch-max", Kind::Count(1, SLICES_MAX), "512", "Slices in one handover."),
        Opt::default(
            "first-batch-max",
            Kind::Count(1, SLICES_MAX),
            "8",
            "Slices in the first handover to a worker that has none.",
        ),
        Opt::default(
            "cool-down",
            Kind::Duration(secs(0), HOUR),
            "\"2s\"",
            "A slice that was moved stays this long.",
        ),
        Opt::default(
            "hot",
            Kind::Number(0.01, 100.0),
            "0.8",
            "A slice is reported as hot with this share of what one worker should have.",
        ),
    ],
};

static WORKERS: Table = Table {
    title: "[slice.workers]",
    help: "When a worker counts as lost, and what follows. Workers have to have the same `lease`.",
    options: &[
        Opt::default(
            "lease",
            Kind::Duration(ms(150), HOUR),
            "\"5s\"",
            "A worker that no controller has heard for this long does nothing more. A shorter pause of a worker or the controller loses nothing; the slices of a machine that is cut off wait for this and `margin`. A worker's process that ends is noticed at once, by its connection.",
        ),
        Opt::default(
            "margin",
            Kind::Duration(ms(10), HOUR),
            "\"100ms\"",
            "This much later, at the earliest, its slices go to others.",
        ),
        Opt::default(
            "connections",
            Kind::Flag,
            "true",
            "Workers keep a TCP connection to each controller, so that the end of a worker's process is noticed within milliseconds. Without it, or where it cannot be opened, it is noticed by the lease.",
        ),
        Opt::default(
            "connection-port",
            Kind::Count(0, 65_535),
            "0",
            "The port of these connections, on the stream's `interfaces`. 0: any that is free.",
        ),
        Opt::default(
            "recovery",
            Kind::Duration(ms(500), HOUR),
            "\"2s\"",
            "For this long the successor takes what clients publish again. Clients publish again several times within it.",
        ),
        Opt::default(
            "patience",
            Kind::Duration(ms(100), HOUR),
            "\"5s\"",
            "A handover is called off when the slices have not changed their owner after this.",
        ),
        Opt::default(
            "controller-lease",
            Kind::Duration(secs(1), HOUR),
            "\"3s\"",
            "A leading controller that is lost is replaced after this. Until then workers stop, and what they have waits.",
        ),
    ],
};

/// `[[slice]] order`.
pub(in super::super) static ORDER: Choices<Order> = Choices(&[
    (
        "free",
        Order::Free,
        "the new owner starts at once, while the old one may still be at earlier items",
    ),
    (
        "strict",
        Order::Strict,
        "the new owner starts a slice when the old one has nothing left of it",
    ),
    (
        "stateful",
        Order::Stateful,
        "strict, and the state of a slice moves with it: programs export and take it over by jobs of their own kinds",
    ),
]);

/// `[[slice]] multicast`.
pub(in super::super) static MULTICAST: Choices<Multicast> = Choices(&[
    ("full", Multicast::Full, "discovery and data"),
    ("discovery", Multicast::Discovery, "discovery only"),
    ("off", Multicast::Off, "nothing: `peers` say who there is"),
]);

pub(in super::super) static TOPIC: Form = Form {
    noun: "a topic's name",
    accepted: "1 to 120 letters, digits, `_` and `/`, the first a letter, such as \"rt/items\"",
    fits: |text| {
        (1..=120).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_/".contains(&b))
    },
};

pub(in super::super) static TYPE: Form = Form {
    noun: "a type's name",
    accepted: "1 to 200 letters, digits and `_`, with `::` between modules, such as \"dpslb::DataItem\" or \"my_msgs::msg::dds_::Item_\"",
    fits: |text| {
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic())
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        text.len() <= 200 && text.split("::").all(word)
    },
};

static FIELD: Form = Form {
    noun: "a field",
    accepted: "a member's name, or a path with `.` such as \"header.frame_id\"",
    fits: |text| {
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        text.len() <= 200 && text.split('.').all(word)
    },
};

static IDL: Form = Form {
    noun: "IDL",
    accepted: "a file's path, or a text with declarations such as \"struct Item { string key; };\"",
    fits: |text| !text.trim().is_empty() && !text.contains('\0'),
};

pub(in super::super) static INTERFACE: Form = Form {
    noun: "an interface",
    accepted: "a name or address, such as \"eth0\" or \"10.0.0.7\"",
    fits: word,
};

pub(in super::super) static PEER: Form = Form {
    noun: "a peer",
    accepted: "HOST or HOST:PORT, such as \"10.0.0.8\" or \"w2.internal\"",
    fits: word,
};

pub(in super::super) static MORE: Form = Form {
    noun: "a configuration of Cyclone DDS",
    accepted: "XML that begins with `<`, or \"file://\" and a path",
    fits: |text| !text.contains('\0') && (text.starts_with('<') || text.starts_with("file:///")),
};

fn word(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:[]%".contains(&b))
}

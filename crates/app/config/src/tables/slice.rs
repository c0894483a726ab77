//! The slice level's options.

use std::time::Duration;

use equipoise_slice::Order;

use super::planning::FOLDER;
use super::{HOUR, NAME, ms, secs};
use crate::key::{
    Count, In, OneOf, Text, Texts, choice, count, duration, flag, number, options, share, table,
    text, texts,
};
use crate::option::{Choice, Choices, Form};

/// Largest number of slices of a stream: its record is one entry of the store.
const SLICES_MAX: u64 = 10_000;

options! {
    Slice: "[[slice]]",
    "The slice level: a stream of items over DDS, whose slices are spread over workers (`equipoise slice \
     worker`). One table for each stream, on the controllers of a cluster or on a single machine; the elected \
     controller moves slices. docs/slice-clients.md has the topics' types.";

    NAME: Option<Text> = text("name", &NAME).required(
        "The stream's name for operators, metrics and the store. Unique.",
    ),
    SLICES: Option<Count<u32>> = count("slices", 1, SLICES_MAX).required(
        "Number of slices: items are of slice 0 to one less than this. Some tens for each worker. Workers must \
         have the same number.",
    ),
    DOMAIN: Count<u32> = count("domain", 0, 232).default(
        0,
        "The DDS domain. On Linux 0 to 101 are safe: the ports of 102 to 214 are among those that the kernel may \
         assign to any socket.",
    ),
    ITEMS: Text = text("items", &TOPIC).default("items", "The topic of items."),
    REPLIES: Text = text("replies", &TOPIC).default("replies", "The topic of replies."),
    ITEM_TYPE: Text = text("item-type", &TYPE).default(
        "dpslb::DataItem",
        "The name of the items' type. Workers must have the same. If it is a name of ROS 2 \
         (`PACKAGE::msg::dds_::NAME_`), items have no key, and only the name must match, as in ROS 2.",
    ),
    REPLY_TYPE: Text = text("reply-type", &TYPE).default(
        "dpslb::Reply",
        "The name of the replies' type, with the same rules.",
    ),
    KEY: Option<Text> = text("key", &FIELD).optional(
        "none",
        "Items have the clients' own type, which `idl` declares and `item-type` names; a hash of this field's \
         value gives their slice. A number, an enum or a string; `header.frame_id` is a field of an inner struct. \
         Programs get the serialized sample. Workers must have the same.",
    ),
    IDL: Texts = texts("idl", &IDL).default(
        &[],
        "Files of IDL, or IDL itself, that declare `item-type`. Each stands before those that need it, and \
         `#include` is ignored. If they declare `reply-type`, too, programs answer with a serialized sample of it. \
         The name of a ROS 2 type stands for its message.",
    ),
    CONTROL: Text = text("control", &TOPIC).default(
        "equipoise/slice",
        "Prefix of the topics between workers and controllers, before `/up` and `/down`. Streams of one domain \
         must have different ones.",
    ),
    ORDER: OneOf<Order> = choice("order").default(
        &Order::Free,
        "Order in which items of one writer in one slice are processed while the slice moves. Workers must have \
         the same.",
    ),
    STANDBY: bool = flag("standby").default(
        false,
        "Workers stand by for each other's slices: items that a lost worker had in hand are processed although \
         their publisher does not publish them again. Each item then goes to two workers.",
    ),
    CHECKPOINT: Option<In<Checkpoint>> = table("checkpoint").unless("no checkpoints"),
    INTERFACES: Texts = texts("interfaces", &INTERFACE).default(
        &[],
        "Network interfaces that DDS uses, by name or address. None: Cyclone DDS chooses one.",
    ),
    PEERS: Texts = texts("peers", &PEER).default(
        &[],
        "Hosts that are asked for participants, for networks without multicast.",
    ),
    MULTICAST: OneOf<Multicast> = choice("multicast").default(
        &Multicast::Full,
        "Use of multicast.",
    ),
    LEASE: Duration = duration("lease", ms(100), HOUR).default(
        secs(5),
        "Time without a message after which a participant of DDS is treated as dead. A shorter pause loses \
         nothing; until then a dead participant may block writers.",
    ),
    MORE: Option<Text> = text("more", &MORE).optional(
        "none",
        "Further configuration of Cyclone DDS. It is applied last. It configures DDS Security, which is an error \
         in an equipoise without the feature `dds-security`.",
    ),
    BALANCING: In<Balancing> = table("balancing").default(),
    WORKERS: In<Workers> = table("workers").default(),
}

options! {
    Checkpoint: "[slice.checkpoint]",
    "The state of each slice is saved at another worker, so that it survives the loss of its own: `checkpoint = {}` or `checkpoint = { every = \"1s\", items = 1000, folder = \"/shared/checkpoints\" }`. With `order = \"stateful\"` only. Workers have to have the same.";

    EVERY: Duration = duration("every", ms(10), HOUR).default(
        secs(1),
        "Interval between two checkpoints of a slice that processes items.",
    ),
    ITEMS: Count<u64> = count("items", 1, 1_000_000).default(
        1000,
        "A slice that has processed this many items since its last checkpoint has the next one at once.",
    ),
    FOLDER: Option<Text> = text("folder", &FOLDER).optional(
        "no folder",
        "An existing folder in which workers also store the checkpoints, so that states survive the end of all \
         workers. On several machines, one that they share. A folder that fails stops nothing.",
    ),
}

options! {
    Balancing: "[slice.balancing]",
    "Rules for moving slices. `equipoise slice plan` shows the moves that would be made now.";

    EVERY: Duration = duration("every", ms(100), HOUR).default(
        ms(500),
        "Time from one balancing round to the next.",
    ),
    SMOOTHING: Duration = duration("smoothing", ms(100), HOUR).default(
        secs(1),
        "Time constant: a measurement of this age counts by 1/e. For slices with few items, older measurements \
         count, too.",
    ),
    QUEUE_HORIZON: Duration = duration("queue-horizon", ms(10), HOUR).default(
        secs(10),
        "Items that waited for all of this time count as load, as if they arrived within it. A queue that its worker \
         works off sooner, as after a pause, moves no slice.",
    ),
    STUCK: Duration = duration("stuck", secs(1), HOUR).default(
        secs(10),
        "Time after which a worker is stuck if its program has had items and acknowledged none, at least four \
         times the time that items take. It gets no slices, and its own move to others, unless `order` keeps them.",
    ),
    BEGIN: f64 = number("begin", 0.0, 100.0).default(
        0.08,
        "Balancing begins when the most loaded worker has this much over the mean, as a share of the mean.",
    ),
    STOP: f64 = number("stop", 0.0, 100.0).default(
        0.02,
        "Balancing stops when the most loaded worker has no more than this over the mean; not above `begin`.",
    ),
    SHARE_MAX: f64 = share("share-max").default(
        0.25,
        "Largest share of the whole load that one round moves. 0: slices move only by request of operators, and \
         off workers that leave or are stuck.",
    ),
    BATCH_MAX: Count<usize> = count("batch-max", 1, SLICES_MAX).default(
        512,
        "Largest number of slices in one handover.",
    ),
    FIRST_BATCH_MAX: Count<usize> = count("first-batch-max", 1, SLICES_MAX).default(
        8,
        "Largest number of slices in the first handover to a worker without slices.",
    ),
    COOL_DOWN: Duration = duration("cool-down", secs(0), HOUR).default(
        secs(2),
        "Time for which a moved slice stays.",
    ),
    HOT: f64 = number("hot", 0.01, 100.0).default(
        0.8,
        "A slice with this share of what one worker should have is reported as hot.",
    ),
}

options! {
    Workers: "[slice.workers]", "Rules for lost workers. Workers must have the same `lease`.";

    LEASE: Duration = duration("lease", ms(150), HOUR).default(
        secs(5),
        "Time after which a worker stops processing if no controller receives its messages. A shorter pause of a \
         worker or the controller loses nothing; the slices of a machine that is cut off wait for this time and \
         `margin`. The end of a worker's process is noticed at once, by its connection.",
    ),
    MARGIN: Duration = duration("margin", ms(10), HOUR).default(
        ms(100),
        "Additional time until its slices go to others, at least.",
    ),
    CONNECTIONS: bool = flag("connections").default(
        true,
        "Workers keep a TCP connection to each controller, so that the end of a worker's process is noticed within \
         milliseconds. Without it, or if it cannot be opened, the lease notices it.",
    ),
    CONNECTION_PORT: Count<u16> = count("connection-port", 0, 65_535).default(
        0,
        "The port of these connections, on the stream's `interfaces`. 0: any free port.",
    ),
    RECOVERY: Duration = duration("recovery", ms(500), HOUR).default(
        secs(2),
        "Time for which the new owner of a lost worker's slices accepts items that clients publish again. Clients \
         publish again several times within it. The slices do not move before it is over.",
    ),
    PATIENCE: Duration = duration("patience", ms(100), HOUR).default(
        secs(5),
        "A handover is called off if the slices have not changed their owner after this time.",
    ),
    CONTROLLER_LEASE: Duration = duration("controller-lease", secs(1), HOUR).default(
        secs(3),
        "Time after which a lost leading controller is replaced. Until then workers stop, and their items wait.",
    ),
}

/// `[[slice]] order`.
impl Choice for Order {
    const CHOICES: &'static Choices<Order> = &Choices(&[
        (
            "free",
            Order::Free,
            "the new owner starts at once, while the old one may still process earlier items",
        ),
        (
            "strict",
            Order::Strict,
            "the new owner starts a slice when the old one has no items of it left",
        ),
        (
            "stateful",
            Order::Stateful,
            "strict, and the state of a slice moves with it: programs export and import it by jobs of their own kinds",
        ),
    ]);
}

/// Use of multicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multicast {
    /// Discovery and data.
    #[default]
    Full,
    /// Discovery only.
    Discovery,
    /// Nothing.
    Off,
}

/// `[[slice]] multicast`.
impl Choice for Multicast {
    const CHOICES: &'static Choices<Multicast> = &Choices(&[
        ("full", Multicast::Full, "discovery and data"),
        ("discovery", Multicast::Discovery, "discovery only"),
        ("off", Multicast::Off, "none: `peers` lists the hosts"),
    ]);
}

pub(crate) static TOPIC: Form = Form {
    noun: "a topic's name",
    accepted: "1 to 120 letters, digits, `_` and `/`, the first a letter, such as \"rt/items\"",
    fits: |text| {
        (1..=120).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_/".contains(&b))
    },
};

pub(crate) static TYPE: Form = Form {
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

pub(crate) static INTERFACE: Form = Form {
    noun: "an interface",
    accepted: "a name or address, such as \"eth0\" or \"10.0.0.7\"",
    fits: word,
};

pub(crate) static PEER: Form = Form {
    noun: "a peer",
    accepted: "HOST or HOST:PORT, such as \"10.0.0.8\" or \"w2.internal\"",
    fits: word,
};

pub(crate) static MORE: Form = Form {
    noun: "a configuration of Cyclone DDS",
    accepted: "XML that begins with `<`, or \"file://\" and a path",
    fits: |text| !text.contains('\0') && (text.starts_with('<') || text.starts_with("file:///")),
};

fn word(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:[]%".contains(&b))
}

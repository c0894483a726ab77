//! Options of the load model, the controller and elastic pools.

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::{LinkSpeed, TimeOfDay, UtcOffset, Weekday, Zone};
use super::driver::{EXEC, PROCESS, WEBHOOK};
use super::packet::INTERFACE;
use super::{DAY, NAME, ms, secs};

/// Largest number of backends of an elastic pool.
const ELASTIC_MAX: u64 = 10_000;

pub(super) static LOAD: Table = Table {
    title: "[load]",
    help: "How a machine's load is made of what it uses, and how often. L1 is the mean of network, CPU and memory, in per cent, each counted as often as said here; L2 is the same without the network. A machine whose link speed is unknown has no network in either. Shares of names and weights of pools follow the network and CPU that requests use; memory does not leave with requests and moves neither.",
    options: &[
        Opt::default("net", Kind::Number(0.0, 1000.0), "2.0", "How much the network counts."),
        Opt::default("cpu", Kind::Number(0.0, 1000.0), "1.0", "How much CPU counts."),
        Opt::default("memory", Kind::Number(0.0, 1000.0), "0.5", "How much memory counts."),
        Opt::default(
            "overload-ratio",
            Kind::Number(1.0, 1000.0),
            "1.25",
            "A node is overloaded when its L2 is more than this many times the lowest.",
        ),
        Opt::default(
            "admit",
            Kind::Number(0.01, 1000.0),
            "1000.0",
            "Requests are let in for this part of the CPU of all nodes with a [[dispatch]] table together. What is asked beyond it is refused with 503, computing requests first, light ones last. 1000: nothing is refused. 0.95 suits nodes that do nothing else: what other programs take of their CPU counts, too.",
        ),
        Opt::default(
            "capacity-max",
            Kind::Number(0.01, 8192.0),
            "8192.0",
            "Cores that a node counts for, at most, whatever it reports. The leader's file counts. Set it to the largest machine's: a node that reports more than it has takes clients from the others.",
        ),
        Opt::default(
            "period",
            Kind::Duration(ms(100), secs(60)),
            "\"1s\"",
            "From one sample and plan to the next. Changing it takes a restart.",
        ),
        Opt::default(
            "links",
            Kind::Tables(&LINK),
            "[]",
            "Speeds of links that the kernel does not know, or knows wrongly.",
        ),
    ],
};

static LINK: Table = Table {
    title: "[[load.links]]",
    help: "What a network interface can carry. Without this table interfaces with a device count, by the speed that the kernel says (`/sys/class/net/NAME/speed`); what it does not say (virtual machines, often) is no signal. One that is listed here counts whatever it is, and by this speed.",
    options: &[
        Opt::required("interface", Kind::Text(&INTERFACE), "Its name. Unique."),
        Opt::required(
            "speed",
            Kind::Text(&SPEED),
            "Each way; where a provider allows less than the link carries, what it allows.",
        ),
    ],
};

static SPEED: Form = Form {
    noun: "a link's speed",
    accepted: "a whole number and a unit (Kbit/s, Mbit/s, Gbit/s, Tbit/s), 1Kbit/s to 100Tbit/s, such as \"2500Mbit/s\"",
    fits: reads_as::<LinkSpeed>,
};

pub(super) static CONTROLLER: Table = Table {
    title: "[controller]",
    help: "The controller plans weights by load and the size of elastic pools. It runs in this process as soon as a pool asks for either, and on the controllers of a cluster; if it is lost, everything goes on as it was planned last.",
    options: &[Opt::optional(
        "state",
        Kind::Text(&FOLDER),
        "`$STATE_DIRECTORY`, or `/var/lib/equipoise` for root, or `$XDG_STATE_HOME/equipoise` for others",
        "Folder of the file that keeps the last plan and what operators said of it. Changing it takes a restart.",
    )],
};

pub(super) static ELASTIC: Table = Table {
    title: "[pool.elastic]",
    help: "How a pool grows and shrinks by itself. `equipoise plan` shows what is planned, and why. Without `target-concurrency` or `target-requests` the pool's `concurrency` is \"learnt\" unless it states another.",
    options: &[
        Opt::default(
            "declared",
            Kind::Choice(&DECLARED),
            "\"here\"",
            "Which file has the options of this table. \"controllers\" in a controller's file: this table is for the nodes, and the controller itself makes no backends. In a node's file: the controllers' table holds, and this one states nothing else but `start-wait`.",
        ),
        Opt::default(
            "min",
            Kind::Count(0, ELASTIC_MAX),
            "1",
            "Backends at least. With 0 the last one leaves when no request came for `in-cool-down`; the next request waits until one serves.",
        ),
        Opt::optional(
            "max",
            Kind::Count(1, ELASTIC_MAX),
            "that of the controllers; in the file that declares the pool it is required",
            "Backends at most; one more for a moment when one is replaced by a faster one.",
        ),
        Opt::default(
            "schedule",
            Kind::Tables(&SCHEDULE),
            "[]",
            "Hours of the week in which there are more backends at least than `min`. Of hours that overlap, the largest counts.",
        ),
        Opt::default(
            "target",
            Kind::Share,
            "0.8",
            "The pool grows when requests in flight and queued are more than this share of the sum of its backends' concurrency limits; above 0. A learnt limit counts as the number in flight at which its backend serves most.",
        ),
        Opt::optional(
            "target-concurrency",
            Kind::Number(0.01, 1_000_000.0),
            "`target` counts",
            "Requests in flight and queued for each backend, in the place of `target`; for a size, times its `speed`.",
        ),
        Opt::optional(
            "target-requests",
            Kind::Number(0.01, 1e9),
            "`target` counts",
            "Requests a second for each backend, in the place of `target`; for a size, times its `speed`.",
        ),
        Opt::default(
            "out-cool-down",
            Kind::Duration(secs(0), DAY),
            "\"15s\"",
            "From a step out to the next. While a queue stands and no backend is coming, the pool grows without waiting for it.",
        ),
        Opt::default(
            "in-cool-down",
            Kind::Duration(secs(0), DAY),
            "\"2m\"",
            "How long a smaller pool must have been enough before backends leave, and from any step to a step in.",
        ),
        Opt::default(
            "warm-up",
            Kind::Duration(secs(0), DAY),
            "\"10s\"",
            "Age at which a backend is no longer new. The pool does not shrink while one is new.",
        ),
        Opt::default(
            "growth-max",
            Kind::Number(1.01, 100.0),
            "2.0",
            "The most by which one step out multiplies the pool's capacity.",
        ),
        Opt::default(
            "scale-in-rate",
            Kind::Share,
            "0.25",
            "The share of the backends that leave in one step at most; one may always leave. Above 0.",
        ),
        Opt::default(
            "start-wait",
            Kind::Duration(secs(0), secs(3600)),
            "\"30s\"",
            "How long a request waits while the pool has no backend because one is being made; then 503. `queue` of the pool bounds how many wait. 0s: refused at once.",
        ),
        Opt::default(
            "mode",
            Kind::Choice(&MODE),
            "\"auto\"",
            "Who decides, until `equipoise plan pin`, `pause` or `resume` says otherwise.",
        ),
        Opt::default(
            "parallel",
            Kind::Count(1, 256),
            "4",
            "Backends that are added at the same time, at most.",
        ),
        Opt::default(
            "drain-timeout",
            Kind::Duration(secs(0), DAY),
            "\"1m\"",
            "A backend that leaves is removed after this, whatever it still has; sooner when it has nothing left, unless a VIP or a name leads \
             clients to it, of whom nothing is known here.",
        ),
        Opt::optional("process", Kind::Table(&PROCESS), "another table says", PROCESS.help),
        Opt::optional("exec", Kind::Table(&EXEC), "another table says", EXEC.help),
        Opt::optional("webhook", Kind::Table(&WEBHOOK), "another table says", WEBHOOK.help),
        Opt::default(
            "sizes",
            Kind::Tables(&SIZE),
            "[]",
            "Kinds of backends that can be had; empty: all are alike.",
        ),
    ],
};

static SCHEDULE: Table = Table {
    title: "[[pool.elastic.schedule]]",
    help: "Hours in which a pool has more backends at least, so that they serve before the load comes. It grows beyond that by its load, as ever. After the hours it shrinks as after a load: when fewer have been enough for all of `in-cool-down`. In a cluster the leader's file and clock count.",
    options: &[
        Opt::optional("days", Kind::Texts(&WEEKDAY), "every day", "Days on which the hours begin."),
        Opt::required(
            "from",
            Kind::Text(&TIME_OF_DAY),
            "When they begin. State it earlier than the load by the time that a backend takes to serve.",
        ),
        Opt::required(
            "to",
            Kind::Text(&TIME_OF_DAY),
            "When they end; on the next day, if that is not later than `from`.",
        ),
        Opt::optional(
            "zone",
            Kind::Text(&ZONE),
            "`utc-offset`",
            "Time zone of `from` and `to`, with its daylight-saving time by the machine's tzdata. A reload reads that anew.",
        ),
        Opt::default(
            "utc-offset",
            Kind::Text(&UTC_OFFSET),
            "\"+00:00\"",
            "How far the clock of `from` and `to` is ahead of UTC, all year. Not beside `zone`.",
        ),
        Opt::required(
            "min",
            Kind::Count(1, ELASTIC_MAX),
            "Backends at least, up to `max`. One that is less than the pool's `min` has no effect.",
        ),
    ],
};

static WEEKDAY: Form = Form {
    noun: "a day of the week",
    accepted: "\"mon\", \"tue\", \"wed\", \"thu\", \"fri\", \"sat\" or \"sun\"",
    fits: reads_as::<Weekday>,
};

static TIME_OF_DAY: Form = Form {
    noun: "a time of the day",
    accepted: "hours and minutes of two digits each, \"00:00\" to \"24:00\", such as \"08:30\"",
    fits: reads_as::<TimeOfDay>,
};

static ZONE: Form = Form {
    noun: "a time zone that this machine knows",
    accepted: "a name of the IANA time zone database, such as \"Europe/Berlin\" or \"UTC\"; `timedatectl list-timezones` lists them. They are in /usr/share/zoneinfo, of the package tzdata",
    fits: reads_as::<Zone>,
};

static UTC_OFFSET: Form = Form {
    noun: "an offset from UTC",
    accepted: "a sign, hours and minutes, \"-12:00\" to \"+14:00\", such as \"+02:00\"",
    fits: reads_as::<UtcOffset>,
};

static SIZE: Table = Table {
    title: "[[pool.elastic.sizes]]",
    help: "A kind of backend. Which is added is chosen by what it does for what it costs.",
    options: &[
        Opt::required(
            "name",
            Kind::Text(&NAME),
            "What the driver knows it by. Unique in its pool.",
        ),
        Opt::default(
            "speed",
            Kind::Number(0.001, 1_000_000.0),
            "1.0",
            "Its concurrency limit beside those of the others, until its limit is known. A `concurrency` that is a number is multiplied by it.",
        ),
        Opt::default(
            "price",
            Kind::Number(0.001, 1_000_000.0),
            "1.0",
            "What it costs, in any unit common to the sizes.",
        ),
        Opt::default(
            "cpus",
            Kind::Number(0.0, 4096.0),
            "0.0",
            "Processes: cores that one of this size may use, by a control group; needs root. 0: no limit.",
        ),
        Opt::optional(
            "memory",
            Kind::Size(1 << 20, 1 << 50),
            "no limit",
            "Processes: memory that one of this size may use, by a control group; needs root.",
        ),
    ],
};

/// `[[pool]] weights`: whether the controller plans them by load.
pub(in super::super) static WEIGHTS: Choices<bool> = Choices(&[
    ("configured", false, "as stated, or as an operator sets them"),
    (
        "load",
        true,
        "planned each period: what is stated is where they begin. A backend's load is that of its machine where an agent reports, or else its requests in flight beside the others'",
    ),
]);

/// `[pool.elastic] declared`: whether the controllers' files declare the pool.
pub(in super::super) static DECLARED: Choices<bool> = Choices(&[
    ("here", false, "this file"),
    ("controllers", true, "the controllers' files, for all nodes of the cluster"),
]);

/// `[pool.elastic] mode`: whether scaling is paused.
pub(in super::super) static MODE: Choices<bool> = Choices(&[
    ("auto", false, "the planner decides"),
    ("paused", true, "the planner says what it would do, and nothing is done"),
]);

pub(super) static FOLDER: Form = Form {
    noun: "a folder",
    accepted: "an absolute path, such as \"/var/lib/equipoise\"",
    fits: |text| text.starts_with('/') && text.len() <= 4000 && !text.contains('\0'),
};

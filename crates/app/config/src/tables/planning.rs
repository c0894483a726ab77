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
    help: "The measure of a machine's load, and its period. L1 is the weighted mean of network, CPU and memory, in per \
           cent; L2 is the same without the network. A machine whose link speed is unknown has no network in either. \
           Shares of names and weights of pools follow the network and CPU that requests use; memory does not leave \
           with requests and moves neither.",
    options: &[
        Opt::default("net", Kind::Number(0.0, 1000.0), "2.0", "Weight of the network."),
        Opt::default("cpu", Kind::Number(0.0, 1000.0), "1.0", "Weight of CPU."),
        Opt::default("memory", Kind::Number(0.0, 1000.0), "0.5", "Weight of memory."),
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
            "Requests are accepted for this part of the CPU of all nodes with a [[dispatch]] table together. Requests \
             beyond it are refused with 503, computing requests first, light ones last. 1000: nothing is refused. 0.95 \
             suits nodes that do nothing else: the CPU that other programs use counts, too.",
        ),
        Opt::default(
            "capacity-max",
            Kind::Number(0.01, 8192.0),
            "8192.0",
            "Largest number of cores that a node counts for, independent of its reports. The leader's file counts. Set \
             it to that of the largest machine: a node that reports more than it has takes clients from the others.",
        ),
        Opt::default(
            "period",
            Kind::Duration(ms(100), secs(60)),
            "\"1s\"",
            "Time from one sample and plan to the next. A change needs a restart.",
        ),
        Opt::default(
            "links",
            Kind::Tables(&LINK),
            "[]",
            "Speeds of links that the kernel does not know, or reports wrongly.",
        ),
    ],
};

static LINK: Table = Table {
    title: "[[load.links]]",
    help: "Speed of a network interface. Without this table, interfaces with a device count, with the speed that the \
           kernel reports (`/sys/class/net/NAME/speed`); an interface without a reported speed (as on many virtual \
           machines) is no signal. An interface that is listed here always counts, with this speed.",
    options: &[
        Opt::required("interface", Kind::Text(&INTERFACE), "Its name. Unique."),
        Opt::required(
            "speed",
            Kind::Text(&SPEED),
            "Speed in each direction. If a provider allows less than the link carries, state the allowed speed.",
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
    help: "The controller plans weights by load and the size of elastic pools. It runs in this process if a pool needs \
           either, and on the controllers of a cluster. If it is lost, the last plan stays in force.",
    options: &[Opt::optional(
        "state",
        Kind::Text(&FOLDER),
        "`$STATE_DIRECTORY`, or `/var/lib/equipoise` for root, or `$XDG_STATE_HOME/equipoise` for others",
        "Folder of the file that keeps the last plan and the settings of operators. A change needs a restart.",
    )],
};

pub(super) static ELASTIC: Table = Table {
    title: "[pool.elastic]",
    help: "How a pool grows and shrinks by itself. `equipoise plan` shows the plan and its reasons. Without \
           `target-concurrency` or `target-requests` the pool's `concurrency` is \"learnt\" unless it is set.",
    options: &[
        Opt::default(
            "declared",
            Kind::Choice(&DECLARED),
            "\"here\"",
            "The file that has the options of this table. \"controllers\" in a controller's file: this table is for \
             the nodes, and the controller itself creates no backends. \"controllers\" in a node's file: the \
             controllers' table applies, and this one may have only `start-wait`.",
        ),
        Opt::default(
            "min",
            Kind::Count(0, ELASTIC_MAX),
            "1",
            "Smallest number of backends. With 0, the last one is removed when no request has arrived for \
             `in-cool-down`; the next request waits until a new one serves.",
        ),
        Opt::optional(
            "max",
            Kind::Count(1, ELASTIC_MAX),
            "that of the controllers; required in the file that declares the pool",
            "Largest number of backends; one more for a short time while a faster one replaces one.",
        ),
        Opt::default(
            "schedule",
            Kind::Tables(&SCHEDULE),
            "[]",
            "Hours of the week with a larger smallest number of backends than `min`. If hours overlap, the largest \
             counts.",
        ),
        Opt::default(
            "target",
            Kind::Share,
            "0.8",
            "The pool grows when requests in flight and queued are more than this share of the sum of its backends' \
             concurrency limits; above 0. A learned limit counts as the number in flight at which its backend serves \
             most.",
        ),
        Opt::optional(
            "target-concurrency",
            Kind::Number(0.01, 1_000_000.0),
            "`target` applies",
            "Requests in flight and queued for each backend, instead of `target`; for a size, multiplied by its \
             `speed`.",
        ),
        Opt::optional(
            "target-requests",
            Kind::Number(0.01, 1e9),
            "`target` applies",
            "Requests per second for each backend, instead of `target`; for a size, multiplied by its `speed`.",
        ),
        Opt::default(
            "out-cool-down",
            Kind::Duration(secs(0), DAY),
            "\"15s\"",
            "Time from one step out to the next. While requests are queued and no backend is starting, the pool grows \
             without waiting for it.",
        ),
        Opt::default(
            "in-cool-down",
            Kind::Duration(secs(0), DAY),
            "\"2m\"",
            "Time for which a smaller pool must have sufficed before backends are removed, and the time from any step \
             to a step in.",
        ),
        Opt::default(
            "warm-up",
            Kind::Duration(secs(0), DAY),
            "\"10s\"",
            "Age at which a backend is no longer new. The pool does not shrink while a backend is new.",
        ),
        Opt::default(
            "growth-max",
            Kind::Number(1.01, 100.0),
            "2.0",
            "Largest factor by which one step out multiplies the pool's capacity.",
        ),
        Opt::default(
            "scale-in-rate",
            Kind::Share,
            "0.25",
            "Largest share of the backends that one step in removes; one may always be removed. Above 0.",
        ),
        Opt::default(
            "start-wait",
            Kind::Duration(secs(0), secs(3600)),
            "\"30s\"",
            "Longest wait of a request while the pool has no backend because one is starting; after it, the answer is \
             503. `queue` of the pool limits the number of waiting requests. 0s: refused at once.",
        ),
        Opt::default(
            "mode",
            Kind::Choice(&MODE),
            "\"auto\"",
            "How the size is decided, until `equipoise plan pin`, `pause` or `resume` changes it.",
        ),
        Opt::default(
            "parallel",
            Kind::Count(1, 256),
            "4",
            "Largest number of backends that are added at the same time.",
        ),
        Opt::default(
            "drain-timeout",
            Kind::Duration(secs(0), DAY),
            "\"1m\"",
            "Longest time from the decision to remove a backend until it is removed. It is removed earlier if it has \
             no work left, unless a VIP or a name leads clients to it, whose work is unknown here.",
        ),
        Opt::optional(
            "process",
            Kind::Table(&PROCESS),
            "another table states the driver",
            PROCESS.help,
        ),
        Opt::optional("exec", Kind::Table(&EXEC), "another table states the driver", EXEC.help),
        Opt::optional(
            "webhook",
            Kind::Table(&WEBHOOK),
            "another table states the driver",
            WEBHOOK.help,
        ),
        Opt::default(
            "sizes",
            Kind::Tables(&SIZE),
            "[]",
            "Available kinds of backends; empty: all are alike.",
        ),
    ],
};

static SCHEDULE: Table = Table {
    title: "[[pool.elastic.schedule]]",
    help: "Hours with a larger smallest number of backends, so that they serve before the load arrives. The load can \
           increase the number further. After the hours the pool shrinks as after a load: when fewer have sufficed for \
           all of `in-cool-down`. In a cluster the leader's file and clock count.",
    options: &[
        Opt::optional("days", Kind::Texts(&WEEKDAY), "every day", "Days on which the hours begin."),
        Opt::required(
            "from",
            Kind::Text(&TIME_OF_DAY),
            "Start of the hours. Set it earlier than the load by the time that a backend takes to start.",
        ),
        Opt::required(
            "to",
            Kind::Text(&TIME_OF_DAY),
            "End of the hours; on the next day if it is not later than `from`.",
        ),
        Opt::optional(
            "zone",
            Kind::Text(&ZONE),
            "`utc-offset`",
            "Time zone of `from` and `to`, with its daylight-saving time by the machine's tzdata, which a reload reads \
             again.",
        ),
        Opt::default(
            "utc-offset",
            Kind::Text(&UTC_OFFSET),
            "\"+00:00\"",
            "Offset of the clock of `from` and `to` from UTC, all year. Not together with `zone`.",
        ),
        Opt::required(
            "min",
            Kind::Count(1, ELASTIC_MAX),
            "Smallest number of backends, up to `max`. A number below the pool's `min` has no effect.",
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
    help: "A kind of backend. The planner adds the kind with the best ratio of capacity to price.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "Name for the driver. Unique in its pool."),
        Opt::default(
            "speed",
            Kind::Number(0.001, 1_000_000.0),
            "1.0",
            "Its concurrency limit relative to those of the others, until its limit is known. A `concurrency` that is \
             a number is multiplied by it.",
        ),
        Opt::default(
            "price",
            Kind::Number(0.001, 1_000_000.0),
            "1.0",
            "Its price, in any unit common to the sizes.",
        ),
        Opt::default(
            "cpus",
            Kind::Number(0.0, 4096.0),
            "0.0",
            "Processes: cores that a process of this size may use, by a control group; needs root. 0: no limit.",
        ),
        Opt::optional(
            "memory",
            Kind::Size(1 << 20, 1 << 50),
            "no limit",
            "Processes: memory that a process of this size may use, by a control group; needs root.",
        ),
    ],
};

/// `[[pool]] weights`: whether the controller plans them by load.
pub(crate) static WEIGHTS: Choices<bool> = Choices(&[
    ("configured", false, "as configured, or as set by an operator"),
    (
        "load",
        true,
        "planned each period, beginning with the configured weights. A backend's load is that of its machine if an \
         agent reports, or else its requests in flight relative to the other backends",
    ),
]);

/// `[pool.elastic] declared`: whether the controllers' files declare the pool.
pub(crate) static DECLARED: Choices<bool> = Choices(&[
    ("here", false, "this file"),
    ("controllers", true, "the controllers' files, for all nodes of the cluster"),
]);

/// `[pool.elastic] mode`: whether scaling is paused.
pub(crate) static MODE: Choices<bool> = Choices(&[
    ("auto", false, "the planner decides"),
    ("paused", true, "the plan shows the planner's decisions, and they are not applied"),
]);

pub(super) static FOLDER: Form = Form {
    noun: "a folder",
    accepted: "an absolute path, such as \"/var/lib/equipoise\"",
    fits: |text| text.starts_with('/') && text.len() <= 4000 && !text.contains('\0'),
};

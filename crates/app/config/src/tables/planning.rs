//! Options of the load model, the controller and elastic pools.

use std::time::Duration;

use super::driver::{Exec, Process, Webhook};
use super::packet::INTERFACE;
use super::{DAY, NAME, ms, secs};
use crate::key::{
    Count, Each, In, List, OneOf, Parsed, Size, Text, choice, count, duration, each, number,
    options, parsed, share, size, table, tables, text,
};
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::{LinkSpeed, TimeOfDay, UtcOffset, Weekday, Zone};

/// Largest number of backends of an elastic pool.
const ELASTIC_MAX: u64 = 10_000;

options! {
    Load: "[load]",
    "The measure of a machine's load, and its period. L1 is the weighted mean of network, CPU and memory, in per \
     cent; L2 is the same without the network. A machine whose link speed is unknown has no network in either. \
     Shares of names and weights of pools follow the network and CPU that requests use; memory does not leave \
     with requests and moves neither.";

    NET: f64 = number("net", 0.0, 1000.0).default(2.0, "Weight of the network."),
    CPU: f64 = number("cpu", 0.0, 1000.0).default(1.0, "Weight of CPU."),
    MEMORY: f64 = number("memory", 0.0, 1000.0).default(0.5, "Weight of memory."),
    OVERLOAD_RATIO: f64 = number("overload-ratio", 1.0, 1000.0).default(
        1.25,
        "A node is overloaded when its L2 is more than this many times the lowest.",
    ),
    ADMIT: f64 = number("admit", 0.01, 1000.0).default(
        1000.0,
        "Requests are accepted for this part of the CPU of all nodes with a [[dispatch]] table together. Requests \
         beyond it are refused with 503, computing requests first, light ones last. 1000: nothing is refused. 0.95 \
         suits nodes that do nothing else: the CPU that other programs use counts, too.",
    ),
    CAPACITY_MAX: f64 = number("capacity-max", 0.01, 8192.0).default(
        8192.0,
        "Largest number of cores that a node counts for, independent of its reports. The leader's file counts. Set \
         it to that of the largest machine: a node that reports more than it has takes clients from the others.",
    ),
    PERIOD: Duration = duration("period", ms(100), secs(60)).default(
        secs(1),
        "Time from one sample and plan to the next. A change needs a restart.",
    ),
    LINKS: List<Link> = tables("links").default(
        "Speeds of links that the kernel does not know, or reports wrongly.",
    ),
}

options! {
    Link: "[[load.links]]",
    "Speed of a network interface. Without this table, interfaces with a device count, with the speed that the \
     kernel reports (`/sys/class/net/NAME/speed`); an interface without a reported speed (as on many virtual \
     machines) is no signal. An interface that is listed here always counts, with this speed.";

    INTERFACE: Option<Text> = text("interface", &INTERFACE).required("Its name. Unique."),
    SPEED: Option<Parsed<LinkSpeed>> = parsed("speed", &SPEED).required(
        "Speed in each direction. If a provider allows less than the link carries, state the allowed speed.",
    ),
}

static SPEED: TypedForm<LinkSpeed> = TypedForm::new(
    "a link's speed",
    "a whole number and a unit (Kbit/s, Mbit/s, Gbit/s, Tbit/s), 1Kbit/s to 100Tbit/s, such as \"2500Mbit/s\"",
);

options! {
    Controller: "[controller]",
    "The controller plans weights by load and the size of elastic pools. It runs in this process if a pool needs \
     either, and on the controllers of a cluster. If it is lost, the last plan stays in force.";

    STATE: Option<Text> = text("state", &FOLDER).optional(
        "`$STATE_DIRECTORY`, or `/var/lib/equipoise` for root, or `$XDG_STATE_HOME/equipoise` for others",
        "Folder of the file that keeps the last plan and the settings of operators. A change needs a restart.",
    ),
}

options! {
    Elastic: "[pool.elastic]",
    "How a pool grows and shrinks by itself. `equipoise plan` shows the plan and its reasons. Without \
     `target-concurrency` or `target-requests` the pool's `concurrency` is \"learnt\" unless it is set.";

    DECLARED: OneOf<Declared> = choice("declared").default(
        &Declared::Here,
        "The file that has the options of this table. \"controllers\" in a controller's file: this table is for \
         the nodes, and the controller itself creates no backends. \"controllers\" in a node's file: the \
         controllers' table applies, and this one may have only `start-wait`.",
    ),
    MIN: Count<u32> = count("min", 0, ELASTIC_MAX).default(
        1,
        "Smallest number of backends. With 0, the last one is removed when no request has arrived for \
         `in-cool-down`; the next request waits until a new one serves.",
    ),
    MAX: Option<Count<u32>> = count("max", 1, ELASTIC_MAX).optional(
        "that of the controllers; required in the file that declares the pool",
        "Largest number of backends; one more for a short time while a faster one replaces one.",
    ),
    SCHEDULE: List<Schedule> = tables("schedule").default(
        "Hours of the week with a larger smallest number of backends than `min`. If hours overlap, the largest \
         counts.",
    ),
    TARGET: f64 = share("target").default(
        0.8,
        "The pool grows when requests in flight and queued are more than this share of the sum of its backends' \
         concurrency limits; above 0. A learned limit counts as the number in flight at which its backend serves \
         most.",
    ),
    TARGET_CONCURRENCY: Option<f64> = number("target-concurrency", 0.01, 1_000_000.0).optional(
        "`target` applies",
        "Requests in flight and queued for each backend, instead of `target`; for a size, multiplied by its \
         `speed`.",
    ),
    TARGET_REQUESTS: Option<f64> = number("target-requests", 0.01, 1e9).optional(
        "`target` applies",
        "Requests per second for each backend, instead of `target`; for a size, multiplied by its `speed`.",
    ),
    OUT_COOL_DOWN: Duration = duration("out-cool-down", secs(0), DAY).default(
        secs(15),
        "Time from one step out to the next. While requests are queued and no backend is starting, the pool grows \
         without waiting for it.",
    ),
    IN_COOL_DOWN: Duration = duration("in-cool-down", secs(0), DAY).default(
        secs(120),
        "Time for which a smaller pool must have sufficed before backends are removed, and the time from any step \
         to a step in.",
    ),
    WARM_UP: Duration = duration("warm-up", secs(0), DAY).default(
        secs(10),
        "Age at which a backend is no longer new. The pool does not shrink while a backend is new.",
    ),
    GROWTH_MAX: f64 = number("growth-max", 1.01, 100.0).default(
        2.0,
        "Largest factor by which one step out multiplies the pool's capacity.",
    ),
    SCALE_IN_RATE: f64 = share("scale-in-rate").default(
        0.25,
        "Largest share of the backends that one step in removes; one may always be removed. Above 0.",
    ),
    START_WAIT: Duration = duration("start-wait", secs(0), secs(3600)).default(
        secs(30),
        "Longest wait of a request while the pool has no backend because one is starting; after it, the answer is \
         503. `queue` of the pool limits the number of waiting requests. 0s: refused at once.",
    ),
    MODE: OneOf<PlanMode> = choice("mode").default(
        &PlanMode::Auto,
        "How the size is decided, until `equipoise plan pin`, `pause` or `resume` changes it.",
    ),
    PARALLEL: Count<u32> = count("parallel", 1, 256).default(
        4,
        "Largest number of backends that are added at the same time.",
    ),
    DRAIN_TIMEOUT: Duration = duration("drain-timeout", secs(0), DAY).default(
        secs(60),
        "Longest time from the decision to remove a backend until it is removed. It is removed earlier if it has \
         no work left, unless a VIP or a name leads clients to it, whose work is unknown here.",
    ),
    PROCESS: Option<In<Process>> = table("process").unless("another table states the driver"),
    EXEC: Option<In<Exec>> = table("exec").unless("another table states the driver"),
    WEBHOOK: Option<In<Webhook>> = table("webhook").unless("another table states the driver"),
    SIZES: List<ElasticSize> = tables("sizes").default(
        "Available kinds of backends; empty: all are alike.",
    ),
}

options! {
    Schedule: "[[pool.elastic.schedule]]",
    "Hours with a larger smallest number of backends, so that they serve before the load arrives. The load can \
     increase the number further. After the hours the pool shrinks as after a load: when fewer have sufficed for \
     all of `in-cool-down`. In a cluster the leader's file and clock count.";

    DAYS: Option<Each<Weekday>> = each("days", &WEEKDAY).optional(
        "every day",
        "Days on which the hours begin.",
    ),
    FROM: Option<Parsed<TimeOfDay>> = parsed("from", &TIME_OF_DAY).required(
        "Start of the hours. Set it earlier than the load by the time that a backend takes to start.",
    ),
    TO: Option<Parsed<TimeOfDay>> = parsed("to", &TIME_OF_DAY).required(
        "End of the hours; on the next day if it is not later than `from`.",
    ),
    ZONE: Option<Parsed<Zone>> = parsed("zone", &ZONE).optional(
        "`utc-offset`",
        "Time zone of `from` and `to`, with its daylight-saving time by the machine's tzdata, which a reload reads \
         again.",
    ),
    UTC_OFFSET: Parsed<UtcOffset> = parsed("utc-offset", &UTC_OFFSET).default(
        "+00:00",
        "Offset of the clock of `from` and `to` from UTC, all year. Not together with `zone`.",
    ),
    MIN: Option<Count<u32>> = count("min", 1, ELASTIC_MAX).required(
        "Smallest number of backends, up to `max`. A number below the pool's `min` has no effect.",
    ),
}

static WEEKDAY: TypedForm<Weekday> = TypedForm::new(
    "a day of the week",
    "\"mon\", \"tue\", \"wed\", \"thu\", \"fri\", \"sat\" or \"sun\"",
);

static TIME_OF_DAY: TypedForm<TimeOfDay> = TypedForm::new(
    "a time of the day",
    "hours and minutes of two digits each, \"00:00\" to \"24:00\", such as \"08:30\"",
);

static ZONE: TypedForm<Zone> = TypedForm::new(
    "a time zone that this machine knows",
    "a name of the IANA time zone database, such as \"Europe/Berlin\" or \"UTC\"; `timedatectl list-timezones` lists them. They are in /usr/share/zoneinfo, of the package tzdata",
);

static UTC_OFFSET: TypedForm<UtcOffset> = TypedForm::new(
    "an offset from UTC",
    "a sign, hours and minutes, \"-12:00\" to \"+14:00\", such as \"+02:00\"",
);

options! {
    ElasticSize: "[[pool.elastic.sizes]]",
    "A kind of backend. The planner adds the kind with the best ratio of capacity to price.";

    NAME: Option<Text> = text("name", &NAME).required("Name for the driver. Unique in its pool."),
    SPEED: f64 = number("speed", 0.001, 1_000_000.0).default(
        1.0,
        "Its concurrency limit relative to those of the others, until its limit is known. A `concurrency` that is \
         a number is multiplied by it.",
    ),
    PRICE: f64 = number("price", 0.001, 1_000_000.0).default(
        1.0,
        "Its price, in any unit common to the sizes.",
    ),
    CPUS: f64 = number("cpus", 0.0, 4096.0).default(
        0.0,
        "Processes: cores that a process of this size may use, by a control group; needs root. 0: no limit.",
    ),
    MEMORY: Option<Size<u64>> = size("memory", 1 << 20, 1 << 50).optional(
        "no limit",
        "Processes: memory that a process of this size may use, by a control group; needs root.",
    ),
}

/// Source of the backends' weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightsBy {
    Configured,
    Load,
}

impl Choice for WeightsBy {
    const CHOICES: &'static Choices<WeightsBy> = &Choices(&[
        ("configured", WeightsBy::Configured, "as configured, or as set by an operator"),
        (
            "load",
            WeightsBy::Load,
            "planned each period, beginning with the configured weights. A backend's load is that of its machine if an \
             agent reports, or else its requests in flight relative to the other backends",
        ),
    ]);
}

/// The file that declares an elastic pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    Here,
    Controllers,
}

impl Choice for Declared {
    const CHOICES: &'static Choices<Declared> = &Choices(&[
        ("here", Declared::Here, "this file"),
        (
            "controllers",
            Declared::Controllers,
            "the controllers' files, for all nodes of the cluster",
        ),
    ]);
}

/// How the size of an elastic pool is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanMode {
    Auto,
    Paused,
}

impl Choice for PlanMode {
    const CHOICES: &'static Choices<PlanMode> = &Choices(&[
        ("auto", PlanMode::Auto, "the planner decides"),
        (
            "paused",
            PlanMode::Paused,
            "the plan shows the planner's decisions, and they are not applied",
        ),
    ]);
}

pub(super) static FOLDER: Form = Form {
    noun: "a folder",
    accepted: "an absolute path, such as \"/var/lib/equipoise\"",
    fits: |text| text.starts_with('/') && text.len() <= 4000 && !text.contains('\0'),
};

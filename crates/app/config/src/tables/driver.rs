//! Options of the drivers of elastic pools.

use std::net::IpAddr;
use std::time::Duration;

use super::super::option::{Form, Kind, Opt, Table, reads_as};
use super::super::text::PortRange;
use super::{FOLDER, HOUR, NAME, ms, secs};

const TIMEOUT_MAX: Duration = HOUR;

pub(super) static PROCESS: Table = Table {
    title: "[pool.elastic.process]",
    help: "Backends are processes of this machine. They are restarted when they end, and end with equipoise. In \
           `command`, `environment` and `folder`, `{port}`, `{address}`, `{name}`, `{size}` and `{pool}` stand for \
           those of the backend.",
    options: &[
        Opt::required(
            "command",
            Kind::Texts(&WORD),
            "Program and arguments, which are used without a shell.",
        ),
        Opt::default(
            "environment",
            Kind::Texts(&VARIABLE),
            "[]",
            "Variables of the process's environment.",
        ),
        Opt::default(
            "inherit-environment",
            Kind::Flag,
            "false",
            "The process gets all variables of equipoise too, not only `PATH`, `LANG` and `TZ`.",
        ),
        Opt::optional(
            "folder",
            Kind::Text(&FOLDER),
            "that of equipoise",
            "Working folder of the process.",
        ),
        Opt::optional(
            "user",
            Kind::Text(&NAME),
            "that of equipoise",
            "User of the process. Needs root.",
        ),
        Opt::default("address", Kind::Text(&IP), "\"127.0.0.1\"", "Where it listens."),
        Opt::default("ports", Kind::Text(&PORTS), "\"free\"", "Ports for the processes."),
        Opt::default(
            "ready-timeout",
            Kind::Duration(ms(100), TIMEOUT_MAX),
            "\"30s\"",
            "Longest time until the process accepts connections.",
        ),
        Opt::default(
            "stop-timeout",
            Kind::Duration(secs(0), TIMEOUT_MAX),
            "\"10s\"",
            "Time from SIGTERM to SIGKILL.",
        ),
        Opt::optional(
            "logs",
            Kind::Text(&FOLDER),
            "its output is not kept, except for the last lines in errors",
            "Folder of the process's output: `NAME.log`, older parts as `NAME.log.1` and up.",
        ),
    ],
};

pub(super) static EXEC: Table = Table {
    title: "[pool.elastic.exec]",
    help: "Backends are added and removed by your programs, which get a request in JSON on standard input.",
    options: &[
        Opt::required(
            "add",
            Kind::Texts(&WORD),
            "Program and arguments that add a backend and answer `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
        ),
        Opt::required(
            "remove",
            Kind::Texts(&WORD),
            "Program and arguments that remove a backend. A backend that does not exist is not an error.",
        ),
        Opt::optional(
            "list",
            Kind::Texts(&WORD),
            "the recorded backends are assumed to exist",
            "Program and arguments that answer `{\"backends\": [{\"name\", \"address\", \"id\", \"size\"}]}`, which \
             are run at the start.",
        ),
        Opt::default(
            "environment",
            Kind::Texts(&VARIABLE),
            "[]",
            "Variables in addition to those of equipoise.",
        ),
        Opt::default(
            "timeout",
            Kind::Duration(ms(100), super::DAY),
            "\"2m\"",
            "A program that takes longer is killed, with its process group.",
        ),
    ],
};

pub(super) static WEBHOOK: Table = Table {
    title: "[pool.elastic.webhook]",
    help: "Backends are added and removed by your service: one POST with JSON, one answer.",
    options: &[
        Opt::required(
            "add",
            Kind::Text(&URL),
            "URL for requests to add a backend; the answer is `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
        ),
        Opt::required(
            "remove",
            Kind::Text(&URL),
            "URL for requests to remove a backend; 404 and 410 mean that it is gone.",
        ),
        Opt::optional(
            "list",
            Kind::Text(&URL),
            "the recorded backends are assumed to exist",
            "URL for the request for all backends, which is sent at the start.",
        ),
        Opt::optional(
            "token-file",
            Kind::Text(&FOLDER),
            "none is sent",
            "A file whose content is sent as a bearer token.",
        ),
        Opt::optional(
            "ca",
            Kind::Text(&FOLDER),
            "the system's",
            "A PEM file of trusted certificates.",
        ),
        Opt::default(
            "timeout",
            Kind::Duration(ms(100), TIMEOUT_MAX),
            "\"30s\"",
            "Longest time of one attempt.",
        ),
        Opt::default(
            "tries",
            Kind::Count(1, 20),
            "4",
            "Number of attempts before the failure is reported.",
        ),
    ],
};

static WORD: Form = Form {
    noun: "a word of a command",
    accepted: "a program or an argument, such as \"/usr/bin/app\" or \"--port={port}\"",
    fits: |text| text.len() <= 4096 && !text.contains('\0'),
};

static VARIABLE: Form = Form {
    noun: "a variable",
    accepted: "NAME=VALUE, such as \"PORT={port}\"",
    fits: |text| text.find('=').is_some_and(|at| at > 0) && !text.contains('\0'),
};

pub(crate) static IP: Form = Form {
    noun: "an IP address",
    accepted: "an IP address, such as \"127.0.0.1\"",
    fits: reads_as::<IpAddr>,
};

static PORTS: Form = Form {
    noun: "a range of ports",
    accepted: "\"free\", or a range such as \"9000-9099\"",
    fits: reads_as::<PortRange>,
};

pub(super) static URL: Form = Form {
    noun: "a URL",
    accepted: "an http or https URL, such as \"https://scaler.internal/add\"",
    fits: |text| {
        (text.starts_with("http://") || text.starts_with("https://"))
            && text.bytes().all(|b| b.is_ascii_graphic())
    },
};

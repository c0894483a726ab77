//! Options of the drivers of elastic pools.

use std::net::IpAddr;
use std::time::Duration;

use super::super::option::{Form, Kind, Opt, Table, reads_as};
use super::super::text::PortRange;
use super::{FOLDER, HOUR, NAME, ms, secs};

const TIMEOUT_MAX: Duration = HOUR;

pub(super) static PROCESS: Table = Table {
    title: "[pool.elastic.process]",
    help: "Backends are processes of this machine, started again when they end; they end with equipoise. In `command`, `environment` and `folder`, `{port}`, `{address}`, `{name}`, `{size}` and `{pool}` stand for the backend's.",
    options: &[
        Opt::required("command", Kind::Texts(&WORD), "Program and arguments; no shell reads them."),
        Opt::default("environment", Kind::Texts(&VARIABLE), "[]", "Variables of its environment."),
        Opt::default(
            "inherit-environment",
            Kind::Flag,
            "false",
            "It gets all variables of equipoise too, not only `PATH`, `LANG` and `TZ`.",
        ),
        Opt::optional("folder", Kind::Text(&FOLDER), "that of equipoise", "Its working folder."),
        Opt::optional(
            "user",
            Kind::Text(&NAME),
            "that of equipoise",
            "Whom it runs as. Needs root.",
        ),
        Opt::default("address", Kind::Text(&IP), "\"127.0.0.1\"", "Where it listens."),
        Opt::default("ports", Kind::Text(&PORTS), "\"free\"", "Which ports it may get."),
        Opt::default(
            "ready-timeout",
            Kind::Duration(ms(100), TIMEOUT_MAX),
            "\"30s\"",
            "How long it may take until it accepts connections.",
        ),
        Opt::default(
            "stop-timeout",
            Kind::Duration(secs(0), TIMEOUT_MAX),
            "\"10s\"",
            "From SIGTERM to SIGKILL.",
        ),
        Opt::optional(
            "logs",
            Kind::Text(&FOLDER),
            "its output is not kept, but for the last lines in errors",
            "Folder of its output: `NAME.log`, older parts as `NAME.log.1` and up.",
        ),
    ],
};

pub(super) static EXEC: Table = Table {
    title: "[pool.elastic.exec]",
    help: "Backends are added and removed by programs of yours, asked by JSON on standard input.",
    options: &[
        Opt::required(
            "add",
            Kind::Texts(&WORD),
            "Program and arguments that add one and answer `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
        ),
        Opt::required(
            "remove",
            Kind::Texts(&WORD),
            "Those that remove one. One that is not there is no error.",
        ),
        Opt::optional(
            "list",
            Kind::Texts(&WORD),
            "what was written down is believed",
            "Those that answer `{\"backends\": [{\"name\", \"address\", \"id\", \"size\"}]}`, asked at the start.",
        ),
        Opt::default(
            "environment",
            Kind::Texts(&VARIABLE),
            "[]",
            "Variables beside those of equipoise.",
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
    help: "Backends are added and removed by a service of yours: one POST with JSON, one answer.",
    options: &[
        Opt::required(
            "add",
            Kind::Text(&URL),
            "Where a question to add one is posted; the answer is `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
        ),
        Opt::required(
            "remove",
            Kind::Text(&URL),
            "Where one to remove it is posted; 404 and 410 mean that it is gone.",
        ),
        Opt::optional(
            "list",
            Kind::Text(&URL),
            "what was written down is believed",
            "Where it is asked, at the start, what there is.",
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
            "A PEM file of certificates that are trusted.",
        ),
        Opt::default("timeout", Kind::Duration(ms(100), TIMEOUT_MAX), "\"30s\"", "For one try."),
        Opt::default("tries", Kind::Count(1, 20), "4", "Tries, before the failure is said."),
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

pub(in super::super) static IP: Form = Form {
    noun: "an IP address",
    accepted: "an IP address, such as \"127.0.0.1\"",
    fits: reads_as::<IpAddr>,
};

static PORTS: Form = Form {
    noun: "a range of ports",
    accepted: "\"free\", or a range such as \"9000-9099\"",
    fits: reads_as::<PortRange>,
};

static URL: Form = Form {
    noun: "a URL",
    accepted: "an http or https URL, such as \"https://scaler.internal/add\"",
    fits: |text| {
        (text.starts_with("http://") || text.starts_with("https://"))
            && text.bytes().all(|b| b.is_ascii_graphic())
    },
};

//! Options of the drivers of elastic pools.

use std::net::IpAddr;
use std::time::Duration;

use super::planning::FOLDER;
use super::{HOUR, NAME, ms, secs};
use crate::key::{Count, Parsed, Text, Texts, count, duration, flag, options, parsed, text, texts};
use crate::option::{Form, TypedForm};
use crate::text::PortRange;

const TIMEOUT_MAX: Duration = HOUR;

options! {
    Process: "[pool.elastic.process]",
    "Backends are processes of this machine. They are restarted when they end, and end with equipoise. In \
     `command`, `environment` and `folder`, `{port}`, `{address}`, `{name}`, `{size}` and `{pool}` stand for \
     those of the backend.";

    COMMAND: Option<Texts> = texts("command", &WORD).required(
        "Program and arguments, which are used without a shell.",
    ),
    ENVIRONMENT: Texts = texts("environment", &VARIABLE).default(
        &[],
        "Variables of the process's environment.",
    ),
    INHERIT_ENVIRONMENT: bool = flag("inherit-environment").default(
        false,
        "The process gets all variables of equipoise too, not only `PATH`, `LANG` and `TZ`.",
    ),
    FOLDER: Option<Text> = text("folder", &FOLDER).optional(
        "that of equipoise",
        "Working folder of the process.",
    ),
    USER: Option<Text> = text("user", &NAME).optional(
        "that of equipoise",
        "User of the process. Needs root.",
    ),
    ADDRESS: Parsed<IpAddr> = parsed("address", &IP).default("127.0.0.1", "Where it listens."),
    PORTS: Parsed<PortRange> = parsed("ports", &PORTS).default("free", "Ports for the processes."),
    READY_TIMEOUT: Duration = duration("ready-timeout", ms(100), TIMEOUT_MAX).default(
        secs(30),
        "Longest time until the process accepts connections.",
    ),
    STOP_TIMEOUT: Duration = duration("stop-timeout", secs(0), TIMEOUT_MAX).default(
        secs(10),
        "Time from SIGTERM to SIGKILL.",
    ),
    LOGS: Option<Text> = text("logs", &FOLDER).optional(
        "its output is not kept, except for the last lines in errors",
        "Folder of the process's output: `NAME.log`, older parts as `NAME.log.1` and up.",
    ),
}

options! {
    Exec: "[pool.elastic.exec]",
    "Backends are added and removed by your programs, which get a request in JSON on standard input.";

    ADD: Option<Texts> = texts("add", &WORD).required(
        "Program and arguments that add a backend and answer `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
    ),
    REMOVE: Option<Texts> = texts("remove", &WORD).required(
        "Program and arguments that remove a backend. A backend that does not exist is not an error.",
    ),
    LIST: Option<Texts> = texts("list", &WORD).optional(
        "the recorded backends are assumed to exist",
        "Program and arguments that answer `{\"backends\": [{\"name\", \"address\", \"id\", \"size\"}]}`, which \
         are run at the start.",
    ),
    ENVIRONMENT: Texts = texts("environment", &VARIABLE).default(
        &[],
        "Variables in addition to those of equipoise.",
    ),
    TIMEOUT: Duration = duration("timeout", ms(100), super::DAY).default(
        secs(120),
        "A program that takes longer is killed, with its process group.",
    ),
}

options! {
    Webhook: "[pool.elastic.webhook]",
    "Backends are added and removed by your service: one POST with JSON, one answer.";

    ADD: Option<Text> = text("add", &URL).required(
        "URL for requests to add a backend; the answer is `{\"address\": \"IP:PORT\", \"id\": \"...\"}`.",
    ),
    REMOVE: Option<Text> = text("remove", &URL).required(
        "URL for requests to remove a backend; 404 and 410 mean that it is gone.",
    ),
    LIST: Option<Text> = text("list", &URL).optional(
        "the recorded backends are assumed to exist",
        "URL for the request for all backends, which is sent at the start.",
    ),
    TOKEN_FILE: Option<Text> = text("token-file", &FOLDER).optional(
        "none is sent",
        "A file whose content is sent as a bearer token.",
    ),
    CA: Option<Text> = text("ca", &FOLDER).optional(
        "the system's",
        "A PEM file of trusted certificates.",
    ),
    TIMEOUT: Duration = duration("timeout", ms(100), TIMEOUT_MAX).default(
        secs(30),
        "Longest time of one attempt.",
    ),
    TRIES: Count<u32> = count("tries", 1, 20).default(
        4,
        "Number of attempts before the failure is reported.",
    ),
}

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

pub(crate) static IP: TypedForm<IpAddr> =
    TypedForm::new("an IP address", "an IP address, such as \"127.0.0.1\"");

static PORTS: TypedForm<PortRange> =
    TypedForm::new("a range of ports", "\"free\", or a range such as \"9000-9099\"");

pub(super) static URL: Form = Form {
    noun: "a URL",
    accepted: "an http or https URL, such as \"https://scaler.internal/add\"",
    fits: |text| {
        (text.starts_with("http://") || text.starts_with("https://"))
            && text.bytes().all(|b| b.is_ascii_graphic())
    },
};

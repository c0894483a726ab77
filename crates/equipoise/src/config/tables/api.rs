//! Options of `[api]`.

use equipoise_api::{Role, TokenDigest};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::ApiListen;
use super::NAME;

/// Longest socket path that the kernel accepts: `sun_path` without its final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(super) static API: Table = Table {
    title: "[api]",
    help: "Where operators and Prometheus reach this process. Both addresses serve the API; `/metrics` is part of it.",
    options: &[
        Opt::optional(
            "socket",
            Kind::Text(&SOCKET_PATH),
            "`/run/equipoise/api.sock` for root, `$XDG_RUNTIME_DIR/equipoise.sock` for others",
            "Unix socket, which only its owner can open, without a token. `equipoise status`, `drain` and the others use it.",
        ),
        Opt::default(
            "listen",
            Kind::Text(&API_LISTEN),
            "\"127.0.0.1:9909\"",
            "HTTP address. Where a `token` is configured, every request carries one (`Authorization: Bearer TOKEN`), except for \
             `/v1/health`. Without any, TCP can only look, loopback included; the unix socket needs none.",
        ),
        Opt::default(
            "allow-remote",
            Kind::Flag,
            "false",
            "Let `listen` be an address that other machines reach, although no `token` is configured: they can look, and \
             change nothing.",
        ),
        Opt::default("token", Kind::Tables(&TOKEN), "[]", TOKEN.help),
        Opt::default(
            "auth-failures",
            Kind::Count(1, 1_000_000),
            "60",
            "Requests that are turned away, for each address (IPv6: a /64) in a minute; more leave no line in the audit log, \
             and without a known token are answered with 429. Known tokens are always heard.",
        ),
        Opt::optional(
            "audit-log",
            Kind::Text(&AUDIT_LOG),
            "the process's log, as events of the target `audit`",
            "Where changes are noted, and who was turned away: a file, JSON on each line. It is opened again on reload.",
        ),
        Opt::default(
            "audit-log-max",
            Kind::Size(64 << 10, 1 << 40),
            "\"64MiB\"",
            "The audit log's file is renamed, with `.1` at the end, when it has grown to this; the one before it is removed.",
        ),
    ],
};

static TOKEN: Table = Table {
    title: "[[api.token]]",
    help: "Who may ask over TCP, and for what. One table for each holder; `equipoise api-token FILE` makes a token. A reload \
           reads the files again.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "What the audit log calls the holder. Unique."),
        Opt::required("role", Kind::Choice(&API_ROLE), "What the holder may do."),
        Opt::optional(
            "file",
            Kind::Text(&TOKEN_FILE),
            "`hash` is given",
            "A file with the token in it, at least 32 characters. Only its owner (and group) should be able to read it.",
        ),
        Opt::optional(
            "hash",
            Kind::Text(&TOKEN_HASH),
            "`file` is given",
            "The token's digest, so that the token itself is not on this machine.",
        ),
    ],
};

pub(in super::super) static API_ROLE: Choices<Role> = Choices(&[
    ("read", Role::Read, "look: status, metrics, flows, pins, the configuration's schema"),
    ("operate", Role::Operate, "that, and change how traffic is spread: drain, weights, pins"),
    ("admin", Role::Admin, "that, and change the process: reload"),
]);

static API_LISTEN: Form = Form {
    noun: "an address to listen on",
    accepted: "IP:PORT, such as \"127.0.0.1:9909\", or \"off\"",
    fits: reads_as::<ApiListen>,
};

static SOCKET_PATH: Form = Form {
    noun: "a path for a socket",
    accepted: "an absolute path of at most 107 bytes, such as \"/run/equipoise/api.sock\"",
    fits: |text| {
        text.starts_with('/') && !text.ends_with('/') && text.len() <= SOCKET_PATH_BYTES_MAX
    },
};

static AUDIT_LOG: Form = Form {
    noun: "a file for the audit log",
    accepted: "an absolute path, such as \"/var/log/equipoise/audit.jsonl\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};

static TOKEN_FILE: Form = Form {
    noun: "a token's file",
    accepted: "an absolute path, such as \"/etc/equipoise/ci.token\"",
    fits: |text| text.starts_with('/') && !text.ends_with('/'),
};

static TOKEN_HASH: Form = Form {
    noun: "a token's digest",
    accepted: "\"sha256:\" and 64 hexadecimal digits (equipoise api-token FILE prints it)",
    fits: reads_as::<TokenDigest>,
};

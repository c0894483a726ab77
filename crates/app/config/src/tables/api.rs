//! Options of `[api]`.

use equipoise_api::{Role, TokenDigest};

use super::super::option::{Choices, Form, Kind, Opt, Table, reads_as};
use super::super::text::ApiListen;
use super::NAME;

/// Longest socket path that the kernel accepts: `sun_path` without its final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(super) static API: Table = Table {
    title: "[api]",
    help: "Addresses for operators and Prometheus. Both serve the API; `/metrics` is part of it.",
    options: &[
        Opt::optional(
            "socket",
            Kind::Text(&SOCKET_PATH),
            "`/run/equipoise/api.sock` for root, `$XDG_RUNTIME_DIR/equipoise.sock` for others",
            "Unix socket, which only its owner can open, without a token. `equipoise status`, `drain` and the other \
             commands use it.",
        ),
        Opt::default(
            "listen",
            Kind::Text(&API_LISTEN),
            "\"127.0.0.1:9909\"",
            "HTTP address. If a `token` is configured, every request must carry one (`Authorization: Bearer TOKEN`), \
             except for `/v1/health`. Without tokens, TCP is read-only, loopback included; the unix socket needs none.",
        ),
        Opt::default(
            "allow-remote",
            Kind::Flag,
            "false",
            "Let `listen` be an address that other machines reach, although no `token` is configured: they can read, \
             and cannot change anything.",
        ),
        Opt::default("token", Kind::Tables(&TOKEN), "[]", TOKEN.help),
        Opt::default(
            "auth-failures",
            Kind::Count(1, 1_000_000),
            "60",
            "Rejected requests of each address (IPv6: a /64) in a minute. Further ones leave no line in the audit log, \
             and without a known token they are answered with 429. Known tokens are always accepted.",
        ),
        Opt::optional(
            "audit-log",
            Kind::Text(&AUDIT_LOG),
            "the process's log, as events of the target `audit`",
            "The log of changes and of rejected callers: a file, with JSON on each line. A reload opens it again.",
        ),
        Opt::default(
            "audit-log-max",
            Kind::Size(64 << 10, 1 << 40),
            "\"64MiB\"",
            "Size at which the audit log's file is renamed, with `.1` at the end; the previous one is removed.",
        ),
    ],
};

static TOKEN: Table = Table {
    title: "[[api.token]]",
    help: "Callers over TCP, and their rights. One table for each caller; `equipoise api-token FILE` creates a token. \
           A reload reads the files again.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "The caller's name in the audit log. Unique."),
        Opt::required("role", Kind::Choice(&API_ROLE), "The caller's rights."),
        Opt::optional(
            "file",
            Kind::Text(&TOKEN_FILE),
            "`hash` is given",
            "A file with the token, at least 32 characters. Only its owner (and group) should be able to read it.",
        ),
        Opt::optional(
            "hash",
            Kind::Text(&TOKEN_HASH),
            "`file` is given",
            "The token's digest, so that the token itself is not on this machine.",
        ),
    ],
};

pub(crate) static API_ROLE: Choices<Role> = Choices(&[
    ("read", Role::Read, "read status, metrics, flows, pins and the configuration's schema"),
    ("operate", Role::Operate, "also change how traffic is spread: drain, weights, pins"),
    ("admin", Role::Admin, "also change the process: reload"),
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

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
            "HTTP address. If a `token` or a `client` is configured, every request must carry a token (`Authorization: \
             Bearer TOKEN`) or come with a client's certificate, except for `/v1/health`. Without both, TCP is \
             read-only, loopback included; the unix socket needs none.",
        ),
        Opt::default(
            "allow-remote",
            Kind::Flag,
            "false",
            "Let `listen` be an address that other machines reach, although no `token` is configured and `tls` requires \
             no certificates of clients: they can read, and cannot change anything.",
        ),
        super::tls::OF_API,
        Opt::default("token", Kind::Tables(&TOKEN), "[]", TOKEN.help),
        Opt::default("client", Kind::Tables(&CLIENT), "[]", CLIENT.help),
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

static CLIENT: Table = Table {
    title: "[[api.client]]",
    help: "Callers over TCP with certificates that `tls.clients.ca` signed, and their rights. At least one of `subject`, `san` \
           and `sha256` is needed, and a certificate has to match all that are stated. The first match decides; a token \
           decides before a certificate.",
    options: &[
        Opt::required("name", Kind::Text(&NAME), "The caller's name in the audit log. Unique."),
        Opt::required("role", Kind::Choice(&API_ROLE), "The caller's rights."),
        Opt::optional(
            "subject",
            Kind::Text(&SUBJECT),
            "any subject",
            "The whole subject, as in the header `X-Forwarded-Client-Subject` of [session.tls.clients].",
        ),
        Opt::optional(
            "san",
            Kind::Text(&SAN),
            "any alternative names",
            "One of the certificate's alternative names (subjectAltName), whole: a DNS name, an e-mail address, a URI or an IP address.",
        ),
        Opt::optional(
            "sha256",
            Kind::Text(&FINGERPRINT),
            "any certificate",
            "The certificate's fingerprint (openssl x509 -noout -fingerprint -sha256).",
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

static SUBJECT: Form = Form {
    noun: "a certificate's subject",
    accepted: "its attributes in the certificate's order, without spaces around `=` and with `, ` between them, such as \
               \"CN=alice, O=Example, Email=a@example.com\"; the API's answer to an unknown certificate has its subject",
    fits: |text| {
        text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && equipoise_tls::is_subject(text)
    },
};

static SAN: Form = Form {
    noun: "an alternative name of a certificate",
    accepted: "a DNS name, an e-mail address, a URI or an IP address, such as \"ops.example.com\" or \"spiffe://example.com/ops\"",
    fits: |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
};

static FINGERPRINT: Form = Form {
    noun: "a certificate's fingerprint",
    accepted: "64 hexadecimal digits of SHA-256, with or without colons",
    fits: |text| {
        let digits = text.bytes().filter(|byte| *byte != b':');
        digits.clone().count() == 64 && digits.clone().all(|digit| digit.is_ascii_hexdigit())
    },
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

//! Options of `[api]`.

use equipoise_api::{Role, TokenDigest};

use super::NAME;
use super::tls::ApiTls;
use crate::key::{
    Count, In, List, OneOf, Options, Parsed, Size, Text, choice, count, flag, options, parsed,
    size, table, tables, text,
};
use crate::option::{Choice, Choices, Form, TypedForm};
use crate::text::ApiListen;

/// Longest socket path that the kernel accepts: `sun_path` without its final NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

options! {
    Api: "[api]",
    "Addresses for operators and Prometheus. Both serve the API; `/metrics` is part of it.";

    SOCKET: Option<Text> = text("socket", &SOCKET_PATH).optional(
        "`/run/equipoise/api.sock` for root, `$XDG_RUNTIME_DIR/equipoise.sock` for others",
        "Unix socket, which only its owner can open, without a token. `equipoise status`, `drain` and the other \
         commands use it.",
    ),
    LISTEN: Parsed<ApiListen> = parsed("listen", &API_LISTEN).default(
        "127.0.0.1:9909",
        "HTTP address. If a `token` or a `client` is configured, every request must carry a token (`Authorization: \
         Bearer TOKEN`) or come with a client's certificate, except for `/v1/health`. Without both, TCP is \
         read-only, loopback included; the unix socket needs none.",
    ),
    ALLOW_REMOTE: bool = flag("allow-remote").default(
        false,
        "Let `listen` be an address that other machines reach, although no `token` is configured and `tls` requires \
         no certificates of clients: they can read, and cannot change anything.",
    ),
    TLS: Option<In<ApiTls>> = table("tls").unless("`listen` speaks HTTP in the clear"),
    TOKEN: List<ApiToken> = tables("token").default(ApiToken::TABLE.help),
    CLIENT: List<ApiClient> = tables("client").default(ApiClient::TABLE.help),
    AUTH_FAILURES: Count<u32> = count("auth-failures", 1, 1_000_000).default(
        60,
        "Rejected requests of each address (IPv6: a /64) in a minute. Further ones leave no line in the audit log, \
         and without a known token they are answered with 429. Known tokens are always accepted.",
    ),
    WRITE_CONFIG: bool = flag("write-config").default(
        false,
        "Let callers with the role admin replace the text of the configuration file (`equipoise reload --with`, the \
         dashboard). Such callers can then run commands, and read and write files, as this process.",
    ),
    AUDIT_LOG: Option<Text> = text("audit-log", &AUDIT_LOG).optional(
        "the process's log, as events of the target `audit`",
        "The log of changes and of rejected callers: a file, with JSON on each line. A reload opens it again.",
    ),
    AUDIT_LOG_MAX: Size<u64> = size("audit-log-max", 64 << 10, 1 << 40).default(
        64 << 20,
        "Size at which the audit log's file is renamed, with `.1` at the end; the previous one is removed.",
    ),
}

options! {
    ApiToken: "[[api.token]]",
    "Callers over TCP, and their rights. One table for each caller; `equipoise api-token FILE` creates a token. \
     A reload reads the files again.";

    NAME: Option<Text> = text("name", &NAME).required(
        "The caller's name in the audit log. Unique.",
    ),
    ROLE: Option<OneOf<Role>> = choice("role").required("The caller's rights."),
    FILE: Option<Text> = text("file", &TOKEN_FILE).optional(
        "`hash` is given",
        "A file with the token, at least 32 characters. Only its owner (and group) should be able to read it.",
    ),
    HASH: Option<Parsed<TokenDigest>> = parsed("hash", &TOKEN_HASH).optional(
        "`file` is given",
        "The token's digest, so that the token itself is not on this machine.",
    ),
}

options! {
    ApiClient: "[[api.client]]",
    "Callers over TCP with certificates that `tls.clients.ca` signed, and their rights. At least one of `subject`, `san` \
     and `sha256` is needed, and a certificate has to match all that are stated. The first match decides; a token \
     decides before a certificate.";

    NAME: Option<Text> = text("name", &NAME).required(
        "The caller's name in the audit log. Unique.",
    ),
    ROLE: Option<OneOf<Role>> = choice("role").required("The caller's rights."),
    SUBJECT: Option<Text> = text("subject", &SUBJECT).optional(
        "any subject",
        "The whole subject, as in the header `X-Forwarded-Client-Subject` of [session.tls.clients].",
    ),
    SAN: Option<Text> = text("san", &SAN).optional(
        "any alternative names",
        "One of the certificate's alternative names (subjectAltName), whole: a DNS name, an e-mail address, a URI or an IP address.",
    ),
    SHA256: Option<Text> = text("sha256", &FINGERPRINT).optional(
        "any certificate",
        "The certificate's fingerprint (openssl x509 -noout -fingerprint -sha256).",
    ),
}

impl Choice for Role {
    const CHOICES: &'static Choices<Role> = &Choices(&[
        ("read", Role::Read, "read status, metrics, flows, pins and the configuration's schema"),
        ("operate", Role::Operate, "also change how traffic is spread: drain, weights, pins"),
        ("admin", Role::Admin, "also change the process: reload"),
    ]);
}

static API_LISTEN: TypedForm<ApiListen> =
    TypedForm::new("an address to listen on", "IP:PORT, such as \"127.0.0.1:9909\", or \"off\"");

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

static TOKEN_HASH: TypedForm<TokenDigest> = TypedForm::new(
    "a token's digest",
    "\"sha256:\" and 64 hexadecimal digits (equipoise api-token FILE prints it)",
);

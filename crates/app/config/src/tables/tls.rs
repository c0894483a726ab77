//! TLS of front doors, and to backends.

use equipoise_tls::Profile;
use rustls::pki_types::ServerName;

use super::super::option::{Choices, Form, Kind, Opt, Table};
use super::acme::AUTO_NAME;
use super::dispatch::PEM_FILE;

/// The option of front doors.
pub(super) const OF_DOOR: Opt =
    Opt::optional("tls", Kind::Table(&TLS), "clients do not use TLS", TLS.help);

static TLS: Table = Table {
    title: "[session.tls]",
    help: "TLS between clients and a front door, tcp or http. http clients that use ALPN have to offer `http/1.1` (or `h2` with `http2`).",
    options: &[
        Opt::optional(
            "auto",
            Kind::Texts(&AUTO_NAME),
            "`certificates` has all",
            "Names for which this process obtains and renews certificates itself, by ACME: one for each name, from the \
             authority of `[acme]`. It verifies each name at port 80 (an http front door without `tls`), at port 443 (this \
             front door), or by a TXT record, if a `[[dns]]` table answers for the name; a wildcard by the latter alone. \
             They come after `certificates`.",
        ),
        Opt::optional(
            "certificates",
            Kind::Briefs(&CERTIFICATE, "chain"),
            "`auto` has all names",
            "The certificates. A client gets one with the name that it asks for (SNI), exact before wildcard, of a key \
             type that it accepts: ECDSA before Ed25519 before RSA. The first is the default for other names. A string \
             is short for a table with only that `chain`.",
        ),
        PROFILE_OF_LISTENER,
        Opt::optional(
            "clients",
            Kind::Table(&CLIENTS),
            "clients are not asked for certificates",
            CLIENTS.help,
        ),
        STRICT,
    ],
};

const PROFILE_OF_LISTENER: Opt = Opt::default(
    "profile",
    Kind::Choice(&PROFILE),
    "\"intermediate\"",
    "Versions and cipher suites, by Mozilla's recommendations.",
);

const STRICT: Opt = Opt::default(
    "strict",
    Kind::Flag,
    "false",
    "There is no default certificate: clients that ask for no name, or for one without a certificate, are refused.",
);

/// The option of the API.
pub(super) const OF_API: Opt =
    Opt::optional("tls", Kind::Table(&API_TLS), "`listen` speaks HTTP in the clear", API_TLS.help);

static API_TLS: Table = Table {
    title: "[api.tls]",
    help: "TLS of `listen`, as of a front door. A reload may add, change and remove it; open connections continue.",
    options: &[
        Opt::required(
            "certificates",
            Kind::Briefs(&API_CERTIFICATE, "chain"),
            "The certificates, as in [session.tls].",
        ),
        PROFILE_OF_LISTENER,
        Opt::optional(
            "clients",
            Kind::Table(&API_CLIENTS),
            "clients are not asked for certificates",
            API_CLIENTS.help,
        ),
        STRICT,
    ],
};

static API_CERTIFICATE: Table = Table {
    title: "[[api.tls.certificates]]",
    help: CERTIFICATE.help,
    options: CERTIFICATE.options,
};

static API_CLIENTS: Table = Table {
    title: "[api.tls.clients]",
    help: "Certificates of clients (mTLS). [[api.client]] gives their holders roles.",
    options: CLIENTS.options,
};

/// The option of pools.
pub(super) const OF_POOL: Opt =
    Opt::optional("tls", Kind::Table(&TO_BACKENDS), "backends do not use TLS", TO_BACKENDS.help);

static TO_BACKENDS: Table = Table {
    title: "[pool.tls]",
    help: "TLS to the pool's backends, for traffic and health checks. `tls = {}` verifies them by the system's \
           authorities. http pools offer `http/1.1` by ALPN.",
    options: &[
        Opt::optional(
            "server-name",
            Kind::Text(&SERVER_NAME),
            "the backend's host name or IP address; `localhost` of a unix socket",
            "The name that each backend is asked for (SNI), and that its certificate has to have.",
        ),
        Opt::optional(
            "ca",
            Kind::Text(&PEM_FILE),
            "the system's authorities",
            "A file in PEM with the authorities that sign for backends, or with the backends' own certificates. \
             `equipoise reload` reads it again.",
        ),
        Opt::optional(
            "certificate",
            Kind::Text(&PEM_FILE),
            "backends that ask for a certificate get none",
            "A file in PEM with this side's certificate, then those of its issuers. A changed file is used within \
             seconds.",
        ),
        Opt::optional(
            "key",
            Kind::Text(&PEM_FILE),
            "`certificate` has it",
            "The private key of `certificate`, not encrypted.",
        ),
        Opt::default(
            "profile",
            Kind::Choice(&PROFILE),
            "\"intermediate\"",
            "Versions and cipher suites, as in [session.tls].",
        ),
        Opt::default(
            "verify",
            Kind::Flag,
            "true",
            "Verify backends. Without it anyone on the way can read and change what passes.",
        ),
    ],
};

static SERVER_NAME: Form = Form {
    noun: "a name of a server",
    accepted: "a host name or an IP address, such as \"app.internal\"",
    fits: |text| ServerName::try_from(text).is_ok(),
};

/// The option of front doors.
pub(super) const SNI_OF_DOOR: Opt = Opt::default("sni", Kind::Tables(&SNI), "[]", SNI.help);

static SNI: Table = Table {
    title: "[[session.sni]]",
    help: "tcp without `tls`: the pool for clients that ask for one of these names in their TLS (SNI). The TLS passes to the \
           backend unread. Other clients with TLS go to `pool` of the front door, and those without TLS are refused.",
    options: &[
        Opt::required(
            "names",
            Kind::Texts(&SNI_NAME),
            "Host names. `*.example.com` stands for one label in the place of `*`. Exact names go before wildcards.",
        ),
        Opt::required("pool", Kind::Text(&super::NAME), "The `name` of the pool."),
    ],
};

static SNI_NAME: Form = Form {
    noun: "a host name",
    accepted: "a host name or a wildcard, such as \"www.example.com\" or \"*.example.com\"",
    fits: |text| {
        let name = text.strip_prefix("*.").unwrap_or(text);
        matches!(ServerName::try_from(name), Ok(ServerName::DnsName(_)))
    },
};

static CERTIFICATE: Table = Table {
    title: "[[session.tls.certificates]]",
    help: "Files in PEM with a certificate and its key. Changed files are used within seconds, and at once after `equipoise reload`.",
    options: &[
        Opt::required(
            "chain",
            Kind::Text(&PEM_FILE),
            "The server's certificate, whose DNS names (subjectAltName) it serves, then those of its issuers.",
        ),
        Opt::optional(
            "key",
            Kind::Text(&PEM_FILE),
            "`chain` has it",
            "Its private key, not encrypted.",
        ),
        Opt::optional(
            "ocsp",
            Kind::Text(&DER_FILE),
            "clients have to ask the authority",
            "A file in DER with the authority's OCSP response for the certificate, for clients that ask for it \
             (stapling). One that has expired, or is for another certificate, is not sent; the log has a warning.",
        ),
    ],
};

static DER_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/site.ocsp\"",
    fits: PEM_FILE.fits,
};

static CLIENTS: Table = Table {
    title: "[session.tls.clients]",
    help: "Certificates of clients. http backends learn them from the headers `X-Forwarded-Client-Subject` and \
           `X-Forwarded-Client-SHA256`, which no other sender can set.",
    options: &[
        Opt::required(
            "ca",
            Kind::Text(&PEM_FILE),
            "A file in PEM with the authorities that sign for clients. `equipoise reload` reads it again.",
        ),
        Opt::default(
            "required",
            Kind::Flag,
            "true",
            "Refuse clients without a certificate. A certificate of another authority is always refused.",
        ),
    ],
};

/// `[session.tls] profile`.
pub(in super::super) static PROFILE: Choices<Profile> = Choices(&[
    ("intermediate", Profile::Intermediate, "TLS 1.2 and 1.3"),
    ("modern", Profile::Modern, "TLS 1.3"),
]);

//! TLS of front doors, and to backends.

use equipoise_tls::Profile;
use rustls::pki_types::ServerName;

use super::acme::AUTO_NAME;
use super::dispatch::PEM_FILE;
use crate::key::{
    Briefs, In, OneOf, Text, Texts, briefs, choice, flag, options, shared_options, table, text,
    texts,
};
use crate::option::{Choice, Choices, Form};

shared_options! {
    ListenerTls in DoorTls ApiTls;

    PROFILE: OneOf<Profile> = choice("profile").default(
        &Profile::Intermediate,
        "Versions and cipher suites, by Mozilla's recommendations.",
    ),
    STRICT: bool = flag("strict").default(
        false,
        "There is no default certificate: clients that ask for no name, or for one without a certificate, are refused.",
    ),
}

shared_options! {
    Certificate in DoorCertificate ApiCertificate;

    CHAIN: Option<Text> = text("chain", &PEM_FILE).required(
        "The server's certificate, whose DNS names (subjectAltName) it serves, then those of its issuers.",
    ),
    KEY: Option<Text> = text("key", &PEM_FILE).optional(
        "`chain` has it",
        "Its private key, not encrypted.",
    ),
    OCSP: Option<Text> = text("ocsp", &DER_FILE).optional(
        "clients have to ask the authority",
        "A file in DER with the authority's OCSP response for the certificate, for clients that ask for it \
         (stapling). One that has expired, or is for another certificate, is not sent; the log has a warning.",
    ),
}

shared_options! {
    TlsClients in DoorTlsClients ApiTlsClients;

    CA: Option<Text> = text("ca", &PEM_FILE).required(
        "A file in PEM with the authorities that sign for clients. `equipoise reload` reads it again.",
    ),
    REQUIRED: bool = flag("required").default(
        true,
        "Refuse clients without a certificate. A certificate of another authority is always refused.",
    ),
}

options! {
    DoorTls: "[session.tls]",
    "TLS between clients and a front door, tcp or http. http clients that use ALPN have to offer `http/1.1` (or `h2` with `http2`).";

    AUTO: Option<Texts> = texts("auto", &AUTO_NAME).optional(
        "`certificates` has all",
        "Names for which this process obtains and renews certificates itself, by ACME: one for each name, from the \
         authority of `[acme]`. It verifies each name at port 80 (an http front door without `tls`), at port 443 (this \
         front door), or by a TXT record, if a `[[dns]]` table answers for the name; a wildcard by the latter alone. \
         They come after `certificates`.",
    ),
    CERTIFICATES: Option<Briefs<DoorCertificate>> =
        briefs("certificates", Certificate::CHAIN).optional(
            "`auto` has all names",
            "The certificates. A client gets one with the name that it asks for (SNI), exact before wildcard, of a key \
         type that it accepts: ECDSA before Ed25519 before RSA. The first is the default for other names. A string \
         is short for a table with only that `chain`.",
        ),
    ListenerTls::PROFILE,
    CLIENTS: Option<In<DoorTlsClients>> = table("clients").unless(
        "clients are not asked for certificates",
    ),
    ListenerTls::STRICT,
}

options! {
    ApiTls: "[api.tls]",
    "TLS of `listen`, as of a front door. A reload may add, change and remove it; open connections continue.";

    CERTIFICATES: Option<Briefs<ApiCertificate>> =
        briefs("certificates", Certificate::CHAIN).required(
            "The certificates, as in [session.tls].",
        ),
    ListenerTls::PROFILE,
    CLIENTS: Option<In<ApiTlsClients>> = table("clients").unless(
        "clients are not asked for certificates",
    ),
    ListenerTls::STRICT,
}

options! {
    ApiCertificate: "[[api.tls.certificates]]", DoorCertificate::TABLE.help;

    Certificate::CHAIN,
    Certificate::KEY,
    Certificate::OCSP,
}

options! {
    ApiTlsClients: "[api.tls.clients]",
    "Certificates of clients (mTLS). [[api.client]] gives their holders roles.";

    TlsClients::CA,
    TlsClients::REQUIRED,
}

options! {
    PoolTls: "[pool.tls]",
    "TLS to the pool's backends, for traffic and health checks. `tls = {}` verifies them by the system's \
     authorities. http pools offer `http/1.1` by ALPN.";

    SERVER_NAME: Option<Text> = text("server-name", &SERVER_NAME).optional(
        "the backend's host name or IP address; `localhost` of a unix socket",
        "The name that each backend is asked for (SNI), and that its certificate has to have.",
    ),
    CA: Option<Text> = text("ca", &PEM_FILE).optional(
        "the system's authorities",
        "A file in PEM with the authorities that sign for backends, or with the backends' own certificates. \
         `equipoise reload` reads it again.",
    ),
    CERTIFICATE: Option<Text> = text("certificate", &PEM_FILE).optional(
        "backends that ask for a certificate get none",
        "A file in PEM with this side's certificate, then those of its issuers. A changed file is used within \
         seconds.",
    ),
    KEY: Option<Text> = text("key", &PEM_FILE).optional(
        "`certificate` has it",
        "The private key of `certificate`, not encrypted.",
    ),
    PROFILE: OneOf<Profile> = choice("profile").default(
        &Profile::Intermediate,
        "Versions and cipher suites, as in [session.tls].",
    ),
    VERIFY: bool = flag("verify").default(
        true,
        "Verify backends. Without it anyone on the way can read and change what passes.",
    ),
}

static SERVER_NAME: Form = Form {
    noun: "a name of a server",
    accepted: "a host name or an IP address, such as \"app.internal\"",
    fits: |text| ServerName::try_from(text).is_ok(),
};

options! {
    Sni: "[[session.sni]]",
    "tcp without `tls`: the pool for clients that ask for one of these names in their TLS (SNI). The TLS passes to the \
     backend unread. Other clients with TLS go to `pool` of the front door, and those without TLS are refused.";

    NAMES: Option<Texts> = texts("names", &SNI_NAME).required(
        "Host names. `*.example.com` stands for one label in the place of `*`. Exact names go before wildcards.",
    ),
    POOL: Option<Text> = text("pool", &super::NAME).required("The `name` of the pool."),
}

static SNI_NAME: Form = Form {
    noun: "a host name",
    accepted: "a host name or a wildcard, such as \"www.example.com\" or \"*.example.com\"",
    fits: |text| {
        let name = text.strip_prefix("*.").unwrap_or(text);
        matches!(ServerName::try_from(name), Ok(ServerName::DnsName(_)))
    },
};

options! {
    DoorCertificate: "[[session.tls.certificates]]",
    "Files in PEM with a certificate and its key. Changed files are used within seconds, and at once after `equipoise reload`.";

    Certificate::CHAIN,
    Certificate::KEY,
    Certificate::OCSP,
}

static DER_FILE: Form = Form {
    noun: "a path to a file",
    accepted: "a path with a `/` in it, such as \"/etc/equipoise/site.ocsp\"",
    fits: PEM_FILE.fits,
};

options! {
    DoorTlsClients: "[session.tls.clients]",
    "Certificates of clients. http backends learn them from the headers `X-Forwarded-Client-Subject` and \
     `X-Forwarded-Client-SHA256`, which no other sender can set.";

    TlsClients::CA,
    TlsClients::REQUIRED,
}

/// `[session.tls] profile`.
impl Choice for Profile {
    const CHOICES: &'static Choices<Profile> = &Choices(&[
        ("intermediate", Profile::Intermediate, "TLS 1.2 and 1.3"),
        ("modern", Profile::Modern, "TLS 1.3"),
    ]);
}

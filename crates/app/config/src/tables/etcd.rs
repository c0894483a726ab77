//! Options of an etcd cluster, which several tables have: its members, TLS, and its user.

use equipoise_cluster::ControllerAddress;

use super::super::option::{Form, Kind, Opt, reads_as};
use super::cluster::{HOST_NAME, PATH};

pub(super) static MEMBER: Form = Form {
    noun: "the URL of an etcd member",
    accepted: "http://HOST:PORT or https://HOST:PORT, such as \"http://10.0.0.1:2379\"",
    fits: |text| {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        rest.is_some_and(reads_as::<ControllerAddress>)
    },
};

/// A name in systems other than equipoise, such as that of a user or a service.
pub(super) static WORD: Form = Form {
    noun: "a name",
    accepted: "1 to 128 letters, digits, `.`, `_` and `-`",
    fits: |text| {
        (1..=128).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    },
};

pub(super) const AUTHORITY: Opt = Opt::optional(
    "authority",
    Kind::Text(&PATH),
    "etcd is not encrypted",
    "File with the certificate (PEM) of the authority that signed etcd's certificates; needed for https.",
);

pub(super) const CERTIFICATE: Opt = Opt::optional(
    "certificate",
    Kind::Text(&PATH),
    "etcd requires none",
    "File with the certificate (PEM) that authenticates this process to etcd; needs `key`.",
);

pub(super) const KEY: Opt = Opt::optional(
    "key",
    Kind::Text(&PATH),
    "etcd requires none",
    "File with the certificate's key (PEM).",
);

pub(super) const SERVER_NAME: Opt = Opt::optional(
    "server-name",
    Kind::Text(&HOST_NAME),
    "the host of each URL",
    "The name in etcd's certificates.",
);

pub(super) const USER: Opt =
    Opt::optional("user", Kind::Text(&WORD), "etcd has no users", "User of etcd.");

pub(super) const PASSWORD_FILE: Opt = Opt::optional(
    "password-file",
    Kind::Text(&PATH),
    "etcd has no users",
    "File with the user's password.",
);

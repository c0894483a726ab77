//! Options of an etcd cluster, which several tables have: its members, TLS, and its user.

use equipoise_cluster::ControllerAddress;

use super::cluster::{HOST_NAME, PATH, Store};
use super::discover::EtcdSource;
use crate::key::{Text, shared_options, text};
use crate::option::{Form, reads_as};

shared_options! {
    Etcd in Store EtcdSource;

    AUTHORITY: Option<Text> = text("authority", &PATH).optional(
        "etcd is not encrypted",
        "File with the certificate (PEM) of the authority that signed etcd's certificates; needed for https.",
    ),
    CERTIFICATE: Option<Text> = text("certificate", &PATH).optional(
        "etcd requires none",
        "File with the certificate (PEM) that authenticates this process to etcd; needs `key`.",
    ),
    KEY: Option<Text> = text("key", &PATH).optional(
        "etcd requires none",
        "File with the certificate's key (PEM).",
    ),
    SERVER_NAME: Option<Text> = text("server-name", &HOST_NAME).optional(
        "the host of each URL",
        "The name in etcd's certificates.",
    ),
    USER: Option<Text> = text("user", &WORD).optional("etcd has no users", "User of etcd."),
    PASSWORD_FILE: Option<Text> = text("password-file", &PATH).optional(
        "etcd has no users",
        "File with the user's password.",
    ),
}

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

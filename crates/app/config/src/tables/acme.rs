//! Options of `[acme]`.

use super::dispatch::PEM_FILE;
use crate::key::{Text, Texts, flag, options, text, texts};
use crate::option::Form;

options! {
    Acme: "[acme]",
    "The authority that issues the certificates of `[session.tls] auto`. Its account and the certificates are in \
     the folder `acme` of `[controller] state`.";

    TERMS_AGREED: bool = flag("terms-agreed").default(
        false,
        "You agree to the terms of the authority (https://letsencrypt.org/repository/). `auto` needs it.",
    ),
    EMAIL: Option<Text> = text("email", &EMAIL).optional(
        "the authority cannot write to you",
        "An address to which the authority may write about your certificates.",
    ),
    DIRECTORY: Text = text("directory", &DIRECTORY).default(
        "https://acme-v02.api.letsencrypt.org/directory",
        "URL of the authority's ACME directory. Let's Encrypt has one for tests: \
         https://acme-staging-v02.api.letsencrypt.org/directory.",
    ),
    CA: Option<Text> = text("ca", &PEM_FILE).optional(
        "the authorities of the system",
        "A file in PEM with the authorities of the directory's own certificate.",
    ),
    FOR_NODES: Option<Texts> = texts("for-nodes", &AUTO_NAME).optional(
        "nodes get no certificates",
        "At the controllers of a cluster: names for which they order certificates and give them, with their private \
         keys, to nodes with `from-controllers`, beside the names of their own front doors.",
    ),
    FROM_CONTROLLERS: bool = flag("from-controllers").default(
        false,
        "At a node of a cluster: the certificates of `auto` come from the controllers, which have the names in \
         `for-nodes`. This node orders none.",
    ),
}

/// A name to obtain a certificate for.
pub(super) static AUTO_NAME: Form = Form {
    noun: "a name for a certificate",
    accepted: "a host name of two labels or more, such as \"www.example.org\", or a wildcard of a zone of [[dns]], such as \
               \"*.example.org\"",
    fits: |text| {
        let text = text.strip_prefix("*.").unwrap_or(text);
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(fits)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
        text.len() <= 253
            && text.split('.').count() > 1
            && text.split('.').all(is_label)
            && !text.rsplit('.').next().is_some_and(is_number)
    },
};

static EMAIL: Form = Form {
    noun: "an email address",
    accepted: "an address such as \"ops@example.org\"",
    fits: |text| {
        let fits = |b: u8| b.is_ascii_graphic() && !b"<>,;?&%".contains(&b);
        text.len() <= 254
            && text.bytes().all(fits)
            && text.split_once('@').is_some_and(|(user, host)| {
                !user.is_empty() && !host.is_empty() && !host.contains('@')
            })
    },
};

static DIRECTORY: Form = Form {
    noun: "the URL of an ACME directory",
    accepted: "https://HOST[:PORT]/PATH, such as \"https://acme-v02.api.letsencrypt.org/directory\"",
    fits: |text| {
        let rest = text.strip_prefix("https://").unwrap_or_default();
        let authority = rest.split('/').next().unwrap_or_default();
        !authority.is_empty()
            && !authority.contains('@')
            && text.len() <= 2000
            && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>#\\".contains(&b))
    },
};

//! Names for which this process obtains certificates itself.

use crate::certificate::{Certificate, CertificateFiles};

/// A name for which this process obtains certificates itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutomaticName {
    /// In lower case.
    pub name: String,
    /// The files of its certificate. They do not exist before the first one.
    pub files: CertificateFiles,
}

impl AutomaticName {
    /// Whether its certificate is for `name`. A wildcard stands for one label.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match (self.name.strip_prefix("*."), name.split_once('.')) {
            (Some(parent), Some((_, rest))) => parent == rest,
            _ => self.name == name,
        }
    }
}

/// The names of these that have no certificate.
pub(crate) fn awaited<'n>(
    names: &'n [AutomaticName],
    certificates: &'n [Certificate],
) -> impl Iterator<Item = &'n AutomaticName> {
    let has = |name: &AutomaticName| certificates.iter().any(|it| it.files() == Some(&name.files));
    names.iter().filter(move |name| !has(name))
}

//! The place of an etcd cluster: members, a folder, and credentials.

use std::path::{Path, PathBuf};

use equipoise_store::EtcdPlace;

use super::key::{Key, Text, Texts};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::Etcd;
use super::view::{Location, View};
use super::{FileKind, Surroundings};

/// Reads the place from a table. `members` is the option that has its URLs.
pub(super) fn place<T>(
    table: View<'_, T>,
    values: View<'_, Etcd>,
    members: Key<T, Option<Texts>>,
    folder: Option<&str>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<EtcdPlace> {
    let endpoints = table.get(members)?;
    let mut checks = Checks { values, around, findings };
    let authority = checks.file(Etcd::AUTHORITY);
    let encrypted = endpoints.iter().filter(|url| url.starts_with("https://")).count();
    if encrypted > 0 && encrypted < endpoints.len() {
        checks.error(
            table.location(members),
            "some are http and some https; accepted: all of one kind",
        );
    } else if encrypted > 0 && authority.is_none() && !values.given(Etcd::AUTHORITY) {
        let text =
            "https needs the certificate of etcd's authority; accepted: https with `authority`";
        checks.error(table.location(members), text);
    } else if encrypted == 0 && values.given(Etcd::AUTHORITY) {
        let text = "the URLs are http, which is not encrypted; accepted: https://HOST:PORT, or no `authority`";
        checks.error(values.location(Etcd::AUTHORITY), text);
    }
    let (certificate, key) = (checks.file(Etcd::CERTIFICATE), checks.file(Etcd::KEY));
    checks.warn(Etcd::KEY, Readers::Owner, "the key");
    checks.both(Etcd::CERTIFICATE, Etcd::KEY);
    let password = checks.file(Etcd::PASSWORD_FILE);
    checks.both(Etcd::USER, Etcd::PASSWORD_FILE);
    checks.warn(Etcd::PASSWORD_FILE, Readers::OwnerAndGroup, "the password");
    Some(EtcdPlace {
        endpoints: endpoints.to_vec(),
        namespace: folder?.to_string(),
        authority,
        identity: certificate.zip(key),
        server_name: values.get(Etcd::SERVER_NAME).map(Into::into),
        user: values.get(Etcd::USER).map(Into::into).zip(password),
    })
}

struct Checks<'c, 's> {
    values: View<'c, Etcd>,
    around: &'c Surroundings<'c>,
    findings: &'c mut Findings<'s>,
}

impl Checks<'_, '_> {
    fn error(&mut self, option: Location, text: impl Into<String>) {
        self.findings.error(option.at, &option.path, text.into());
    }

    fn both(&mut self, one: Key<Etcd, Option<Text>>, other: Key<Etcd, Option<Text>>) {
        for (given, missing) in [(one, other), (other, one)] {
            if self.values.given(given) && !self.values.given(missing) {
                let text =
                    format!("is given without `{}`; accepted: both or neither", missing.name());
                self.error(self.values.location(given), text);
            }
        }
    }

    fn warn(&mut self, option: Key<Etcd, Option<Text>>, readers: Readers, secret: &str) {
        secret_file::warn(self.values, option, readers, secret, self.around, self.findings);
    }

    /// Reads a file, which must be readable now.
    fn file(&mut self, option: Key<Etcd, Option<Text>>) -> Option<PathBuf> {
        let path = self.values.get(option)?;
        if let Err(error) = (self.around.read)(Path::new(path), FileKind::Certificates) {
            let text =
                format!("\"{path}\" cannot be read: {error}; accepted: a file of text (PEM)");
            self.error(self.values.location(option), text);
        }
        Some(path.into())
    }
}

//! The place of an etcd cluster: members, a folder, and credentials.

use std::path::{Path, PathBuf};

use equipoise_store::EtcdPlace;

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::values::Values;
use super::{FileKind, Surroundings};

/// Reads the place from a table. `members` and `folder` are the options that have its URLs and its
/// folder.
pub(super) fn place(
    values: &Values,
    members: &'static str,
    folder: &'static str,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<EtcdPlace> {
    let endpoints = values.texts(members)?;
    let mut checks = Checks { values, around, findings };
    let authority = checks.file("authority");
    let encrypted = endpoints.iter().filter(|url| url.starts_with("https://")).count();
    if encrypted > 0 && encrypted < endpoints.len() {
        checks.error(members, "some are http and some https; accepted: all of one kind");
    } else if encrypted > 0 && authority.is_none() && !values.given("authority") {
        let text =
            "https needs the certificate of etcd's authority; accepted: https with `authority`";
        checks.error(members, text);
    } else if encrypted == 0 && values.given("authority") {
        let text = "the URLs are http, which is not encrypted; accepted: https://HOST:PORT, or no `authority`";
        checks.error("authority", text);
    }
    let (certificate, key) = (checks.file("certificate"), checks.file("key"));
    checks.warn("key", Readers::Owner, "the key");
    checks.both("certificate", "key");
    let password = checks.file("password-file");
    checks.both("user", "password-file");
    checks.warn("password-file", Readers::OwnerAndGroup, "the password");
    Some(EtcdPlace {
        endpoints: endpoints.to_vec(),
        namespace: values.text(folder)?.to_string(),
        authority,
        identity: certificate.zip(key),
        server_name: values.text("server-name").map(Into::into),
        user: values.text("user").map(Into::into).zip(password),
    })
}

struct Checks<'c, 's> {
    values: &'c Values,
    around: &'c Surroundings<'c>,
    findings: &'c mut Findings<'s>,
}

impl Checks<'_, '_> {
    fn error(&mut self, option: &str, text: impl Into<String>) {
        self.findings.error(self.values.at(option), &self.values.path_of(option), text.into());
    }

    fn both(&mut self, one: &'static str, other: &'static str) {
        for (given, missing) in [(one, other), (other, one)] {
            if self.values.given(given) && !self.values.given(missing) {
                let text = format!("is given without `{missing}`; accepted: both or neither");
                self.error(given, text);
            }
        }
    }

    fn warn(&mut self, option: &'static str, readers: Readers, secret: &str) {
        secret_file::warn(self.values, option, readers, secret, self.around, self.findings);
    }

    /// Reads a file, which must be readable now.
    fn file(&mut self, option: &'static str) -> Option<PathBuf> {
        let path = self.values.text(option)?;
        if let Err(error) = (self.around.read)(Path::new(path), FileKind::Certificates) {
            let text =
                format!("\"{path}\" cannot be read: {error}; accepted: a file of text (PEM)");
            self.error(option, text);
        }
        Some(path.into())
    }
}

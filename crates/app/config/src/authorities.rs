//! The option `ca` of a service that this process asks over TLS.

use std::path::Path;

use super::key::{Key, Text};
use super::problem::Findings;
use super::view::View;
use super::{FileKind, Surroundings};

/// The certificates in the file of `ca`, in PEM; `None` without the option.
pub(super) fn read<T>(
    values: View<'_, T>,
    ca: Key<T, Option<Text>>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<String> {
    let path = values.get(ca)?;
    let wrong = match (around.read)(Path::new(path), FileKind::Certificates) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => return Some(text),
        Ok(_) => format!("\"{path}\" has no certificate in PEM (-----BEGIN CERTIFICATE-----)"),
        Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a file of PEM"),
    };
    findings.error(values.at(ca), &values.path_of(ca), wrong);
    None
}

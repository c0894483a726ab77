//! Builds `hash-by` and `[pool.sticky]`.

use std::fmt::Write as _;

use equipoise_core::hash::key_hash;
use equipoise_session::config::{HashBy, StickyCookie};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::text::HashedBy;
use super::values::{Values, chosen};
use super::{Surroundings, tables};

/// The part of requests that is hashed.
pub(super) fn hash_by(pool: &Values) -> HashBy {
    pool.parsed("hash-by").map(|HashedBy(part)| part).unwrap_or_default()
}

/// The sticky cookie of a pool.
pub(super) fn sticky(
    pool: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<StickyCookie> {
    let values = pool.table("sticky")?;
    let same_site = chosen(values, "same-site", &tables::SAME_SITE);
    let path = values.text("path").unwrap_or("/");
    let mut attributes = format!("; Path={path}; HttpOnly; SameSite={same_site}");
    if let Some(age) = values.duration_if_any("max-age") {
        // Writing to a string does not fail.
        let _ = write!(attributes, "; Max-Age={}", age.as_secs());
    }
    Some(StickyCookie {
        name: values.text("cookie")?.into(),
        attributes: attributes.into(),
        seed: seed(values, around, findings),
    })
}

fn seed(values: &Values, around: &Surroundings<'_>, findings: &mut Findings<'_>) -> u64 {
    let Some(file) = values.text("secret") else { return 0 };
    secret_file::warn(values, "secret", Readers::OwnerAndGroup, "the secret", around, findings);
    match secret_file::read_long(file, around) {
        Ok(secret) => key_hash(secret.as_bytes()),
        Err(wrong) => {
            findings.error(values.at("secret"), &values.path_of("secret"), wrong);
            0
        }
    }
}

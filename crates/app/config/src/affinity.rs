//! Builds `hash-by` and `[pool.sticky]`.

use std::fmt::Write as _;

use equipoise_core::hash::key_hash;
use equipoise_session::config::{HashBy, StickyCookie};

use super::Surroundings;
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Pool, Sticky};
use super::view::View;

/// The part of requests that is hashed.
pub(super) fn hash_by(pool: View<'_, Pool>) -> HashBy {
    pool.get(Pool::HASH_BY).0
}

/// The sticky cookie of a pool.
pub(super) fn sticky(
    pool: View<'_, Pool>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<StickyCookie> {
    let values = pool.get(Pool::STICKY)?;
    let same_site = values.get(Sticky::SAME_SITE);
    let path = values.get(Sticky::PATH);
    let mut attributes = format!("; Path={path}; HttpOnly; SameSite={same_site:?}");
    if let Some(age) = values.get(Sticky::MAX_AGE) {
        // Writing to a string does not fail.
        let _ = write!(attributes, "; Max-Age={}", age.as_secs());
    }
    Some(StickyCookie {
        name: values.get(Sticky::COOKIE).into(),
        attributes: attributes.into(),
        seed: seed(values, around, findings),
    })
}

fn seed(values: View<'_, Sticky>, around: &Surroundings<'_>, findings: &mut Findings<'_>) -> u64 {
    let Some(file) = values.get(Sticky::SECRET) else { return 0 };
    let option = Sticky::SECRET;
    secret_file::warn(values, option, Readers::OwnerAndGroup, "the secret", around, findings);
    match secret_file::read_long(file, around) {
        Ok(secret) => key_hash(secret.as_bytes()),
        Err(wrong) => {
            findings.error(values.at(Sticky::SECRET), &values.path_of(Sticky::SECRET), wrong);
            0
        }
    }
}

//! Labels of backends.

use super::key::{Key, Texts};
use super::place::backend_name;
use super::problem::Findings;
use super::tables::{Backend, File, Pool};
use super::view::View;

/// Reports a key that occurs twice. A name with two values for a key would choose no backend.
pub(super) fn check<T>(
    values: View<'_, T>,
    labels: Key<T, Option<Texts>>,
    findings: &mut Findings<'_>,
) {
    let key = |label: &str| label.split_once('=').map(|(key, _)| key.to_owned());
    let mut keys: Vec<_> =
        values.get(labels).unwrap_or_default().iter().filter_map(|l| key(l)).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone());
    if let Some(key) = twice {
        let text = format!("`{key}` is listed twice; accepted: each key once");
        findings.error(values.at(labels), &values.path_of(labels), text);
    }
}

/// The labels of a backend, by the names of its pool and itself.
pub(super) fn of_backend<'f>(file: View<'f, File>, pool: &str, backend: &str) -> &'f [String] {
    let pool = file.get(File::POOL).iter().find(|values| values.get(Pool::NAME) == Some(pool));
    let mut backends = pool.into_iter().flat_map(|pool| pool.get(Pool::BACKENDS));
    let found = backends.find(|values| backend_name(*values).is_some_and(|name| *name == *backend));
    found.and_then(|values| values.get(Backend::LABELS)).unwrap_or_default()
}

/// Whether all of `wanted` are among `labels`.
pub(super) fn has_all(labels: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|label| labels.contains(label))
}

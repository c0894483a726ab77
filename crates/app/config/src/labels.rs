//! Labels of backends.

use super::place::backend_name;
use super::problem::Findings;
use super::values::Values;

/// The option of backends and of names that choose backends.
const LABELS: &str = "labels";

/// Reports a key that occurs twice. A name with two values for a key would choose no backend.
pub(super) fn check(values: &Values, findings: &mut Findings<'_>) {
    let key = |label: &str| label.split_once('=').map(|(key, _)| key.to_owned());
    let mut keys: Vec<_> =
        values.texts(LABELS).unwrap_or_default().iter().filter_map(|l| key(l)).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone());
    if let Some(key) = twice {
        let text = format!("`{key}` is listed twice; accepted: each key once");
        findings.error(values.at(LABELS), &values.path_of(LABELS), text);
    }
}

/// The labels of a backend, by the names of its pool and itself.
pub(super) fn of_backend<'f>(file: &'f Values, pool: &str, backend: &str) -> &'f [String] {
    let pool = file.tables("pool").iter().find(|values| values.text("name") == Some(pool));
    let mut backends = pool.into_iter().flat_map(|pool| pool.tables("backends"));
    let found = backends.find(|values| backend_name(values).is_some_and(|name| *name == *backend));
    found.and_then(|values| values.texts(LABELS)).unwrap_or_default()
}

/// Whether all of `wanted` are among `labels`.
pub(super) fn has_all(labels: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|label| labels.contains(label))
}

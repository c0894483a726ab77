//! Lists of backends in JSON or TOML: our own form, and that of Prometheus' file and HTTP
//! discovery. Pure.
//!
//! Ours is a table with `backends`, a list of addresses or of tables:
//!
//! ```json
//! {"backends": ["10.0.0.1:80", {"address": "10.0.0.2:80", "weight": 5, "labels": {"zone": "a"}}]}
//! ```
//!
//! Prometheus' is a list of groups: `[{"targets": ["10.0.0.1:80"], "labels": {"zone": "a"}}]`.
//!
//! A list is used as a whole or not at all: otherwise an entry with an error would remove a
//! backend.

use std::collections::BTreeMap;

use equipoise_core::Weight;
use serde_json::{Map, Value};

use crate::backend::Found;

/// Largest answer of a source, in bytes. 10,000 backends need about 1 MB.
pub(crate) const BYTES_MAX: u64 = 4 << 20;

/// The error of a list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("not JSON: {0}")]
    Json(serde_json::Error),
    #[error("not TOML: {0}")]
    Toml(String),
    #[error("{place}: {text}")]
    Entry { place: String, text: String },
}

fn wrong(place: &str, text: impl Into<String>) -> ListError {
    ListError::Entry { place: place.into(), text: text.into() }
}

/// Reads a list in JSON, in our form or that of Prometheus.
///
/// # Errors
/// [`ListError`].
pub(crate) fn json(text: &[u8]) -> Result<Vec<Found>, ListError> {
    match serde_json::from_slice(text).map_err(ListError::Json)? {
        Value::Object(table) => ours(&table),
        Value::Array(groups) => prometheus(&groups),
        _ => Err(wrong(
            "the document",
            "accepted: {\"backends\": [...]}, or the groups of Prometheus",
        )),
    }
}

/// Reads a list in TOML, in our form.
///
/// # Errors
/// [`ListError`].
pub(crate) fn toml(text: &str) -> Result<Vec<Found>, ListError> {
    // The message of the error has several lines, with the source.
    let one_line = |error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ListError::Toml(line + &error.message().replace('\n', ", "))
    };
    ours(&toml::from_str(text).map_err(one_line)?)
}

/// Reads one backend: an address, or a table in JSON. `place` names it in errors.
///
/// # Errors
/// [`ListError`].
pub(crate) fn entry(text: &str, place: &str) -> Result<Found, ListError> {
    let text = text.trim();
    if !text.starts_with('{') {
        return at(text, place);
    }
    backend(&serde_json::from_str(text).map_err(ListError::Json)?, place)
}

fn ours(table: &Map<String, Value>) -> Result<Vec<Found>, ListError> {
    only(table, "the document", &["backends"])?;
    let Some(Value::Array(entries)) = table.get("backends") else {
        return Err(wrong("backends", "missing, or no list; accepted: a list, which may be empty"));
    };
    let each = entries.iter().enumerate();
    each.map(|(at, entry)| backend(entry, &format!("backends[{at}]"))).collect()
}

fn backend(entry: &Value, place: &str) -> Result<Found, ListError> {
    let table = match entry {
        Value::String(address) => return at(address, place),
        Value::Object(table) => table,
        _ => return Err(wrong(place, "accepted: an address, or a table with `address`")),
    };
    only(table, place, &["address", "name", "weight", "backup", "labels"])?;
    let Some(Value::String(address)) = table.get("address") else {
        return Err(wrong(place, "no `address`; accepted: IP:PORT or HOST:PORT"));
    };
    let mut found = at(address, place)?;
    let inside = |option: &str| format!("{place}.{option}");
    if let Some(name) = table.get("name") {
        let name = name.as_str().ok_or_else(|| wrong(&inside("name"), "accepted: a string"))?;
        found.name = Some(name.into());
    }
    if let Some(weight) = table.get("weight") {
        let fits = weight.as_u64().and_then(|it| Weight::new(u16::try_from(it).ok()?).ok());
        let refused = || wrong(&inside("weight"), "accepted: a whole number, 0 to 1000");
        found.weight = fits.ok_or_else(refused)?;
    }
    if let Some(backup) = table.get("backup") {
        let refused = || wrong(&inside("backup"), "accepted: true or false");
        found.backup = backup.as_bool().ok_or_else(refused)?;
    }
    if let Some(stated) = table.get("labels") {
        found.labels = labels(stated, &inside("labels"))?;
    }
    Ok(found)
}

/// # Source
/// Prometheus, "Configuration", `<file_sd_config>` and `<http_sd_config>`.
fn prometheus(groups: &[Value]) -> Result<Vec<Found>, ListError> {
    let mut found = Vec::new();
    for (at_group, group) in groups.iter().enumerate() {
        let place = format!("[{at_group}]");
        // A list of our own backends, without the document around it, is no group either.
        let Some(group) = group.as_object().filter(|group| !group.contains_key("address")) else {
            return Err(wrong(
                &place,
                "accepted: a group with `targets`, or {\"backends\": [...]} as the document",
            ));
        };
        only(group, &place, &["targets", "labels"])?;
        let Some(Value::Array(targets)) = group.get("targets") else {
            return Err(wrong(&place, "no `targets`; accepted: a list of HOST:PORT"));
        };
        let labels = match group.get("labels") {
            Some(stated) => labels(stated, &format!("{place}.labels"))?,
            None => BTreeMap::new(),
        };
        for (at_target, target) in targets.iter().enumerate() {
            let place = format!("{place}.targets[{at_target}]");
            let target = target.as_str().ok_or_else(|| wrong(&place, "accepted: a string"))?;
            found.push(Found { labels: labels.clone(), ..at(target, &place)? });
        }
    }
    Ok(found)
}

fn at(address: &str, place: &str) -> Result<Found, ListError> {
    address.parse().map(Found::at).map_err(|error| wrong(place, format!("{error}")))
}

fn labels(stated: &Value, place: &str) -> Result<BTreeMap<String, String>, ListError> {
    let refused = || wrong(place, "accepted: a table of strings");
    let table = stated.as_object().ok_or_else(refused)?;
    let pair = |(key, value): (&String, &Value)| {
        value.as_str().map(|value| (key.clone(), value.to_string())).ok_or_else(refused)
    };
    table.iter().map(pair).collect()
}

/// Refuses keys that are not known, such as a misspelt `wieght`.
fn only(table: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), ListError> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(other) => {
            let other: String = other.chars().take(60).collect();
            Err(wrong(place, format!("unknown key {other:?}; accepted: {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(text: &str) -> String {
        json(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn own_and_prometheus_lists_read_as_equal_backends() {
        let ours = r#"{"backends": ["10.0.0.1:80", {"address": "app.internal:81", "labels": {"zone": "a"}}]}"#;
        let theirs = r#"[{"targets": ["10.0.0.1:80"]}, {"targets": ["app.internal:81"], "labels": {"zone": "a"}}]"#;
        let in_toml =
            "backends = ['10.0.0.1:80', { address = 'app.internal:81', labels = { zone = 'a' } }]";
        let found = json(ours.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].labels["zone"], "a");
        assert_eq!(json(theirs.as_bytes()).unwrap(), found);
        assert_eq!(toml(in_toml).unwrap(), found);
    }

    #[test]
    fn a_table_has_every_property_of_a_backend() {
        let text =
            "[[backends]]\naddress = '10.0.0.1:80'\nname = 'b1'\nweight = 0\nbackup = true\n";
        let found = toml(text).unwrap().remove(0);
        assert_eq!(
            (found.name.as_deref(), found.weight.get(), found.backup),
            (Some("b1"), 0, true)
        );
        assert_eq!(json(b"{\"backends\": []}").unwrap(), []);
        assert_eq!(json(b"[]").unwrap(), []);
    }

    #[test]
    fn an_error_names_its_place_and_the_accepted_form() {
        for (text, part) in [
            ("", "not JSON: EOF"),
            ("{}", "backends: missing, or no list"),
            ("7", "the document: accepted"),
            ("{\"backend\": []}", "unknown key \"backend\"; accepted: backends"),
            (
                "{\"backends\": [\"10.0.0.1\"]}",
                "backends[0]: \"10.0.0.1\" is not a backend's address",
            ),
            (
                "[{\"address\": \"10.0.0.1:80\"}]",
                "[0]: accepted: a group with `targets`, or {\"backends\"",
            ),
            ("{\"backends\": [7]}", "backends[0]: accepted: an address"),
            ("{\"backends\": [{\"weight\": 1}]}", "backends[0]: no `address`"),
            (
                "{\"backends\": [{\"address\": \"a:1\", \"weight\": 1001}]}",
                "backends[0].weight: accepted: a whole number, 0 to 1000",
            ),
            ("{\"backends\": [{\"address\": \"a:1\", \"wieght\": 1}]}", "unknown key \"wieght\""),
            (
                "{\"backends\": [{\"address\": \"a:1\", \"labels\": {\"a\": 1}}]}",
                "backends[0].labels: accepted: a table of strings",
            ),
            (
                "[{\"targets\": [\"a:1\", \"a\"]}]",
                "[0].targets[1]: \"a\" is not a backend's address",
            ),
            ("[\"a:1\"]", "[0]: accepted: a group with `targets`"),
        ] {
            assert!(said(text).contains(part), "{text}: {}", said(text));
        }
        let error = toml("backends = [\n1 2]").unwrap_err().to_string();
        assert!(error.starts_with("not TOML: line 2: ") && !error.contains('\n'), "{error}");
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>, text: String) {
            let _ = (json(&bytes), json(text.as_bytes()), toml(&text));
        }
    }
}

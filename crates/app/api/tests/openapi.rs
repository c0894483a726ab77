//! The API's description in docs/openapi.json.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::path::PathBuf;

use common::Recorder;
use serde_json::Value;

#[test]
fn the_description_that_is_checked_in_is_current() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/openapi.json");
    let document = format!("{:#}\n", equipoise_api::document::<Recorder>());
    if std::env::var_os("GOLDEN_WRITE").is_some() {
        std::fs::write(&file, &document).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == document,
        "docs/openapi.json is out of date; rewrite it: \
         GOLDEN_WRITE=1 cargo test -p equipoise-api --test openapi"
    );
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                found.push(reference.clone());
            }
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_schema() {
    let document = equipoise_api::document::<Recorder>();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("all is in this document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

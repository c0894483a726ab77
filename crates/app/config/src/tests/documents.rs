//! The reference page and the schema agree with what the file's reader accepts.

use std::path::PathBuf;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::every_table::{EVERY_TABLE, outcome, parsed};
use crate::key::Options as _;
use crate::option::Absent;
use crate::tables::{CHECK_TYPES, Health};
use crate::{reference, schema};

#[test]
fn the_reference_page_is_current() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference.md");
    let page = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        page == reference::reference(),
        "docs/reference.md is out of date; rewrite it: cargo build && \
         target/debug/equipoise schema --reference > docs/reference.md"
    );
}

/// The example file on the reference page.
fn example() -> &'static str {
    let rest = reference::HEAD.split("```toml\n").nth(1);
    rest.and_then(|rest| rest.split("```").next()).expect("the page begins with an example")
}

#[test]
fn the_reference_page_shows_a_file_that_loads() {
    assert_eq!(parsed(example()).warnings, []);
}

/// Converts TOML to JSON.
fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => number.as_str().parse::<u64>().map_or(Value::Null, Value::from),
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(array) => array.iter().map(|element| to_json(element.get_ref())).collect(),
        DeValue::Table(table) => table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref())))
            .collect(),
    }
}

/// Evaluates the part of JSON Schema that `schema` uses, by the specification.
fn accepts(schema: &Value, value: &Value) -> bool {
    let any = |key: &str| {
        let schemas = schema.get(key).and_then(Value::as_array);
        schemas.is_none_or(|schemas| schemas.iter().any(|schema| accepts(schema, value)))
    };
    let typed = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("unknown type {other}"),
        None => true,
    };
    let in_bounds = value.as_f64().is_none_or(|number| {
        number >= schema.get("minimum").and_then(Value::as_f64).unwrap_or(f64::MIN)
            && number <= schema.get("maximum").and_then(Value::as_f64).unwrap_or(f64::MAX)
    });
    let required = schema.get("required").and_then(Value::as_array);
    let members = value.as_object().is_none_or(|object| {
        let known = schema.get("properties");
        let member =
            |(key, value)| known.is_none_or(|k| k.get(key).is_some_and(|s| accepts(s, value)));
        object.iter().all(member)
            && required.is_none_or(|keys| {
                keys.iter().all(|key| object.contains_key(key.as_str().unwrap()))
            })
    });
    let items = schema.get("items").zip(value.as_array());
    let items =
        items.is_none_or(|(schema, array)| array.iter().all(|element| accepts(schema, element)));
    let constant = schema.get("const").is_none_or(|constant| constant == value);
    typed && in_bounds && members && items && constant && any("anyOf") && any("oneOf")
}

#[test]
fn the_help_of_checks_names_every_type() {
    for kind in CHECK_TYPES {
        let named = format!("`{}`", kind.option.name());
        assert!(Health::TABLE.help.contains(&named), "{named}: {}", Health::TABLE.help);
        for other in CHECK_TYPES.iter().filter(|it| it.option.name() != kind.option.name()) {
            let Absent::Means(absent) = other.option.opt.absent else { panic!("a default") };
            assert!(absent.contains(&named), "{named}: {absent}");
        }
    }
}

/// Converts JSON without nulls to TOML: a line for each member, with inline tables.
fn to_toml(file: &Value) -> String {
    fn inline(value: &Value) -> String {
        let list = |values: Vec<String>| values.join(", ");
        match value {
            Value::Object(members) => {
                let member = |(key, value)| format!("{key} = {}", inline(value));
                format!("{{ {} }}", list(members.iter().map(member).collect()))
            }
            Value::Array(elements) => format!("[{}]", list(elements.iter().map(inline).collect())),
            scalar => scalar.to_string(),
        }
    }
    let members = file.as_object().unwrap().iter();
    members.map(|(key, value)| format!("{key} = {}\n", inline(value))).collect()
}

#[test]
fn the_schema_and_the_loader_accept_valid_files_and_reject_invalid_values() {
    let schema = schema::schema();
    let json = |toml: &str| to_json(&DeValue::Table(DeTable::parse(toml).unwrap().into_inner()));
    assert!(accepts(&schema, &json(EVERY_TABLE)));
    let file = json(example());
    assert!(accepts(&schema, &file));
    assert!(outcome(&to_toml(&file)).is_ok(), "{}", to_toml(&file));
    for (pointer, wrong) in [
        ("/pool/0/retries", serde_json::json!(11)),
        ("/pool/0/scheduler", "fastest".into()),
        ("/pool/0/backends/0", 1.into()),
        ("/pool/0/backends/1/weight", serde_json::json!(1001)),
        ("/session/0", serde_json::json!({ "listen": "0.0.0.0:80", "protocol": "http" })),
        ("/pool/0/health", serde_json::json!({ "https": "/" })),
    ] {
        let mut file = file.clone();
        *file.pointer_mut(pointer).unwrap() = wrong;
        assert!(!accepts(&schema, &file), "{pointer}");
        let errors = outcome(&to_toml(&file)).err().map(|errors| errors.to_string());
        let option = pointer.split('/').rfind(|part| part.parse::<usize>().is_err()).unwrap();
        assert!(errors.as_ref().is_some_and(|it| it.contains(option)), "{pointer}: {errors:?}");
    }
}

//! Writes the JSON Schema of the configuration file, for editors.

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::option::{Absent, Kind, Opt, Table};
use super::tables;

/// The schema of the whole file (draft 2020-12).
pub fn schema() -> Value {
    let mut schema = table(&tables::FILE);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "equipoise configuration".into();
    schema
}

fn table(table: &Table) -> Value {
    let properties: Map<_, _> =
        table.options.iter().map(|option| (option.name.to_string(), property(option))).collect();
    let required: Vec<_> = table
        .options
        .iter()
        .filter(|option| matches!(option.absent, Absent::Required))
        .map(|option| option.name)
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required,
    })
}

fn property(option: &Opt) -> Value {
    let mut property = kind(&option.kind);
    let accepted = match option.kind {
        Kind::Duration(..) | Kind::Size(..) | Kind::Text(_) | Kind::Texts(_) => {
            format!(" Accepted: {}.", option.kind.accepted())
        }
        _ => String::new(),
    };
    let absent = match option.absent {
        Absent::Means(meaning) => format!(" If absent: {meaning}."),
        _ => String::new(),
    };
    property["description"] = format!("{}{accepted}{absent}", option.help).into();
    if let Absent::Default(toml) = option.absent {
        let value = DeValue::parse(toml).expect("defaults are TOML: a test reads every one");
        property["default"] = to_json(value.get_ref());
    }
    property
}

fn kind(of: &Kind) -> Value {
    match of {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Count(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::CountOr(min, max, words) => json!({
            "anyOf": [kind(&Kind::Count(*min, *max)), kind(&Kind::Choice(*words))],
        }),
        Kind::Number(min, max) => json!({ "type": "number", "minimum": min, "maximum": max }),
        Kind::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Duration(..) => json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" }),
        Kind::Size(..) => json!({ "type": "string", "pattern": "^[0-9]+([KMGT]i?)?B$" }),
        Kind::Choice(choices) => {
            let words = choices.words().into_iter();
            let words = words.map(|(word, help)| json!({ "const": word, "description": help }));
            json!({ "type": "string", "oneOf": words.collect::<Vec<_>>() })
        }
        Kind::Text(_) => json!({ "type": "string", "minLength": 1 }),
        Kind::Texts(_) => {
            let text = json!({ "type": "string", "minLength": 1 });
            json!({ "anyOf": [text, { "type": "array", "items": text }] })
        }
        Kind::Table(spec) => table(spec),
        Kind::Tables(spec) => json!({ "type": "array", "items": table(spec) }),
        Kind::Briefs(spec, brief) => {
            let option = spec.option(brief).expect("a brief names an option of its table");
            json!({ "type": "array", "items": { "anyOf": [property(option), table(spec)] } })
        }
    }
}

/// Converts TOML to JSON.
pub(super) fn to_json(value: &DeValue<'_>) -> Value {
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

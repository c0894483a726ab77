//! Writes the JSON Schema of the configuration file, for editors.

use serde_json::{Map, Value, json};

use super::key::Options as _;
use super::option::{Absent, Kind, Opt, Table, Usual};
use super::tables::File;
use super::text::{show_duration, show_size};

/// The schema of the whole file (draft 2020-12).
pub fn schema() -> Value {
    let mut schema = table(File::TABLE);
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
    if let Absent::Default(usual) = option.absent {
        property["default"] = default(usual);
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

fn default(usual: Usual) -> Value {
    match usual {
        Usual::Flag(flag) => flag.into(),
        Usual::Count(count) => count.into(),
        Usual::Fraction(number) => number.into(),
        Usual::Duration(time) => show_duration(time).into(),
        Usual::Size(bytes) => show_size(bytes).into(),
        Usual::Word(value) => value.word().into(),
        Usual::Text(text) => text.into(),
        Usual::Texts(texts) => texts.into(),
        Usual::Table => json!({}),
    }
}

//! The API's own description: OpenAPI 3.1, from the wire types.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::Problem;
use crate::wire::packet::{FlowAnswer, Pin, Pins};
use crate::wire::{Changed, Liveness, Reloaded, SetWeight, Status};

/// The schema of a type, by a generator that collects what it refers to.
type Schemed = fn(&mut SchemaGenerator) -> Schema;

/// One thing that can be asked.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Of the query; path parameters are in the path.
    query: &'static [(&'static str, bool, &'static str)],
    body: Option<Schemed>,
    answer: Schemed,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const BACKEND: &str = "/v1/pools/{pool}/backends/{backend}";

fn read(path: &'static str, summary: &'static str, answer: Schemed) -> Operation {
    Operation { method: "get", path, summary, query: &[], body: None, answer }
}

fn operations() -> Vec<(String, Operation)> {
    let change = |action: &str, summary| {
        let operation = Operation {
            method: "post",
            path: "",
            summary,
            query: &[],
            body: None,
            answer: of::<Changed>,
        };
        (format!("{BACKEND}/{action}"), operation)
    };
    let pin = |method, summary| Operation {
        method,
        path: "/v1/pins",
        summary,
        query: &[],
        body: Some(of::<Pin>),
        answer: of::<Pin>,
    };
    let fixed = [
        read("/v1/status", "Everything there is to show", of::<Status>),
        read(
            "/v1/health",
            "Whether the process takes new work; 503 while it stops",
            of::<Liveness>,
        ),
        Operation {
            method: "post",
            answer: of::<Reloaded>,
            ..read(
                "/v1/reload",
                "Read the configuration file again, whole or not at all",
                of::<Reloaded>,
            )
        },
        Operation {
            query: &[
                ("source", true, "The client's address and port: 198.51.100.7:40000"),
                ("vip", true, "What it talks to: 192.0.2.10:443/tcp"),
                ("mac", false, "The sender's MAC address, for VIPs whose key it is"),
            ],
            ..read("/v1/flow", "Where the next packet of a flow goes, and why", of::<FlowAnswer>)
        },
        read("/v1/pins", "The flows that were pinned to a backend", of::<Pins>),
        pin("post", "Pin a flow to a backend"),
        pin("put", "Pin a pinned flow to another backend"),
        Operation {
            method: "delete",
            query: &[("vip", true, "The pin's VIP"), ("flow", true, "The pin's flow")],
            ..read("/v1/pins", "Remove a pin", of::<Pins>)
        },
    ];
    let weight = Operation {
        method: "put",
        path: "",
        summary: "Set the backend's weight; 0 drains",
        query: &[],
        body: Some(of::<SetWeight>),
        answer: of::<Changed>,
    };
    let fixed = fixed.into_iter().map(|operation| (operation.path.to_string(), operation));
    let backend = [
        change("drain", "Give the backend nothing new, and let it finish what it has"),
        change("undrain", "Give a drained backend new work again"),
        change("enable", "Give a disabled backend new work again"),
        change("disable", "Give the backend nothing, and cut what it has"),
        (format!("{BACKEND}/weight"), weight),
    ];
    fixed.chain(backend).collect()
}

/// The document; `/metrics`, which is not JSON, is not in it.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    let problem = generator.subschema_for::<Problem>();
    for (path, operation) in operations() {
        let described = describe(&path, &operation, &problem, &mut generator);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[operation.method] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "equipoise",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The HTTP API of a running equipoise. /metrics, beside it, has figures for Prometheus.",
        },
        "paths": paths,
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn describe(
    path: &str,
    operation: &Operation,
    problem: &Schema,
    generator: &mut SchemaGenerator,
) -> Value {
    let parameter = |name: &str, place: &str, required: bool, help: &str| {
        json!({
            "name": name,
            "in": place,
            "required": required,
            "description": help,
            "schema": { "type": "string" },
        })
    };
    let in_path = ["pool", "backend"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| parameter(name, "path", true, "Its name; a backend's address will do too"));
    let in_query = operation
        .query
        .iter()
        .map(|(name, required, help)| parameter(name, "query", *required, help));
    let answer = (operation.answer)(generator);
    let mut described = json!({
        "summary": operation.summary,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": {
            "200": {
                "description": "Done",
                "content": { "application/json": { "schema": answer } },
            },
            "default": {
                "description": "Not done; `detail` says what to do",
                "content": { "application/problem+json": { "schema": problem } },
            },
        },
    });
    if let Some(body) = operation.body {
        let schema = body(generator);
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("all is in this document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

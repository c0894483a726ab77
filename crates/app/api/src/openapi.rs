//! The OpenAPI 3.1 description of the API, generated from its routes and types.
//!
//! docs/openapi.json is this document; a test fails if it is out of date.

use aide::generate;
use aide::openapi::{
    Components, Info, MediaType, OpenApi, Operation, Parameter, ReferenceOr, Response,
    SchemaObject, SecurityScheme, StatusCode,
};
use aide::transform::TransformOperation;
use axum::http::Method;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::Problem;
use crate::auth::{Access, Role};

/// A route, and the access that it requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The method; HEAD uses the route of GET.
    pub method: Method,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Required access.
    pub access: Access,
    /// Keys of its query.
    pub query: Vec<String>,
}

/// The keys of an operation's query.
pub(crate) fn query_keys(operation: &Operation) -> Vec<String> {
    let key = |parameter: &ReferenceOr<Parameter>| match parameter.as_item()? {
        Parameter::Query { parameter_data, .. } => Some(parameter_data.name.clone()),
        _ => None,
    };
    operation.parameters.iter().filter_map(key).collect()
}

/// The scheme's name in the document.
const BEARER: &str = "bearer";

/// Completes the description of all routes.
pub(crate) fn finish(mut document: OpenApi) -> Value {
    document.info = Info {
        title: "equipoise".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        description: Some(DESCRIPTION.into()),
        ..Info::default()
    };
    let components = document.components.get_or_insert_with(Components::default);
    let scheme = SecurityScheme::Http {
        scheme: "bearer".into(),
        bearer_format: None,
        description: Some(BEARER_HELP.into()),
        extensions: Default::default(),
    };
    components.security_schemes.insert(BEARER.into(), ReferenceOr::Item(scheme));
    let document = serde_json::to_value(document);
    let mut document = document.expect("a document has string keys and no failing serializer");
    simplify(&mut document);
    if let Some(schemas) =
        document.pointer_mut("/components/schemas").and_then(Value::as_object_mut)
    {
        schemas.iter_mut().for_each(|(name, schema)| enumerate(name, schema));
    }
    document
}

/// Replaces constructs that OpenAPI 3.1 allows and client generators do not support. `true` as the
/// schema of a body becomes an object, which each such body is. `null` as the default of a
/// parameter or field of another type is removed.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(schema) = object.get_mut("schema").filter(|schema| schema.is_boolean()) {
                *schema = json!({ "type": "object" });
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(array) => array.iter_mut().for_each(simplify),
        _ => {}
    }
}

/// Converts a choice between constant strings to an enumeration. The meaning of each string goes
/// into the description. Go has one name space for all constants of a package, so each name begins
/// with its schema's name.
fn enumerate(name: &str, schema: &mut Value) {
    let text = |of: &Value, key: &str| Some(of.get(key)?.as_str()?.to_string());
    let Some(choice) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let words: Option<Vec<String>> = choice.iter().map(|one| text(one, "const")).collect();
    let Some(words) = words else { return };
    let mut description = text(schema, "description").unwrap_or_default() + "\n";
    for (word, one) in words.iter().zip(choice) {
        if let Some(meaning) = text(one, "description") {
            description += &format!("\n- `{word}`: {}", meaning.replace('\n', " "));
        }
    }
    let names: Vec<String> = words.iter().map(|word| name.to_string() + &pascal(word)).collect();
    *schema = json!({
        "type": "string", "enum": words, "description": description, "x-enum-varnames": names,
    });
}

/// Converts `in_handover` to `InHandover`.
fn pascal(word: &str) -> String {
    let parts = word.split(['_', '-']).map(str::chars);
    parts
        .flat_map(|mut rest| rest.next().map(|it| it.to_ascii_uppercase()).into_iter().chain(rest))
        .collect()
}

const DESCRIPTION: &str = "\
The HTTP API of a running equipoise, on its unix socket and on `[api] listen`. Errors are application/problem+json \
(RFC 9457); `detail` has the remedy. Later versions only add fields to answers.";

const BEARER_HELP: &str = "\
A token of `[[api.token]]`. If tokens are configured, every request over TCP must carry one; without tokens, TCP is read-only. \
The unix socket needs none: every user that can open it has all rights. The scope of an operation is the lowest role that it needs: `read`, `operate` \
or `admin`; each role includes the previous ones.";

/// Prepares this thread for describing routes.
pub(crate) fn begin() {
    generate::reset_context();
    generate::extract_schemas(true);
    generate::in_context(|context| {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        context.schema = settings.into_generator();
    });
}

/// Describes an operation: its name, its role and its failures.
pub(crate) fn describe<'t>(
    operation: TransformOperation<'t>,
    declared: &Declared,
    summary: &str,
) -> TransformOperation<'t> {
    let mut described = operation.id(&name(declared)).summary(summary);
    if let Some(tag) = declared.path.trim_start_matches("/v1/").split('/').find(|p| !p.is_empty()) {
        described = described.tag(tag);
    }
    if let Access::Needs(role) = declared.access {
        described = described
            .security_requirement_scopes(BEARER, [role.word()])
            .description(&format!("Needs the role `{role}`."));
    }
    let operation = described.inner_mut();
    let failures = failures(declared, operation);
    let responses = operation.responses.get_or_insert_default();
    for (status, description) in failures {
        responses
            .responses
            .entry(StatusCode::Code(status))
            .or_insert_with(|| ReferenceOr::Item(problem(description)));
    }
    responses.default = Some(ReferenceOr::Item(problem("Not done; `detail` has the remedy")));
    described
}

/// The name of an operation from its method and path: `get-pools-pool-backends-backend`.
fn name(declared: &Declared) -> String {
    let path = declared.path.trim_start_matches("/v1");
    let parts = path.split(['/', '{', '}', '.']).filter(|part| !part.is_empty());
    let method = declared.method.as_str().to_ascii_lowercase();
    parts.fold(method, |name, part| name + "-" + part)
}

/// The refusals of an operation, by status.
fn failures(declared: &Declared, operation: &Operation) -> Vec<(u16, &'static str)> {
    let mut failures = Vec::new();
    if !operation.parameters.is_empty() {
        failures.push((400, "A parameter is missing or invalid"));
    }
    if matches!(declared.access, Access::Needs(_)) {
        failures.push((401, "No token, or an unknown one"));
        failures.push((403, "The role does not suffice, or the request comes from a web page"));
        failures.push((429, "Too many requests with unknown tokens"));
    }
    if declared.path.contains('{') || declared.path.starts_with("/v1/cluster/") {
        failures.push((404, "No such object"));
    }
    if operation.request_body.is_some() {
        failures.push((400, "The body or a parameter is invalid"));
        failures.push((408, "The body took too long"));
        failures.push((413, "The body is too large"));
        failures.push((415, "The body has another media type"));
        failures.push((422, "Not possible as requested"));
    }
    let is_conditional = |parameter: &ReferenceOr<Parameter>| {
        parameter.as_item().is_some_and(|p| p.parameter_data_ref().name == "If-Match")
    };
    if operation.parameters.iter().any(is_conditional) {
        failures.push((412, "The state differs from If-Match"));
    }
    if declared.access > Access::Needs(Role::Read) {
        failures.push((422, "Not possible as requested"));
    }
    failures.push((503, "The process is stopping"));
    failures
}

fn problem(description: &str) -> Response {
    let json_schema = generate::in_context(|context| context.schema.subschema_for::<Problem>());
    let schema = SchemaObject { json_schema, example: None, external_docs: None };
    let media = MediaType { schema: Some(schema), ..MediaType::default() };
    Response {
        description: description.into(),
        content: [(crate::problem::MEDIA_TYPE.to_owned(), media)].into_iter().collect(),
        ..Response::default()
    }
}

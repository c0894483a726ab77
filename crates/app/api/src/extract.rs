//! Extractors of handlers. Their rejections are a [`Problem`], and the OpenAPI document describes
//! them.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::{
    HeaderStyle, MediaType, Operation, Parameter, ParameterData, ParameterSchemaOrContent,
    RequestBody, SchemaObject,
};
use aide::operation::{ParamLocation, add_parameters, parameters_from_schema, set_body};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use schemars::{JsonSchema, Schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Problem;

/// Largest body: a configuration file.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

/// A body that is a JSON object. Of itself, serde reads an array as the fields of a type in their
/// order.
struct Object<T>(T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// The query of the URL.
pub(crate) struct Asked<T>(pub(crate) T);

/// The named parts of the path.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + JsonSchema> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let refused = |rejection: JsonRejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let detail = format!(
                    "the body has more than {BODY_BYTES_MAX} bytes; a larger configuration has to be copied to its \
                     machine: then POST /v1/reload"
                );
                return Problem::new(rejection.status(), "body too large", detail);
            }
            let detail = format!(
                "{}; send a `{}` as application/json: /v1/openapi.json describes it",
                rejection.body_text(),
                T::schema_name()
            );
            Problem::new(rejection.status(), "body not readable", detail)
        };
        match tokio::time::timeout(BODY_TIMEOUT, Json::from_request(request, state)).await {
            Ok(read) => read.map(|Json(Object(body))| Body(body)).map_err(refused),
            Err(_) => {
                let detail =
                    format!("the body was not complete after {} s", BODY_TIMEOUT.as_secs());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body too slow", detail))
            }
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + JsonSchema> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(rejection) => {
                let detail = format!("{}; accepted: {}", rejection.body_text(), query_of::<T>());
                Err(Problem::new(StatusCode::BAD_REQUEST, "query not readable", detail))
            }
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Named(named)),
            Err(rejection) => {
                let detail =
                    format!("{}; names in paths are percent-encoded UTF-8", rejection.body_text());
                Err(Problem::new(StatusCode::BAD_REQUEST, "path not readable", detail))
            }
        }
    }
}

/// Describes a query that parses as a `T`: `?source=...&vip=...`, with optional parts in brackets.
fn query_of<T: JsonSchema>() -> String {
    let schema = schemars::schema_for!(T);
    let required = schema.get("required").and_then(|names| names.as_array());
    let names = schema.get("properties").and_then(|properties| properties.as_object());
    let parts = names.into_iter().flatten().map(|(name, _)| {
        match required.is_some_and(|names| names.iter().any(|required| required == name)) {
            true => format!("{name}=..."),
            false => format!("[{name}=...]"),
        }
    });
    format!("?{}", parts.collect::<Vec<_>>().join("&"))
}

impl<T: JsonSchema> OperationInput for Body<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let json_schema = ctx.schema.subschema_for::<T>();
        let schema = SchemaObject { json_schema, example: None, external_docs: None };
        let media = MediaType { schema: Some(schema), ..MediaType::default() };
        let content = [("application/json".to_owned(), media)].into_iter().collect();
        let body = RequestBody { content, required: true, ..RequestBody::default() };
        set_body(ctx, operation, body);
    }
}

impl<T: JsonSchema> OperationInput for Asked<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        parameters::<T>(ctx, operation, ParamLocation::Query);
    }
}

impl<T: JsonSchema> OperationInput for Named<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        parameters::<T>(ctx, operation, ParamLocation::Path);
    }
}

fn parameters<T: JsonSchema>(
    ctx: &mut GenContext,
    operation: &mut Operation,
    place: ParamLocation,
) {
    let schema = T::json_schema(&mut ctx.schema);
    let parameters = parameters_from_schema(ctx, schema, place);
    add_parameters(ctx, operation, parameters);
}

/// Adds a header that is not required, with this schema, to the description of an operation.
pub(crate) fn header_parameter(
    ctx: &mut GenContext,
    operation: &mut Operation,
    name: &str,
    description: &str,
    json_schema: Schema,
) {
    let schema = SchemaObject { json_schema, example: None, external_docs: None };
    let parameter_data = ParameterData {
        name: name.into(),
        description: Some(description.into()),
        required: false,
        deprecated: None,
        format: ParameterSchemaOrContent::Schema(schema),
        example: None,
        examples: Default::default(),
        explode: None,
        extensions: Default::default(),
    };
    let parameter = Parameter::Header { parameter_data, style: HeaderStyle::Simple };
    add_parameters(ctx, operation, [parameter]);
}

//! Responses of handlers.

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{
    Header, HeaderStyle, MediaType, Operation, ParameterSchemaOrContent, ReferenceOr,
    Response as Described, SchemaObject, StatusCode,
};
use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode as Status, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Problem;
use crate::condition::ETag;

/// A handler's output that is an answer of type `A`, so that handlers fit their operations.
pub(crate) trait Answers<A>: OperationOutput {}

impl<A, T: Answers<A>> Answers<A> for Result<T, Problem> {}

/// A response with a JSON document.
pub(crate) struct Answer<T> {
    status: Status,
    document: T,
}

impl<T> Answer<T> {
    /// A response with status 200.
    pub(crate) fn new(document: T) -> Answer<T> {
        Answer { status: Status::OK, document }
    }

    /// Changes the status.
    pub(crate) fn with_status(self, status: Status) -> Answer<T> {
        Answer { status, ..self }
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        (self.status, Json(self.document)).into_response()
    }
}

impl<T: JsonSchema> OperationOutput for Answer<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<Described> {
        let json_schema = ctx.schema.subschema_for::<T>();
        let schema = SchemaObject { json_schema, example: None, external_docs: None };
        let media = MediaType { schema: Some(schema), ..MediaType::default() };
        Some(Described {
            description: "Done".into(),
            content: [("application/json".to_owned(), media)].into_iter().collect(),
            ..Described::default()
        })
    }

    fn inferred_responses(
        ctx: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Described)> {
        done::<Self>(ctx, operation)
    }
}

impl<T: JsonSchema> Answers<T> for Answer<T> {}

/// The response of an operation that was done, for the API's description.
fn done<T: OperationOutput>(
    ctx: &mut GenContext,
    operation: &mut Operation,
) -> Vec<(Option<StatusCode>, Described)> {
    let done = T::operation_response(ctx, operation);
    done.map(|done| (Some(StatusCode::Code(200)), done)).into_iter().collect()
}

/// A writable resource, with the tag of its state.
pub(crate) struct Tagged<T> {
    document: T,
    tag: ETag,
    /// The caller has this state already.
    is_seen: bool,
}

impl<T> Tagged<T> {
    pub(crate) fn new(document: T, tag: ETag) -> Tagged<T> {
        Tagged { document, tag, is_seen: false }
    }

    /// Leaves the document out if the request's If-None-Match lists its tag.
    pub(crate) fn unless_seen(self, headers: &HeaderMap) -> Tagged<T> {
        let is_seen = self.tag.is_listed_weakly(headers);
        Tagged { is_seen, ..self }
    }
}

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = match self.is_seen {
            true => Status::NOT_MODIFIED.into_response(),
            false => Json(self.document).into_response(),
        };
        if let Ok(tag) = HeaderValue::from_str(self.tag.as_str()) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

impl<T: JsonSchema> OperationOutput for Tagged<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, operation: &mut Operation) -> Option<Described> {
        let mut described = Answer::<T>::operation_response(ctx, operation)?;
        let json_schema = String::json_schema(&mut ctx.schema);
        let schema = SchemaObject { json_schema, example: None, external_docs: None };
        let tag = Header {
            description: Some(
                "Identifies the writable state; send it as If-Match with a change".into(),
            ),
            style: HeaderStyle::Simple,
            required: true,
            deprecated: None,
            format: ParameterSchemaOrContent::Schema(schema),
            example: None,
            examples: Default::default(),
            extensions: Default::default(),
        };
        described.headers.insert("ETag".into(), ReferenceOr::Item(tag));
        Some(described)
    }

    fn inferred_responses(
        ctx: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Described)> {
        done::<Self>(ctx, operation)
    }
}

impl<T: JsonSchema> Answers<T> for Tagged<T> {}

//! Changes: one at a time, only of what the caller has seen if it says what that is, and noted for the audit log.

use std::sync::{Arc, Mutex, PoisonError};

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::{
    HeaderStyle, Operation, Parameter, ParameterData, ParameterSchemaOrContent, SchemaObject,
};
use aide::operation::add_parameters;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::api::Api;
use crate::{Operator, Problem};

/// The state of a resource as an entity tag.
///
/// # Source
/// RFC 9110, section 8.8.3: a strong tag. It stands for what can be written of the resource; counters beside it move
/// without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ETag(String);

impl ETag {
    /// Of what can be written.
    pub(crate) fn of(state: &impl Serialize) -> ETag {
        let state = serde_json::to_vec(state).expect("wire types have string keys");
        let digest = Sha256::digest(state);
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        ETag(format!("\"{hex}\""))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a header `If-Match` (strong) or `If-None-Match` (weak) lists this tag; `*` lists all.
    pub(crate) fn is_listed(&self, headers: &HeaderMap, name: &HeaderName, weak: bool) -> bool {
        let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(',')).map(str::trim).any(|listed| {
            let opaque = listed.strip_prefix("W/").filter(|_| weak).unwrap_or(listed);
            listed == "*" || opaque == self.0
        })
    }
}

/// What handlers tell of a change.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// Shared between the handler and the log.
pub(crate) type Notes = Arc<Mutex<Noted>>;

/// What a request that changes something takes: a place in the queue. Nobody waits for a body while it is one's turn.
pub(crate) struct Turn {
    turn: Arc<tokio::sync::Mutex<()>>,
    headers: HeaderMap,
    notes: Notes,
}

impl Turn {
    /// Waits until no other change is being made.
    pub(crate) async fn wait(self) -> Change {
        let _turn = self.turn.lock_owned().await;
        Change { _turn, headers: self.headers, notes: self.notes }
    }
}

/// A change whose turn it is: no other is made while it lives.
pub(crate) struct Change {
    _turn: OwnedMutexGuard<()>,
    headers: HeaderMap,
    notes: Notes,
}

impl<O: Operator> FromRequestParts<Api<O>> for Turn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api<O>) -> Result<Self, Problem> {
        let mut headers = HeaderMap::new();
        for line in parts.headers.get_all(header::IF_MATCH) {
            headers.append(header::IF_MATCH, line.clone());
        }
        let notes = parts.extensions.get::<Notes>().cloned().unwrap_or_default();
        Ok(Turn { turn: api.turn(), headers, notes })
    }
}

impl Change {
    /// Goes on if the resource is as the caller has seen it, or if the caller does not say.
    ///
    /// # Errors
    /// 412.
    pub(crate) fn of(&self, current: &ETag) -> Result<(), Problem> {
        let conditional = self.headers.contains_key(header::IF_MATCH);
        if !conditional || current.is_listed(&self.headers, &header::IF_MATCH, false) {
            return Ok(());
        }
        let detail = format!(
            "it has changed since, and is {} now: look at it again, and send that as If-Match if the change is still wanted",
            current.as_str()
        );
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "changed meanwhile", detail))
    }

    /// Notes the state that is about to be changed.
    pub(crate) fn before(&self, state: &impl Serialize) {
        self.noted().before = serde_json::to_value(state).ok();
    }

    /// Notes the state that it is in now.
    pub(crate) fn after(&self, state: &impl Serialize) {
        self.noted().after = serde_json::to_value(state).ok();
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationInput for Turn {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let json_schema = String::json_schema(&mut ctx.schema);
        let schema = SchemaObject { json_schema, example: None, external_docs: None };
        let parameter_data = ParameterData {
            name: "If-Match".into(),
            description: Some(
                "The ETag of the state that the change is meant for; 412 if it is another by now. Without it, the \
                 change is made whatever the state is"
                    .into(),
            ),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_listed_as_rfc_9110_says() {
        let tag = ETag("\"a\"".into());
        for (text, strong, weak) in [
            ("\"a\"", true, true),
            ("\"b\", \"a\"", true, true),
            ("W/\"a\"", false, true),
            ("*", true, true),
            ("\"b\"", false, false),
            ("a", false, false),
            ("", false, false),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_MATCH, text.parse().unwrap())]);
            assert_eq!(tag.is_listed(&headers, &header::IF_MATCH, false), strong, "{text}");
            assert_eq!(tag.is_listed(&headers, &header::IF_MATCH, true), weak, "{text}");
        }
    }

    #[test]
    fn another_state_has_another_tag() {
        assert_eq!(ETag::of(&(1, "a")), ETag::of(&(1, "a")));
        assert_ne!(ETag::of(&(1, "a")), ETag::of(&(2, "a")));
    }
}

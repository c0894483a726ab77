//! Changes. They run one at a time, may be conditional on the state that the caller has seen, and
//! are recorded for the audit log.

use std::sync::{Arc, Mutex};

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use equipoise_basics::lock;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use crate::Problem;
use crate::api::Api;
use crate::condition::{Condition, ETag, PATTERN};
use crate::extract::header_parameter;

/// The state before and after a change, for the audit log.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// The recorded states, shared between the handler and the log.
pub(crate) type Notes = Arc<Mutex<Noted>>;

/// The lock that serializes changes. A handler takes it after reading the body, so that a slow
/// client cannot hold it.
pub(crate) struct Turn {
    turn: Arc<tokio::sync::Mutex<()>>,
    condition: Option<Condition>,
    notes: Notes,
}

impl Turn {
    /// Whether the request has a condition.
    pub(crate) fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }

    /// As [`Change::of`], before the lock: the change has to compare again.
    ///
    /// # Errors
    /// As [`Change::of`].
    pub(crate) fn of(&self, current: &ETag) -> Result<(), Problem> {
        meets(self.condition.as_ref(), current)
    }

    /// Waits until no other change is in progress.
    pub(crate) async fn wait(self) -> Change {
        let _turn = self.turn.lock_owned().await;
        Change { _turn, condition: self.condition, notes: self.notes }
    }
}

/// A change that holds the lock: no other change runs while this exists.
pub(crate) struct Change {
    _turn: OwnedMutexGuard<()>,
    condition: Option<Condition>,
    notes: Notes,
}

impl<O: Send + Sync> FromRequestParts<Api<O>> for Turn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api<O>) -> Result<Self, Problem> {
        let condition = Condition::read(&parts.headers, &header::IF_MATCH).map_err(|wrong| {
            let detail = format!(
                "If-Match {wrong}; accepted: an ETag as received, with its quotes; several with commas between them; or *"
            );
            Problem::new(StatusCode::BAD_REQUEST, "If-Match not readable", detail)
        })?;
        let notes = parts.extensions.get::<Notes>().cloned().unwrap_or_default();
        Ok(Turn { turn: api.turn(parts.uri.path()), condition, notes })
    }
}

impl Change {
    /// Continues if the resource has the state that the caller has seen, or if the request has no
    /// condition.
    ///
    /// # Errors
    /// 412 if the state differs.
    pub(crate) fn of(&self, current: &ETag) -> Result<(), Problem> {
        meets(self.condition.as_ref(), current)
    }

    /// Continues if the request has no condition: there is no resource yet.
    ///
    /// # Errors
    /// 412 with a condition.
    pub(crate) fn of_nothing(&self) -> Result<(), Problem> {
        if self.condition.is_none() {
            return Ok(());
        }
        let detail = "there is nothing with this name, which If-Match never matches: send the \
                      change without it";
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "state has changed", detail))
    }

    /// Records the state before the change.
    pub(crate) fn before(&self, state: &impl Serialize) {
        self.noted().before = serde_json::to_value(state).ok();
    }

    /// Records the state after the change.
    pub(crate) fn after(&self, state: &impl Serialize) {
        self.noted().after = serde_json::to_value(state).ok();
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        lock(&self.notes)
    }
}

/// Continues if the resource has the state that the caller has seen, or if there is no condition.
fn meets(condition: Option<&Condition>, current: &ETag) -> Result<(), Problem> {
    let Some(condition) = condition else { return Ok(()) };
    if condition.lists(current) {
        return Ok(());
    }
    let now = current.as_str();
    let detail = match condition.lists_weakly(current) {
        true => {
            format!("a weak tag (W/) cannot be the condition of a change: send {now} as If-Match")
        }
        false => format!(
            "the state has changed, and its ETag is {now} now: read it again, and send this ETag as If-Match if you still want the change"
        ),
    };
    Err(Problem::new(StatusCode::PRECONDITION_FAILED, "state has changed", detail))
}

impl OperationInput for Turn {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let mut json_schema = String::json_schema(&mut ctx.schema);
        json_schema.insert("pattern".into(), PATTERN.into());
        let description = "The ETag of the state that the change is meant for; 412 if the state has another one. Without it, the \
                           change is unconditional";
        header_parameter(ctx, operation, "If-Match", description, json_schema);
    }
}

//! What every route has at hand.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use axum::extract::FromRef;
use axum::http::Method;
use tokio::sync::Mutex;

use crate::audit::{Asked, Audit, Happened, Line};
use crate::auth::{Access, Caller, Gate, Role, Who};
use crate::wire::Reloaded;
use crate::{OperateError, Operator, Problem, openapi, routes};

/// The API over an [`Operator`], to be served on any number of listeners.
pub struct Api<O> {
    inner: Arc<Inner<O>>,
}

struct Inner<O> {
    operator: Arc<O>,
    gate: Arc<Gate>,
    audit: Arc<Audit>,
    /// One change at a time, so that what a change was compared with is what it changes.
    turn: Arc<Mutex<()>>,
    access: HashMap<&'static str, Vec<(Method, Access)>>,
    description: OnceLock<serde_json::Value>,
}

impl<O> Clone for Api<O> {
    fn clone(&self) -> Self {
        Api { inner: Arc::clone(&self.inner) }
    }
}

impl<O> FromRef<Api<O>> for Arc<O> {
    fn from_ref(api: &Api<O>) -> Arc<O> {
        Arc::clone(&api.inner.operator)
    }
}

impl<O: Operator> Api<O> {
    /// The API that `operator` answers, behind `gate`, with its changes told to `audit`.
    pub fn new(operator: Arc<O>, gate: Arc<Gate>, audit: Arc<Audit>) -> Api<O> {
        let mut access: HashMap<_, Vec<_>> = HashMap::new();
        for declared in routes::declared::<O>() {
            access.entry(declared.path).or_default().push((declared.method, declared.access));
        }
        let (turn, description) = (Arc::default(), OnceLock::new());
        Api { inner: Arc::new(Inner { operator, gate, audit, turn, access, description }) }
    }

    /// Reads the configuration again because of a signal: in turn with the API's changes, and audited as they are.
    ///
    /// # Errors
    /// As [`Operator::reload`].
    pub async fn reload_by_signal(&self, signal: &'static str) -> Result<Reloaded, OperateError> {
        let turn = self.turn().lock_owned().await;
        let before = self.inner.operator.config().await.ok();
        let outcome = self.inner.operator.reload().await;
        let after = self.inner.operator.config().await.ok();
        drop(turn);
        let problem = outcome.as_ref().err().map(|error| Problem::from(error.clone()));
        let to_json = |config| serde_json::to_value(config).ok();
        let asked = Asked {
            peer: None,
            caller: Some(Caller { who: Who::Signal(signal), role: Some(Role::Admin) }),
            method: "POST".into(),
            path: "/v1/reload".into(),
            if_match: None,
        };
        let happened = Happened {
            status: Some(problem.as_ref().map_or(200, |problem| problem.status)),
            detail: problem.map(|problem| problem.detail),
            before: before.and_then(to_json),
            after: after.filter(|_| outcome.is_ok()).and_then(to_json),
        };
        self.audit().write(Line::new(asked, happened, SystemTime::now()));
        outcome
    }

    /// What a request asks of its caller. What is no route asks for a role, too: the unknown are told to say who they
    /// are before they are told anything else, and whoever may only look cannot fill the audit log with changes that
    /// do not exist.
    pub(crate) fn access(&self, method: &Method, path: Option<&str>) -> Access {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let methods = path.and_then(|path| self.inner.access.get(path)).into_iter().flatten();
        let found = methods.into_iter().find(|(declared, _)| declared == method);
        let unknown = if method == Method::GET { Access::READ } else { Access::OPERATE };
        found.map_or(unknown, |(_, access)| *access)
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    pub(crate) fn turn(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.inner.turn)
    }

    /// The OpenAPI document.
    pub(crate) fn description(&self) -> serde_json::Value {
        self.inner.description.get_or_init(openapi::document::<O>).clone()
    }
}

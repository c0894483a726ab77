//! State that all routes share.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use axum::extract::FromRef;
use axum::http::Method;
use tokio::sync::Mutex;

use crate::audit::Audit;
use crate::auth::{Access, Gate};
use crate::events::EventJournal;
use crate::openapi::Declared;

/// Paths of changes that wait for a store or for DDS. Each has its own lock, so that a hung store
/// delays no other change, such as draining a backend.
const SUBJECTS: [&str; 4] = ["/v1/cluster", "/v1/plan", "/v1/nodes", "/v1/slices"];

/// The API over an [`Operator`](crate::Operator), to be served on any number of listeners.
pub struct Api<O> {
    inner: Arc<Inner<O>>,
}

struct Inner<O> {
    operator: Arc<O>,
    gate: Arc<Gate>,
    audit: Arc<Audit>,
    journal: Arc<EventJournal>,
    /// Locks that serialize the changes of a subject, so that a change applies to the state that it
    /// was compared with.
    turns: [Arc<Mutex<()>>; SUBJECTS.len() + 1],
    declared: HashMap<&'static str, Vec<Declared>>,
    describe: fn() -> serde_json::Value,
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

impl<O> Api<O> {
    /// The API of `operator`. `declared` are its routes, and `describe` makes its description.
    pub(crate) fn of(
        operator: Arc<O>,
        (gate, audit, journal): (Arc<Gate>, Arc<Audit>, Arc<EventJournal>),
        declared: Vec<Declared>,
        describe: fn() -> serde_json::Value,
    ) -> Api<O> {
        let mut by_path: HashMap<_, Vec<_>> = HashMap::new();
        for route in declared {
            by_path.entry(route.path).or_default().push(route);
        }
        let (turns, description, declared) = (Default::default(), OnceLock::new(), by_path);
        let inner =
            Inner { operator, gate, audit, journal, turns, declared, describe, description };
        Api { inner: Arc::new(inner) }
    }

    /// Returns the access that a request needs, also for an unknown path: a caller without a token
    /// is asked for it first, and a read-only caller cannot fill the audit log with changes of
    /// paths that do not exist.
    pub(crate) fn access(&self, method: &Method, path: Option<&str>) -> Access {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let unknown = if is_read { Access::READ } else { Access::OPERATE };
        self.declared(method, path).map_or(unknown, |it| it.access)
    }

    /// The route of a request; `None`: it has none.
    pub(crate) fn declared(&self, method: &Method, path: Option<&str>) -> Option<&Declared> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.inner.declared.get(path?)?.iter().find(|it| it.method == method)
    }

    pub(crate) fn operator(&self) -> &Arc<O> {
        &self.inner.operator
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    pub(crate) fn journal(&self) -> &Arc<EventJournal> {
        &self.inner.journal
    }

    /// The lock that a change of the resource at `path` takes.
    pub(crate) fn turn(&self, path: &str) -> Arc<Mutex<()>> {
        let subject = SUBJECTS.iter().position(|start| path.starts_with(start));
        Arc::clone(&self.inner.turns[subject.unwrap_or(SUBJECTS.len())])
    }

    /// The OpenAPI document.
    pub(crate) fn description(&self) -> serde_json::Value {
        self.inner.description.get_or_init(self.inner.describe).clone()
    }
}

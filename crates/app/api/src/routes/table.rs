//! The table of routes: each operation, with its handler.

use aide::axum::ApiRouter;
use aide::axum::routing::{delete_with, get_with, patch_with, post_with, put_with};
use aide::operation::{OperationHandler, OperationInput};
use aide::transform::TransformOperation;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::get;

use crate::answer::Answers;
use crate::api::Api;
use crate::auth::Access;
use crate::openapi::{self, Declared};
use crate::{Operation, Operator};

/// Routes of one subject, or of all.
pub(crate) struct Routes<O: Operator> {
    pub(super) router: ApiRouter<Api<O>>,
    pub(super) declared: Vec<Declared>,
}

impl<O: Operator> Default for Routes<O> {
    fn default() -> Self {
        Routes { router: ApiRouter::new(), declared: Vec::new() }
    }
}

impl<O: Operator> Routes<O> {
    /// Adds the route of an operation.
    pub(crate) fn serve<Q, A, H, I, R, T>(mut self, operation: Operation<Q, A>, handler: H) -> Self
    where
        H: Handler<T, Api<O>> + OperationHandler<I, R>,
        I: OperationInput,
        R: Answers<A>,
        T: 'static,
    {
        let Operation { method, path, access, .. } = operation.clone();
        let mut declared = Declared { method, path, access, query: Vec::new() };
        let describe = transform(|mut described| {
            declared.query = openapi::query_keys(described.inner_mut());
            openapi::describe(described, &declared, operation.summary())
        });
        let router = match operation.method {
            Method::GET => get_with(handler, describe),
            Method::POST => post_with(handler, describe),
            Method::PUT => put_with(handler, describe),
            Method::PATCH => patch_with(handler, describe),
            Method::DELETE => delete_with(handler, describe),
            method => unreachable!("{path} is declared with the method {method}"),
        };
        self.router = self.router.api_route(path, router);
        self.declared.push(declared);
        self
    }

    /// Adds a file of the dashboard. Files need no role and are not in the API's description.
    pub(crate) fn file<H, T>(mut self, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Api<O>>,
        T: 'static,
    {
        self.router = self.router.route(path, get(handler));
        let (method, access) = (Method::GET, Access::Anyone);
        self.declared.push(Declared { method, path, access, query: Vec::new() });
        self
    }

    /// Adds the routes of another subject.
    pub(crate) fn merge(mut self, other: Routes<O>) -> Self {
        self.router = self.router.merge(other.router);
        self.declared.extend(other.declared);
        self
    }
}

/// Gives a closure the type that aide expects, which the compiler does not infer for a variable.
fn transform<F>(describe: F) -> F
where
    F: FnOnce(TransformOperation<'_>) -> TransformOperation<'_>,
{
    describe
}

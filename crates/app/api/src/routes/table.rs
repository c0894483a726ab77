//! The table of routes, each with its role and its description.

use aide::axum::ApiRouter;
use aide::axum::routing::{
    ApiMethodRouter, delete_with, get_with, patch_with, post_with, put_with,
};
use aide::operation::{OperationHandler, OperationInput, OperationOutput};
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::get;

use crate::Operator;
use crate::api::Api;
use crate::auth::Access;
use crate::openapi::{self, Declared};

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

/// Adds a route with one method: access, path, handler and a summary.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident, $with:ident, $method:ident;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name<H, I, R, T>(
            self,
            access: Access,
            path: &'static str,
            handler: H,
            summary: &str,
        ) -> Self
        where
            H: Handler<T, Api<O>> + OperationHandler<I, R>,
            I: OperationInput,
            R: OperationOutput,
            T: 'static,
        {
            let mut declared = Declared { method: Method::$method, path, access, query: Vec::new() };
            let router = $with(handler, |mut operation| {
                declared.query = openapi::query_keys(operation.inner_mut());
                openapi::describe(operation, &declared, summary)
            });
            self.add(declared, router)
        })*
    };
}

impl<O: Operator> Routes<O> {
    methods! {
        /// Reads state.
        get, get_with, GET;
        /// Performs an action.
        post, post_with, POST;
        /// Sets state.
        put, put_with, PUT;
        /// Changes a part of state.
        patch, patch_with, PATCH;
        /// Removes state.
        delete, delete_with, DELETE;
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

    fn add(mut self, declared: Declared, router: ApiMethodRouter<Api<O>>) -> Self {
        self.router = self.router.api_route(declared.path, router);
        self.declared.push(declared);
        self
    }

    /// Adds the routes of another subject.
    pub(crate) fn merge(mut self, other: Routes<O>) -> Self {
        self.router = self.router.merge(other.router);
        self.declared.extend(other.declared);
        self
    }
}

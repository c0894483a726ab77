//! The routes, one file per subject.
//!
//! A subject is a function that returns [`Routes`]: every line has the role, the path, the handler
//! and a summary. The OpenAPI document, the check of roles and the tables of the tests follow from
//! it. To add a subject: its file, and its line in [`all`].

mod backends;
mod cluster;
mod config;
mod metrics;
mod packet;
mod plan;
mod slice;
mod status;
mod table;

use aide::openapi::OpenApi;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::{Router, middleware};

pub use table::Declared;
pub(crate) use table::Routes;

use crate::api::Api;
use crate::{Operator, Problem, auth, openapi};

/// Requests carry a configuration file at the most.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Every subject.
fn all<O: Operator>() -> Routes<O> {
    Routes::default()
        .merge(status::routes())
        .merge(backends::routes())
        .merge(packet::routes())
        .merge(config::routes())
        .merge(plan::routes())
        .merge(cluster::routes())
        .merge(slice::routes())
        .merge(metrics::routes())
}

/// Every route, with what it asks of its caller.
pub fn declared<O: Operator>() -> Vec<Declared> {
    all::<O>().declared
}

/// Every route's description.
pub(crate) fn described<O: Operator>() -> OpenApi {
    openapi::begin();
    let mut document = OpenApi::default();
    let _ = all::<O>().router.finish_api(&mut document);
    document
}

/// The API, for connections with a known peer.
pub(crate) fn router<O: Operator>(api: Api<O>) -> Router {
    Router::from(all::<O>().router)
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), auth::admit::<O>))
        .with_state(api)
}

async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is no `{}`; /v1/openapi.json describes all there is", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no such path", detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!(
        "`{}` does not take {method}; the header Allow says what it takes, and /v1/openapi.json what that does",
        uri.path()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method", detail)
}

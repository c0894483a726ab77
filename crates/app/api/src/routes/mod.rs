//! The routes, with one file for each subject.
//!
//! A subject is a function that returns [`Routes`]: each line has the role, the path, the handler
//! and a summary. The OpenAPI document, the check of roles and the tables of the tests follow from
//! these lines. To add a subject, add its file, and its line in [`all`].

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

/// Largest request body: a configuration file.
const BODY_BYTES_MAX: usize = 256 << 10;

/// The routes of all subjects.
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

/// All routes, with the access that they require.
pub fn declared<O: Operator>() -> Vec<Declared> {
    all::<O>().declared
}

/// The descriptions of all routes.
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
    let detail = format!("there is no `{}`; /v1/openapi.json describes all paths", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no such path", detail)
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let detail = format!(
        "`{}` does not accept {method}; the header Allow lists the accepted methods, and /v1/openapi.json describes them",
        uri.path()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong method", detail)
}

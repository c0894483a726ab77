//! The operations of the API, with one file for each subject: their declarations, the trait that
//! the binary implements for them, and their handlers.
//!
//! A line of `operations!` declares an [`Operation`](crate::Operation). Its route, the check of
//! roles, the OpenAPI document, the client's request and the tables of the tests follow from this
//! line. The subject's `routes` gives each operation its handler. To add a subject, add its file,
//! and its line in [`all`].

pub mod backends;
pub mod caller;
pub mod cluster;
pub mod config;
mod dashboard;
pub mod events;
pub mod metrics;
pub mod packet;
pub mod plan;
pub mod process;
pub mod slice;
mod table;
pub mod why;

use std::sync::Arc;

use aide::openapi::OpenApi;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::{Router, middleware};
use serde_json::Value;

pub use backends::PoolOperator;
pub use cluster::ClusterOperator;
pub use packet::{CaptureFile, PacketOperator};
pub use plan::PlanOperator;
pub use process::{NewText, ProcessOperator};
pub use slice::SliceOperator;
pub(crate) use table::Routes;
pub use why::WhyOperator;

use crate::admit::admit;
use crate::api::Api;
use crate::audit::Audit;
use crate::auth::Gate;
use crate::events::EventJournal;
use crate::extract::BODY_BYTES_MAX;
use crate::openapi::Declared;
use crate::{Problem, openapi};

/// The process that the API asks. The binary implements each trait in a file of its own.
pub trait Operator:
    ProcessOperator
    + PoolOperator
    + PacketOperator
    + PlanOperator
    + ClusterOperator
    + SliceOperator
    + WhyOperator
{
}

impl<O> Operator for O where
    O: ProcessOperator
        + PoolOperator
        + PacketOperator
        + PlanOperator
        + ClusterOperator
        + SliceOperator
        + WhyOperator
{
}

/// The routes of all subjects.
fn all<O: Operator>() -> Routes<O> {
    Routes::default()
        .merge(process::routes())
        .merge(events::routes())
        .merge(caller::routes())
        .merge(backends::routes())
        .merge(packet::routes())
        .merge(config::routes())
        .merge(plan::routes())
        .merge(cluster::routes())
        .merge(slice::routes())
        .merge(why::routes())
        .merge(metrics::routes())
        .merge(dashboard::routes())
}

/// All routes, with the access that they require.
pub fn declared<O: Operator>() -> Vec<Declared> {
    all::<O>().declared
}

/// The OpenAPI document, as the API serves it for [`Operator`] `O`.
pub fn document<O: Operator>() -> Value {
    openapi::begin();
    let mut document = OpenApi::default();
    let _ = all::<O>().router.finish_api(&mut document);
    openapi::finish(document)
}

impl<O: Operator> Api<O> {
    /// Creates the API of `operator`, with the access rules of `gate`. Changes are written to
    /// `audit`. The API serves the events of `journal`.
    pub fn new(
        operator: Arc<O>,
        gate: Arc<Gate>,
        audit: Arc<Audit>,
        journal: Arc<EventJournal>,
    ) -> Api<O> {
        Api::of(operator, (gate, audit, journal), declared::<O>(), document::<O>)
    }
}

/// The API, for connections with a known peer.
pub(crate) fn router<O: Operator>(api: Api<O>) -> Router {
    Router::from(all::<O>().router)
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), admit::<O>))
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

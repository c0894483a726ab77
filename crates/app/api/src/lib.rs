//! The HTTP API of a running equipoise.
//!
//! **In**: requests under `/v1` and scrapes of `/metrics`, over a unix socket (mode 0600) or TCP,
//! with or without TLS. **Out**: [`wire`] types, Prometheus text, and calls of an [`Operator`],
//! which the binary implements. **Fails** with a [`Problem`] (RFC 9457); its detail has the remedy.

mod admit;
mod answer;
mod answering;
mod api;
pub mod audit;
mod auth;
mod change;
pub mod client;
mod condition;
pub mod events;
mod extract;
pub mod listen;
pub mod metrics;
mod openapi;
mod operate_error;
#[macro_use]
mod operation;
mod problem;
pub mod routes;
mod serve;
mod tls;
pub mod wire;

pub use api::Api;
pub use auth::{
    Access, ApiClient, ApiToken, BadDigest, BadToken, Gate, Policy, Role, Token, TokenDigest,
};
pub use openapi::Declared;
pub use operate_error::OperateError;
pub use operation::Operation;
pub use problem::Problem;
pub use routes::{
    CaptureFile, ClusterOperator, NewText, Operator, PacketOperator, PlanOperator, PoolOperator,
    ProcessOperator, SliceOperator, WhyOperator, declared, document,
};
pub use serve::{serve_tcp, serve_unix};
pub use tls::ApiTls;

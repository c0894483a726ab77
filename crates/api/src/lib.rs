//! The HTTP API of a running equipoise.
//!
//! What comes in: requests under `/v1` and scrapes of `/metrics`, over a unix socket (mode 0600) or
//! loopback TCP. What goes out: [`wire`] types, Prometheus text, and calls of an [`Operator`], which
//! the binary implements. How it fails: a [`Problem`] (RFC 9457) whose detail says what to do.

pub mod client;
mod guard;
pub mod listen;
pub mod metrics;
pub mod openapi;
mod operator;
mod problem;
mod routes;
pub mod wire;

pub use operator::{OperateError, Operator};
pub use problem::Problem;
pub use routes::{router, serve_tcp, serve_unix};

//! Messages about wrong configuration files: the whole text, for every kind of error and warning.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

#[path = "../common/mod.rs"]
mod common;

mod acme;
mod affinity;
mod api;
mod backends;
mod bed;
mod cluster;
mod discover;
mod dispatch;
mod dns;
mod limits;
mod load;
mod loops;
mod names;
mod packet;
mod quic;
mod relations;
mod routes;
mod tls;
mod values;
mod whole;

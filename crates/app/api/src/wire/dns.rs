//! The DNS level's part of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The DNS level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DnsStatus {
    /// Where queries arrive.
    pub listen: Vec<String>,
    /// The zones that are answered.
    pub zones: Vec<String>,
    /// The number of the snapshot in force.
    pub generation: u64,
    /// Balanced names.
    pub names: Vec<DnsNameStatus>,
    /// Answers that each backend stood in.
    pub answers: Vec<DnsAnswers>,
    /// Queries by transport: `udp`, `tcp`.
    pub queries: BTreeMap<String, u64>,
    /// Queries by type; those without a counter of their own are `other`.
    pub types: BTreeMap<String, u64>,
    /// Responses by response code.
    pub rcodes: BTreeMap<String, u64>,
    /// Answers of balanced names by mode.
    pub modes: BTreeMap<String, u64>,
    /// Messages, datagrams and connections that were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Notes on responses: `truncated`, `slipped`, `fail_open`, `by_deficit`, `cookies_valid`.
    pub notes: BTreeMap<String, u64>,
    /// TCP connections that are open.
    pub connections_open: u64,
    /// TCP connections that were accepted.
    pub connections_total: u64,
    /// Sources with known load.
    pub sources_known: u64,
    /// From a query's being received to its answer's being sent: upper bound in seconds and the
    /// count up to it, not cumulative. The last bound is absent: it is infinite.
    pub latency: Vec<(Option<f64>, u64)>,
    /// All of them together.
    pub latency_seconds_sum: f64,
    /// The resolvers that ask most, with estimates of their queries.
    pub top_resolvers: Vec<DnsResolver>,
}

/// A balanced name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DnsNameStatus {
    /// With its final dot.
    pub name: String,
    /// `pair`, `single`, `ordered`, `srv` or `https`.
    pub mode: String,
    /// For how long resolvers may keep answers now.
    pub ttl_seconds: u32,
    /// None of its backends serves, so others are given.
    pub fail_open: bool,
    /// In configured order.
    pub backends: Vec<DnsBackendStatus>,
}

/// A backend of a balanced name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DnsBackendStatus {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// The addresses in answers.
    pub addresses: Vec<String>,
    /// `serving`, `draining`, `unhealthy` or `down`.
    pub state: String,
    /// The share of clients that answers aim at, 0 to 1.
    pub share: f64,
}

/// Answers that a backend stood in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsAnswers {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub backend: String,
    /// Since the process started.
    pub answers_total: u64,
}

/// A resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsResolver {
    /// Its address.
    pub address: String,
    /// An estimate.
    pub queries: u64,
}

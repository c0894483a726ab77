//! The DNS level's part of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The DNS level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DnsStatus {
    /// Addresses at which queries arrive.
    pub listen: Vec<String>,
    /// The served zones.
    pub zones: Vec<String>,
    /// Generation of the snapshot in force.
    pub generation: u64,
    /// Balanced names.
    pub names: Vec<DnsNameStatus>,
    /// Number of answers with each backend.
    pub answers: Vec<DnsAnswers>,
    /// Queries by transport: `udp`, `tcp`.
    pub queries: BTreeMap<String, u64>,
    /// Queries by type; `other` for types without their own counter.
    pub types: BTreeMap<String, u64>,
    /// Responses by response code.
    pub rcodes: BTreeMap<String, u64>,
    /// Answers of balanced names by mode.
    pub modes: BTreeMap<String, u64>,
    /// Dropped messages, datagrams and connections, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Notes on responses: `truncated`, `slipped`, `fail_open`, `by_deficit`, `cookies_valid`.
    pub notes: BTreeMap<String, u64>,
    /// Open TCP connections.
    pub connections_open: u64,
    /// Accepted TCP connections.
    pub connections_total: u64,
    /// Sources with known load.
    pub sources_known: u64,
    /// Time from receiving a query to sending its answer: upper bound in seconds and the count up
    /// to it, not cumulative. The last bound is absent, because it is infinite.
    pub latency: Vec<(Option<f64>, u64)>,
    /// Sum of all these times.
    pub latency_seconds_sum: f64,
    /// The busiest resolvers, with estimates of their queries.
    pub top_resolvers: Vec<DnsResolver>,
}

/// A balanced name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DnsNameStatus {
    /// The name, with its final dot.
    pub name: String,
    /// `pair`, `single`, `ordered`, `srv` or `https`.
    pub mode: String,
    /// Current TTL of its answers.
    pub ttl_seconds: u32,
    /// None of its backends serves, and answers have backends that do not.
    pub fail_open: bool,
    /// Backends in configured order.
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

/// Number of answers with a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsAnswers {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub backend: String,
    /// Answers since the process started.
    pub answers_total: u64,
}

/// A resolver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsResolver {
    /// Its address.
    pub address: String,
    /// Estimated number of queries.
    pub queries: u64,
}

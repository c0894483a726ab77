//! Explanations of where a request, connection, query or item would go.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Admin, BackendState, Health};

/// The body of `POST /v1/why`: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyQuestion {
    /// A request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<WhyRequest>,
    /// A TCP connection, or a datagram of UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<WhyFlow>,
    /// A query for a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<WhyName>,
    /// An item of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<WhyItem>,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyRequest {
    /// Its URL, such as `https://shop.example/cart?x=1`.
    pub url: String,
    /// Its method; `GET` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its header fields, each as `Name: value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Address of the client, or address and port; `127.0.0.1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Name of the front door; by default the one that listens on the port of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_door: Option<String>,
    /// Explain each route that does not match; of more than 10, the answer otherwise has the first
    /// one and their number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_routes: bool,
}

/// A TCP connection, or a datagram of UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyFlow {
    /// `tcp` or `udp`.
    pub protocol: FlowProtocol,
    /// The client's address and port, such as `192.0.2.7:4711`.
    pub from: String,
    /// Address and port of the destination, such as `198.51.100.1:443`.
    pub to: String,
}

/// A query for a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyName {
    /// The name, such as `shop.example`.
    pub name: String,
    /// The record type; `A` by default.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub record_type: Option<String>,
    /// Address of the resolver or client; `127.0.0.1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// An item of a stream: its slice, or its key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyItem {
    /// The stream.
    pub stream: String,
    /// Number of the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<u32>,
    /// Value of the key, which is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Value of the key, which is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
}

words! {
    /// A protocol of flows.
    FlowProtocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
    }
}

/// Where a request, connection, query or item would go now, and why. The answer changes nothing: no
/// request is counted, and no turn of a scheduler is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyAnswer {
    /// The subject, in words.
    pub subject: String,
    /// Where it goes, in words.
    pub outcome: String,
    /// Whether it is for this process; false if no front door, VIP or zone is for it.
    #[serde(default = "taken")]
    pub taken: bool,
    /// The backend that serves it, as `POOL/BACKEND`; absent if several may, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The decisions, in their order.
    pub steps: Vec<WhyStep>,
}

fn taken() -> bool {
    true
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyStep {
    /// The level that makes it: `dns`, `packet`, `session`, `dispatch` or `slice`.
    pub level: String,
    /// The decision and its reason, in one line.
    pub text: String,
    /// The backend that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<WhyBackend>,
}

/// A backend that may serve the subject, or may not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyBackend {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// The share of subjects like this one that it gets now, 0 to 1.
    pub share: f64,
    /// The operator's wish.
    pub admin: Admin,
    /// The observed health.
    pub health: Health,
    /// The resulting state.
    pub state: BackendState,
    /// The effective weight.
    pub weight: u16,
    /// Requests, connections or client addresses in flight.
    pub in_flight: u64,
    /// Concurrency limit; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

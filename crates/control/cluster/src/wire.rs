//! Messages on the wire, and their limits.
//!
//! Version 1, under `/cluster/v1`. A change of meaning gets a new version, served beside the old
//! one for a release. Within a version fields may be added, each with a default and omitted while
//! it has it:
//!
//! - here (joining, tokens) a receiver ignores unknown fields;
//! - reports and instructions are exact (`equipoise_controller`): a receiver refuses a message with
//!   an unknown field and names the field, rather than obeying half of it. Therefore controllers
//!   are upgraded first, nodes after them, and new options are configured last. A node that refuses
//!   instructions continues with those it has.
//!
//! SSE events of an unknown name are ignored. A node that asks for instructions with `?changes=1`
//! understands [`TOLD_EVENT`]s; a controller without them sends [`INSTRUCTIONS_EVENT`]s all the
//! same. `&names=1` asks for names, too.

use std::collections::BTreeMap;

use equipoise_controller::ClusterView;
use serde::{Deserialize, Serialize};

use crate::token::{TokenId, Used};
use crate::{Fingerprint, Name};

/// Token and signing request in, certificates out. The one path without a certificate.
pub const JOIN: &str = "/cluster/v1/join";
/// Signing request in, a new certificate of the same name out.
pub const RENEW: &str = "/cluster/v1/renew";
/// A node's report. The answer to one with tallies is what other balancers know of the same
/// backends (`equipoise_controller::Tallies`), and empty otherwise.
pub const REPORT: &str = "/cluster/v1/report";
/// Instructions, as server-sent events.
pub const INSTRUCTIONS: &str = "/cluster/v1/instructions";
/// How the cluster stands.
pub const MEMBERS: &str = "/cluster/v1/members";
/// Join tokens: for operators.
pub const TOKENS: &str = "/cluster/v1/tokens";
/// Nodes that joined: for operators.
pub const NODES: &str = "/cluster/v1/nodes";

/// The title of the [`Problem`] by which a controller refuses a node that was evicted.
pub const EVICTED_TITLE: &str = "evicted";

/// The name of the events with instructions, whole, as nodes of before `?changes` understand them.
pub const INSTRUCTIONS_EVENT: &str = "instructions";
/// The same for nodes that ask with `?changes`: the part that concerns the node, whole at first and
/// then its changes.
pub const TOLD_EVENT: &str = "told";
/// Evicted keys (fingerprints, by node) with certificates that have not ended: peers refuse them.
/// All of them, at the beginning of a stream and when they change.
pub const EVICTED_EVENT: &str = "evicted";

/// The largest body of anything but a report, bytes.
pub const SMALL_BYTES_MAX: usize = 64 << 10;
/// The largest answer that a node takes, one event's instructions included, bytes.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Body of [`JOIN`].
#[derive(Clone, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The token's text.
    pub token: String,
    /// The name that the node asks for.
    pub name: Name,
    /// A PKCS #10 request, DER in base64.
    pub request: String,
}

/// Body of [`RENEW`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A PKCS #10 request, DER in base64.
    pub request: String,
}

/// Answer to [`JOIN`] and [`RENEW`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// The node's certificate, PEM.
    pub certificate: String,
    /// The authority's, PEM; it may be newer than the one that the node has.
    pub authority: String,
}

/// Body of a POST to [`TOKENS`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateToken {
    /// How long it is accepted, seconds.
    pub time_to_live_s: u64,
    /// For one node only.
    #[serde(default)]
    pub single_use: bool,
    /// For the node of this name only.
    #[serde(default)]
    pub node: Option<Name>,
}

/// Answer to it.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedToken {
    /// The token's text; it cannot be shown again.
    pub token: String,
    /// As it is listed.
    pub listed: ListedToken,
}

/// One of the list at [`TOKENS`]. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedToken {
    /// Which.
    pub id: TokenId,
    /// When it was made.
    pub created_at: u64,
    /// Until when it is accepted.
    pub expires_at: u64,
    /// For one node only.
    pub single_use: bool,
    /// For the node of this name only.
    #[serde(default)]
    pub node: Option<Name>,
    /// The use of a token for a single use.
    #[serde(default)]
    pub used: Option<Used>,
}

/// The list at [`TOKENS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTokens {
    /// By id.
    pub tokens: Vec<ListedToken>,
}

/// One of the list at [`NODES`]. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedNode {
    /// Its name.
    pub name: Name,
    /// When it joined.
    pub joined_at: u64,
    /// The end of its last certificate.
    pub valid_until: u64,
    /// The token with which it joined.
    pub token: TokenId,
    /// Whether controllers and peers refuse its certificate.
    pub evicted: bool,
}

/// The list at [`NODES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedNodes {
    /// By name.
    pub nodes: Vec<ListedNode>,
}

/// Answer to [`MEMBERS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// The cluster's name.
    pub cluster: Name,
    /// Its authority.
    pub authority: Fingerprint,
    /// How it stands, as the controller that answers sees it.
    pub view: ClusterView,
    /// Requests that the controller's cluster API accepted, refused and dropped, by name.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
}

/// An error, as RFC 9457 has it (`application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The kind of error.
    pub title: String,
    /// This one.
    #[serde(default)]
    pub detail: String,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("listed", &self.listed).finish_non_exhaustive()
    }
}

//! The decision about a join: a function of its arguments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde::{Deserialize, Serialize};

use super::{JoinToken, TokenId};
use crate::{Fingerprint, Name};

/// The store's record of a token. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// SHA-256 of its secret, base64.
    pub secret_hash: String,
    /// When it was made.
    pub created_at: u64,
    /// Until when it is accepted.
    pub expires_at: u64,
    /// Whether it is good for one node only.
    pub single_use: bool,
    /// For the node of this name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The use of a token for a single use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// The use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// By which node.
    pub node: Name,
    /// With which key: the same one may ask again, for an answer that was lost.
    pub key: Fingerprint,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// The store's record of a node that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Of the key that has the name.
    pub key: Fingerprint,
    /// When it joined with it.
    pub joined_at: u64,
    /// The end of its last certificate.
    pub valid_until: u64,
    /// By which token.
    pub token: TokenId,
    /// Keys that had the name and are refused, until their certificates have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
}

/// A key that an operator has shut out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Which.
    pub key: Fingerprint,
    /// When its last certificate ends, in seconds since 1970.
    pub until: u64,
}

/// The reason why a node may not join. For the operator's log: the node learns only that it may
/// not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefused {
    /// Too many tries.
    #[error("too many attempts to join from there; the next is looked at in a moment")]
    TooOften,
    /// Not in the form of a token.
    #[error("what was presented is no join token; was it cut when it was copied?")]
    NotAToken,
    /// Of another cluster's authority.
    #[error(
        "the token {id} is another cluster's: it names another authority; make one here with `equipoise cluster token create`"
    )]
    OtherCluster {
        /// Which.
        id: TokenId,
    },
    /// The token is unknown.
    #[error(
        "there is no token {id}: never made here, revoked, or forgotten long after it expired; make a new one with `equipoise cluster token create`"
    )]
    Unknown {
        /// Which.
        id: TokenId,
    },
    /// The id is right, the secret is not.
    #[error("the secret of token {id} is wrong: a copy with a mistake, or somebody is guessing")]
    WrongSecret {
        /// Which.
        id: TokenId,
    },
    /// Too late.
    #[error(
        "the token {id} expired {ago_s} s ago; make a new one with `equipoise cluster token create` (or a longer --ttl), and compare the machines' clocks"
    )]
    Expired {
        /// Which.
        id: TokenId,
        /// How long ago, in seconds.
        ago_s: u64,
    },
    /// Used already.
    #[error(
        "the token {id} is for one use, and {by} used it; if that was not you, evict {by} (`equipoise cluster evict {by}`); otherwise make a new one"
    )]
    Replayed {
        /// Which.
        id: TokenId,
        /// The node that used it.
        by: Name,
    },
    /// It names a node, and this is another.
    #[error(
        "the token {id} is for the node {wanted}, and {got} presented it; make one for {got}, or without --node"
    )]
    OtherNode {
        /// Which.
        id: TokenId,
        /// The name that the token requires.
        wanted: Name,
        /// The name of the joining node.
        got: Name,
    },
    /// Another node has the name.
    #[error(
        "a node called {name} is in the cluster with another key; if this machine was set up anew, join it with a token made with --node {name}; if it is another one, give it another `instance.name`"
    )]
    NameTaken {
        /// Which.
        name: Name,
    },
    /// No signing request.
    #[error("the signing request that came with token {id} is not one")]
    NotARequest {
        /// Which.
        id: TokenId,
    },
}

impl JoinRefused {
    /// One word: a metric's label.
    pub fn word(&self) -> &'static str {
        match self {
            JoinRefused::TooOften => "too_often",
            JoinRefused::NotAToken => "not_a_token",
            JoinRefused::OtherCluster { .. } => "other_cluster",
            JoinRefused::Unknown { .. } => "unknown",
            JoinRefused::WrongSecret { .. } => "wrong_secret",
            JoinRefused::Expired { .. } => "expired",
            JoinRefused::Replayed { .. } => "replayed",
            JoinRefused::OtherNode { .. } => "other_node",
            JoinRefused::NameTaken { .. } => "name_taken",
            JoinRefused::NotARequest { .. } => "not_a_request",
        }
    }
}

/// A node that wants to join.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) name: Name,
    pub(crate) key: Fingerprint,
}

/// The records to write when a node may join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The token's record, if it changes.
    pub(crate) token: Option<TokenRecord>,
    /// The node's record.
    pub(crate) node: NodeRecord,
}

/// Seconds since 1970.
pub(crate) fn unix(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether `applicant` may join with `token` now, given the store's records of the token and of a
/// node of that name. Returns only the first reason that applies, and none about a token with an
/// unknown secret.
pub(crate) fn judge(
    token: &JoinToken,
    record: Option<&TokenRecord>,
    holder: Option<&NodeRecord>,
    applicant: &Applicant,
    now: SystemTime,
    lifetime: Duration,
) -> Result<Admitted, JoinRefused> {
    let id = token.id().clone();
    let Some(record) = record else { return Err(JoinRefused::Unknown { id }) };
    let (kept, shown) = (record.secret_hash.as_bytes(), token.secret_hash());
    if verify_slices_are_equal(kept, shown.as_bytes()).is_err() {
        return Err(JoinRefused::WrongSecret { id });
    }
    let at = unix(now);
    if at >= record.expires_at {
        return Err(JoinRefused::Expired { id, ago_s: at - record.expires_at });
    }
    let for_this_name = record.node.as_ref() == Some(&applicant.name);
    if let Some(wanted) = &record.node
        && !for_this_name
    {
        let (wanted, got) = (wanted.clone(), applicant.name.clone());
        return Err(JoinRefused::OtherNode { id, wanted, got });
    }
    let again = |used: &Used| used.key == applicant.key && used.node == applicant.name;
    if let Some(used) = record.used.as_ref().filter(|used| !again(used)) {
        return Err(JoinRefused::Replayed { id, by: used.node.clone() });
    }
    if let Some(holder) = holder {
        let is_evicted = |key| holder.evicted.iter().any(|evicted| evicted.key == key);
        let is_live =
            holder.key != applicant.key && holder.valid_until > at && !is_evicted(holder.key);
        // An evicted node needs more than a token that every node may use.
        let comes_back = is_evicted(applicant.key);
        if (is_live || comes_back) && !for_this_name {
            return Err(JoinRefused::NameTaken { name: applicant.name.clone() });
        }
    }
    let used = Used { node: applicant.name.clone(), key: applicant.key, at };
    let uses = record.single_use && record.used.is_none();
    let evicted = holder.map(|holder| holder.evicted.clone()).unwrap_or_default();
    let stays = |evicted: &Evicted| evicted.until > at && evicted.key != applicant.key;
    Ok(Admitted {
        token: uses.then(|| TokenRecord { used: Some(used), ..record.clone() }),
        node: NodeRecord {
            key: applicant.key,
            joined_at: at,
            valid_until: unix(now + lifetime),
            token: id,
            evicted: evicted.into_iter().filter(stays).collect(),
        },
    })
}

#[cfg(test)]
mod tests;

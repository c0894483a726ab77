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
    /// Time of creation.
    pub created_at: u64,
    /// End of its validity.
    pub expires_at: u64,
    /// True if it is for one node only.
    pub single_use: bool,
    /// The only node that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The use of a single-use token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

/// The use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The node that used it.
    pub node: Name,
    /// The node's key. The same key may ask again, if the answer was lost.
    pub key: Fingerprint,
    /// Time of use, in seconds since 1970.
    pub at: u64,
}

/// The store's record of a node that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Fingerprint of the key that has the name.
    pub key: Fingerprint,
    /// Time of joining with this key.
    pub joined_at: u64,
    /// The end of its last certificate.
    pub valid_until: u64,
    /// The token of the last join.
    pub token: TokenId,
    /// Keys that had the name and are refused, until their certificates have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
}

/// A key that an operator has evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// The key's fingerprint.
    pub key: Fingerprint,
    /// End of its last certificate, in seconds since 1970.
    pub until: u64,
}

/// The reason why a node may not join. It is only for the operator's log, not for the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefused {
    /// There were too many attempts.
    #[error("too many attempts to join from this address; try again in a moment")]
    TooOften,
    /// The text is not a token.
    #[error("the presented text is not a join token; it may be incomplete")]
    NotAToken,
    /// The token is for another cluster.
    #[error(
        "the token {id} is for another cluster; create one here with `equipoise cluster token create`"
    )]
    OtherCluster {
        /// The token's id.
        id: TokenId,
    },
    /// The token is unknown.
    #[error(
        "there is no token {id}; it was never created here, was revoked, or expired long ago; create a new one with `equipoise cluster token create`"
    )]
    Unknown {
        /// The token's id.
        id: TokenId,
    },
    /// The id exists, but the secret is wrong.
    #[error("the secret of token {id} is wrong; the token was copied with a mistake, or guessed")]
    WrongSecret {
        /// The token's id.
        id: TokenId,
    },
    /// The token has expired.
    #[error(
        "the token {id} expired {ago_s} s ago; create a new one with `equipoise cluster token create` (or a longer --ttl), and compare the machines' clocks"
    )]
    Expired {
        /// The token's id.
        id: TokenId,
        /// Seconds since it expired.
        ago_s: u64,
    },
    /// The token was used before.
    #[error(
        "the token {id} is for one use, and {by} used it; if you did not intend that, evict {by} (`equipoise cluster evict {by}`); otherwise create a new one"
    )]
    Replayed {
        /// The token's id.
        id: TokenId,
        /// The node that used it.
        by: Name,
    },
    /// The token is for another node.
    #[error(
        "the token {id} is for the node {wanted}, but {got} presented it; create one for {got}, or without --node"
    )]
    OtherNode {
        /// The token's id.
        id: TokenId,
        /// The name that the token requires.
        wanted: Name,
        /// The name of the joining node.
        got: Name,
    },
    /// Another key has the name.
    #[error(
        "the node {name} is in the cluster with another key; if this machine was reinstalled, join it with a token created with --node {name}; if it is another machine, choose another `instance.name`"
    )]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// The signing request is not valid.
    #[error("the signing request with token {id} is not valid")]
    NotARequest {
        /// The token's id.
        id: TokenId,
    },
}

impl JoinRefused {
    /// The reason in one word, which is a metric's label.
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

/// Decides whether `applicant` may join with `token` now, given the store's records of the token
/// and of a node of that name. Returns only the first reason that applies, and no other about a
/// token with a wrong secret.
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
        // A token that every node may use does not suffice for an evicted node.
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

//! Tokens and nodes in the store, so that every controller knows the same.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_store::{
    Committed, Entry, Expect, Key, KeyError, Prefix, Store, StoreError, Transaction,
};
use serde::de::DeserializeOwned;

use super::admission::{Admitted, Evicted, unix};
use super::{Applicant, JoinRefused, JoinToken, NodeRecord, TokenId, TokenRecord, judge};
use crate::{Certified, Fingerprint, Name};

/// Greatest number of stored tokens, expired ones included.
const TOKENS_MAX: usize = 10_000;

/// Time for which an expired token is remembered, so that its holder is distinguished from a
/// guesser.
const REMEMBERED: Duration = Duration::from_secs(7 * 86_400);

/// Attempts of a write against concurrent writers.
const TRIES: usize = 20;

/// The cluster's tokens and joined nodes.
#[derive(Clone, Debug)]
pub struct Tokens {
    store: Arc<dyn Store>,
    tokens: Prefix,
    nodes: Prefix,
}

/// An operator's request for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWish {
    /// The token's lifetime.
    pub time_to_live: Duration,
    /// True if it is for one node only.
    pub single_use: bool,
    /// The only node that may use it.
    pub node: Option<Name>,
}

/// The reason why tokens cannot be used now.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The store failed.
    #[error("cannot use the cluster's store")]
    Store(#[from] StoreError),
    /// A record has an unknown format.
    #[error("cannot decode {key} in the store; another version may have written it")]
    Unreadable {
        /// The record's key.
        key: Key,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// Other writers were faster in every attempt.
    #[error("{key} changed {TRIES} times during the change; try again")]
    Contended {
        /// The key of the record.
        key: Key,
    },
    /// There are too many tokens.
    #[error("there are {TOKENS_MAX} tokens; revoke unused ones (`equipoise cluster token list`)")]
    TooMany,
}

impl Tokens {
    /// The tokens in this store.
    pub fn new(store: Arc<dyn Store>) -> Tokens {
        let folder = |name| Prefix::of(name).expect("constants without odd characters");
        Tokens { store, tokens: folder("cluster/tokens"), nodes: folder("cluster/nodes") }
    }

    /// Creates a token. Only its hash is stored, so the token cannot be shown again.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn create(
        &self,
        wish: &TokenWish,
        authority: Fingerprint,
        now: SystemTime,
    ) -> Result<(JoinToken, TokenRecord), TokenError> {
        if self.forget_expired(now).await? >= TOKENS_MAX {
            return Err(TokenError::TooMany);
        }
        let token = JoinToken::new(authority);
        let record = TokenRecord {
            secret_hash: token.secret_hash(),
            created_at: unix(now),
            expires_at: unix(now + wish.time_to_live),
            single_use: wish.single_use,
            node: wish.node.clone(),
            used: None,
        };
        let key = self.key_of(token.id());
        match self.store.compare_and_put(&key, Expect::Absent, bytes(&record)).await? {
            Committed::Done(_) => Ok((token, record)),
            // The random id exists already; the next attempt has another.
            Committed::Refused(_) => Err(TokenError::Contended { key }),
        }
    }

    /// All tokens, including those that expired recently.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn list(&self) -> Result<Vec<(TokenId, TokenRecord)>, TokenError> {
        let mut found = Vec::new();
        for entry in self.store.list(&self.tokens).await?.entries {
            let Ok(id) = entry.key.name().parse() else { continue };
            found.push((id, read(&entry)?));
        }
        Ok(found)
    }

    /// Revokes a token with immediate effect. Returns whether it existed.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn revoke(&self, id: &TokenId) -> Result<bool, TokenError> {
        let delete =
            Transaction::new().require(self.key_of(id), Expect::Present).delete(self.key_of(id));
        Ok(matches!(self.store.commit(delete).await?, Committed::Done(_)))
    }

    /// Joins a node, if it may. The decision is written in one transaction for all controllers, so
    /// that a single-use token is used once.
    ///
    /// # Errors
    /// [`TokenError`]; the inner [`JoinRefused`] is the reason why it may not.
    pub(crate) async fn admit(
        &self,
        token: &JoinToken,
        applicant: &Applicant,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Result<(), JoinRefused>, TokenError> {
        let (token_key, node_key) = (self.key_of(token.id()), self.node_key(&applicant.name));
        for _ in 0..TRIES {
            let kept = self.store.get(&token_key).await?;
            let holder = self.store.get(&node_key).await?;
            let record = kept.as_ref().map(read).transpose()?;
            let held = holder.as_ref().map(read).transpose()?;
            let judged = judge(token, record.as_ref(), held.as_ref(), applicant, now, lifetime);
            let Admitted { token, node } = match judged {
                Ok(admitted) => admitted,
                Err(refused) => return Ok(Err(refused)),
            };
            let mut write = Transaction::new()
                .require(token_key.clone(), unchanged(kept.as_ref()))
                .require(node_key.clone(), unchanged(holder.as_ref()))
                .put(node_key.clone(), bytes(&node));
            if let Some(token) = token {
                write = write.put(token_key.clone(), bytes(&token));
            }
            if let Committed::Done(_) = self.store.commit(write).await? {
                return Ok(Ok(()));
            }
        }
        Err(TokenError::Contended { key: node_key })
    }

    /// Records a node's new certificate, unless the node was evicted. Returns false in that case.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn renew(
        &self,
        certified: &Certified,
        valid_until: SystemTime,
    ) -> Result<bool, TokenError> {
        let node_key = self.node_key(&certified.identity.name);
        for _ in 0..TRIES {
            let Some(entry) = self.store.get(&node_key).await? else { return Ok(false) };
            let mut record: NodeRecord = read(&entry)?;
            // Another key has the name, or this one was evicted.
            if record.key != certified.key || record.is_evicted(certified.key) {
                return Ok(false);
            }
            record.valid_until = unix(valid_until);
            let expect = unchanged(Some(&entry));
            if let Committed::Done(_) =
                self.store.compare_and_put(&node_key, expect, bytes(&record)).await?
            {
                return Ok(true);
            }
        }
        Err(TokenError::Contended { key: node_key })
    }

    /// Evicts a node: its certificates are refused from now on. Returns whether it exists.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn evict(&self, node: &Name) -> Result<bool, TokenError> {
        let node_key = self.node_key(node);
        for _ in 0..TRIES {
            let Some(entry) = self.store.get(&node_key).await? else { return Ok(false) };
            let mut record: NodeRecord = read(&entry)?;
            if record.is_evicted(record.key) {
                return Ok(true);
            }
            record.evicted.push(Evicted { key: record.key, until: record.valid_until });
            let expect = unchanged(Some(&entry));
            if let Committed::Done(_) =
                self.store.compare_and_put(&node_key, expect, bytes(&record)).await?
            {
                return Ok(true);
            }
        }
        Err(TokenError::Contended { key: node_key })
    }

    /// The nodes that ever joined, by name.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn joined(&self) -> Result<Vec<(Name, NodeRecord)>, TokenError> {
        let mut found = Vec::new();
        for entry in self.store.list(&self.nodes).await?.entries {
            let Ok(name) = entry.key.name().parse() else { continue };
            found.push((name, read(&entry)?));
        }
        Ok(found)
    }

    /// The folder of the nodes' records, for a watch.
    pub(crate) fn nodes(&self) -> (&Arc<dyn Store>, &Prefix) {
        (&self.store, &self.nodes)
    }

    /// Deletes tokens that expired long ago. Returns the number of the remaining ones.
    async fn forget_expired(&self, now: SystemTime) -> Result<usize, TokenError> {
        let before = unix(now).saturating_sub(REMEMBERED.as_secs());
        let all = self.list().await?;
        let mut left = all.len();
        for (id, record) in all.into_iter().filter(|(_, record)| record.expires_at < before) {
            tracing::debug!(token = %id, expired_at = record.expires_at, "an expired token is forgotten");
            self.store.delete(&self.key_of(&id)).await?;
            left -= 1;
        }
        Ok(left)
    }

    fn key_of(&self, id: &TokenId) -> Key {
        in_folder(self.tokens.key(id.as_str()))
    }

    fn node_key(&self, node: &Name) -> Key {
        in_folder(self.nodes.key(node.as_str()))
    }
}

impl NodeRecord {
    /// True if certificates of this key are refused.
    pub fn is_evicted(&self, key: Fingerprint) -> bool {
        self.evicted.iter().any(|evicted| evicted.key == key)
    }
}

/// Names and ids contain only characters that are valid in keys.
fn in_folder(key: Result<Key, KeyError>) -> Key {
    key.expect("names and token ids are segments of keys")
}

fn unchanged(entry: Option<&Entry>) -> Expect {
    entry.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified))
}

fn bytes(record: &impl serde::Serialize) -> Arc<[u8]> {
    serde_json::to_vec(record).expect("records are plain JSON").into()
}

pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, TokenError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| TokenError::Unreadable { key: entry.key.clone(), source })
}

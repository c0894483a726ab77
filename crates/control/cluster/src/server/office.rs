//! Operators' requests: reading members, creating and revoking tokens, evicting nodes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_controller::MemberState;
use equipoise_store::Outcome;

use super::Shared;
use crate::token::{NodeRecord, TokenError, TokenId, TokenRecord, TokenWish};
use crate::wire::{CreateToken, CreatedToken, ListedToken, ListedTokens, Members};
use crate::{ClusterServer, Name};

/// Longest lifetime of a token, in seconds, because an attacker finds an old token sooner or later.
const TIME_TO_LIVE_S_MAX: u64 = 90 * 86_400;

/// The text after a controller's name in the answer to its eviction.
const CONTROLLERS: &str = "which authenticates with the authority's key (ca.key) and has no token, so it cannot be evicted. To remove it, \
stop its `equipoise run` (another one leads within 3 s), remove ca.key from its machine, and its address from `controllers` in \
the files of nodes and agents. If others may have ca.key, only a new authority excludes them";

/// A controller's operator requests, from every API. The caller has authorized them.
#[derive(Clone)]
pub struct Office {
    shared: Arc<Shared>,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum OfficeError {
    /// The lifetime is too short or too long.
    #[error("the lifetime of a token must be 1 to {TIME_TO_LIVE_S_MAX} seconds (90 days)")]
    TimeToLive,
    /// There are too many tokens.
    #[error(transparent)]
    TooMany(TokenError),
    /// The token was never created, was revoked, or was forgotten.
    #[error("there is no such token; see `equipoise cluster token list`")]
    NoSuchToken,
    /// No node has this name.
    #[error("no node of that name ever joined")]
    NoSuchNode,
    /// The name is that of a controller, which did not join and has no certificate that could be
    /// refused.
    #[error("{0} is a controller, {CONTROLLERS}")]
    IsController(Name),
    /// The store failed. The request may be repeated.
    #[error("cannot use the cluster's store now; try again, or ask another controller")]
    Store(#[source] TokenError),
    /// The store failed during a change, which may have taken effect.
    #[error(
        "the cluster's store did not confirm the change, which may still take effect; check the state, then try again"
    )]
    Unconfirmed(#[source] TokenError),
}

impl ClusterServer {
    /// The interface for operators' requests outside of the cluster API.
    pub fn office(&self) -> Office {
        Office::new(Arc::clone(&self.shared))
    }
}

impl Office {
    pub(crate) fn new(shared: Arc<Shared>) -> Office {
        Office { shared }
    }

    /// The state of the cluster.
    pub fn members(&self) -> Members {
        let mut view = self.shared.intake.cluster();
        let evictions = self.shared.evictions.borrow().clone();
        for member in view.members.iter_mut().filter(|it| evictions.is_shut_out(&it.name)) {
            member.state = MemberState::Evicted;
        }
        Members {
            cluster: self.shared.authority.cluster().clone(),
            authority: self.shared.authority.fingerprint(),
            view,
            counts: self.shared.counts(),
        }
    }

    /// Creates a join token, which cannot be shown again.
    ///
    /// # Errors
    /// [`OfficeError`].
    pub async fn create_token(&self, asked: CreateToken) -> Result<CreatedToken, OfficeError> {
        if !(1..=TIME_TO_LIVE_S_MAX).contains(&asked.time_to_live_s) {
            return Err(OfficeError::TimeToLive);
        }
        let wish = TokenWish {
            time_to_live: Duration::from_secs(asked.time_to_live_s),
            single_use: asked.single_use,
            node: asked.node,
        };
        let authority = self.shared.authority.fingerprint();
        let made = self.shared.tokens.create(&wish, authority, SystemTime::now()).await;
        let (token, record) = made.map_err(|error| match error {
            TokenError::TooMany => OfficeError::TooMany(error),
            error => self.unchanged(error),
        })?;
        let TokenWish { time_to_live, single_use, node } = &wish;
        let node = node.as_ref().map(tracing::field::display);
        tracing::info!(token = %token.id(), ?time_to_live, single_use, node, "a join token was created");
        let listed = listed(token.id().clone(), record);
        Ok(CreatedToken { token: token.reveal(), listed })
    }

    /// The existing tokens, including those that expired recently.
    ///
    /// # Errors
    /// [`OfficeError::Store`].
    pub async fn tokens(&self) -> Result<ListedTokens, OfficeError> {
        let tokens = self.shared.tokens.list().await.map_err(|error| self.store(error))?;
        Ok(ListedTokens { tokens: tokens.into_iter().map(|(id, it)| listed(id, it)).collect() })
    }

    /// Revokes a token with immediate effect.
    ///
    /// # Errors
    /// [`OfficeError`].
    pub async fn revoke_token(&self, id: &TokenId) -> Result<(), OfficeError> {
        if !self.shared.tokens.revoke(id).await.map_err(|error| self.unchanged(error))? {
            return Err(OfficeError::NoSuchToken);
        }
        tracing::info!(token = %id, "a join token was revoked");
        Ok(())
    }

    /// The nodes that ever joined.
    ///
    /// # Errors
    /// [`OfficeError::Store`].
    pub async fn joined(&self) -> Result<Vec<(Name, NodeRecord)>, OfficeError> {
        self.shared.tokens.joined().await.map_err(|error| self.store(error))
    }

    /// The present controllers. They are members, although they never joined.
    pub fn controllers(&self) -> Vec<String> {
        let view = self.shared.intake.cluster();
        let mut all = view.controllers;
        // It is itself present, whatever the store says.
        if !all.contains(&view.controller) {
            all.push(view.controller);
        }
        all
    }

    /// Evicts a node: its certificates are refused from now on.
    ///
    /// # Errors
    /// [`OfficeError`].
    pub async fn evict(&self, node: &Name) -> Result<(), OfficeError> {
        if !self.shared.tokens.evict(node).await.map_err(|error| self.unchanged(error))? {
            let is_controller = self.controllers().iter().any(|it| it == node.as_str());
            return Err(match is_controller {
                true => OfficeError::IsController(node.clone()),
                false => OfficeError::NoSuchNode,
            });
        }
        tracing::info!(event = "node.evicted", subject = %node, %node, "a node was evicted: its certificates are refused");
        Ok(())
    }

    /// Counts and logs a failure of the store. The store may still apply a write later.
    pub(crate) fn store(&self, error: TokenError) -> OfficeError {
        self.shared.count("store_failed");
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(%error, cause, "the cluster API failed to use the store");
        OfficeError::Store(error)
    }

    /// As [`Self::store`], for a change.
    fn unchanged(&self, error: TokenError) -> OfficeError {
        let outcome = match &error {
            TokenError::Store(error) => error.outcome(),
            _ => Outcome::NotDone,
        };
        match (outcome, self.store(error)) {
            (Outcome::Unknown, OfficeError::Store(error)) => OfficeError::Unconfirmed(error),
            (_, error) => error,
        }
    }
}

fn listed(id: TokenId, record: TokenRecord) -> ListedToken {
    let TokenRecord { created_at, expires_at, single_use, node, used, .. } = record;
    ListedToken { id, created_at, expires_at, single_use, node, used }
}

impl std::fmt::Debug for Office {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Office").finish_non_exhaustive()
    }
}

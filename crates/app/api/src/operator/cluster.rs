//! The cluster: members, join tokens, and nodes that joined.

use std::future::Future;

use super::OperateError;
use crate::wire::cluster::{ClusterMembers, ClusterTokens, JoinedNodes, TokenMade, TokenWanted};

/// Operations on the cluster, which its controllers do.
pub trait ClusterOperator: Send + Sync + 'static {
    /// The cluster as this controller sees it.
    fn cluster_members(&self) -> impl Future<Output = Result<ClusterMembers, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// The cluster's join tokens.
    fn cluster_tokens(&self) -> impl Future<Output = Result<ClusterTokens, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Creates a join token.
    fn create_token(
        &self,
        _wanted: TokenWanted,
    ) -> impl Future<Output = Result<TokenMade, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Revokes a join token.
    fn revoke_token(&self, _id: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// All nodes that ever joined.
    fn joined_nodes(&self) -> impl Future<Output = Result<JoinedNodes, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Evicts a node from the cluster.
    fn evict_node(&self, _node: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }
}

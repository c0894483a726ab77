//! Requests about the cluster, answered by `planning`.

use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_api::{ClusterOperator, OperateError};

use crate::run::control::Control;

impl ClusterOperator for Control {
    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        self.levels.planner.cluster_members()
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        self.levels.planner.cluster_tokens().await
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.create_token(wanted).await
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.revoke_token(id).await
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        self.levels.planner.joined_nodes().await
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.evict_node(node).await
    }
}

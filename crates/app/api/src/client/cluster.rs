//! Requests about the cluster, which controllers answer.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError, encoded, to_json};
use crate::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNode, JoinedNodes, TokenMade, TokenWanted,
};

impl Client {
    /// `GET /v1/cluster/members`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] if the process is not a controller.
    pub async fn cluster_members(&self) -> Result<ClusterMembers, ClientError> {
        self.ask(Method::GET, "/v1/cluster/members", Bytes::new()).await
    }

    /// `GET /v1/cluster/tokens`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cluster_tokens(&self) -> Result<ClusterTokens, ClientError> {
        self.ask(Method::GET, "/v1/cluster/tokens", Bytes::new()).await
    }

    /// `POST /v1/cluster/tokens`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn create_token(&self, wanted: &TokenWanted) -> Result<TokenMade, ClientError> {
        self.ask(Method::POST, "/v1/cluster/tokens", to_json(wanted)).await
    }

    /// `DELETE /v1/cluster/tokens/TOKEN`. Returns the remaining tokens.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn revoke_token(&self, id: &str) -> Result<ClusterTokens, ClientError> {
        let path = format!("/v1/cluster/tokens/{}", encoded(id));
        self.ask(Method::DELETE, &path, Bytes::new()).await
    }

    /// `GET /v1/cluster/nodes`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn joined_nodes(&self) -> Result<JoinedNodes, ClientError> {
        self.ask(Method::GET, "/v1/cluster/nodes", Bytes::new()).await
    }

    /// `POST /v1/cluster/nodes/NODE/evict`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn evict(&self, node: &str) -> Result<JoinedNode, ClientError> {
        let path = format!("/v1/cluster/nodes/{}/evict", encoded(node));
        self.ask(Method::POST, &path, Bytes::new()).await
    }
}

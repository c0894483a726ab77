//! The plan, and the nodes that it is for.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError, encoded, to_json};
use crate::wire::plan::{NodeStatus, Nodes, PlanStatus, PoolWish};

impl Client {
    /// `GET /v1/plan`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn plan(&self, next: bool) -> Result<PlanStatus, ClientError> {
        self.ask(Method::GET, &format!("/v1/plan?next={next}"), Bytes::new()).await
    }

    /// `PUT /v1/plan/pools/POOL`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn wish(&self, pool: &str, wish: &PoolWish) -> Result<PlanStatus, ClientError> {
        let path = format!("/v1/plan/pools/{}", encoded(pool));
        self.ask(Method::PUT, &path, to_json(wish)).await
    }

    /// `GET /v1/nodes`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] if the process is not a controller.
    pub async fn nodes(&self) -> Result<Nodes, ClientError> {
        self.ask(Method::GET, "/v1/nodes", Bytes::new()).await
    }

    /// `POST /v1/nodes/NODE/drain` or `undrain`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_node(&self, node: &str, action: &str) -> Result<NodeStatus, ClientError> {
        let path = format!("/v1/nodes/{}/{action}", encoded(node));
        self.ask(Method::POST, &path, Bytes::new()).await
    }
}

//! A cluster's members, join tokens and evicted nodes, on its controllers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Routes;
use crate::answer::{Answer, Tagged};
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::{Body, Named};
use crate::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNode, JoinedNodes, TokenMade, TokenWanted,
};
use crate::{OperateError, Operator, Problem};

/// Path of a join token.
#[derive(Deserialize, JsonSchema)]
struct TokenPath {
    /// The token's id.
    token: String,
}

/// Path of a node.
#[derive(Deserialize, JsonSchema)]
struct NodePath {
    /// The node's name.
    node: String,
}

operations! {
    /// Members, leader, loads and instructions, as this controller sees them
    MEMBERS = GET "/v1/cluster/members", READ, () => ClusterMembers;

    /// The join tokens, without their secrets
    TOKENS = GET "/v1/cluster/tokens", ADMIN, () => ClusterTokens;

    /// Create a join token; it cannot be shown again
    CREATE_TOKEN = POST "/v1/cluster/tokens", ADMIN, TokenWanted => TokenMade;

    /// Revoke a join token at once; nodes that joined with it stay
    REVOKE_TOKEN = DELETE "/v1/cluster/tokens/{token}", ADMIN, () => ClusterTokens;

    /// The nodes that ever joined
    JOINED_NODES = GET "/v1/cluster/nodes", READ, () => JoinedNodes;

    /// A node that joined; its ETag covers its key and whether it is evicted
    JOINED_NODE = GET "/v1/cluster/nodes/{node}", READ, () => JoinedNode;

    /// Evict a node: its certificates are refused at once
    EVICT = POST "/v1/cluster/nodes/{node}/evict", ADMIN, () => JoinedNode;
}

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

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(MEMBERS, members::<O>)
        .serve(TOKENS, tokens::<O>)
        .serve(CREATE_TOKEN, create::<O>)
        .serve(REVOKE_TOKEN, revoke::<O>)
        .serve(JOINED_NODES, joined::<O>)
        .serve(JOINED_NODE, node::<O>)
        .serve(EVICT, evict::<O>)
}

async fn members<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<ClusterMembers>, Problem> {
    Ok(Answer::new(operator.cluster_members().await?))
}

async fn tokens<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
    headers: HeaderMap,
) -> Result<Tagged<ClusterTokens>, Problem> {
    let tokens = operator.cluster_tokens().await?;
    let tag = ETag::of(&tokens);
    Ok(Tagged::new(tokens, tag).unless_seen(&headers))
}

async fn create<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
    Body(wanted): Body<TokenWanted>,
) -> Result<Tagged<TokenMade>, Problem> {
    let change = turn.wait().await;
    change.of(&ETag::of(&operator.cluster_tokens().await?))?;
    let made = operator.create_token(wanted).await?;
    // The audit log has the listed entry, and never the token itself.
    change.after(&made.listed);
    let tag = ETag::of(&operator.cluster_tokens().await?);
    Ok(Tagged::new(made, tag))
}

async fn revoke<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
    Named(TokenPath { token }): Named<TokenPath>,
    turn: Turn,
) -> Result<Tagged<ClusterTokens>, Problem> {
    let change = turn.wait().await;
    let before = operator.cluster_tokens().await?;
    change.of(&ETag::of(&before))?;
    change.before(&before.tokens.iter().find(|it| it.id == token));
    operator.revoke_token(&token).await?;
    let left = operator.cluster_tokens().await?;
    let tag = ETag::of(&left);
    Ok(Tagged::new(left, tag))
}

async fn joined<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<JoinedNodes>, Problem> {
    Ok(Answer::new(operator.joined_nodes().await?))
}

/// The writable state of a joined node.
#[derive(Serialize)]
struct Admitted<'n> {
    node: &'n str,
    key: &'n str,
    evicted: bool,
}

impl<'n> From<&'n JoinedNode> for Admitted<'n> {
    fn from(node: &'n JoinedNode) -> Self {
        Admitted { node: &node.name, key: &node.key, evicted: node.evicted }
    }
}

/// The object that a name refers to.
enum Found {
    Node(JoinedNode),
    /// A controller, which exists and never joined.
    Controller,
}

async fn find<O: ClusterOperator>(operator: &O, name: &str) -> Result<Found, OperateError> {
    let joined = operator.joined_nodes().await?;
    if let Some(node) = joined.nodes.into_iter().find(|node| node.name == name) {
        return Ok(Found::Node(node));
    }
    match joined.controllers.iter().any(|controller| controller == name) {
        true => Ok(Found::Controller),
        false => Err(OperateError::NotFound(format!(
            "no node `{name}` ever joined; /v1/cluster/nodes lists the nodes"
        ))),
    }
}

async fn one<O: ClusterOperator>(operator: &O, name: &str) -> Result<JoinedNode, OperateError> {
    match find(operator, name).await? {
        Found::Node(node) => Ok(node),
        Found::Controller => Err(OperateError::NotFound(format!(
            "`{name}` is a controller, which does not join; /v1/cluster/nodes lists the nodes"
        ))),
    }
}

async fn node<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
    Named(NodePath { node }): Named<NodePath>,
    headers: HeaderMap,
) -> Result<Tagged<JoinedNode>, Problem> {
    let found = one(&*operator, &node).await?;
    let tag = ETag::of(&Admitted::from(&found));
    Ok(Tagged::new(found, tag).unless_seen(&headers))
}

async fn evict<O: ClusterOperator>(
    State(operator): State<Arc<O>>,
    Named(NodePath { node }): Named<NodePath>,
    turn: Turn,
) -> Result<Tagged<JoinedNode>, Problem> {
    let change = turn.wait().await;
    match find(&*operator, &node).await? {
        Found::Node(before) => {
            change.of(&ETag::of(&Admitted::from(&before)))?;
            change.before(&Admitted::from(&before));
        }
        // The cluster refuses this, with the reason.
        Found::Controller => {}
    }
    operator.evict_node(&node).await?;
    let after = one(&*operator, &node).await?;
    let admitted = Admitted::from(&after);
    change.after(&admitted);
    let tag = ETag::of(&admitted);
    Ok(Tagged::new(after, tag))
}

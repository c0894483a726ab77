//! The plan, the operators' overrides, and the nodes' reports.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Routes;
use crate::answer::{Answer, Tagged};
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::{Asked, Body, Named};
use crate::wire::Admin;
use crate::wire::plan::{
    HistoryQuestion, NodeHistory, NodeStatus, Nodes, PlanMode, PlanQuestion, PlanStatus,
    PlannedPool, PoolWish,
};
use crate::{OperateError, Operator, Problem};

/// Path of a pool.
#[derive(Deserialize, JsonSchema)]
struct PoolPath {
    /// The pool's name.
    pool: String,
}

/// Path of a node.
#[derive(Deserialize, JsonSchema)]
struct NodePath {
    /// The node's name.
    node: String,
}

operations! {
    /// The plan, with its reasons
    PLAN = GET "/v1/plan", READ, PlanQuestion => PlanStatus;

    /// The plan of a pool; its ETag covers the mode of scaling
    POOL = GET "/v1/plan/pools/{pool}", READ, () => PlannedPool;

    /// Pin an elastic pool's size, pause its planning, or resume it
    SCALE_POOL = PUT "/v1/plan/pools/{pool}", OPERATE, PoolWish => PlanStatus;

    /// The members that report here, with their last reports
    NODES = GET "/v1/nodes", READ, () => Nodes;

    /// A node; its ETag covers its admin state
    NODE = GET "/v1/nodes/{node}", READ, () => NodeStatus;

    /// Remove a node of the cluster from names' answers, and delegate nothing to it
    DRAIN_NODE = POST "/v1/nodes/{node}/drain", OPERATE, () => NodeStatus;

    /// Give a drained node of the cluster new clients again
    UNDRAIN_NODE = POST "/v1/nodes/{node}/undrain", OPERATE, () => NodeStatus;

    /// A node's recent utilisation
    NODE_HISTORY = GET "/v1/nodes/{node}/history", READ, HistoryQuestion => NodeHistory;
}

/// Operations on the plan and on nodes.
pub trait PlanOperator: Send + Sync + 'static {
    /// Returns the current plan or, with `next`, the next one.
    fn plan(&self, _next: bool) -> impl Future<Output = Result<PlanStatus, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Pins or pauses an elastic pool's size. Returns the resulting plan.
    fn wish(
        &self,
        _pool: &str,
        _wish: PoolWish,
    ) -> impl Future<Output = Result<PlanStatus, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Returns the nodes that report to this process.
    fn nodes(&self) -> impl Future<Output = Result<Nodes, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Sets the admin state of a node, which survives restarts. Returns the nodes.
    fn set_node_admin(
        &self,
        _node: &str,
        _admin: Admin,
    ) -> impl Future<Output = Result<Nodes, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// A node's recent utilisation.
    fn node_history(
        &self,
        _node: &str,
        _question: HistoryQuestion,
    ) -> impl Future<Output = Result<NodeHistory, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(PLAN, plan::<O>)
        .serve(POOL, pool::<O>)
        .serve(SCALE_POOL, wish::<O>)
        .serve(NODES, nodes::<O>)
        .serve(NODE, node::<O>)
        .serve(DRAIN_NODE, drain::<O>)
        .serve(UNDRAIN_NODE, undrain::<O>)
        .serve(NODE_HISTORY, history::<O>)
}

async fn plan<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Asked(PlanQuestion { next }): Asked<PlanQuestion>,
) -> Result<Answer<PlanStatus>, Problem> {
    Ok(Answer::new(operator.plan(next).await?))
}

/// The writable state of a pool's plan.
#[derive(Serialize)]
struct Decided<'p> {
    pool: &'p str,
    mode: Option<PlanMode>,
    pinned: Option<u32>,
}

impl<'p> Decided<'p> {
    fn of(pool: &'p str, plan: &PlanStatus) -> Decided<'p> {
        let planned = plan.pools.iter().find(|planned| planned.name == pool);
        let scaling = planned.and_then(|planned| planned.scaling.as_ref());
        Decided {
            pool,
            mode: scaling.map(|scaling| scaling.mode),
            pinned: scaling.and_then(|scaling| scaling.pinned),
        }
    }
}

async fn pool<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Named(PoolPath { pool }): Named<PoolPath>,
    headers: HeaderMap,
) -> Result<Tagged<PlannedPool>, Problem> {
    let plan = operator.plan(false).await?;
    let tag = ETag::of(&Decided::of(&pool, &plan));
    let planned = plan.pools.into_iter().find(|planned| planned.name == pool);
    let planned = planned.ok_or_else(|| {
        OperateError::NotFound(format!(
            "there is no plan of a pool `{pool}`; /v1/plan lists the planned pools"
        ))
    })?;
    Ok(Tagged::new(planned, tag).unless_seen(&headers))
}

async fn wish<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Named(PoolPath { pool }): Named<PoolPath>,
    turn: Turn,
    Body(wish): Body<PoolWish>,
) -> Result<Tagged<PlanStatus>, Problem> {
    let change = turn.wait().await;
    let before = operator.plan(false).await?;
    let decided = Decided::of(&pool, &before);
    change.of(&ETag::of(&decided))?;
    change.before(&decided);
    let after = operator.wish(&pool, wish).await?;
    let decided = Decided::of(&pool, &after);
    change.after(&decided);
    let tag = ETag::of(&decided);
    Ok(Tagged::new(after, tag))
}

async fn nodes<O: PlanOperator>(State(operator): State<Arc<O>>) -> Result<Answer<Nodes>, Problem> {
    Ok(Answer::new(operator.nodes().await?))
}

/// The writable state of a node.
#[derive(Serialize)]
struct Wanted<'n> {
    node: &'n str,
    admin: Admin,
}

impl<'n> From<&'n NodeStatus> for Wanted<'n> {
    fn from(node: &'n NodeStatus) -> Self {
        Wanted { node: &node.name, admin: node.admin }
    }
}

fn one(nodes: Nodes, name: &str) -> Result<NodeStatus, Problem> {
    let known: Vec<String> = nodes.nodes.iter().map(|node| node.name.clone()).collect();
    let found = nodes.nodes.into_iter().find(|node| node.name == name);
    let missing = || format!("there is no node `{name}`; the nodes are `{}`", known.join("`, `"));
    Ok(found.ok_or_else(|| OperateError::NotFound(missing()))?)
}

async fn node<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Named(NodePath { node }): Named<NodePath>,
    headers: HeaderMap,
) -> Result<Tagged<NodeStatus>, Problem> {
    let found = one(operator.nodes().await?, &node)?;
    let tag = ETag::of(&Wanted::from(&found));
    Ok(Tagged::new(found, tag).unless_seen(&headers))
}

async fn drain<O: PlanOperator>(
    operator: State<Arc<O>>,
    named: Named<NodePath>,
    turn: Turn,
) -> Result<Tagged<NodeStatus>, Problem> {
    set(operator, named, turn, Admin::Drain).await
}

async fn undrain<O: PlanOperator>(
    operator: State<Arc<O>>,
    named: Named<NodePath>,
    turn: Turn,
) -> Result<Tagged<NodeStatus>, Problem> {
    set(operator, named, turn, Admin::Up).await
}

async fn set<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Named(NodePath { node }): Named<NodePath>,
    turn: Turn,
    admin: Admin,
) -> Result<Tagged<NodeStatus>, Problem> {
    let change = turn.wait().await;
    let before = one(operator.nodes().await?, &node)?;
    change.of(&ETag::of(&Wanted::from(&before)))?;
    change.before(&Wanted::from(&before));
    let after = one(operator.set_node_admin(&node, admin).await?, &node)?;
    let wanted = Wanted::from(&after);
    change.after(&wanted);
    let tag = ETag::of(&wanted);
    Ok(Tagged::new(after, tag))
}

async fn history<O: PlanOperator>(
    State(operator): State<Arc<O>>,
    Named(NodePath { node }): Named<NodePath>,
    Asked(question): Asked<HistoryQuestion>,
) -> Result<Answer<NodeHistory>, Problem> {
    Ok(Answer::new(operator.node_history(&node, question).await?))
}

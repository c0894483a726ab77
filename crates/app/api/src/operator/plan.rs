//! Planning: the plan, elastic pools, and the nodes that report.

use std::future::Future;

use super::OperateError;
use crate::wire::Admin;
use crate::wire::plan::{HistoryQuestion, NodeHistory, Nodes, PlanStatus, PoolWish};

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

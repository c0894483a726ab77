//! Requests about the plan and nodes, answered by `planning`.

use equipoise_api::wire::Admin;
use equipoise_api::wire::plan::{HistoryQuestion, NodeHistory, Nodes, PlanStatus, PoolWish};
use equipoise_api::{OperateError, PlanOperator};

use crate::run::control::Control;

impl PlanOperator for Control {
    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        self.levels.planner.plan(next)
    }

    async fn wish(&self, pool: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.wish(pool, wish).await
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        Ok(self.levels.planner.nodes())
    }

    async fn set_node_admin(&self, node: &str, admin: Admin) -> Result<Nodes, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.set_node_admin(node, admin.into()).await
    }

    async fn node_history(
        &self,
        node: &str,
        question: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        self.levels.planner.history(node, question)
    }
}

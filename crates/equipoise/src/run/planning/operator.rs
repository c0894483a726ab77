//! What the API asks of planning.

use equipoise_api::OperateError;
use equipoise_api::metrics::{MachineReading, PlanningReading};
use equipoise_api::wire::cluster::{ClusterStanding, OwnLoad};
use equipoise_api::wire::plan::{
    HistoryQuestion, NodeHistory, Nodes, PlanMode, PlanStatus, PoolWish,
};
use equipoise_controller::{ControllerError, ControllerHandle, Intake, NodeKind, SizeWish};
use equipoise_core::AdminState;
use equipoise_planner::elastic::{Elasticity, Mode};

use super::{Planner, views};
use crate::run::cluster;

/// The longest that can be asked for, as the API says it.
const HISTORY_SECONDS_MAX: u64 = 86_400;

impl Planner {
    /// What is planned, or would be planned now.
    pub(crate) fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        let controller = self.asked(|| "plan".to_string())?;
        let preview = if next { controller.preview() } else { None };
        if next && preview.is_none() {
            let why = "there would be no plan: what there is contradicts itself; see the log";
            return Err(OperateError::NotPlanning(why.to_string()));
        }
        let instructions = controller.instructions().borrow().clone();
        let premises = controller.premises_now();
        let sizes = controller.sizes();
        let shown =
            views::Shown { instructions: &instructions, premises: &premises, sizes: &sizes };
        Ok(views::plan(&controller.cluster(), &shown, preview.as_ref()))
    }

    /// Follows an operator's word about a pool's size.
    pub(crate) async fn wish(
        &self,
        pool: &str,
        wish: PoolWish,
    ) -> Result<PlanStatus, OperateError> {
        let controller = self.asked(|| "plan".to_string())?;
        let size = self.size(pool, &wish, controller.sizes().get(pool))?;
        controller.set_size(pool, size).await.map_err(|error| self.not_noted(error))?;
        // One plan may be under way that does not know of it yet.
        let mut seen = controller.instructions().borrow().edition();
        seen.generation += 1;
        controller.newer_than(seen, self.period * 3).await;
        self.plan(false)
    }

    /// What is to be noted; `None`: what the file says. `said` is what was said before.
    fn size(
        &self,
        pool: &str,
        wish: &PoolWish,
        said: Option<&SizeWish>,
    ) -> Result<Option<SizeWish>, OperateError> {
        let planning = self.wish.borrow().planning.clone();
        let Some(elastic) = planning.elastic.get(pool) else {
            let known: Vec<&str> = planning.elastic.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "no pool is: add a [pool.elastic] table to one".to_string(),
                known => format!("elastic pools: {}", known.join(", ")),
            };
            return Err(OperateError::NotFound(format!("no pool {pool} is elastic; {known}")));
        };
        let Elasticity { min, max, .. } = *elastic;
        let refused = |text: String| Err(OperateError::Refused(text));
        match (wish.mode, wish.count) {
            (PlanMode::Paused, None) => {
                Ok(Some(said.copied().unwrap_or(SizeWish::Mode(elastic.mode)).paused()))
            }
            // What the file says is said by the file, and stays so when it changes.
            (PlanMode::Auto, None) => {
                Ok((elastic.mode != Mode::Auto).then_some(SizeWish::Mode(Mode::Auto)))
            }
            (PlanMode::Pinned, Some(count)) if count > max => refused(format!(
                "{count} backends are too many for pool {pool}; accepted: {min} to {max}, its `min` and `max` (raise `max` in the \
                 file and reload)"
            )),
            (PlanMode::Pinned, Some(count)) if count < min && !wish.force => {
                Err(OperateError::Conflict(format!(
                    "{count} backends are fewer than the `min` of pool {pool}; accepted: {min} to {max}, or fewer with --force (in \
                     the API: \"force\": true), at 0 its clients are refused"
                )))
            }
            (PlanMode::Pinned, Some(count)) => Ok(Some(SizeWish::Mode(Mode::Pinned(count)))),
            (PlanMode::Pinned, None) => {
                refused(format!("pinned at how many? Accepted: a `count` of {min} to {max}"))
            }
            (_, Some(_)) => refused("a `count` goes with the mode `pinned` alone".to_string()),
        }
    }

    /// Who reports here.
    pub(crate) fn nodes(&self) -> Nodes {
        match self.controller() {
            Ok(controller) => {
                // It knows who was evicted, too.
                let served = self.office().ok().map(|office| office.members().view);
                let view = served.unwrap_or_else(|| controller.cluster());
                views::nodes(&view, &controller.admins())
            }
            Err(_) => views::alone(&self.instance, &self.recorder, self.own_load()),
        }
    }

    /// Follows an operator's word about a node.
    pub(crate) async fn set_node_admin(
        &self,
        node: &str,
        admin: AdminState,
    ) -> Result<Nodes, OperateError> {
        let controller = self.asked(|| match admin {
            AdminState::Up => format!("undrain {node}"),
            AdminState::Drain | AdminState::Down => format!("drain {node}"),
        })?;
        let view = controller.cluster();
        if !view.members.iter().any(|member| member.name == node) {
            let known: Vec<&str> = view.members.iter().map(|it| it.name.as_str()).collect();
            let known = known.join(", ");
            return Err(OperateError::NotFound(format!(
                "there is no node {node}; there are {known}"
            )));
        }
        let mut seen = controller.instructions().borrow().edition();
        controller.set_admin(node, admin).await.map_err(|error| self.not_noted(error))?;
        // One plan may be under way that does not know of it yet.
        seen.generation += 1;
        controller.newer_than(seen, self.period * 3).await;
        Ok(self.nodes())
    }

    /// A node's recent utilisation.
    pub(crate) fn history(
        &self,
        node: &str,
        question: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        let HistoryQuestion { seconds, step } = question;
        if let Some(long) = seconds.into_iter().chain(step).find(|it| *it > HISTORY_SECONDS_MAX) {
            return Err(OperateError::Refused(format!(
                "{long} s are too long; accepted: at most {HISTORY_SECONDS_MAX} (a day), as long as history is kept"
            )));
        }
        views::history(node, question, &self.recorder).map_err(|error| match error {
            equipoise_monitor::QueryError::UnknownNode(_) => {
                let known = self.recorder.nodes().join(", ");
                OperateError::NotFound(format!("no node {node} has reported; known: {known}"))
            }
            other => OperateError::Refused(other.to_string()),
        })
    }

    /// What this machine is doing, for metrics; `None` before it was measured.
    pub(crate) fn machine(&self) -> Option<MachineReading> {
        self.utilisation.borrow().as_ref().map(views::machine)
    }

    /// For metrics; `None` where no controller is to run.
    pub(crate) fn reading(&self) -> Option<PlanningReading> {
        if let Some(client) = self.seat.client() {
            return Some(cluster::reading(&client.status(), self.began.elapsed()));
        }
        let Ok(controller) = self.controller() else { return self.reading_without() };
        let reading = views::reading(&controller.condition(), &controller.figures());
        let (cluster, cluster_sent_bytes) = self.served().unzip();
        let cluster = cluster.unwrap_or_default();
        Some(PlanningReading { cluster, cluster_sent_bytes, ..reading })
    }

    /// How a node stands to its cluster.
    pub(crate) fn standing(&self) -> Option<ClusterStanding> {
        let status = self.seat.client()?.status();
        let mut standing = cluster::standing(NodeKind::Node, &status, self.own_load());
        standing.problems.extend(self.unscaled());
        Some(standing)
    }

    fn not_noted(&self, error: ControllerError) -> OperateError {
        let store = self.store_name();
        let look = "see to its disk or its members, then look at `equipoise plan` and `equipoise status --cluster`";
        match error {
            ControllerError::Unanswered => OperateError::Unavailable(format!(
                "the store {store} has not taken the change, which may still take effect: {look}"
            )),
            ControllerError::Unconfirmed(error) => {
                let why = crate::cli::with_causes(&anyhow::Error::from(error));
                OperateError::Unavailable(format!(
                    "the store {store} did not confirm the change, which may still take effect: {look} ({why})"
                ))
            }
            ControllerError::Busy => OperateError::Unavailable(format!(
                "an earlier change waits for the store {store}, and may still take effect; this one was not made: {look}"
            )),
            error => OperateError::Refused(crate::cli::with_causes(&anyhow::Error::from(error))),
        }
    }

    fn own_load(&self) -> Option<OwnLoad> {
        let weigh = self.wish.borrow().planning.policy.coefficients;
        let used = self.utilisation.borrow();
        used.as_ref().map(|used| cluster::own_load(used, &weigh))
    }

    /// The controller that runs here; `command` is what can be given to another's.
    fn asked(&self, command: impl FnOnce() -> String) -> Result<ControllerHandle, OperateError> {
        self.controller().map_err(|why| {
            OperateError::NotPlanning(match self.seat.client() {
                Some(client) => {
                    let there = cluster::ask_there(&client.status(), &command());
                    format!("{} is a node of its cluster and plans nothing; {there}", self.instance)
                }
                None => why,
            })
        })
    }
}

//! Requests of the API to planning.

use equipoise_api::OperateError;
use equipoise_api::metrics::{MachineReading, PlanningReading};
use equipoise_api::wire::cluster::{ClusterStanding, OwnLoad};
use equipoise_api::wire::plan::{
    HistoryQuestion, NodeHistory, Nodes, PlanMode, PlanStatus, PoolWish,
};
use equipoise_basics::with_causes;
use equipoise_controller::{ControllerError, ControllerHandle, Intake, NodeKind, SizeWish};
use equipoise_core::AdminState;
use equipoise_planner::elastic::{Elasticity, Mode};

use super::{Planner, views};
use crate::run::cluster;

/// Longest history that the API returns, in seconds.
const HISTORY_SECONDS_MAX: u64 = 86_400;

impl Planner {
    /// The current plan, or the next one.
    pub(crate) fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        let controller = self.asked(|| "plan".to_string())?;
        let preview = if next { controller.preview() } else { None };
        if next && preview.is_none() {
            let why = "there is no next plan: the configuration and the reports contradict each other; see the log";
            return Err(OperateError::NotPlanning(why.to_string()));
        }
        let instructions = controller.instructions().borrow().clone();
        let premises = controller.premises_now();
        let sizes = controller.sizes();
        let shown =
            views::Shown { instructions: &instructions, premises: &premises, sizes: &sizes };
        Ok(views::plan(&controller.cluster(), &shown, preview.as_ref()))
    }

    /// Applies an operator's setting for the size of a pool.
    pub(crate) async fn wish(
        &self,
        pool: &str,
        wish: PoolWish,
    ) -> Result<PlanStatus, OperateError> {
        let controller = self.asked(|| "plan".to_string())?;
        let size = self.size(pool, &wish, controller.sizes().get(pool))?;
        controller.set_size(pool, size).await.map_err(|error| self.not_noted(error))?;
        // A plan in progress may not include the change yet; the one after it does.
        let mut seen = controller.instructions().borrow().edition();
        seen.generation += 1;
        controller.newer_than(seen, self.period * 3).await;
        self.plan(false)
    }

    /// The setting to store; `None` removes the stored one, so that the file decides. `said` is the
    /// setting before.
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
                [] => {
                    "there are no elastic pools; add a [pool.elastic] table to a pool".to_string()
                }
                known => format!("elastic pools: {}", known.join(", ")),
            };
            return Err(OperateError::NotFound(format!(
                "there is no elastic pool {pool}; {known}"
            )));
        };
        let Elasticity { min, max, .. } = *elastic;
        let refused = |text: String| Err(OperateError::Refused(text));
        match (wish.mode, wish.count) {
            (PlanMode::Paused, None) => {
                Ok(Some(said.copied().unwrap_or(SizeWish::Mode(elastic.mode)).paused()))
            }
            // The file's own mode is not stored, so that a later change of the file takes effect.
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
                refused(format!("mode `pinned` needs a `count`; accepted: {min} to {max}"))
            }
            (_, Some(_)) => refused("`count` is accepted with mode `pinned` only".to_string()),
        }
    }

    /// The members that report here.
    pub(crate) fn nodes(&self) -> Nodes {
        match self.controller() {
            Ok(controller) => {
                // The server also knows evicted members.
                let served = self.office().ok().map(|office| office.members().view);
                let view = served.unwrap_or_else(|| controller.cluster());
                equipoise_cli::wire::nodes(&view, &controller.admins())
            }
            Err(_) => views::alone(&self.instance, &self.recorder, self.own_load()),
        }
    }

    /// Applies an operator's admin state for a node.
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
        // A plan in progress may not include the change yet; the one after it does.
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
                "{long} s are too long; accepted: at most {HISTORY_SECONDS_MAX} (a day, the length of the history)"
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

    /// This machine's utilisation, for metrics; `None` before the first sample.
    pub(crate) fn machine(&self) -> Option<MachineReading> {
        self.utilisation.borrow().as_ref().map(views::machine)
    }

    /// The planner's figures, for metrics; `None` if no controller should run here.
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

    /// The state of a node in its cluster.
    pub(crate) fn standing(&self) -> Option<ClusterStanding> {
        let status = self.seat.client()?.status();
        let mut standing = cluster::standing(NodeKind::Node, &status, self.own_load());
        standing.problems.extend(self.unscaled());
        Some(standing)
    }

    fn not_noted(&self, error: ControllerError) -> OperateError {
        let store = self.store_name();
        let look = "repair its disk or its members, then check `equipoise plan` and `equipoise status --cluster`";
        match error {
            ControllerError::Unanswered => OperateError::Unavailable(format!(
                "the store {store} did not answer; the change may still take effect: {look}"
            )),
            ControllerError::Unconfirmed(error) => {
                let why = with_causes(&error);
                OperateError::Unavailable(format!(
                    "the store {store} did not confirm the change, which may still take effect: {look} ({why})"
                ))
            }
            ControllerError::Busy => OperateError::Unavailable(format!(
                "the store {store} is still writing an earlier change, which may take effect; this change was not made: {look}"
            )),
            error => OperateError::Refused(with_causes(&error)),
        }
    }

    fn own_load(&self) -> Option<OwnLoad> {
        let weigh = self.wish.borrow().planning.policy.coefficients;
        let used = self.utilisation.borrow();
        used.as_ref().map(|used| cluster::own_load(used, &weigh))
    }

    /// The controller of this process. Otherwise the error names `command`, to run on another
    /// controller.
    fn asked(&self, command: impl FnOnce() -> String) -> Result<ControllerHandle, OperateError> {
        self.controller().map_err(|why| {
            OperateError::NotPlanning(match self.seat.client() {
                Some(client) => {
                    let there = cluster::ask_there(&client.status(), &command());
                    format!("{} is a node of its cluster and does not plan; {there}", self.instance)
                }
                None => why,
            })
        })
    }
}

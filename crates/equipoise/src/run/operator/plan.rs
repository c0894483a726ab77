//! Requests about the plan and nodes, answered by the controller of this process.

use equipoise_api::wire::Admin;
use equipoise_api::wire::plan::{
    HistoryQuestion, NodeHistory, Nodes, PlanMode, PlanStatus, PoolWish,
};
use equipoise_api::{OperateError, PlanOperator};
use equipoise_basics::with_causes;
use equipoise_controller::{ControllerError, ControllerHandle, Intake, SizeWish};
use equipoise_core::AdminState;
use equipoise_monitor::QueryError;
use equipoise_planner::elastic::{Elasticity, Mode};
use equipoise_planning::Planner;
use equipoise_status::{cluster, plan};

use crate::run::control::Control;

/// Longest history that the API returns, in seconds.
const HISTORY_SECONDS_MAX: u64 = 86_400;

impl PlanOperator for Control {
    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        plan_of(self.planner(), next)
    }

    async fn wish(&self, pool: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        self.accepts_changes()?;
        let planner = self.planner();
        let controller = controller(planner, || "plan".to_string())?;
        let size = size(planner, pool, &wish, controller.sizes().get(pool))?;
        controller.set_size(pool, size).await.map_err(|error| not_noted(planner, error))?;
        // A plan in progress may not include the change yet; the one after it does.
        let mut seen = controller.instructions().borrow().edition();
        seen.generation += 1;
        controller.newer_than(seen, planner.period() * 3).await;
        plan_of(planner, false)
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        Ok(nodes(self.planner()))
    }

    async fn set_node_admin(&self, node: &str, admin: Admin) -> Result<Nodes, OperateError> {
        self.accepts_changes()?;
        let (planner, admin) = (self.planner(), AdminState::from(admin));
        let controller = controller(planner, || match admin {
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
        controller.set_admin(node, admin).await.map_err(|error| not_noted(planner, error))?;
        // A plan in progress may not include the change yet; the one after it does.
        seen.generation += 1;
        controller.newer_than(seen, planner.period() * 3).await;
        Ok(nodes(planner))
    }

    async fn node_history(
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
        let recorder = self.planner().recorder();
        plan::history(node, question, recorder).map_err(|error| match error {
            QueryError::UnknownNode(_) => {
                let known = recorder.nodes().join(", ");
                OperateError::NotFound(format!("no node {node} has reported; known: {known}"))
            }
            other => OperateError::Refused(other.to_string()),
        })
    }
}

/// The current plan, or the next one.
fn plan_of(planner: &Planner, next: bool) -> Result<PlanStatus, OperateError> {
    let controller = controller(planner, || "plan".to_string())?;
    let preview = if next { controller.preview() } else { None };
    if next && preview.is_none() {
        let why = "there is no next plan: the configuration and the reports contradict each other; see the log";
        return Err(OperateError::NotPlanning(why.to_string()));
    }
    let instructions = controller.instructions().borrow().clone();
    let premises = controller.premises_now();
    let sizes = controller.sizes();
    let shown = plan::Shown { instructions: &instructions, premises: &premises, sizes: &sizes };
    Ok(plan::plan(&controller.cluster(), &shown, preview.as_ref()))
}

/// The members that report here.
fn nodes(planner: &Planner) -> Nodes {
    match planner.controller() {
        Ok(controller) => {
            // The server also knows evicted members.
            let served = planner.office().ok().map(|office| office.members().view);
            let view = served.unwrap_or_else(|| controller.cluster());
            equipoise_cli::wire::nodes(&view, &controller.admins())
        }
        Err(_) => {
            let own = super::cluster::own_load(planner);
            plan::alone(planner.instance(), planner.recorder(), own)
        }
    }
}

/// The controller of this process. Otherwise the error names `command`, to run on another
/// controller.
fn controller(
    planner: &Planner,
    command: impl FnOnce() -> String,
) -> Result<ControllerHandle, OperateError> {
    planner.controller().map_err(|why| {
        OperateError::NotPlanning(match planner.client() {
            Some(client) => {
                let there = cluster::ask_there(&client.status(), &command());
                let own = planner.instance();
                format!("{own} is a node of its cluster and does not plan; {there}")
            }
            None => why,
        })
    })
}

/// The setting to store; `None` removes the stored one, so that the file decides. `said` is the
/// setting before.
fn size(
    planner: &Planner,
    pool: &str,
    wish: &PoolWish,
    said: Option<&SizeWish>,
) -> Result<Option<SizeWish>, OperateError> {
    let planning = planner.wish().planning.clone();
    let Some(elastic) = planning.elastic.get(pool) else {
        let known: Vec<&str> = planning.elastic.keys().map(String::as_str).collect();
        let known = match known.as_slice() {
            [] => "there are no elastic pools; add a [pool.elastic] table to a pool".to_string(),
            known => format!("elastic pools: {}", known.join(", ")),
        };
        return Err(OperateError::NotFound(format!("there is no elastic pool {pool}; {known}")));
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

fn not_noted(planner: &Planner, error: ControllerError) -> OperateError {
    let store = planner.store_name();
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

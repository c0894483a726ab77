//! The process: its status, its health, and the operations that all levels need.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::Routes;
use crate::answer::Answer;
use crate::api::Api;
use crate::metrics::Reading;
use crate::wire::config::{Checked, ConfigState, ConfigText, ReloadPreview};
use crate::wire::{Liveness, Phase, Reloaded, Status, Upgrade, Upgraded};
use crate::{OperateError, Operator, Problem};

operations! {
    /// The complete status
    STATUS = GET "/v1/status", READ, () => Status;

    /// Whether the process accepts new work (503 while it stops), and its degraded parts
    HEALTH = GET "/v1/health", Anyone, () => Liveness;

    /// This description
    OPENAPI = GET "/v1/openapi.json", READ, () => Value;
}

/// A new text of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewText {
    /// This one.
    Given(String),
    /// That of before the last replacement.
    Previous,
}

/// Operations of the process, independent of levels.
pub trait ProcessOperator: Send + Sync + 'static {
    /// A configuration that was read and checked, or its errors.
    type Prepared: Send + 'static;

    /// A new text of the configuration file that was read and checked.
    type NewConfig: Send + 'static;

    /// Whether the process accepts new work.
    fn phase(&self) -> Phase;

    /// Returns the names of parts that have failed although traffic continues. Any caller may read
    /// them, so they have no details.
    fn degraded(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// The complete status.
    fn status(&self) -> impl Future<Output = Result<Status, OperateError>> + Send;

    /// The current value of every figure that `/metrics` exports.
    fn metrics(&self) -> impl Future<Output = Result<Reading, OperateError>> + Send;

    /// The configuration in force.
    fn config(&self) -> impl Future<Output = Result<ConfigState, OperateError>> + Send;

    /// The text of the configuration file.
    fn config_text(&self) -> impl Future<Output = Result<ConfigText, OperateError>> + Send;

    /// The JSON Schema of the configuration file.
    fn config_schema(&self) -> Value;

    /// Returns the errors of a configuration; `None` stands for the file with which the process was
    /// started.
    fn check_config(
        &self,
        toml: Option<String>,
    ) -> impl Future<Output = Result<Checked, OperateError>> + Send;

    /// Reads and checks the configuration file again, and what it names, without changing anything
    /// that runs. It may take long; other changes do not wait for it.
    fn prepare_reload(&self) -> impl Future<Output = Self::Prepared> + Send;

    /// Reads and checks the configuration file again, compares it with the running configuration,
    /// and changes nothing.
    fn preview_reload(&self) -> impl Future<Output = Result<ReloadPreview, OperateError>> + Send;

    /// Switches to a configuration, completely or not at all.
    fn reload(
        &self,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Result<Reloaded, OperateError>> + Send;

    /// Checks a new text of the configuration file, and what it names, without changing anything.
    /// It may take long; other changes do not wait for it.
    fn prepare_config(
        &self,
        new: NewText,
    ) -> impl Future<Output = Result<Self::NewConfig, OperateError>> + Send;

    /// Replaces the text of the configuration file, and switches to it. If that fails, the file is
    /// restored. With `seen`, the file must have that text. Returns the new text, too.
    fn replace_config(
        &self,
        new: Self::NewConfig,
        seen: Option<String>,
    ) -> impl Future<Output = Result<(Reloaded, String), OperateError>> + Send;

    /// Starts the program again, and hands everything over to the new process.
    fn upgrade(&self, how: Upgrade) -> impl Future<Output = Result<Upgraded, OperateError>> + Send;
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(STATUS, status::<O>)
        .serve(HEALTH, health::<O>)
        .serve(OPENAPI, description::<O>)
}

async fn status<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<Status>, Problem> {
    Ok(Answer::new(operator.status().await?))
}

async fn health<O: ProcessOperator>(State(operator): State<Arc<O>>) -> Answer<Liveness> {
    let phase = operator.phase();
    let status = match phase {
        Phase::Running => StatusCode::OK,
        Phase::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    let degraded = operator.degraded().into_iter().map(Into::into).collect();
    Answer::new(Liveness { phase, degraded }).with_status(status)
}

async fn description<O: Operator>(State(api): State<Api<O>>) -> Answer<Value> {
    Answer::new(api.description())
}

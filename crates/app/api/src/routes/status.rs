//! Routes that describe the process and its state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::Routes;
use crate::answer::Answer;
use crate::api::Api;
use crate::auth::Access;
use crate::wire::{Liveness, Phase, Status};
use crate::{Operator, Problem, ProcessOperator};

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .get(Access::READ, "/v1/status", status::<O>, "The complete status")
        .get(
            Access::Anyone,
            "/v1/health",
            health::<O>,
            "Whether the process accepts new work (503 while it stops), and its degraded parts",
        )
        .get(Access::READ, "/v1/openapi.json", description::<O>, "This description")
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

async fn description<O: Operator>(State(api): State<Api<O>>) -> Answer<serde_json::Value> {
    Answer::new(api.description())
}

//! The configuration file.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;

use super::Routes;
use crate::answer::{Answer, Tagged};
use crate::auth::Access;
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::Body;
use crate::wire::config::{CheckConfig, Checked, ConfigState, ConfigText, ReloadPreview};
use crate::wire::{Reloaded, Upgrade, Upgraded};
use crate::{Operator, Problem, ProcessOperator};

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .get(
            Access::READ,
            "/v1/config",
            state::<O>,
            "The configuration in force; a reload compares with its ETag",
        )
        .get(
            Access::ADMIN,
            "/v1/config/text",
            text::<O>,
            "The text of the configuration file, which the next reload would read",
        )
        .get(Access::READ, "/v1/config/schema", schema::<O>, "The JSON Schema of the file")
        .post(
            Access::ADMIN,
            "/v1/config/check",
            check::<O>,
            "Check a configuration without using it",
        )
        .post(
            Access::ADMIN,
            "/v1/config/preview",
            preview::<O>,
            "What a reload would change, and which connections it would end",
        )
        .post(
            Access::ADMIN,
            "/v1/reload",
            reload::<O>,
            "Reload the configuration file, completely or not at all",
        )
        .post(
            Access::ADMIN,
            "/v1/upgrade",
            upgrade::<O>,
            "Start the program again and hand all sockets over to it, without closing a connection",
        )
}

async fn state<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    headers: HeaderMap,
) -> Result<Tagged<ConfigState>, Problem> {
    let state = operator.config().await?;
    let tag = ETag::of(&state);
    Ok(Tagged::new(state, tag).unless_seen(&headers))
}

async fn text<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<ConfigText>, Problem> {
    Ok(Answer::new(operator.config_text().await?))
}

async fn schema<O: ProcessOperator>(State(operator): State<Arc<O>>) -> Answer<serde_json::Value> {
    Answer::new(operator.config_schema())
}

async fn check<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    Body(CheckConfig { toml }): Body<CheckConfig>,
) -> Result<Answer<Checked>, Problem> {
    Ok(Answer::new(operator.check_config(toml).await?))
}

async fn preview<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<ReloadPreview>, Problem> {
    let prepared = operator.prepare_reload().await;
    Ok(Answer::new(operator.preview_reload(prepared).await?))
}

async fn reload<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
) -> Result<Tagged<Reloaded>, Problem> {
    // Reading may hang, so it comes before the lock: other changes wait only for the switch.
    let prepared = operator.prepare_reload().await;
    let change = turn.wait().await;
    let before = operator.config().await?;
    change.of(&ETag::of(&before))?;
    change.before(&before);
    let reloaded = operator.reload(prepared).await?;
    let after = operator.config().await?;
    change.after(&after);
    Ok(Tagged::new(reloaded, ETag::of(&after)))
}

async fn upgrade<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    Body(how): Body<Upgrade>,
) -> Result<Answer<Upgraded>, Problem> {
    Ok(Answer::new(operator.upgrade(how).await?))
}

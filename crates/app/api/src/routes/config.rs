//! The configuration file.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::Value;

use super::Routes;
use super::process::NewText;
use crate::answer::{Answer, Tagged};
use crate::api::Api;
use crate::audit::{self, Happened, Line};
use crate::auth::{Caller, Role, Who};
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::Body;
use crate::wire::config::{
    CheckConfig, Checked, ConfigState, ConfigText, ReloadPreview, WriteConfig,
};
use crate::wire::{Reloaded, Upgrade, Upgraded};
use crate::{OperateError, Operator, Problem, ProcessOperator};

operations! {
    /// The configuration in force; a reload compares with its ETag
    CONFIG = GET "/v1/config", READ, () => ConfigState;

    /// The text of the configuration file, which the next reload would read
    TEXT = GET "/v1/config/text", ADMIN, () => ConfigText;

    /// Replace the configuration file and reload it; a failed reload restores the file
    APPLY = PUT "/v1/config/text", ADMIN, WriteConfig => Reloaded;

    /// Restore the previous text of the configuration file and reload it
    ROLL_BACK = POST "/v1/config/roll-back", ADMIN, () => Reloaded;

    /// The JSON Schema of the file
    SCHEMA = GET "/v1/config/schema", READ, () => Value;

    /// Check a configuration without using it
    CHECK = POST "/v1/config/check", ADMIN, CheckConfig => Checked;

    /// The changes that a reload would make, and the connections that it would end
    PREVIEW = POST "/v1/config/preview", ADMIN, () => ReloadPreview;

    /// Reload the configuration file, completely or not at all
    RELOAD = POST "/v1/reload", ADMIN, () => Reloaded;

    /// Start the program again and hand all sockets over to it, without closing a connection
    UPGRADE = POST "/v1/upgrade", ADMIN, Upgrade => Upgraded;
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(CONFIG, state::<O>)
        .serve(TEXT, text::<O>)
        .serve(APPLY, apply::<O>)
        .serve(ROLL_BACK, roll_back::<O>)
        .serve(SCHEMA, schema::<O>)
        .serve(CHECK, check::<O>)
        .serve(PREVIEW, preview::<O>)
        .serve(RELOAD, reload::<O>)
        .serve(UPGRADE, upgrade::<O>)
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
    headers: HeaderMap,
) -> Result<Tagged<ConfigText>, Problem> {
    let text = operator.config_text().await?;
    let tag = tag(&text.toml);
    Ok(Tagged::new(text, tag).unless_seen(&headers))
}

async fn apply<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
    Body(WriteConfig { toml }): Body<WriteConfig>,
) -> Result<Tagged<Reloaded>, Problem> {
    replace(&*operator, turn, NewText::Given(toml)).await
}

async fn roll_back<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
) -> Result<Tagged<Reloaded>, Problem> {
    replace(&*operator, turn, NewText::Previous).await
}

/// Replaces the file's text. Reading the file and what the new text names may hang, so it comes
/// before the lock.
async fn replace<O: ProcessOperator>(
    operator: &O,
    turn: Turn,
    new: NewText,
) -> Result<Tagged<Reloaded>, Problem> {
    let now = operator.config_text().await.map(|now| (tag(&now.toml), now.toml));
    let before = now.as_ref().ok().map(|(tag, _)| tag.clone());
    let seen = if turn.is_conditional() {
        let (tag, toml) = now?;
        turn.of(&tag)?;
        Some(toml)
    } else {
        None
    };
    let new = operator.prepare_config(new).await?;
    let change = turn.wait().await;
    change.before(&Audited::of(operator, before.as_ref()).await);
    let (reloaded, text) = operator.replace_config(new, seen).await?;
    let after = tag(&text);
    change.after(&Audited::of(operator, Some(&after)).await);
    Ok(Tagged::new(reloaded, after))
}

/// The state of the configuration for the audit log: without the text, which may have secrets.
#[derive(Serialize)]
struct Audited {
    #[serde(flatten)]
    config: Option<ConfigState>,
    text_etag: Option<String>,
}

impl Audited {
    async fn of<O: ProcessOperator>(operator: &O, text: Option<&ETag>) -> Audited {
        let text_etag = text.map(|tag| tag.as_str().to_owned());
        Audited { config: operator.config().await.ok(), text_etag }
    }
}

/// The tag of the file's text. It does not depend on the previous text.
fn tag(toml: &String) -> ETag {
    ETag::of(toml)
}

async fn schema<O: ProcessOperator>(State(operator): State<Arc<O>>) -> Answer<Value> {
    Answer::new(operator.config_schema())
}

async fn check<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    Body(CheckConfig { toml }): Body<CheckConfig>,
) -> Result<Answer<Checked>, Problem> {
    Ok(Answer::new(operator.check_config(toml).await?))
}

impl<O: ProcessOperator> Api<O> {
    /// Reloads the configuration because of a signal. It takes the lock of changes and is audited,
    /// like a change through the API.
    ///
    /// # Errors
    /// As [`ProcessOperator::reload`].
    pub async fn reload_by_signal(&self, signal: &'static str) -> Result<Reloaded, OperateError> {
        let operator = self.operator();
        let prepared = operator.prepare_reload().await;
        let turn = self.turn(RELOAD.path).lock_owned().await;
        let before = operator.config().await.ok();
        let outcome = operator.reload(prepared).await;
        let after = operator.config().await.ok();
        drop(turn);
        let problem = outcome.as_ref().err().map(|error| Problem::from(error.clone()));
        let to_json = |config| serde_json::to_value(config).ok();
        let asked = audit::Asked {
            peer: None,
            caller: Some(Caller { who: Who::Signal(signal), role: Some(Role::Admin) }),
            method: "POST".into(),
            path: RELOAD.path.into(),
            if_match: None,
        };
        let happened = Happened {
            status: Some(problem.as_ref().map_or(200, |problem| problem.status)),
            detail: problem.map(|problem| problem.detail),
            before: before.and_then(to_json),
            after: after.filter(|_| outcome.is_ok()).and_then(to_json),
        };
        self.audit().write(Line::new(asked, happened, SystemTime::now())).await;
        outcome
    }
}

async fn preview<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<ReloadPreview>, Problem> {
    Ok(Answer::new(operator.preview_reload().await?))
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

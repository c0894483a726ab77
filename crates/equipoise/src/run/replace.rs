//! Replaces the text of the configuration file and reloads it: both happen, or nothing.

use equipoise_api::wire::Reloaded;
use equipoise_api::{NewText, OperateError, ProcessOperator};
use equipoise_config::ConfigErrors;

use crate::run::control::Control;

impl Control {
    /// Whether callers of the API may replace the file.
    pub(super) async fn may_write_config(&self) -> bool {
        self.config.lock().await.operations.api_write_config
    }

    pub(super) async fn replace_text(&self, new: NewText) -> Result<Reloaded, OperateError> {
        self.accepts_changes()?;
        let file = self.file.display();
        if !self.may_write_config().await {
            return Err(OperateError::Refused(format!(
                "this process does not write {file}: set `write-config = true` in its [api] table and reload, or \
                 edit the file on its machine and reload"
            )));
        }
        let text = match new {
            NewText::Given(text) => text,
            NewText::Earlier => self.earlier_text().await?.ok_or_else(|| {
                OperateError::Refused(format!(
                    "{file} has no earlier text: it was not replaced through the API"
                ))
            })?,
        };
        self.loader.check(&self.file, text.clone()).await.map_err(|errors| self.refused(errors))?;
        let replaced = self.loader.replace(&self.file, text).await;
        let replaced = replaced.map_err(|errors| self.refused(errors))?;
        let outcome = self.reload(self.prepare_reload().await).await;
        if outcome.is_err()
            && let Err(error) = self.loader.take_back(&self.file, replaced).await
        {
            tracing::error!(
                "{file} has a text that could not be used, and could not be restored: {error}"
            );
        }
        outcome
    }

    /// The file's text before its last replacement.
    pub(super) async fn earlier_text(&self) -> Result<Option<String>, OperateError> {
        let earlier = self.loader.earlier(&self.file).await;
        earlier.map_err(|error| OperateError::Unavailable(error.to_string()))
    }

    fn refused(&self, errors: ConfigErrors) -> OperateError {
        let lines = errors.problems.iter().map(|problem| problem.in_file(&errors.file)).collect();
        OperateError::ReloadFailed { config_file: self.file.display().to_string(), errors: lines }
    }
}

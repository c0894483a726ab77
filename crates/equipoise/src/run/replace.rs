//! Replaces the text of the configuration file and reloads it. If the reload fails, the file is
//! restored.

use equipoise_api::wire::Reloaded;
use equipoise_api::{NewText, OperateError};
use equipoise_basics::lock;

use crate::run::control::Control;
use crate::run::notify::{Notice, notify};
use crate::run::prepared::Prepared;

/// A text that was checked, with what it names, and which is not in the file yet.
pub(crate) struct NewConfig {
    text: String,
    prepared: Prepared,
}

impl Control {
    /// Whether callers of the API may replace the file.
    pub(super) async fn may_write_config(&self) -> bool {
        self.config.lock().await.operations.api_write_config
    }

    /// Checks a new text, reads its sources and resolves its names. Takes no lock, because files
    /// and resolvers may hang.
    pub(super) async fn prepare_text(&self, new: NewText) -> Result<NewConfig, OperateError> {
        let file = self.file.display();
        if !self.may_write_config().await {
            return Err(OperateError::Refused(format!(
                "this process does not write {file}: set `write-config = true` in its [api] table and reload, or \
                 edit the file on its machine and reload"
            )));
        }
        let text = match new {
            NewText::Given(text) => text,
            NewText::Previous => self.previous_text().await?,
        };
        let loaded = self.loader.check(&self.file, text.clone()).await;
        let loaded = loaded.map_err(|errors| self.not_loaded(errors.lines()))?;
        if !loaded.config.operations.api_write_config {
            return Err(OperateError::Refused(format!(
                "the new text lacks `write-config = true` in [api], so that nobody could restore {file} by the API: \
                 edit it on its machine"
            )));
        }
        Ok(NewConfig { text, prepared: self.learn(self.next_reload(), Ok(loaded)).await })
    }

    /// Writes a text and switches to it. With `seen`, the file must have that text.
    pub(super) async fn replace_text(
        &self,
        new: NewConfig,
        seen: Option<String>,
    ) -> Result<Reloaded, OperateError> {
        let NewConfig { text, mut prepared } = new;
        self.accepts_changes()?;
        // The process of an upgrade does not read the file before the switch.
        let _file = self.upgrades.file().await;
        self.accepts_changes()?;
        let replaced = self.loader.replace(&self.file, text, seen).await;
        let replaced = replaced.map_err(|errors| self.not_loaded(errors.lines()))?;
        // Reloads that have read the text before do not take effect any more.
        prepared.number = self.next_reload();
        notify(Notice::Reloading);
        let mut outcome = self.switch(prepared).await;
        notify(Notice::Ready);
        match &mut outcome {
            Ok(_) => replaced.keep(),
            Err(errors) => {
                if let Err(left) = self.loader.take_back(&self.file, replaced).await {
                    errors.push("the file was not restored:".into());
                    errors.extend(left.lines());
                }
                // Nor do those that have read the refused text.
                lock(&self.reloads).newest = self.next_reload();
            }
        }
        self.note_reload(&outcome);
        outcome.map_err(|errors| self.not_loaded(errors))
    }

    async fn previous_text(&self) -> Result<String, OperateError> {
        let previous = self.loader.previous(&self.file).await;
        let previous = previous.map_err(|error| OperateError::Unavailable(error.to_string()))?;
        previous.ok_or_else(|| {
            let file = self.file.display();
            OperateError::Refused(format!("there is no {file}.previous to restore"))
        })
    }

    fn not_loaded(&self, errors: Vec<String>) -> OperateError {
        OperateError::ReloadFailed { config_file: self.file.display().to_string(), errors }
    }
}

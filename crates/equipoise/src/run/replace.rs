//! Replaces the text of the configuration file and reloads it. If the reload fails, the file is
//! restored.

use std::time::Duration;

use equipoise_api::wire::Reloaded;
use equipoise_api::{NewText, OperateError};
use equipoise_config::Basis;
use tokio::sync::OwnedRwLockReadGuard;

use crate::run::control::Control;
use crate::run::notify::{Notice, notify};
use crate::run::prepared::Prepared;

/// Longest wait until no other task reads or writes the file.
const FILE_WITHIN: Duration = Duration::from_secs(10);

/// A text that was checked, with what it names, and which is not in the file yet.
pub(crate) struct NewConfig {
    text: String,
    /// It is the previous text.
    restores: bool,
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
        self.check_write_config().await?;
        let restores = new == NewText::Previous;
        let text = match new {
            NewText::Given(text) => text,
            NewText::Previous => self.previous_text().await?,
        };
        let loaded = self.loader.check(&self.file, text.clone()).await;
        let loaded = loaded.map_err(|errors| self.not_loaded(errors.lines()))?;
        if !loaded.config.operations.api_write_config {
            return Err(OperateError::Refused(format!(
                "the new text lacks `write-config = true` in [api], without which the API cannot restore {}: edit it \
                 on its machine",
                self.file.display()
            )));
        }
        Ok(NewConfig { text, restores, prepared: self.learn(self.next_reload(), Ok(loaded)).await })
    }

    /// Writes a text and switches to it. With `seen`, the file must have that text. Returns the
    /// text, too.
    pub(super) async fn replace_text(
        &self,
        new: NewConfig,
        seen: Option<String>,
    ) -> Result<(Reloaded, String), OperateError> {
        let text = new.text.clone();
        let outcome = self.write_and_switch(new, seen).await;
        if outcome.is_err() {
            // Its names and sources are not followed any more.
            self.forget_others(&*self.config.lock().await);
        }
        outcome.map(|reloaded| (reloaded, text))
    }

    async fn write_and_switch(
        &self,
        new: NewConfig,
        seen: Option<String>,
    ) -> Result<Reloaded, OperateError> {
        let NewConfig { text, restores, mut prepared } = new;
        self.accepts_changes()?;
        // Reloads and the process of an upgrade read the file before the replacement, or after it.
        let lock = tokio::time::timeout(FILE_WITHIN, self.upgrades.file().write_owned()).await;
        let lock = lock.map_err(|_| self.in_use())?;
        self.accepts_changes()?;
        self.check_write_config().await?;
        let replaced = self.loader.replace(&self.file, text, Basis { seen, restores }, lock).await;
        let replaced = replaced.map_err(|errors| self.not_loaded(errors.lines()))?;
        let replaced = replaced.ok_or_else(|| {
            let file = self.file.display();
            OperateError::Conflict(format!("{file} has changed meanwhile: read it again"))
        })?;
        // Reloads that have read the text before do not take effect after this.
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
            }
        }
        self.note_reload(&outcome);
        outcome.map_err(|errors| self.not_loaded(errors))
    }

    async fn check_write_config(&self) -> Result<(), OperateError> {
        let file = self.file.display();
        let text = "set `write-config = true` in its [api] table and reload, or edit the file on its machine and reload";
        match self.may_write_config().await {
            true => Ok(()),
            false => {
                Err(OperateError::Refused(format!("this process does not write {file}: {text}")))
            }
        }
    }

    /// Waits until the file is not being replaced, and delays replacements.
    pub(super) async fn file_as_it_is(&self) -> Result<OwnedRwLockReadGuard<()>, Vec<String>> {
        let lock = tokio::time::timeout(FILE_WITHIN, self.upgrades.file().read_owned()).await;
        lock.map_err(|_| vec![self.in_use().to_string()])
    }

    fn in_use(&self) -> OperateError {
        let file = self.file.display();
        OperateError::Conflict(format!(
            "{file} is being read or written for more than {} s: try again, and see whether its file system answers",
            FILE_WITHIN.as_secs()
        ))
    }

    async fn previous_text(&self) -> Result<String, OperateError> {
        let previous = self.loader.previous(&self.file).await;
        let previous = previous.map_err(|error| OperateError::Unavailable(error.to_string()))?;
        previous.ok_or_else(|| {
            let file = self.file.display();
            OperateError::Refused(format!("there is no {file}.previous to restore"))
        })
    }

    /// The error of a configuration that was not applied.
    pub(super) fn not_loaded(&self, errors: Vec<String>) -> OperateError {
        OperateError::ReloadFailed { config_file: self.file.display().to_string(), errors }
    }
}

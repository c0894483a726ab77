//! The process: its state, its figures, its configuration file.

use std::future::Future;

use super::OperateError;
use crate::metrics::Reading;
use crate::wire::config::{Checked, ConfigState, ConfigText, ReloadPreview};
use crate::wire::{Phase, Reloaded, Status, Upgrade, Upgraded};

/// Operations of the process, independent of levels.
pub trait ProcessOperator: Send + Sync + 'static {
    /// A configuration that was read and checked, or its errors.
    type Prepared: Send + 'static;

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
    fn config_schema(&self) -> serde_json::Value;

    /// Returns the errors of a configuration; `None` stands for the file with which the process was
    /// started.
    fn check_config(
        &self,
        toml: Option<String>,
    ) -> impl Future<Output = Result<Checked, OperateError>> + Send;

    /// Reads and checks the configuration file again without changing anything. It may take long;
    /// other changes do not wait for it.
    fn prepare_reload(&self) -> impl Future<Output = Self::Prepared> + Send;

    /// Compares a configuration with the running one, and changes nothing.
    fn preview_reload(
        &self,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Result<ReloadPreview, OperateError>> + Send;

    /// Switches to a configuration, completely or not at all.
    fn reload(
        &self,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Result<Reloaded, OperateError>> + Send;

    /// Starts the program again, and hands everything over to the new process.
    fn upgrade(&self, how: Upgrade) -> impl Future<Output = Result<Upgraded, OperateError>> + Send;
}

//! Requests of the API, a file for each trait of `equipoise_api::operator`.

mod cluster;
mod packet;
mod plan;
mod pools;
mod process;
#[cfg(feature = "slice")]
mod slice;
#[cfg(not(feature = "slice"))]
#[path = "slice_absent.rs"]
mod slice;
mod why;

use equipoise_api::wire::Phase;
use equipoise_api::{OperateError, ProcessOperator};
use equipoise_session::registry::RegistryError;

use crate::run::control::Control;

impl Control {
    pub(in crate::run) fn accepts_changes(&self) -> Result<(), OperateError> {
        match self.phase() {
            Phase::Running if self.upgrades.is_under_way() => Err(OperateError::Conflict(
                "an upgrade is in progress, and the new process would not have the change: try \
                 again when it has ended"
                    .into(),
            )),
            Phase::Running => Ok(()),
            Phase::Stopping => Err(OperateError::Stopping),
        }
    }
}

fn refused(error: RegistryError) -> OperateError {
    match error {
        RegistryError::Stopped => OperateError::Stopping,
        unknown => OperateError::NotFound(unknown.to_string()),
    }
}

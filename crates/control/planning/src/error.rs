use std::io;

use equipoise_cluster::{CannotLoadAuthority, NotAName, ServeError};
use equipoise_controller::ControllerError;
use equipoise_store::CannotOpen;

/// Planning, or the controller of this process, cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    /// The monitor's thread does not start.
    #[error("cannot start the monitor's thread")]
    Monitor(#[source] io::Error),
    /// The instance has no name for a cluster.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] CannotOpen),
    /// The controller does not start.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The cluster's authority cannot be read.
    #[error(transparent)]
    Authority(#[from] CannotLoadAuthority),
    /// The server for nodes does not start.
    #[error(transparent)]
    Server(#[from] ServeError),
}

//! Reasons why the process did not do what was requested.

use axum::http::StatusCode;

use crate::Problem;

/// Reasons why an [`Operator`](crate::Operator) did not do what was requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperateError {
    /// The pool or backend does not exist. The text names the existing ones.
    #[error("{0}")]
    NotFound(String),
    /// The weight is out of range.
    #[error("weight {0} is not in 0..=1000; 0 drains the backend, 1 is the default")]
    WeightOutOfRange(u16),
    /// The configuration was not applied; the previous one stays in force.
    #[error("{config_file} was not loaded; the running configuration stays in force:\n{}", errors.join("\n"))]
    ReloadFailed {
        /// The file.
        config_file: String,
        /// Errors of the file, at least one.
        errors: Vec<String>,
    },
    /// The packet level is not configured.
    #[error(
        "no [[packet]] table is configured, so there are no flows and pins; add one and reload"
    )]
    NoPacketLevel,
    /// The slice level is not configured.
    #[error(
        "no [[slice]] table is configured, so there are no streams, workers and slices; add one and reload"
    )]
    NoSliceLevel,
    /// Another controller leads the slice level. The text names it.
    #[error("{0}")]
    NotLeading(String),
    /// There is no plan. The text has the reason.
    #[error("{0}")]
    NotPlanning(String),
    /// This process is not a controller of a cluster. The text has the remedy.
    #[error("{0}")]
    NoCluster(String),
    /// Possible later, or elsewhere.
    #[error("{0}")]
    Unavailable(String),
    /// Not possible. The text names the alternative.
    #[error("{0}")]
    Refused(String),
    /// In conflict with another request. The text names it, and how to resolve the conflict.
    #[error("{0}")]
    Conflict(String),
    /// A bug in equipoise.
    #[error("{0}; please report it")]
    Failed(String),
    /// The process is stopping.
    #[error("equipoise is stopping and accepts no changes; start it again first")]
    Stopping,
}

impl OperateError {
    pub(crate) fn not_planning() -> OperateError {
        OperateError::NotPlanning("nothing is planned here".into())
    }

    pub(crate) fn alone() -> OperateError {
        OperateError::NoCluster("this machine is not a controller of a cluster".into())
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Problem {
        let (status, title) = match &error {
            OperateError::NotFound(_) => (StatusCode::NOT_FOUND, "not there"),
            OperateError::WeightOutOfRange(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "weight out of range")
            }
            OperateError::ReloadFailed { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "configuration not loaded")
            }
            OperateError::NotPlanning(_) => (StatusCode::NOT_FOUND, "nothing is planned"),
            OperateError::NoCluster(_) => (StatusCode::NOT_FOUND, "no cluster"),
            OperateError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "not now"),
            OperateError::NoPacketLevel => (StatusCode::NOT_FOUND, "no packet level"),
            OperateError::NoSliceLevel => (StatusCode::NOT_FOUND, "no slice level"),
            OperateError::NotLeading(_) => (StatusCode::CONFLICT, "this controller does not lead"),
            OperateError::Refused(_) => (StatusCode::UNPROCESSABLE_ENTITY, "not possible"),
            OperateError::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            OperateError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "fault"),
            OperateError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        let mut problem = Problem::new(status, title, error.to_string());
        if let OperateError::ReloadFailed { errors, .. } = error {
            problem.errors = errors;
        }
        problem
    }
}

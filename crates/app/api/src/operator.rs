use std::future::Future;

use axum::http::StatusCode;

use crate::Problem;
use crate::metrics::Reading;
use crate::wire::cluster::{ClusterMembers, ClusterTokens, JoinedNodes, TokenMade, TokenWanted};
use crate::wire::config::{Checked, ConfigState};
use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use crate::wire::plan::{HistoryQuestion, NodeHistory, Nodes, PlanStatus, PoolWish};
use crate::wire::slice::{SliceMove, SliceMoves, SlicePlan, StreamStatus, Streams};
use crate::wire::{Admin, BackendStatus, Changed, Phase, Reloaded, Status};

/// Operations of the process that the API calls. The binary implements the trait.
pub trait Operator: Send + Sync + 'static {
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

    /// Sets the admin state of a backend, identified by name or address. It survives reloads, not
    /// restarts.
    fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Sets a backend's weight, `0..=1000`. It survives reloads, not restarts.
    fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// A backend, identified by name or address.
    fn backend(
        &self,
        pool: &str,
        backend: &str,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send {
        async move {
            let status = self.status().await?;
            let known = |names: Vec<&str>| names.join("`, `");
            let pools = || known(status.pools.iter().map(|pool| &*pool.name).collect());
            let found = status.pools.iter().find(|entry| entry.name == pool).ok_or_else(|| {
                OperateError::NotFound(format!(
                    "there is no pool `{pool}`; the pools are `{}`",
                    pools()
                ))
            })?;
            let backends = || known(found.backends.iter().map(|entry| &*entry.name).collect());
            let called = |entry: &&BackendStatus| entry.name == backend || entry.address == backend;
            let entry = found.backends.iter().find(called).ok_or_else(|| {
                OperateError::NotFound(format!(
                    "pool `{pool}` has no backend `{backend}`; its backends are `{}`",
                    backends()
                ))
            })?;
            Ok(Changed { pool: pool.to_owned(), backend: entry.clone() })
        }
    }

    /// The configuration in force.
    fn config(&self) -> impl Future<Output = Result<ConfigState, OperateError>> + Send;

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

    /// Switches to a configuration, completely or not at all.
    fn reload(
        &self,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Result<Reloaded, OperateError>> + Send;

    /// Returns the current plan or, with `next`, the next one.
    fn plan(&self, _next: bool) -> impl Future<Output = Result<PlanStatus, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Pins or pauses an elastic pool's size. Returns the resulting plan.
    fn wish(
        &self,
        _pool: &str,
        _wish: PoolWish,
    ) -> impl Future<Output = Result<PlanStatus, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Returns the nodes that report to this process.
    fn nodes(&self) -> impl Future<Output = Result<Nodes, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// Sets the admin state of a node, which survives restarts. Returns the nodes.
    fn set_node_admin(
        &self,
        _node: &str,
        _admin: Admin,
    ) -> impl Future<Output = Result<Nodes, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// A node's recent utilisation.
    fn node_history(
        &self,
        _node: &str,
        _question: HistoryQuestion,
    ) -> impl Future<Output = Result<NodeHistory, OperateError>> + Send {
        async { Err(OperateError::not_planning()) }
    }

    /// The cluster as this controller sees it.
    fn cluster_members(&self) -> impl Future<Output = Result<ClusterMembers, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// The cluster's join tokens.
    fn cluster_tokens(&self) -> impl Future<Output = Result<ClusterTokens, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Creates a join token.
    fn create_token(
        &self,
        _wanted: TokenWanted,
    ) -> impl Future<Output = Result<TokenMade, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Revokes a join token.
    fn revoke_token(&self, _id: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// All nodes that ever joined.
    fn joined_nodes(&self) -> impl Future<Output = Result<JoinedNodes, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Evicts a node from the cluster.
    fn evict_node(&self, _node: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Explains where the next packet of a flow goes.
    fn explain_flow(
        &self,
        _question: FlowQuestion,
    ) -> impl Future<Output = Result<FlowAnswer, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// The pinned flows.
    fn pins(&self) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a flow to a backend, until the pin is removed or the packet level stops.
    fn add_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a pinned flow to another backend.
    fn move_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Removes a pin. The flow stays at its backend until it ends.
    fn remove_pin(&self, _pin: PinKey) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// The streams of the slice level.
    fn streams(&self) -> impl Future<Output = Result<Streams, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Returns the moves of a balancing round that would start now.
    fn slice_plan(
        &self,
        _stream: &str,
    ) -> impl Future<Output = Result<SlicePlan, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Moves slices to a worker.
    fn move_slices(
        &self,
        _stream: &str,
        _wish: SliceMove,
    ) -> impl Future<Output = Result<SliceMoves, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Drains a worker of its slices, or gives it slices again. Returns the stream.
    fn drain_worker(
        &self,
        _stream: &str,
        _worker: &str,
        _drained: bool,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Keeps a slice on a worker or, with `None`, allows moves again. Returns the stream.
    fn pin_slice(
        &self,
        _stream: &str,
        _slice: u32,
        _worker: Option<String>,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }
}

/// Reasons why an [`Operator`] did not do what was requested.
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
    fn not_planning() -> OperateError {
        OperateError::NotPlanning("nothing is planned here".into())
    }

    fn alone() -> OperateError {
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

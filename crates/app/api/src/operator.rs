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

/// Operations of the process that the API calls. The binary implements it with its inventory.
pub trait Operator: Send + Sync + 'static {
    /// A configuration that has been read and checked, or what is wrong with it.
    type Prepared: Send + 'static;

    /// Whether new work is taken.
    fn phase(&self) -> Phase;

    /// Returns the names of parts that have failed although traffic continues. Any caller may read
    /// them, so they have no details.
    fn degraded(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Everything there is to show.
    fn status(&self) -> impl Future<Output = Result<Status, OperateError>> + Send;

    /// Every figure that `/metrics` exports, as of now.
    fn metrics(&self) -> impl Future<Output = Result<Reading, OperateError>> + Send;

    /// Sets what is wanted of a backend, named by its name or address; it survives reloads, not
    /// restarts.
    fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Sets a backend's weight, `0..=1000`; it survives reloads, not restarts.
    fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// A backend, named by its name or address.
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
                    "there is no pool `{pool}`; there are `{}`",
                    pools()
                ))
            })?;
            let backends = || known(found.backends.iter().map(|entry| &*entry.name).collect());
            let called = |entry: &&BackendStatus| entry.name == backend || entry.address == backend;
            let entry = found.backends.iter().find(called).ok_or_else(|| {
                OperateError::NotFound(format!(
                    "pool `{pool}` has no backend `{backend}`; there are `{}`",
                    backends()
                ))
            })?;
            Ok(Changed { pool: pool.to_owned(), backend: entry.clone() })
        }
    }

    /// Which configuration runs.
    fn config(&self) -> impl Future<Output = Result<ConfigState, OperateError>> + Send;

    /// The JSON Schema of the configuration file.
    fn config_schema(&self) -> serde_json::Value;

    /// Returns the errors of a configuration; `None`: of the file that the process was started
    /// with.
    fn check_config(
        &self,
        toml: Option<String>,
    ) -> impl Future<Output = Result<Checked, OperateError>> + Send;

    /// Reads and checks the configuration file again without changing anything. It may take long,
    /// and other changes do not wait for it.
    fn prepare_reload(&self) -> impl Future<Output = Self::Prepared> + Send;

    /// Switches to a configuration; all of it takes effect, or nothing.
    fn reload(
        &self,
        prepared: Self::Prepared,
    ) -> impl Future<Output = Result<Reloaded, OperateError>> + Send;

    /// Returns the current plan; `next`: the plan that would be made now.
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

    /// Sets the desired state of a node; it survives restarts. Returns the nodes.
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

    /// The cluster, as this controller sees it.
    fn cluster_members(&self) -> impl Future<Output = Result<ClusterMembers, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// The cluster's join tokens.
    fn cluster_tokens(&self) -> impl Future<Output = Result<ClusterTokens, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Makes a join token.
    fn create_token(
        &self,
        _wanted: TokenWanted,
    ) -> impl Future<Output = Result<TokenMade, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Makes a join token worthless.
    fn revoke_token(&self, _id: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// The nodes that ever joined.
    fn joined_nodes(&self) -> impl Future<Output = Result<JoinedNodes, OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Shuts a node out of the cluster.
    fn evict_node(&self, _node: &str) -> impl Future<Output = Result<(), OperateError>> + Send {
        async { Err(OperateError::alone()) }
    }

    /// Where the next packet of a flow goes, and why.
    fn explain_flow(
        &self,
        _question: FlowQuestion,
    ) -> impl Future<Output = Result<FlowAnswer, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// The flows that were pinned.
    fn pins(&self) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a flow to a backend; until it is removed, or the packet level is stopped.
    fn add_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a pinned flow to another backend.
    fn move_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Removes a pin; the flow stays where it is until it ends.
    fn remove_pin(&self, _pin: PinKey) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Every stream of the slice level.
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

    /// Has a worker left without slices, or gives it slices again; the stream, then.
    fn drain_worker(
        &self,
        _stream: &str,
        _worker: &str,
        _drained: bool,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Keeps a slice on a worker, or (`None`) lets it be moved again; the stream, then.
    fn pin_slice(
        &self,
        _stream: &str,
        _slice: u32,
        _worker: Option<String>,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }
}

/// Why an [`Operator`] did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperateError {
    /// No such pool, or no such backend of it; the text says which there are.
    #[error("{0}")]
    NotFound(String),
    /// The weight is out of range.
    #[error("weight {0} is not in 0..=1000; 0 drains the backend, 1 is the default")]
    WeightOutOfRange(u16),
    /// The configuration was not taken; the one that ran goes on running.
    #[error("{config_file} was not loaded, the running configuration stays:\n{}", errors.join("\n"))]
    ReloadFailed {
        /// The file.
        config_file: String,
        /// Everything that is wrong with it, at least one.
        errors: Vec<String>,
    },
    /// There are no flows or pins without it.
    #[error(
        "no [[packet]] table is configured, so there are no flows and pins; add one and reload"
    )]
    NoPacketLevel,
    /// There are no streams without it.
    #[error(
        "no [[slice]] table is configured, so there are no streams, workers and slices; add one and reload"
    )]
    NoSliceLevel,
    /// Another controller leads the slice level; the text says which.
    #[error("{0}")]
    NotLeading(String),
    /// There is no plan; the text says why.
    #[error("{0}")]
    NotPlanning(String),
    /// This is no controller of a cluster; the text says what to do.
    #[error("{0}")]
    NoCluster(String),
    /// It may be done later, or elsewhere.
    #[error("{0}")]
    Unavailable(String),
    /// The requested operation is not possible; the text names the alternative.
    #[error("{0}")]
    Refused(String),
    /// Another request conflicts with it; the text names it and the way to resolve the conflict.
    #[error("{0}")]
    Conflict(String),
    /// A fault of ours.
    #[error("{0}; please report it")]
    Failed(String),
    /// The process stops.
    #[error("equipoise is stopping and takes no more changes; start it again first")]
    Stopping,
}

impl OperateError {
    fn not_planning() -> OperateError {
        OperateError::NotPlanning("nothing is planned here".into())
    }

    fn alone() -> OperateError {
        OperateError::NoCluster("this machine is no controller of a cluster".into())
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

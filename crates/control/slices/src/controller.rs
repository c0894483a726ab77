//! The controller's side of the slice level, over the store and DDS.
//!
//! Every candidate of an election runs a controller. Only the leader has a desk: it receives
//! workers' messages and moves slices. It writes each decision that must outlive it to the store,
//! under the fence of its leadership, *before* it sends a message about it. A controller that is
//! fenced off sends nothing more, so two controllers never reassign the same slices. Workers ignore
//! messages of earlier terms. Planned moves do not wait for the store: the next leader learns from
//! the workers which handovers are open, and the new owners are written in the background.

mod connections;
mod desk;
mod kept;
mod office;
mod pen;
mod plan;
mod status;
mod unread;

use std::sync::Arc;
use std::time::Duration;

use equipoise_slice::balance::Policy;
use equipoise_slice::controller::{MoveRefused, ResizeRefused};
use equipoise_slice::{Config, HandoverId, SliceId};
use equipoise_store::{Election, KeyError, Store};
use tokio::sync::{mpsc, oneshot, watch};

pub use plan::{HoldReason, PlanReason, Planned, PlannedMove, PlannedWorker, WorkerReason};
pub use status::{
    HandoverStatus, HandoverSteps, HandoverTotals, SliceStatus, Status, WorkerCheckpoints,
    WorkerState, WorkerStatus,
};
pub use unread::{Unread, UnreadReason};

use crate::controller::connections::Connections;
use equipoise_slice_dds::Stream;

/// Options of a stream's controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The stream's name, part of its keys in the store.
    pub name: String,
    /// The candidate's name in the election.
    pub candidate: String,
    /// Number of slices. If the stream was resized, the number in the store counts.
    pub slices: u32,
    /// Times and limits of the protocol, equal to those of the workers.
    pub protocol: Config,
    /// Parameters of balancing.
    pub policy: Policy,
    /// Interval between balancing rounds. Zero: no balancing, only moves that operators request.
    pub round: Duration,
    /// Lease of the leadership: a leader that dies is replaced after this time.
    pub leadership: Duration,
    /// TCP port for connections of workers; 0: any free port. `None`: only leases detect a worker's
    /// death.
    pub connections: Option<u16>,
}

impl Options {
    /// The default options.
    pub fn new(name: &str, slices: u32) -> Self {
        Self {
            name: name.to_string(),
            candidate: format!("controller-{}", std::process::id()),
            slices,
            protocol: Config::default(),
            policy: Policy::default(),
            round: Duration::from_millis(500),
            leadership: Duration::from_secs(3),
            connections: Some(0),
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Another controller leads, or none does.
    #[error("this controller does not lead: ask the one that does, or wait for the election")]
    NotLeading,
    /// There is no worker of this name.
    #[error("no worker is called {0:?}: `equipoise slice status` lists them")]
    UnknownWorker(String),
    /// An operator has pinned the slice to another worker.
    #[error("slice {} is pinned to {worker}: unpin it first", .slice.0)]
    Pinned {
        /// The slice.
        slice: SliceId,
        /// The worker that it is pinned to.
        worker: String,
    },
    /// The slice is not pinned.
    #[error("slice {} is not pinned", .0.0)]
    NotPinned(SliceId),
    /// The protocol refused the move.
    #[error(transparent)]
    Refused(#[from] MoveRefused),
    /// The stream cannot have this number of slices.
    #[error(transparent)]
    Size(#[from] ResizeRefused),
    /// Slices that would be joined are pinned to different workers.
    #[error("slices {} and {} would be joined, but are pinned to different workers: unpin one", .0.0, .1.0)]
    PinnedApart(SliceId, SliceId),
    /// The controller has ended.
    #[error("the controller has ended")]
    Ended,
}

/// Why a controller did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The stream's name cannot be part of a key in the store.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// An error of DDS.
    #[error(transparent)]
    Dds(#[from] equipoise_dds::Error),
}

/// Requests to the controller's task.
#[derive(Debug)]
pub(crate) enum Ask {
    Resize(u32, oneshot::Sender<Result<(), AskError>>),
    Move(Vec<SliceId>, String, oneshot::Sender<Result<HandoverId, AskError>>),
    Leave(String, bool, oneshot::Sender<Result<(), AskError>>),
    Pin(SliceId, Option<String>, oneshot::Sender<Result<(), AskError>>),
    Plan(oneshot::Sender<Result<Planned, AskError>>),
    Stop,
}

/// A running controller. A drop ends it. [`Controller::stop`] also resigns, so that another
/// candidate takes over at once.
#[derive(Debug)]
pub struct Controller {
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

/// Sends requests to a controller, from any task.
#[derive(Debug, Clone)]
pub struct Handle {
    asks: mpsc::Sender<Ask>,
    status: watch::Receiver<Status>,
}

impl Controller {
    /// Joins the stream and stands for election. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(
        stream: &Stream,
        store: Arc<dyn Store>,
        options: Options,
    ) -> Result<Self, StartError> {
        let office = format!("slice-{}", options.name);
        let election = Election::new(store.clone(), &office, options.leadership)?;
        let key = equipoise_store::Key::new(&format!("slice/{}/record", options.name))?;
        let (asks, asked) = mpsc::channel(64);
        let (told, status) = watch::channel(Status::default());
        let wires = office::Wires::connect(stream)?;
        let strangers = Arc::default();
        let connections = Connections::listen(stream, options.connections, &strangers);
        let stream = stream.clone();
        let office = office::Office {
            options,
            stream,
            store,
            key,
            wires,
            connections,
            strangers,
            asked,
            told,
        };
        let task = tokio::spawn(office.run(election));
        Ok(Self { handle: Handle { asks, status }, task })
    }

    /// A handle for requests.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Resigns and leaves DDS. Workers continue with their slices while their leases hold.
    pub async fn stop(mut self) {
        if self.handle.asks.send(Ask::Stop).await.is_ok() {
            // The task has ended in any case, also with an error.
            let _ = (&mut self.task).await;
        }
    }
}

impl std::ops::Deref for Controller {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Handle {
    /// The last published status.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// A receiver of each new status.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Starts a move of slices, all of one owner. Fails if one of them is pinned to another worker.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn move_slices(
        &self,
        slices: Vec<SliceId>,
        worker: &str,
    ) -> Result<HandoverId, AskError> {
        let worker = worker.to_string();
        self.ask(|answer| Ask::Move(slices, worker, answer)).await
    }

    /// Splits or joins slices, to this number: twice or half the present one. Returns when the
    /// store has the request; [`Status::resizing`] has the condition that it waits for. The present
    /// number cancels a resize.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn resize(&self, slices: u32) -> Result<(), AskError> {
        self.ask(|answer| Ask::Resize(slices, answer)).await
    }

    /// Drains a worker, which moves its slices to others, or undrains it. The store keeps this, so
    /// it outlives controllers.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn set_leaving(&self, worker: &str, leaving: bool) -> Result<(), AskError> {
        let worker = worker.to_string();
        self.ask(|answer| Ask::Leave(worker, leaving, answer)).await
    }

    /// Pins a slice to a worker while that is alive, and moves it there. `None` unpins it. The
    /// store keeps pins, so they outlive controllers and the worker.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn pin(&self, slice: SliceId, worker: Option<&str>) -> Result<(), AskError> {
        let worker = worker.map(str::to_string);
        self.ask(|answer| Ask::Pin(slice, worker, answer)).await
    }

    /// The moves that a balancing round would begin now. Starts none.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn plan(&self) -> Result<Planned, AskError> {
        self.ask(Ask::Plan).await
    }

    async fn ask<R>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<R, AskError>>) -> Ask,
    ) -> Result<R, AskError> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(ask(answer)).await.map_err(|_| AskError::Ended)?;
        answered.await.map_err(|_| AskError::Ended)?
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

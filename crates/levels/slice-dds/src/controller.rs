//! The controller's side of the slice level: by the leader of an election, over the store and DDS.
//!
//! Every candidate runs one. Only the leader's has a desk: it hears workers, moves slices, and writes what has to outlive it
//! under its leadership's fence, *before* it tells anybody. One that is fenced off says nothing more, so that no two
//! reassign the same slices; workers obey none of an earlier term. Planned moves wait for no store: what is under way the next
//! leader learns from the workers, and who owns what is written beside.

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
    HandoverStatus, HandoverSteps, HandoverTotals, SliceStatus, Status, WorkerState, WorkerStatus,
};
pub use unread::{Unread, UnreadReason};

use crate::controller::connections::Connections;
use crate::stream::Stream;

/// What the controller of a stream is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The stream's name: part of keys in the store.
    pub name: String,
    /// What this candidate calls itself.
    pub candidate: String,
    /// Slices of the stream: 0 to this less 1.
    pub slices: u32,
    /// Times and bounds of the protocol; as the workers'.
    pub protocol: Config,
    /// How eagerly is balanced.
    pub policy: Policy,
    /// From one balancing round to the next. Zero: nothing is moved unless somebody asks.
    pub round: Duration,
    /// A leader that dies is replaced after this.
    pub leadership: Duration,
    /// The TCP port of workers' connections; 0: any that is free. Without one a worker's death is
    /// noticed by its lease alone.
    pub connections: Option<u16>,
}

impl Options {
    /// With what is usual.
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

/// Why something that was asked for is not done.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Another controller leads, or none does.
    #[error("this controller does not lead: ask the one that does, or wait for the election")]
    NotLeading,
    /// No such worker.
    #[error("no worker is called {0:?}: `equipoise slice status` lists them")]
    UnknownWorker(String),
    /// An operator keeps the slice on another worker.
    #[error("slice {} is pinned to {worker}: unpin it first", .slice.0)]
    Pinned {
        /// The slice.
        slice: SliceId,
        /// Where it is kept.
        worker: String,
    },
    /// The slice is not pinned.
    #[error("slice {} is not pinned", .0.0)]
    NotPinned(SliceId),
    /// The protocol refused.
    #[error(transparent)]
    Refused(#[from] MoveRefused),
    /// The stream cannot have so many slices.
    #[error(transparent)]
    Size(#[from] ResizeRefused),
    /// Slices that would be joined are pinned to different workers.
    #[error("slices {} and {} would be joined, and are pinned to different workers: unpin one", .0.0, .1.0)]
    PinnedApart(SliceId, SliceId),
    /// The controller has ended.
    #[error("the controller has ended")]
    Ended,
}

/// Why there is no controller.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The stream's name is none for the store.
    #[error(transparent)]
    Name(#[from] KeyError),
    /// DDS refused.
    #[error(transparent)]
    Dds(#[from] equipoise_dds::Error),
}

/// What operators ask.
#[derive(Debug)]
pub(crate) enum Ask {
    Resize(u32, oneshot::Sender<Result<(), AskError>>),
    Move(Vec<SliceId>, String, oneshot::Sender<Result<HandoverId, AskError>>),
    Leave(String, bool, oneshot::Sender<Result<(), AskError>>),
    Pin(SliceId, Option<String>, oneshot::Sender<Result<(), AskError>>),
    Plan(oneshot::Sender<Result<Planned, AskError>>),
    Stop,
}

/// A controller that runs. Dropped, it ends; [`Controller::stop`] makes room for another candidate at once.
#[derive(Debug)]
pub struct Controller {
    handle: Handle,
    task: tokio::task::JoinHandle<()>,
}

/// Asks a controller, from anywhere.
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

    /// For whoever asks it something.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Steps down and leaves DDS. Workers go on with what they have while their leases hold.
    pub async fn stop(mut self) {
        if self.handle.asks.send(Ask::Stop).await.is_ok() {
            // It has ended, or is aborted when dropped.
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
    /// How it stands, as of a moment ago.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Changes of how it stands.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Begins to move slices, all of one owner. None that is pinned to another worker is moved.
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

    /// Splits or joins slices, so that there are this many: twice or half as many as now. Returns
    /// when the wish is in the store; [`Status::resizing`] has the condition that it waits for. As
    /// many as there are: calls it off.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn resize(&self, slices: u32) -> Result<(), AskError> {
        self.ask(|answer| Ask::Resize(slices, answer)).await
    }

    /// Has a worker left without slices, or gives it slices again. Kept in the store: it outlives controllers.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn set_leaving(&self, worker: &str, leaving: bool) -> Result<(), AskError> {
        let worker = worker.to_string();
        self.ask(|answer| Ask::Leave(worker, leaving, answer)).await
    }

    /// Keeps a slice on a worker while that lives, and moves it there; `None`: no longer. Kept in the store: it outlives
    /// controllers, and the worker.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn pin(&self, slice: SliceId, worker: Option<&str>) -> Result<(), AskError> {
        let worker = worker.map(str::to_string);
        self.ask(|answer| Ask::Pin(slice, worker, answer)).await
    }

    /// What a round would move now. Nothing follows from it.
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

//! The control side's live inventory: desired state, observed state, and the snapshot that follows.
//!
//! One task owns it ([`Registry::run`]); all others hold a [`RegistryHandle`]. In: configurations,
//! operators' commands, results of health checks, the data plane's
//! [`BackendEvent`](crate::BackendEvent)s. Out: [`Snapshot`]s, through [`Publish`], and for other
//! levels [`PoolState`]s, through a watch. Failures: a command or a configuration that cannot be
//! applied changes nothing and returns an error.
//!
//! Decisions are pure (`inventory`, `decide`, `build`, with `now` as an argument); `actor` has the
//! channels, the clock and the checkers.

mod actor;
mod build;
mod changes;
mod decide;
mod error;
#[cfg(test)]
mod fixtures;
mod inherit;
mod inventory;
mod notice;
mod pools;
mod status;

use std::num::NonZeroU32;
use std::sync::{Arc, RwLock};

use equipoise_core::load::Shares;
use equipoise_core::{AdminState, Weight};
use equipoise_handover::BackendState as Inheritable;
use tokio::sync::{mpsc, oneshot, watch};

pub use equipoise_core::load::ClassCounts;

pub use actor::Registry;
pub use changes::{Changed, Changes};
pub use error::{ApplyError, Known, RegistryError};
pub use pools::{BackendState, PoolState};
pub use status::{
    BackendSeries, BackendStatus, DispatchStatus, DoorTlsStatus, FrontDoorSeries, FrontDoorStatus,
    LastCheck, MirrorStatus, PoolSeries, PoolStatus, RouteStatus, StatsView, Status,
    UpstreamTlsStatus, class_counts,
};

use crate::config::SessionConfig;
use crate::{BindError, Engine, Snapshot};

/// The receiver of snapshots: the [`Engine`], or a test's recorder.
pub trait Publish {
    /// Installs `snapshot`.
    ///
    /// # Errors
    /// [`BindError`] if a new front door cannot be opened; then nothing has changed.
    fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError>;

    /// Has the work of backends that were cut notice it.
    fn wake(&self);
}

impl Publish for Engine {
    fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError> {
        Engine::publish(self, snapshot)
    }

    fn wake(&self) {
        Engine::wake(self);
    }
}

/// How a registry is started.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Data-plane threads: the shards of every counter. The same as
    /// [`EngineOptions::threads`](crate::EngineOptions::threads).
    pub threads: usize,
    /// Seeds hashing schedulers' tables; the same in every process of a fleet.
    pub scheduler_seed: u64,
    /// Seeds the jitter of health checks; different in every process of a fleet.
    pub jitter_seed: u64,
}

/// The snapshot that the data plane follows, and the state of everything at the same moment.
#[derive(Clone, Debug)]
pub struct RegistryView {
    /// The newest snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The state of front doors, pools and backends.
    pub status: Status,
}

#[derive(Debug)]
enum Command {
    Apply(Box<SessionConfig>, oneshot::Sender<Result<Changes, ApplyError>>),
    SetAdmin(Target, AdminState, oneshot::Sender<Result<(), RegistryError>>),
    SetWeight(Target, Option<Weight>, oneshot::Sender<Result<(), RegistryError>>),
    SetConcurrency(Target, Option<NonZeroU32>, oneshot::Sender<Result<(), RegistryError>>),
    SetPlanned(String, Vec<(String, Weight)>, oneshot::Sender<Result<(), RegistryError>>),
    SetShares(Option<Arc<Shares>>, oneshot::Sender<()>),
    Status(oneshot::Sender<Status>),
    View(oneshot::Sender<RegistryView>),
    ToInherit(oneshot::Sender<Vec<Inheritable>>),
    Inherit(Vec<Inheritable>, oneshot::Sender<()>),
    Stop,
}

/// A backend as an operator names it.
#[derive(Debug)]
struct Target {
    pool: String,
    backend: String,
}

/// Asks things of a running [`Registry`]; clones ask the same one.
#[derive(Clone, Debug)]
pub struct RegistryHandle {
    commands: mpsc::Sender<Command>,
    stats: Arc<RwLock<Arc<StatsView>>>,
    pools: watch::Receiver<Arc<Vec<PoolState>>>,
}

impl RegistryHandle {
    /// Goes over to `config`, whole or not at all.
    ///
    /// A backend is the same before and after if its pool's name and its address are: it then keeps
    /// its counters, its health, its kept-open sessions, *and what an operator set*: admin state
    /// and weight override survive the reload, even if the file's weight changed
    /// ([`RegistryHandle::reset_weight`] returns to the file). A front door is the same if its
    /// protocol and address are. Backends that the file no longer has take nothing new and keep
    /// what they have.
    ///
    /// # Errors
    /// [`ApplyError`]; then nothing has changed.
    pub async fn apply(&self, config: SessionConfig) -> Result<Changes, ApplyError> {
        self.ask(|reply| Command::Apply(Box::new(config), reply))
            .await
            .unwrap_or(Err(ApplyError::Stopped))
    }

    /// Sets the admin state of a backend, identified by its name or its address. When this returns,
    /// the resulting snapshot is published and, for `Down`,
    /// [`BackendLive::cut`](crate::BackendLive::cut) is set after it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: AdminState,
    ) -> Result<(), RegistryError> {
        let target = Target { pool: pool.into(), backend: backend.into() };
        self.ask(|reply| Command::SetAdmin(target, admin, reply))
            .await
            .unwrap_or(Err(RegistryError::Stopped))
    }

    /// The states of backends that a successor needs and the configuration does not have.
    ///
    /// # Errors
    /// [`RegistryError::Stopped`].
    pub async fn to_inherit(&self) -> Result<Vec<Inheritable>, RegistryError> {
        self.ask(Command::ToInherit).await.ok_or(RegistryError::Stopped)
    }

    /// Takes over the states that a predecessor had. Backends that checks have seen already keep
    /// their health.
    ///
    /// # Errors
    /// [`RegistryError::Stopped`].
    pub async fn inherit(&self, states: Vec<Inheritable>) -> Result<(), RegistryError> {
        self.ask(|reply| Command::Inherit(states, reply)).await.ok_or(RegistryError::Stopped)
    }

    /// Overrides a backend's configured weight, until [`RegistryHandle::reset_weight`]. Zero
    /// drains.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: Weight,
    ) -> Result<(), RegistryError> {
        self.override_weight(pool, backend, Some(weight)).await
    }

    /// Returns to the weight that the configuration states.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn reset_weight(&self, pool: &str, backend: &str) -> Result<(), RegistryError> {
        self.override_weight(pool, backend, None).await
    }

    async fn override_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: Option<Weight>,
    ) -> Result<(), RegistryError> {
        let target = Target { pool: pool.into(), backend: backend.into() };
        self.ask(|reply| Command::SetWeight(target, weight, reply))
            .await
            .unwrap_or(Err(RegistryError::Stopped))
    }

    /// Overrides a backend's configured concurrency limit; `None` returns to it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn set_concurrency(
        &self,
        pool: &str,
        backend: &str,
        limit: Option<NonZeroU32>,
    ) -> Result<(), RegistryError> {
        let target = Target { pool: pool.into(), backend: backend.into() };
        self.ask(|reply| Command::SetConcurrency(target, limit, reply))
            .await
            .unwrap_or(Err(RegistryError::Stopped))
    }

    /// Takes over weights that were planned by load for a pool that asks for them, by backends'
    /// names, all in one snapshot. They hold until others come, through reloads too; an operator's
    /// weight of zero holds against them.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn set_planned(
        &self,
        pool: &str,
        weights: Vec<(String, Weight)>,
    ) -> Result<(), RegistryError> {
        self.ask(|reply| Command::SetPlanned(pool.into(), weights, reply))
            .await
            .unwrap_or(Err(RegistryError::Stopped))
    }

    /// Has every front door in node mode delegate by these shares, through reloads too; `None`: as
    /// configured.
    ///
    /// # Errors
    /// [`RegistryError::Stopped`].
    pub async fn set_shares(&self, shares: Option<Arc<Shares>>) -> Result<(), RegistryError> {
        self.ask(|reply| Command::SetShares(shares, reply)).await.ok_or(RegistryError::Stopped)
    }

    /// How everything is now.
    ///
    /// # Errors
    /// [`RegistryError::Stopped`].
    pub async fn status(&self) -> Result<Status, RegistryError> {
        self.ask(Command::Status).await.ok_or(RegistryError::Stopped)
    }

    /// The snapshot that the data plane follows, with the state of everything at the same moment.
    ///
    /// # Errors
    /// [`RegistryError::Stopped`].
    pub async fn view(&self) -> Result<RegistryView, RegistryError> {
        self.ask(Command::View).await.ok_or(RegistryError::Stopped)
    }

    /// The counters by their object, for exposition. Sends no command: the objects are those of the
    /// last [`RegistryHandle::apply`], and their counters are live.
    pub fn stats(&self) -> Arc<StatsView> {
        let stats = self.stats.read().expect("whoever writes it cannot panic");
        Arc::clone(&stats)
    }

    /// The desired and observed state of the pools, and notifications of changes. A change by a
    /// method of this handle is in it when the method returns.
    pub fn pools(&self) -> watch::Receiver<Arc<Vec<PoolState>>> {
        self.pools.clone()
    }

    /// Ends [`Registry::run`] and with it the health checks. The data plane is not touched.
    pub async fn stop(&self) {
        // It has stopped already if the channel is closed.
        let _ = self.commands.send(Command::Stop).await;
    }

    async fn ask<R>(&self, command: impl FnOnce(oneshot::Sender<R>) -> Command) -> Option<R> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

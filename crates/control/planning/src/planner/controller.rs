//! The controller of this process: its start, retries and end.

use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::{lock, with_causes};
use equipoise_controller::{Controller, ControllerOptions, Intake};
use equipoise_core::load::Smoothing;
use equipoise_store::{OpenStore, place};

use super::premises::Here;
use super::{Active, Planner, RunningController};
use crate::error::PlanningError;
use crate::follow;
use crate::level::Measured;
use crate::planning_config::PlanningConfig;
use crate::seat::Seat;

/// Periods between writes of an unchanged plan to the embedded store. A crash between two writes
/// loses the progress of weights; a write each period would wear the disk.
const WRITE_PERIODS: u32 = 10;

/// Interval between attempts to start a cluster's controller.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Planner {
    /// Whether a controller should run here.
    pub(super) fn asks(&self, wish: &PlanningConfig) -> bool {
        match &self.seat {
            Seat::Alone => wish.plans_any_pool() || self.scalers.is_ending(),
            Seat::Controller(_) => true,
            Seat::Node(_) => false,
        }
    }

    /// Stops the controller of a single machine once the last elastic pool is removed from the file
    /// and its backends are gone.
    pub(super) async fn rest(self: Arc<Self>) {
        let mut changes = self.scalers.changes();
        while changes.changed().await.is_ok() {
            let _one = self.changing.lock().await;
            let wish = self.wish.borrow().clone();
            if !self.asks(&wish) {
                self.stop_controller().await;
            }
        }
    }

    pub(super) async fn start_controller(&self) {
        let file = place::store_file(self.state.as_deref(), &self.instance);
        let etcd = self.seat.etcd();
        let opened = match etcd {
            Some(etcd) => OpenStore::etcd(etcd).await,
            None => OpenStore::embedded(&file).await,
        };
        let started = match opened {
            Ok(store) => self.run(store).await,
            Err(error) => Err(error.into()),
        };
        let active = match started {
            Ok(running) => {
                lock(&self.complaint).is_over();
                let store = self.store_name();
                tracing::info!(event = "controller.started", store, "controller");
                self.scalers.let_scale();
                Active::Running(Box::new(running))
            }
            Err(error) => {
                let what_next = self.what_next();
                let error = with_causes(&error);
                if let Some(again) = lock(&self.complaint).comes(&error, self.began.elapsed()) {
                    tracing::error!(
                        event = "controller.failed",
                        again,
                        "the controller does not run: {error}. Pools keep their weights; \
                         {what_next}"
                    );
                }
                if let Seat::Alone = self.seat {
                    let wish = self.wish.borrow().clone();
                    self.scalers.hold(&wish).await;
                }
                Active::Failed(error)
            }
        };
        *lock(&self.active) = active;
    }

    /// Retries the start of a cluster's controller after its store or address was not available.
    pub(super) async fn try_again(self: Arc<Self>) {
        while let Seat::Controller(_) = self.seat {
            tokio::time::sleep(TRY_AGAIN).await;
            let _one = self.changing.lock().await;
            let failed = matches!(&*lock(&self.active), Active::Failed(_));
            if failed {
                self.start_controller().await;
            }
        }
    }

    async fn run(&self, store: OpenStore) -> Result<RunningController, PlanningError> {
        let source = Arc::new(Here::new(
            Arc::clone(&self.level) as Arc<dyn Measured>,
            self.wish.subscribe(),
            Arc::clone(&self.scalers),
        ));
        let options = ControllerOptions {
            smoothing: Smoothing { period: self.period, ..Smoothing::default() },
            // Other controllers and their nodes follow the plan in the shared store.
            write_every: match self.seat.etcd() {
                Some(_) => Duration::ZERO,
                None => self.period * WRITE_PERIODS,
            },
            ..ControllerOptions::new(&*self.instance)
        };
        let recorder = Arc::clone(&self.recorder);
        let shared = Arc::clone(&store.store);
        let controller = Controller::start(options, shared.clone(), source, recorder)?;
        let intake = Arc::new(controller.handle());
        let server = match self.seat.serve(&self.instance, shared, intake).await {
            Ok(server) => server,
            Err(error) => {
                controller.stop().await;
                store.close().await;
                return Err(error);
            }
        };
        if let Some(server) = &server {
            self.tls.send_replace(Some(server.peer_credentials()));
            self.sealed.send_replace(Some(Arc::new(server.sealed(Arc::clone(&store.store)))));
        }
        let instructions = controller.handle().instructions();
        let following = tokio::spawn(self.follower().follow(instructions));
        let (handle, scalers) = (controller.handle(), Arc::clone(&self.scalers));
        let (newest, alone) = match &self.seat {
            Seat::Alone => (None, Some(handle.clone())),
            _ => (Some(self.newest.clone()), None),
        };
        let scaling = tokio::spawn(follow::rosters(scalers, handle.instructions(), newest, alone));
        Ok(RunningController { controller, store, server, following, scaling })
    }

    pub(super) async fn stop_controller(&self) {
        self.scalers.let_scale();
        let active = std::mem::replace(&mut *lock(&self.active), Active::Unasked);
        if let Active::Running(running) = active {
            self.sealed.send_replace(None);
            running.following.abort();
            running.scaling.abort();
            // The nodes connect to another controller at once.
            if let Some(server) = running.server {
                server.stop().await;
            }
            running.controller.stop().await;
            running.store.close().await;
            self.scalers.forget_edition();
        }
    }
}

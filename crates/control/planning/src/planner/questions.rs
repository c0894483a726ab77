//! Answers to requests of the API.

use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::lock;
use equipoise_cluster::{ClusterServer, NodeClient, Office};
use equipoise_controller::{Condition, ControllerHandle, Recorder};
use equipoise_monitor::Utilisation;
use equipoise_store::place;

use super::{Active, Planner};
use crate::planning_config::PlanningConfig;
use crate::seat::Seat;

/// The reason why this process does not answer requests about its cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum NoOffice {
    /// The machine is in no cluster.
    Alone,
    /// The machine is a node.
    Node,
    /// The controller serves no cluster.
    NotServing,
    /// The controller does not run, for this reason.
    Failed(String),
    /// The process stops.
    Stopping,
}

/// The controller of this process.
#[derive(Debug)]
pub enum ControllerNow {
    /// It does not run.
    Failed {
        /// The reason.
        why: String,
        /// Time since the configuration first asked for a controller.
        since: Duration,
        /// The next step: a retry, or an operator's action.
        what_next: &'static str,
    },
    /// It runs.
    Running(Condition),
}

impl Planner {
    /// Counts of requests to the cluster API (accepted, refused, dropped), and bytes sent to nodes.
    /// `None` if this process has no such API.
    pub fn served(&self) -> Option<(Vec<(String, u64)>, u64)> {
        match &*lock(&self.active) {
            Active::Running(running) => {
                let server = running.server.as_ref()?;
                Some((server.counts().into_iter().collect(), server.sent_bytes()))
            }
            _ => None,
        }
    }

    /// The store's file, or the endpoints of etcd.
    pub fn store_name(&self) -> String {
        match self.seat.etcd() {
            Some(etcd) => etcd.endpoints.join(", "),
            None => place::store_file(self.state.as_deref(), &self.instance).display().to_string(),
        }
    }

    /// The controller of this process.
    ///
    /// # Errors
    /// The reason why none runs.
    pub fn controller(&self) -> Result<ControllerHandle, String> {
        match &*lock(&self.active) {
            Active::Running(running) => Ok(running.controller.handle()),
            Active::Failed(why) => {
                let held = self.scalers.held_in_words();
                Err(format!("the controller does not run: {why}{held}"))
            }
            Active::Unasked if self.seat.client().is_some() => {
                Err("this machine is a node of a cluster: run the command on a controller"
                    .to_string())
            }
            Active::Unasked => Err("nothing is planned here: no pool has weights = \"load\" and \
                                    none has a [pool.elastic] table"
                .to_string()),
        }
    }

    /// Name of this member.
    pub fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// The node's client of its controllers; `None` elsewhere.
    pub fn client(&self) -> Option<&NodeClient> {
        self.seat.client()
    }

    /// The configuration in force, with the elastic pools that controllers declare.
    pub fn wish(&self) -> Arc<PlanningConfig> {
        self.wish.borrow().clone()
    }

    /// The history of reports.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// This machine's last measurement; `None` before the first one.
    pub fn utilisation(&self) -> Option<Utilisation> {
        self.utilisation.borrow().clone()
    }

    /// Interval between plans.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Time since the start.
    pub fn up(&self) -> Duration {
        self.began.elapsed()
    }

    /// Requests about the cluster that this controller serves.
    ///
    /// # Errors
    /// [`NoOffice`].
    pub fn office(&self) -> Result<Office, NoOffice> {
        match (&self.seat, &*lock(&self.active)) {
            (Seat::Alone, _) => Err(NoOffice::Alone),
            (Seat::Node(_), _) => Err(NoOffice::Node),
            (Seat::Controller(_), Active::Running(running)) => {
                running.server.as_ref().map(ClusterServer::office).ok_or(NoOffice::NotServing)
            }
            (Seat::Controller(_), Active::Failed(why)) => Err(NoOffice::Failed(why.clone())),
            (Seat::Controller(_), Active::Unasked) => Err(NoOffice::Stopping),
        }
    }

    /// The state of this process's controller; `None` if the configuration asks for none. A
    /// controller may fail without any effect on traffic, so operators need to see it.
    pub fn controller_now(&self) -> Option<ControllerNow> {
        match &*lock(&self.active) {
            Active::Unasked => None,
            Active::Failed(why) => Some(ControllerNow::Failed {
                why: why.clone(),
                since: lock(&self.asked_since).map_or(Duration::ZERO, |since| since.elapsed()),
                what_next: self.what_next(),
            }),
            Active::Running(running) => {
                Some(ControllerNow::Running(running.controller.handle().condition()))
            }
        }
    }

    /// The next step for a controller that does not start: a retry, or an operator's action.
    pub(super) fn what_next(&self) -> &'static str {
        match self.seat {
            Seat::Controller(_) => "the start is retried every few seconds",
            Seat::Alone | Seat::Node(_) => "fix this, then run `equipoise reload`",
        }
    }
}

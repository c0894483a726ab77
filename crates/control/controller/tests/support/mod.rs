//! Support of the controller's tests: a store, a source of premises, reports.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_controller::{
    Controller, ControllerHandle, ControllerOptions, Edition, Instructions, Intake, NodeReport,
    Premises, Recorder, Source,
};
use equipoise_core::Weight;
use equipoise_core::load::Reported;
use equipoise_planner::elastic::{BackendSample, PoolSample};
use equipoise_planner::{BackendSpec, PoolSpec};
use equipoise_store::{
    Committed, Embedded, EmbeddedOptions, Entry, Key, Lease, LeaseId, Listing, Outcome, Prefix,
    Revision, Store, StoreError, Transaction, Watch,
};
use equipoise_testkit::Folder;
use tokio::sync::watch;

pub(crate) async fn store_in(folder: &Folder) -> Embedded {
    let options = EmbeddedOptions::new(folder.path("controller.store"));
    Embedded::open(options).await.unwrap()
}

/// Premises that a test sets.
#[derive(Default)]
pub(crate) struct Stage(pub(crate) Mutex<Premises>);

#[async_trait]
impl Source for Stage {
    async fn premises(&self) -> Premises {
        self.0.lock().unwrap().clone()
    }
}

/// A pool `web` of these backends, with weights by load.
pub(crate) fn stage(backends: &[&str]) -> Arc<Stage> {
    let spec = BackendSpec { weight: Weight::DEFAULT, ..BackendSpec::default() };
    let backends = backends.iter().map(|name| (name.to_string(), spec.clone())).collect();
    let pool = PoolSpec { backends, weights_by_load: true, ..PoolSpec::default() };
    let pools = [("web".to_string(), pool)].into();
    Arc::new(Stage(Mutex::new(Premises { pools, ..Premises::default() })))
}

pub(crate) fn start(name: &str, store: Arc<dyn Store>, source: Arc<Stage>) -> Controller {
    let options = ControllerOptions::new(name);
    Controller::start(options, store, source, Arc::new(Recorder::default())).unwrap()
}

/// A valid report. Backends have requests in flight, and a response time in milliseconds.
pub(crate) fn report(cpu: f64, backends: &[(&str, f64, u64)]) -> NodeReport {
    let load = Some(Reported { cpu, memory: 30.0, net: None });
    let sample = |(name, in_flight, response_ms): &(&str, f64, u64)| {
        let response = Some(Duration::from_millis(*response_ms));
        let one = BackendSample { in_flight: *in_flight, response, ..BackendSample::default() };
        (name.to_string(), one)
    };
    let backends = backends.iter().map(sample).collect();
    let sample = PoolSample { backends, ..PoolSample::default() };
    let pools: BTreeMap<_, _> = [("web".to_string(), sample)].into();
    NodeReport { version: "test".into(), capacity: 2.0, load, pools, ..NodeReport::default() }
}

/// Waits for instructions that satisfy `fits`.
pub(crate) async fn until(
    controller: &ControllerHandle,
    mut fits: impl FnMut(&Instructions) -> bool,
) -> Arc<Instructions> {
    let mut instructions = controller.instructions();
    let found = instructions.wait_for(|now| fits(now));
    let found = tokio::time::timeout(Duration::from_secs(120), found).await;
    found.expect("such instructions come").unwrap().clone()
}

pub(crate) async fn newer(controller: &ControllerHandle, than: Edition) -> Arc<Instructions> {
    until(controller, |now| now.edition() > than).await
}

/// A store that can fail.
#[derive(Debug)]
pub(crate) struct Flaky {
    pub(crate) inner: Embedded,
    pub(crate) is_gone: AtomicBool,
    /// It carries out requests, but returns neither answers nor changes.
    pub(crate) is_mute: AtomicBool,
    /// It can be read, and refuses writes.
    pub(crate) is_read_only: AtomicBool,
    /// It carries out requests, and answers seconds later.
    pub(crate) is_late: AtomicBool,
    /// Writes wait while this is true.
    pub(crate) hangs: watch::Sender<bool>,
}

impl Flaky {
    pub(crate) fn new(inner: Embedded) -> Arc<Flaky> {
        let is = AtomicBool::new;
        let hangs = watch::Sender::new(false);
        Arc::new(Flaky {
            inner,
            is_gone: is(false),
            is_mute: is(false),
            is_read_only: is(false),
            is_late: is(false),
            hangs,
        })
    }

    fn there(&self) -> Result<(), StoreError> {
        if self.is_gone.load(Relaxed) { Err(unavailable(Outcome::NotDone)) } else { Ok(()) }
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.there()?;
        match self.is_read_only.load(Relaxed) {
            true => Err(StoreError::Denied("by the test".into())),
            false => Ok(()),
        }
    }

    fn heard<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if self.is_mute.load(Relaxed) { Err(unavailable(Outcome::Unknown)) } else { answer }
    }
}

fn unavailable(outcome: Outcome) -> StoreError {
    let source = "taken away by the test".into();
    StoreError::Unavailable { patience: Duration::ZERO, outcome, source }
}

#[async_trait]
impl Store for Flaky {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.there()?;
        self.heard(self.inner.get(key).await)
    }
    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError> {
        self.there()?;
        self.heard(self.inner.list(prefix).await)
    }
    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError> {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        self.writable()?;
        let done = self.inner.commit(transaction).await;
        if self.is_late.load(Relaxed) {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.heard(done)
    }
    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError> {
        self.there()?;
        self.heard(self.inner.watch(prefix, after).await)
    }
    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError> {
        self.writable()?;
        self.inner.grant(time_to_live).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.there()?;
        self.inner.keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.there()?;
        self.inner.revoke(lease).await
    }
}

/// Reports of a node to one controller, twice a second until the task is aborted.
pub(crate) fn keep_reporting(
    controller: &ControllerHandle,
    node: &str,
    report: NodeReport,
) -> tokio::task::JoinHandle<()> {
    let (controller, node) = (controller.clone(), node.to_string());
    tokio::spawn(async move {
        while controller.report(&node, report.clone()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

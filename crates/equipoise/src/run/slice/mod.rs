//! The slice level of a running process: a candidate for each stream's office, and what the API asks of it.
//!
//! Candidates run on threads of their own, `slice-control`: a DDS writer may wait for readers, and neither checks nor the
//! API are to wait with it. A stream's table is followed whole: one that changed is stopped and started anew, which its workers
//! notice as a change of the leader; those that did not change go on.

mod operator;
mod stream;
mod summary;
mod views;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use equipoise_slice_dds::controller::{Controller, Handle};
use equipoise_store::{Election, Store};
use tokio::runtime::{Builder, Runtime};

pub(crate) use self::stream::dds_stream;
use self::stream::options;
use crate::config::{ClusterRole, Config, EtcdPlace, SliceStream};
use crate::run::cluster::OpenStore;
use crate::run::lock;
use crate::run::planning::place;

/// Threads of all candidates together: one may wait for a writer while another keeps the lease of the office.
const THREADS: usize = 2;
/// A candidate steps down within this, or its lease has to run out.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries of what did not start.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The slice level.
pub(crate) struct SlicePlane {
    candidate: Arc<str>,
    place: Place,
    state: tokio::sync::Mutex<State>,
    /// What runs, for those who ask: they do not wait for changes.
    told: Mutex<Vec<Told>>,
}

/// Where records are kept; it holds until the process ends.
enum Place {
    File(PathBuf),
    Etcd(EtcdPlace),
    /// Nowhere: a cluster's node has no candidates.
    Node,
}

#[derive(Default)]
struct State {
    runtime: Option<Runtime>,
    store: Option<OpenStore>,
    streams: Vec<Candidate>,
}

/// A stream that was asked for.
struct Candidate {
    config: SliceStream,
    /// What it is done by; without it, why nothing is.
    controller: Result<Controller, String>,
}

/// A stream, as those see it who ask.
#[derive(Clone)]
struct Told {
    config: SliceStream,
    handle: Result<Handle, String>,
    election: Option<Election>,
}

impl SlicePlane {
    /// Nothing runs yet.
    pub(crate) fn new(config: &Config) -> Arc<SlicePlane> {
        let candidate: Arc<str> = place::plain(&config.instance.name).into();
        let role = config.cluster.as_ref().map(|cluster| &cluster.role);
        let file = || place::store_file(config.planning.state.as_deref(), &candidate);
        let place = match role {
            Some(ClusterRole::Node { .. }) => Place::Node,
            Some(ClusterRole::Controller { etcd: Some(etcd), .. }) => Place::Etcd(etcd.clone()),
            _ => Place::File(file().with_file_name("slice.store")),
        };
        let (state, told) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(SlicePlane { candidate, place, state, told })
    }

    /// Goes over to these streams, whole or not at all.
    ///
    /// # Errors
    /// DDS does not take the settings. A store that is away is no error: it is tried again.
    pub(crate) async fn follow(&self, wished: &[SliceStream]) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        let before: Vec<_> = state.streams.iter().map(|it| it.config.clone()).collect();
        let outcome = self.go_over(&mut state, wished).await;
        if outcome.is_err()
            && let Err(error) = self.go_over(&mut state, &before).await
        {
            tracing::error!("the slice level could not go back: {error:#}");
        }
        self.tell(&state);
        outcome
    }

    async fn go_over(&self, state: &mut State, wished: &[SliceStream]) -> anyhow::Result<()> {
        let mut going = std::mem::take(&mut state.streams);
        let mut kept = Vec::new();
        for config in wished {
            let same = going.iter().position(|it| it.config == *config && it.controller.is_ok());
            kept.push(same.map(|place| going.remove(place)));
        }
        // Before others start: a domain has one set of settings.
        for candidate in going {
            candidate.stop().await;
        }
        let mut failed = None;
        for (config, kept) in wished.iter().zip(kept) {
            let candidate = match kept {
                Some(candidate) => candidate,
                None => {
                    let controller = match self.start(state, config).await {
                        Ok(controller) => controller,
                        Err(error) => {
                            failed.get_or_insert(error);
                            continue;
                        }
                    };
                    Candidate { config: config.clone(), controller }
                }
            };
            state.streams.push(candidate);
        }
        if state.streams.is_empty() {
            state.close().await;
        }
        failed.map_or(Ok(()), Err)
    }

    /// A candidate for a stream; inside, why it has to wait.
    async fn start(
        &self,
        state: &mut State,
        config: &SliceStream,
    ) -> anyhow::Result<Result<Controller, String>> {
        let store = match self.store(state).await {
            Ok(store) => store,
            Err(why) => {
                tracing::error!(stream = config.name, "slices are not balanced: {why}");
                return Ok(Err(why));
            }
        };
        let (stream, options) = (dds_stream(config), options(config, &self.candidate));
        let runtime = state.runtime.as_ref().context("the slice level has no threads")?;
        // Joining a domain takes a while.
        let started = runtime.spawn(async move { Controller::start(&stream, store, options) });
        let controller = started.await?.with_context(|| {
            format!("[[slice]] {} cannot join DDS domain {}", config.name, config.domain)
        })?;
        tracing::info!(
            stream = config.name,
            slices = config.slices,
            domain = config.domain,
            "slice level: candidate"
        );
        Ok(Ok(controller))
    }

    /// The store, opened with the first stream.
    async fn store(&self, state: &mut State) -> Result<Arc<dyn Store>, String> {
        if let Some(open) = &state.store {
            return Ok(Arc::clone(&open.store));
        }
        if matches!(self.place, Place::Node) {
            return Err(
                "this machine is a node of a cluster; its controllers have the streams".into()
            );
        }
        if state.runtime.is_none() {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(THREADS).thread_name("slice-control").enable_all();
            let runtime = builder.build().map_err(|error| format!("no threads: {error}"))?;
            state.runtime = Some(runtime);
        }
        let runtime = state.runtime.as_ref().ok_or("no threads")?;
        let opened = match &self.place {
            Place::File(file) => {
                let file = file.clone();
                runtime.spawn(async move { place::open(&file).await }).await
            }
            Place::Etcd(etcd) => {
                let etcd = etcd.clone();
                runtime.spawn(async move { OpenStore::etcd(&etcd).await }).await
            }
            Place::Node => return Err("a node has no store".into()),
        };
        let open = opened.map_err(|panic| panic.to_string())?;
        let open = open.map_err(|error| format!("{error:#}"))?;
        let store = Arc::clone(&open.store);
        state.store = Some(open);
        Ok(store)
    }

    /// Starts what waits for its store, until the end.
    pub(crate) async fn try_again(self: Arc<Self>) {
        if matches!(self.place, Place::Node) {
            return;
        }
        loop {
            tokio::time::sleep(TRY_AGAIN).await;
            let mut state = self.state.lock().await;
            let wished: Vec<_> = state.streams.iter().map(|it| it.config.clone()).collect();
            if state.streams.iter().all(|it| it.controller.is_ok()) {
                continue;
            }
            if let Err(error) = self.go_over(&mut state, &wished).await {
                tracing::error!("{error:#}");
                // Tried again, as it was asked for.
                let missing = |it: &&SliceStream| !state.streams.iter().any(|s| s.config == **it);
                let missing: Vec<_> = wished.iter().filter(missing).cloned().collect();
                for config in missing {
                    let controller = Err(format!("{error:#}"));
                    state.streams.push(Candidate { config, controller });
                }
            }
            self.tell(&state);
        }
    }

    fn tell(&self, state: &State) {
        let store = state.store.as_ref().map(|open| &open.store);
        let told = state.streams.iter().map(|candidate| {
            let SliceStream { name, controller_lease, .. } = &candidate.config;
            let office = format!("slice-{name}");
            let election = store.and_then(|store| {
                Election::new(Arc::clone(store), &office, *controller_lease).ok()
            });
            let handle = candidate.controller.as_ref().map(|controller| controller.handle());
            Told {
                config: candidate.config.clone(),
                handle: handle.map_err(String::clone),
                election,
            }
        });
        *lock(&self.told) = told.collect();
    }

    /// Steps down from every office, and leaves DDS.
    pub(crate) async fn stop(&self) {
        let mut state = self.state.lock().await;
        for candidate in std::mem::take(&mut state.streams) {
            candidate.stop().await;
        }
        state.close().await;
        self.tell(&state);
    }
}

impl Candidate {
    async fn stop(self) {
        if let Ok(controller) = self.controller
            && tokio::time::timeout(STOP_PATIENCE, controller.stop()).await.is_err()
        {
            tracing::warn!(
                stream = self.config.name,
                "the store was not told that the office is free"
            );
        }
    }
}

impl State {
    async fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its threads, which nobody may on a thread of another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

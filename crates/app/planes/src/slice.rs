//! The slice level of a running process: a candidate for the leadership of each stream.
//!
//! Candidates run on their own threads, `slice-control`: a DDS writer may wait for readers, and
//! neither checks nor the API may wait with it. If a stream's table changes, the stream is stopped
//! and started again, which its workers notice as a change of the leader. Unchanged streams
//! continue.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use equipoise_basics::{lock, with_causes};
use equipoise_cluster::ClusterRole;
use equipoise_config::{Config, SliceStream, dds_stream};
use equipoise_slices::{Controller, Handle, Options};
use equipoise_store::{Election, EtcdPlace, OpenStore, Store, place};
use tokio::runtime::{Builder, Runtime};

/// Threads of all candidates together: one may wait for a writer while another renews the lease of
/// the leadership.
const THREADS: usize = 2;
/// Longest time for a candidate to step down. After it, the lease must expire.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a stream that did not start is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The slice level.
pub struct SlicePlane {
    candidate: Arc<str>,
    place: Place,
    state: tokio::sync::Mutex<State>,
    /// The running streams for requests, which do not wait for changes.
    running: Mutex<Vec<RunningStream>>,
}

/// Place of the records, for the lifetime of the process.
enum Place {
    File(PathBuf),
    Etcd(EtcdPlace),
    /// No place: a cluster's node has no candidates.
    Node,
}

#[derive(Default)]
struct State {
    runtime: Option<Runtime>,
    store: Option<OpenStore>,
    streams: Vec<Candidate>,
}

/// A configured stream.
struct Candidate {
    config: SliceStream,
    /// The running controller, or the reason why there is none.
    controller: Result<Controller, String>,
}

/// A stream as requests see it.
#[derive(Clone)]
pub struct RunningStream {
    /// Its table.
    pub config: SliceStream,
    /// The controller's handle, or the reason why there is none.
    pub handle: Result<Handle, String>,
    /// The election of its leader; `None` without a store.
    pub election: Option<Election>,
}

impl SlicePlane {
    /// Creates the slice level without streams.
    pub fn new(config: &Config) -> Arc<SlicePlane> {
        let candidate: Arc<str> = place::plain(&config.instance.name).into();
        let role = config.cluster.as_ref().map(|cluster| &cluster.role);
        let file = || place::store_file(config.planning.state.as_deref(), &candidate);
        let place = match role {
            Some(ClusterRole::Node { .. }) => Place::Node,
            Some(ClusterRole::Controller { etcd: Some(etcd), .. }) => Place::Etcd(etcd.clone()),
            _ => Place::File(file().with_file_name("slice.store")),
        };
        let (state, running) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(SlicePlane { candidate, place, state, running })
    }

    /// Switches to these streams, completely or not at all.
    ///
    /// # Errors
    /// An error if DDS does not accept the settings. An unavailable store is not an error: it is
    /// tried again.
    pub async fn follow(&self, wished: &[SliceStream]) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        let before: Vec<_> = state.streams.iter().map(|it| it.config.clone()).collect();
        let outcome = self.go_over(&mut state, wished).await;
        if outcome.is_err()
            && let Err(error) = self.go_over(&mut state, &before).await
        {
            tracing::error!("could not restore the slice level: {error:#}");
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
        // Stops these first, because a domain has one set of settings.
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

    /// Starts a candidate for a stream. The inner error is the reason why the stream must wait for
    /// the store.
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
        // Joining a domain takes a while, so it runs on a thread of the slice level.
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

    /// The store, which is opened with the first stream.
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
                runtime.spawn(async move { OpenStore::embedded(&file).await }).await
            }
            Place::Etcd(etcd) => {
                let etcd = etcd.clone();
                runtime.spawn(async move { OpenStore::etcd(&etcd).await }).await
            }
            Place::Node => return Err("a node has no store".into()),
        };
        let open = opened.map_err(|panic| panic.to_string())?;
        let open = open.map_err(|error| with_causes(&error))?;
        let store = Arc::clone(&open.store);
        state.store = Some(open);
        Ok(store)
    }

    /// Starts the streams that wait for the store, for the lifetime of the process.
    pub async fn try_again(self: Arc<Self>) {
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
                // Keeps the stream in the list, so that the next round tries it again.
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
        let running = state.streams.iter().map(|candidate| {
            let SliceStream { name, controller_lease, .. } = &candidate.config;
            let office = format!("slice-{name}");
            let election = store.and_then(|store| {
                Election::new(Arc::clone(store), &office, *controller_lease).ok()
            });
            let handle = candidate.controller.as_ref().map(|controller| controller.handle());
            RunningStream {
                config: candidate.config.clone(),
                handle: handle.map_err(String::clone),
                election,
            }
        });
        *lock(&self.running) = running.collect();
    }

    /// The streams as this process knows them. Does not wait for changes.
    pub fn streams(&self) -> Vec<RunningStream> {
        lock(&self.running).clone()
    }

    /// Steps down from the leadership of all streams, and leaves DDS.
    pub async fn stop(&self) {
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
                "could not release the leadership in the store; it ends when its lease expires"
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
        // Dropping a runtime waits for its threads, which is not allowed on a thread of another
        // runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The options of the stream's controller.
fn options(config: &SliceStream, candidate: &str) -> Options {
    Options {
        candidate: candidate.to_string(),
        protocol: config.protocol.clone(),
        policy: config.policy.clone(),
        round: config.round,
        leadership: config.controller_lease,
        connections: config.connection_port,
        ..Options::new(&config.name, config.slices)
    }
}

//! A controller, workers and a client.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use equipoise_dds::Settings;
use equipoise_dds::items::DataItem;
use equipoise_slice::{Config, Order, SliceId};
use equipoise_slice_dds::client::{Answer, Client};
use equipoise_slice_dds::worker::{Doer, Threads, Worker};
use equipoise_slice_dds::{Stream, client, worker};
use equipoise_slices::{Controller, Options, WorkerStatus};
use equipoise_store::{Embedded, EmbeddedOptions};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SLICES: u32 = 20;

/// Each processed item with its worker, in the order of processing.
pub(crate) type Log = Arc<Mutex<Vec<(i64, i32, String)>>>;

/// Lease of workers in tests that wait for a loss. On a busy machine a live worker may seem lost,
/// too.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// With this lease no worker is lost because the machine is slow.
pub(crate) fn protocol() -> Config {
    let (lease, margin) = (Duration::from_secs(15), Duration::from_millis(500));
    Config { lease, margin, recovery: Duration::from_millis(2500), ..Config::default() }
}

pub(crate) struct Cluster {
    pub(crate) stream: Stream,
    protocol: Config,
    folder: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) controller: Controller,
    pub(crate) log: Log,
}

impl Cluster {
    pub(crate) fn new(domain: u32, round: Duration) -> Self {
        Self::with_order(domain, round, Order::Free)
    }

    /// A cluster in which workers are lost after [`SOON`].
    pub(crate) fn where_some_are_lost(domain: u32) -> Self {
        Self::with(domain, |options| options.protocol.lease = SOON)
    }

    pub(crate) fn with_order(domain: u32, round: Duration, order: Order) -> Self {
        Self::with(domain, |options| {
            options.round = round;
            options.protocol.order = order;
        })
    }

    pub(crate) fn with(domain: u32, change: impl FnOnce(&mut Options)) -> Self {
        // DDS must not declare a process dead because the machine is slow.
        let lease = Duration::from_secs(30);
        let dds = Settings { interfaces: vec!["lo".into()], lease, ..Settings::default() };
        let stream = Stream { domain, dds, ..Stream::default() };
        let folder =
            std::env::temp_dir().join(format!("equipoise-slice-{domain}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = EmbeddedOptions::new(folder.join("store"));
        let store = runtime.block_on(Embedded::open(store)).unwrap();
        let usual = Options::new("test", SLICES);
        // On a busy machine a process may have no CPU time for seconds.
        let leadership = Duration::from_secs(30);
        let mut options =
            Options { round: Duration::ZERO, protocol: protocol(), leadership, ..usual };
        change(&mut options);
        let protocol = options.protocol.clone();
        let controller = runtime
            .block_on(async { Controller::start(&stream, Arc::new(store), options).unwrap() });
        Self { stream, protocol, folder, runtime, controller, log: Log::default() }
    }

    pub(crate) fn order(&self) -> Order {
        self.protocol.order
    }

    pub(crate) fn worker(&self, name: &str, work: Duration) -> Worker {
        let (log, me) = (self.log.clone(), name.to_string());
        let process = move |item: &DataItem<'_>| {
            std::thread::sleep(work);
            log.lock().unwrap().push((item.id, item.slice_id, me.clone()));
            item.message.to_vec()
        };
        self.worker_of(name, Threads::new(1, process))
    }

    pub(crate) fn worker_of(&self, name: &str, doer: impl Into<Doer>) -> Worker {
        // A handover ends when its readers have settled. On loopback they settle soon if they have
        // CPU time.
        let settle = Duration::from_secs(1);
        let usual = worker::Options::new(name, SLICES);
        let options = worker::Options { protocol: self.protocol.clone(), settle, ..usual };
        Worker::start(&self.stream, options, doer).unwrap()
    }

    /// Moves half of the slices to each of two workers.
    pub(crate) fn share(&self, one: &str, other: &str) {
        let wanted = |slice: u32| if slice.is_multiple_of(2) { one } else { other };
        self.eventually("each has half of the slices", || {
            let away =
                (0..SLICES).filter(|slice| self.owner(*slice).as_deref() != Some(wanted(*slice)));
            for slice in away.collect::<Vec<_>>() {
                // Refused while the worker is absent or the slice is in a handover.
                let moved = self.controller.move_slices(vec![SliceId(slice)], wanted(slice));
                let _ = self.runtime.block_on(moved);
            }
            std::thread::sleep(Duration::from_millis(50));
            (0..SLICES).all(|slice| self.owner(slice).as_deref() == Some(wanted(slice)))
                && self.all_owned()
        });
    }

    /// Moves all slices to `target`, in one handover per owner, while items are published.
    pub(crate) fn gather(&self, target: &str, load: &mut Load) {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.controller.status();
            let mut away: std::collections::BTreeMap<String, Vec<SliceId>> = Default::default();
            for slice in status.slices.iter().filter(|slice| slice.blocked.is_none()) {
                if let Some(owner) = slice.owner.clone().filter(|owner| owner != target) {
                    away.entry(owner).or_default().push(slice.slice);
                }
            }
            if away.is_empty() && self.all_owned() && self.owner(0).as_deref() == Some(target) {
                return;
            }
            assert!(Instant::now() < end, "{:#?}", self.controller.status().handovers);
            for slices in away.into_values() {
                // The status may be out of date.
                let _ = self.runtime.block_on(self.controller.move_slices(slices, target));
            }
            load.publish_some(5);
            load.read(Duration::from_millis(2));
        }
    }

    pub(crate) fn eventually(&self, what: &str, holds: impl FnMut() -> bool) {
        assert!(equipoise_testkit::eventually(holds), "{what}: {:#?}", self.controller.status());
    }

    pub(crate) fn all_owned(&self) -> bool {
        let status = self.controller.status();
        let owned = status.slices.iter().filter(|slice| slice.owner.is_some()).count();
        owned == SLICES as usize && status.handovers.is_empty()
    }

    /// Status of a worker.
    pub(crate) fn seen(&self, name: &str) -> Option<WorkerStatus> {
        self.controller.status().workers.into_iter().find(|worker| worker.name == name)
    }

    pub(crate) fn owner(&self, slice: u32) -> Option<String> {
        let status = self.controller.status();
        status.slices.get(slice as usize).and_then(|slice| slice.owner.clone())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A client that publishes and reads replies.
pub(crate) struct Load {
    pub(crate) client: Client,
    pub(crate) answers: Vec<Answer>,
    pub(crate) next: i64,
}

impl Load {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        // A late reply because of missing CPU time is no measure for later replies.
        let resend_max = Duration::from_secs(2);
        Self::with(cluster, client::Options { resend_max, ..client::Options::new(7) })
    }

    pub(crate) fn with(cluster: &Cluster, options: client::Options) -> Self {
        let client = Client::join(&cluster.stream, options).unwrap();
        Self { client, answers: Vec::new(), next: 0 }
    }

    pub(crate) fn open_all(&mut self) {
        for slice in 0..SLICES {
            self.client.open(SliceId(slice), PATIENCE).unwrap();
        }
    }

    pub(crate) fn publish(&mut self, count: usize) {
        for _ in 0..count {
            let slice = SliceId(self.next as u32 % SLICES);
            self.client.publish(slice, self.next, &self.next.to_le_bytes()).unwrap();
            self.next += 1;
        }
    }

    /// Publishes during a wait: no more than workers can process in that time on any machine.
    pub(crate) fn publish_some(&mut self, count: usize) {
        if self.client.pending() < 300 {
            self.publish(count);
        }
    }

    pub(crate) fn read(&mut self, patience: Duration) {
        self.client.replies(patience, &mut self.answers).unwrap();
    }

    pub(crate) fn read_all(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.client.pending() > 0 {
            assert!(Instant::now() < end, "{} items have no reply", self.client.pending());
            self.read(Duration::from_millis(50));
        }
    }

    /// Checks that each item has exactly one reply, and that it is the right one.
    pub(crate) fn check(&self) {
        let mut ids: Vec<_> = self.answers.iter().map(|answer| answer.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..self.next).collect::<Vec<_>>());
        for answer in &self.answers {
            assert_eq!(answer.message, answer.id.to_le_bytes());
        }
    }
}

//! Worker processes, and a controller in this one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use equipoise_dds::Settings;
use equipoise_slice::{HandoverId, SliceId};
use equipoise_slice_dds::Stream;
use equipoise_slices::{Controller, HandoverSteps, Options, Status};
use equipoise_store::{Embedded, EmbeddedOptions};

/// The stream of an experiment, on loopback. `DPSLB_DDS` has further configuration of Cyclone DDS.
pub(crate) fn stream(domain: u32, loss_permille: u16) -> Stream {
    let more = std::env::var("DPSLB_DDS").ok();
    let interfaces = vec!["lo".into()];
    let dds = Settings { interfaces, loss_permille, more, ..Settings::default() };
    Stream { domain, dds, ..Stream::default() }
}

/// A domain that this process has not used recently, so that no earlier messages arrive.
pub(crate) fn next_domain() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    60 + NEXT.fetch_add(1, Relaxed) % 40
}

/// Properties of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) slices: u32,
    /// Interval between rounds of balancing. Zero: slices move only on request.
    pub(crate) round: Duration,
    /// CPU time of an item.
    pub(crate) cost: Duration,
    /// Time of an item without CPU.
    pub(crate) sleep: Duration,
    /// Cores of a worker; 0: all.
    pub(crate) share: f64,
    /// Time after which readers count as settled, on loopback.
    pub(crate) settle: Duration,
    pub(crate) loss_permille: u16,
    /// True if workers record the items that they have done.
    pub(crate) logs: bool,
    /// True if a program processes the items, and not the worker's own thread.
    pub(crate) program: bool,
}

impl Shape {
    /// Slices move only on request, and items cost nothing.
    pub(crate) fn new(slices: u32) -> Self {
        Self {
            slices,
            round: Duration::ZERO,
            cost: Duration::ZERO,
            sleep: Duration::ZERO,
            share: 0.0,
            settle: Duration::from_millis(300),
            loss_permille: 0,
            logs: true,
            program: false,
        }
    }
}

pub(crate) struct Cluster {
    pub(crate) stream: Stream,
    pub(crate) shape: Shape,
    folder: PathBuf,
    workers: BTreeMap<String, Child>,
    runtime: tokio::runtime::Runtime,
    controller: Controller,
    status: tokio::sync::watch::Receiver<Status>,
}

impl Cluster {
    /// A cluster without workers.
    pub(crate) fn new(shape: Shape) -> anyhow::Result<Self> {
        let domain = next_domain();
        let stream = stream(domain, shape.loss_permille);
        let folder = std::env::temp_dir()
            .join(format!("equipoise-lab-dpslb-{}-{domain}", std::process::id()));
        std::fs::create_dir_all(&folder).context("no folder for the experiment")?;
        let runtime = tokio::runtime::Runtime::new()?;
        let store = EmbeddedOptions::new(folder.join("store"));
        let store = runtime.block_on(Embedded::open(store))?;
        let options = Options { round: shape.round, ..Options::new("lab", shape.slices) };
        let controller =
            runtime.block_on(async { Controller::start(&stream, Arc::new(store), options) })?;
        let status = controller.watch();
        Ok(Self { stream, shape, folder, workers: BTreeMap::new(), runtime, controller, status })
    }

    /// A cluster with workers that own all slices. Items that new slices may have missed have been
    /// republished.
    pub(crate) fn with_workers(shape: Shape, names: &[&str]) -> anyhow::Result<Self> {
        let mut cluster = Self::new(shape)?;
        for name in names {
            cluster.start_worker(name)?;
        }
        cluster.settled()?;
        let recovery = equipoise_slice::Config::default().recovery;
        std::thread::sleep(recovery + Duration::from_millis(500));
        Ok(cluster)
    }

    pub(crate) fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        let shape = &self.shape;
        command
            .args(["worker", "--name", name])
            .args(["--domain", &self.stream.domain.to_string()])
            .args(["--slices", &shape.slices.to_string()])
            .args(["--cost-us", &shape.cost.as_micros().to_string()])
            .args(["--sleep-us", &shape.sleep.as_micros().to_string()])
            .args(["--share", &shape.share.to_string()])
            .args(["--settle-ms", &shape.settle.as_millis().to_string()])
            .args(["--loss-permille", &shape.loss_permille.to_string()])
            .stdin(Stdio::piped());
        if shape.program {
            command.arg("--program");
        }
        if shape.logs {
            command.arg("--log").arg(self.folder.join(format!("{name}.done")));
        }
        let child = command.spawn().context("a worker does not start")?;
        self.workers.insert(name.to_string(), child);
        Ok(())
    }

    /// The process of each worker, by name.
    pub(crate) fn pids(&self) -> Vec<(String, u32)> {
        self.workers.iter().map(|(name, child)| (name.clone(), child.id())).collect()
    }

    /// `kill -9`.
    pub(crate) fn kill_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let mut child = self.workers.remove(name).context("no such worker")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The slices of a worker.
    pub(crate) fn slices_of(&self, name: &str) -> Vec<SliceId> {
        let status = self.status();
        let owned = status.slices.iter().filter(|slice| slice.owner.as_deref() == Some(name));
        owned.map(|slice| slice.slice).collect()
    }

    pub(crate) fn move_slices(&self, slices: Vec<SliceId>, to: &str) -> anyhow::Result<HandoverId> {
        Ok(self.runtime.block_on(self.controller.move_slices(slices, to))?)
    }

    /// Waits until `holds` is true for the controller's status.
    pub(crate) fn until(
        &self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&Status) -> bool,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        // Without a copy, because one with 1000 slices would cost the client time.
        while !holds(&self.status.borrow()) {
            if begun.elapsed() > patience {
                bail!("not after {patience:?}: {what}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(begun.elapsed())
    }

    /// Waits until every slice has an owner and none moves.
    pub(crate) fn settled(&self) -> anyhow::Result<Duration> {
        let slices = self.shape.slices as usize;
        self.until("every slice has an owner", Duration::from_secs(60), |status| {
            status.slices.iter().filter(|slice| slice.owner.is_some()).count() == slices
                && status.handovers.is_empty()
        })
    }

    /// The steps of sessions after the first `before`. The controller remembers 4096.
    pub(crate) fn steps_after(&self, before: u64) -> Vec<HandoverSteps> {
        let status = self.status();
        let new = (status.handovers_done - before) as usize;
        let steps = &status.handover_steps;
        steps[steps.len().saturating_sub(new)..].to_vec()
    }

    /// Number of items that each worker has recorded as done.
    pub(crate) fn done_by_each(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let noted = |name: &String| -> anyhow::Result<(String, u64)> {
            let log = std::fs::metadata(self.folder.join(format!("{name}.done")))?;
            Ok((name.clone(), log.len() / 8))
        };
        self.workers.keys().map(noted).collect()
    }

    /// Number of times that each item was done, by id.
    pub(crate) fn done(&self) -> anyhow::Result<BTreeMap<i64, u32>> {
        let mut done = BTreeMap::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "done") {
                for id in std::fs::read(path)?.chunks_exact(8) {
                    let id = id.try_into().map(i64::from_le_bytes)?;
                    *done.entry(id).or_default() += 1;
                }
            }
        }
        Ok(done)
    }

    /// Of the published items, the number never done, and the number done more than once.
    pub(crate) fn lost_and_twice(&self, published: i64) -> anyhow::Result<(usize, usize)> {
        let done = self.done()?;
        let lost = (0..published).filter(|id| !done.contains_key(id)).count();
        Ok((lost, done.values().filter(|count| **count > 1).count()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.workers.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

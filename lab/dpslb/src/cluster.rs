//! Worker processes, and a controller in this one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use equipoise_dds::Settings;
use equipoise_slice::{HandoverId, SliceId};
use equipoise_slice_runtime::Stream;
use equipoise_slice_runtime::controller::{Controller, Options, Status};
use equipoise_store::{Embedded, EmbeddedOptions};

/// The stream of an experiment, on loopback.
pub(crate) fn stream(domain: u32, loss_permille: u16) -> Stream {
    let dds = Settings { interfaces: vec!["lo".into()], loss_permille, ..Settings::default() };
    Stream { domain, dds, ..Stream::default() }
}

pub(crate) struct Cluster {
    pub(crate) stream: Stream,
    pub(crate) slices: u32,
    folder: PathBuf,
    work_us: u64,
    workers: BTreeMap<String, Child>,
    runtime: tokio::runtime::Runtime,
    controller: Controller,
}

impl Cluster {
    /// With no worker yet; `round`: zero for no balancing.
    pub(crate) fn new(
        domain: u32,
        slices: u32,
        work_us: u64,
        round: Duration,
        loss_permille: u16,
    ) -> anyhow::Result<Self> {
        let stream = stream(domain, loss_permille);
        let folder = std::env::temp_dir()
            .join(format!("equipoise-lab-dpslb-{}-{domain}", std::process::id()));
        std::fs::create_dir_all(&folder).context("no folder for the experiment")?;
        let runtime = tokio::runtime::Runtime::new()?;
        let store = EmbeddedOptions::new(folder.join("store"));
        let store = runtime.block_on(Embedded::open(store))?;
        let options = Options { round, ..Options::new("lab", slices) };
        let controller =
            runtime.block_on(async { Controller::start(&stream, Arc::new(store), options) })?;
        let workers = BTreeMap::new();
        Ok(Self { stream, slices, folder, work_us, workers, runtime, controller })
    }

    pub(crate) fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["worker", "--name", name])
            .args(["--domain", &self.stream.domain.to_string()])
            .args(["--slices", &self.slices.to_string()])
            .args(["--work-us", &self.work_us.to_string()])
            .args(["--loss-permille", &self.stream.dds.loss_permille.to_string()])
            .arg("--log")
            .arg(self.log(name))
            .stdin(Stdio::piped());
        let child = command.spawn().context("a worker does not start")?;
        self.workers.insert(name.to_string(), child);
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.done"))
    }

    /// `kill -9`.
    pub(crate) fn kill_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let mut child = self.workers.remove(name).context("no such worker")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        self.controller.status()
    }

    pub(crate) fn move_slices(&self, slices: Vec<SliceId>, to: &str) -> anyhow::Result<HandoverId> {
        Ok(self.runtime.block_on(self.controller.move_slices(slices, to))?)
    }

    /// Waits for the controller to see it so.
    pub(crate) fn until(
        &self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&Status) -> bool,
    ) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        while !holds(&self.status()) {
            if begun.elapsed() > patience {
                bail!("not after {patience:?}: {what}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(begun.elapsed())
    }

    /// Every slice has an owner, and nothing moves.
    pub(crate) fn settled(&self) -> anyhow::Result<Duration> {
        let slices = self.slices as usize;
        self.until("every slice has an owner", Duration::from_secs(60), |status| {
            status.slices.iter().filter(|slice| slice.owner.is_some()).count() == slices
                && status.handovers.is_empty()
        })
    }

    /// How often each item was done, by id.
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

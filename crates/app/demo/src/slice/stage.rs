//! The processes of the demo: a controller, and workers with their programs.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use equipoise_api::client::{Client, Endpoint};
use equipoise_api::routes::slice::STREAMS;
use equipoise_api::wire::slice::StreamStatus;
use equipoise_dds::Settings;
use equipoise_slice_dds::Stream;

use super::{PATIENCE, SLICES, STREAM};
use crate::files::Folder;
use crate::program;
use equipoise_basics::die_with_parent;

const DDS_LEASE: Duration = Duration::from_secs(1);
/// Silence after which a worker is lost and its images are processed again. It is long, because the
/// machine runs all workers and is busy.
const LEASE: Duration = Duration::from_secs(5);

pub(super) struct Stage {
    folder: Folder,
    domain: u32,
    image_ms: u64,
    controller: Child,
    workers: BTreeMap<String, Child>,
    client: Client,
}

impl Stage {
    /// Creates a stage with a running controller.
    pub(super) fn build(domain: u32, image_ms: u64) -> anyhow::Result<Self> {
        let folder = Folder::create().context("cannot create a folder for the demo's files")?;
        let (socket, state) = (folder.socket(), folder.path("state"));
        folder.write_config(&format!(
            "[instance]\nname = \"demo\"\nthreads = 1\n\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n\n\
             [log]\nlevel = \"warn\"\n\n[controller]\nstate = {state:?}\n\n\
             [[slice]]\nname = \"{STREAM}\"\nslices = {SLICES}\ndomain = {domain}\ninterfaces = \"lo\"\nlease = \"{}s\"\n\n\
             [slice.workers]\nlease = \"{}s\"\n",
            DDS_LEASE.as_secs(),
            LEASE.as_secs(),
        ))?;
        let config = folder.config();
        let controller = spawn(equipoise().arg("run").arg(&config)).context("no controller")?;
        let client = Client::new(Endpoint::Unix(socket));
        let workers = BTreeMap::new();
        Ok(Self { folder, domain, image_ms, controller, workers, client })
    }

    /// A text with the processes, and commands to try.
    pub(super) fn described(&self, workers: u16) -> String {
        let (config, socket) = (self.folder.config(), self.folder.socket());
        format!(
            "equipoise run {}\n           equipoise slice worker --config {0} -- ... ({workers} of them)\n\
             Try while it runs:\n  {program} slice status --watch --api {socket}\n  \
             {program} slice drain worker-1 --api {socket}",
            config.display(),
            program = program(),
            socket = socket.display(),
        )
    }

    pub(super) fn start_worker(&mut self, name: &str) -> anyhow::Result<()> {
        let (config, log) = (self.folder.config(), self.folder.path(&format!("{name}.done")));
        let mut command = equipoise();
        command.args(["slice", "worker", "--name", name, "--config"]).arg(config);
        command.args(["--", "/proc/self/exe", "sample-worker", "--image-ms"]);
        command.arg(self.image_ms.to_string()).arg("--log").arg(log);
        // The worker logs every slice that comes and goes.
        command.stderr(Stdio::null());
        let child = spawn(&mut command).with_context(|| format!("cannot start worker {name}"))?;
        self.workers.insert(name.to_string(), child);
        Ok(())
    }

    pub(super) fn stream(&self) -> Stream {
        let dds =
            Settings { interfaces: vec!["lo".into()], lease: DDS_LEASE, ..Settings::default() };
        Stream { domain: self.domain, dds, ..Stream::default() }
    }

    pub(super) async fn status(&self) -> anyhow::Result<StreamStatus> {
        let streams = self.client.ask(STREAMS, &()).await?.streams;
        streams.into_iter().next().context("the controller has no stream")
    }

    /// Waits until every slice has an owner.
    pub(super) async fn until_owned(&mut self, patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        loop {
            // The controller may still be starting.
            let status = self.status().await.ok();
            let owned = |it: &StreamStatus| {
                it.leading && it.slices.iter().all(|slice| slice.owner.is_some())
            };
            if status.as_ref().is_some_and(owned) {
                return Ok(());
            }
            if let Some(ended) = self.controller.try_wait()? {
                bail!("the controller ended: {ended}");
            }
            if Instant::now() > end {
                bail!(
                    "slices have no owners after {patience:?}; check whether DDS domain {} is in use",
                    self.domain
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Number of images that each worker has processed, in the order of their names.
    pub(super) fn done_by_each(&self) -> BTreeMap<String, u64> {
        let noted = |name: &String| {
            let log = std::fs::metadata(self.folder.path(&format!("{name}.done")));
            (name.clone(), log.map_or(0, |log| log.len() / 8))
        };
        self.workers.keys().map(noted).collect()
    }

    /// How often each image was processed, by id.
    pub(super) fn done(&self) -> anyhow::Result<BTreeMap<i64, u32>> {
        let mut done = BTreeMap::new();
        for name in self.workers.keys() {
            let ids = std::fs::read(self.folder.path(&format!("{name}.done"))).unwrap_or_default();
            for id in ids.chunks_exact(8) {
                *done.entry(i64::from_le_bytes(id.try_into()?)).or_default() += 1;
            }
        }
        Ok(done)
    }

    /// Stops the workers, the last of which keeps the slices, and then the controller.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        let mut workers = std::mem::take(&mut self.workers);
        // No other worker could take the slices of the last one.
        if let Some((_, mut last)) = workers.pop_last() {
            workers.values().try_for_each(terminate)?;
            for (name, child) in &mut workers {
                ended(child).with_context(|| format!("{name} did not hand its slices over"))?;
            }
            last.kill()?;
            last.wait()?;
        }
        terminate(&self.controller)?;
        ended(&mut self.controller).context("the controller")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in self.workers.values_mut().chain([&mut self.controller]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that runs this program.
fn equipoise() -> Command {
    // Not `current_exe`: it is a file name, and another build may have replaced the file.
    let mut command = Command::new("/proc/self/exe");
    // Ctrl-C reaches the terminal's whole process group, but these processes end with this one.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn spawn(command: &mut Command) -> std::io::Result<Child> {
    die_with_parent(command);
    command.spawn()
}

fn terminate(child: &Child) -> anyhow::Result<()> {
    let pid = rustix::process::Pid::from_child(child);
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::TERM)?)
}

/// Waits until the process has ended with success.
fn ended(child: &mut Child) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        match child.try_wait()? {
            Some(ended) if ended.success() => return Ok(()),
            Some(ended) => bail!("ended with {ended}"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    bail!("has not ended within {PATIENCE:?}")
}

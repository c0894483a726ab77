//! Starts, asks and kills processes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use equipoise_slice::Order;
use equipoise_testkit::{Folder, spawn_bound};

use crate::role::{SLICES, Times};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process with a role.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Process {
    /// Starts this program with `command`, and waits until it is ready.
    fn start(mut command: Command, role: &[(&str, String)]) -> Self {
        command
            .args(["--exact", "role", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Shows panics.
            .stderr(Stdio::inherit());
        for (name, value) in role {
            command.env(format!("SLICE_ROLE_{name}"), value);
        }
        let mut child = spawn_bound(command).unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix("> ")
                    && sender.send(said.to_string()).is_err()
                {
                    return;
                }
            }
        });
        let process = Self { child, input, lines };
        assert_eq!(process.lines.recv_timeout(PATIENCE).as_deref(), Ok("ready"), "{role:?}");
        process
    }

    /// Sends a line and returns the answer, or `None` if the process ends.
    pub(crate) fn ask(&mut self, line: &str) -> Option<String> {
        writeln!(self.input, "{line}").ok()?;
        // Longer than the process itself waits.
        match self.lines.recv_timeout(2 * PATIENCE) {
            Ok(said) => Some(said),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no answer to {line:?}"),
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status of a stream from a controller.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) leading: bool,
    pub(crate) open: String,
    pub(crate) owners: Vec<String>,
    pub(crate) pins: Vec<String>,
}

impl Seen {
    /// The owner of a slice; `-` if it has none, or if the controller does not lead.
    pub(crate) fn owner(&self, slice: usize) -> &str {
        self.owners.get(slice).map_or("-", String::as_str)
    }

    /// Whether one of these workers owns each slice.
    pub(crate) fn all_with(&self, workers: &[&str]) -> bool {
        self.owners.len() == SLICES as usize
            && self.owners.iter().all(|owner| workers.contains(&owner.as_str()))
    }

    fn of(line: &str) -> Self {
        let mut parts = line.split('|');
        let leading = parts.next() == Some("true");
        let open = parts.next().unwrap().to_string();
        let slices = parts.next().unwrap().split_whitespace();
        let (owners, pins) = slices
            .map(|slice| slice.split_once('/').unwrap())
            .map(|(owner, pin)| (owner.to_string(), pin.to_string()))
            .unzip();
        Self { leading, open, owners, pins }
    }
}

/// Where processes run, and their settings.
pub(crate) trait Place {
    /// The command of this program, to run there.
    fn command(&self, process: &str) -> Command;

    /// Further environment variables.
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// On the loopback of this machine.
pub(crate) struct Here {
    pub(crate) loss_permille: u16,
    pub(crate) etcd: Option<String>,
    /// The order of items.
    pub(crate) order: Order,
    /// Processing time of an item, in milliseconds.
    pub(crate) work_ms: u64,
    /// Further settings, by name.
    pub(crate) more: &'static [(&'static str, &'static str)],
}

/// The usual settings.
pub(crate) const HERE: Here =
    Here { loss_permille: 0, etcd: None, order: Order::Free, work_ms: 0, more: &[] };

impl Place for Here {
    fn command(&self, _: &str) -> Command {
        Command::new(std::env::current_exe().unwrap())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let loss = ("LOSS_PERMILLE", self.loss_permille.to_string());
        let order = ("ORDER", format!("{:?}", self.order));
        let work = ("WORK_MS", self.work_ms.to_string());
        [loss, order, work]
            .into_iter()
            .chain(self.etcd.clone().map(|endpoint| ("ETCD", endpoint)))
            .chain(self.more.iter().map(|(name, value)| (*name, value.to_string())))
            .collect()
    }
}

/// Workers and controllers of a test.
pub(crate) struct Stage<P> {
    domain: u32,
    times: Times,
    place: P,
    folder: Folder,
    processes: BTreeMap<String, Process>,
    /// File in which processes record their messages.
    trace: Option<PathBuf>,
}

impl<P: Place> Stage<P> {
    /// Starts a controller, `controller`, and these workers, and waits until they own all slices.
    pub(crate) fn new(domain: u32, times: Times, place: P, workers: &[&str]) -> Self {
        let mut stage = Self::bare(domain, times, place);
        stage.start("controller", "controller");
        for worker in workers {
            stage.start("worker", worker);
        }
        stage.settled("controller", workers);
        stage
    }

    /// The same, with a trace of all messages.
    pub(crate) fn traced(domain: u32, times: Times, place: P, workers: &[&str]) -> Self {
        let mut stage = Self::bare(domain, times, place);
        stage.trace = Some(stage.folder.root().join("trace"));
        stage.start("controller", "controller");
        workers.iter().for_each(|worker| stage.start("worker", worker));
        stage.settled("controller", workers);
        stage
    }

    /// Lines of time, process, direction and message.
    pub(crate) fn trace(&self) -> String {
        let read = self.trace.as_ref().map(std::fs::read_to_string);
        read.map_or_else(String::new, Result::unwrap)
    }

    /// The folder of the processes' files.
    pub(crate) fn root(&self) -> &Path {
        self.folder.root()
    }

    /// Starts no process.
    pub(crate) fn bare(domain: u32, times: Times, place: P) -> Self {
        let folder = Folder::new(&format!("slice-{domain}"));
        Self { domain, times, place, folder, processes: BTreeMap::new(), trace: None }
    }

    pub(crate) fn start(&mut self, role: &str, name: &str) {
        self.start_as(name, role, name);
    }

    /// Starts a process with the role and name, which the test calls `process`.
    pub(crate) fn start_as(&mut self, process: &str, role: &str, name: &str) {
        self.start_with(process, role, name, &[]);
    }

    /// The same with further environment variables.
    pub(crate) fn start_with(
        &mut self,
        process: &str,
        role: &str,
        name: &str,
        more: &[(&'static str, String)],
    ) {
        let role = [
            ("IS", role.to_string()),
            ("NAME", name.to_string()),
            ("DOMAIN", self.domain.to_string()),
            ("FOLDER", self.folder.root().to_string_lossy().into_owned()),
        ];
        let more = self.place.settings().into_iter().chain(more.iter().cloned());
        let more = self.times.variables().into_iter().chain(more);
        let trace = self.trace.iter().map(|path| ("TRACE", path.to_string_lossy().into_owned()));
        let all: Vec<_> = role.into_iter().chain(more).chain(trace).collect();
        let started = Process::start(self.place.command(name), &all);
        self.processes.insert(process.to_string(), started);
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(&mut self, process: &str) {
        assert!(self.processes.remove(process).is_some(), "there is no {process}");
    }

    pub(crate) fn of(&mut self, name: &str) -> &mut Process {
        self.processes.get_mut(name).unwrap()
    }

    pub(crate) fn seen_by(&mut self, controller: &str) -> Seen {
        self.of(controller).ask("status").map(|line| Seen::of(&line)).unwrap_or_default()
    }

    pub(crate) fn until(&mut self, by: &str, what: &str, holds: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen_by(by);
            if holds(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "{what}: {seen:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until these workers own all slices; handovers between them may be open.
    pub(crate) fn until_owned(&mut self, by: &str, workers: &[&str]) -> Seen {
        self.until(by, "slices have owners", |seen| seen.leading && seen.all_with(workers))
    }

    /// Waits until these workers own all slices, and no handover is open.
    pub(crate) fn settled(&mut self, by: &str, workers: &[&str]) -> Seen {
        self.until(by, "slices have owners", |seen| {
            seen.leading && seen.open.is_empty() && seen.all_with(workers)
        })
    }

    /// Waits until the controller has accepted the worker, after the loss of an earlier worker of
    /// that name.
    pub(crate) fn until_heard(&mut self, worker: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.of(worker).ask("fenced");
            match said.as_deref() {
                Some("false") => return,
                Some("true") if Instant::now() < end => {}
                said => {
                    let said = said.map(str::to_string);
                    let is = self.of(worker).ask("how is it");
                    let seen = self.seen_by("controller");
                    panic!("{worker} is not let in: it says {said:?}, {is:?}; {seen:?}");
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Repeats a request to a controller until it succeeds: on a busy machine the controller may
    /// lose its leadership for a moment.
    pub(crate) fn until_done(&mut self, by: &str, asked: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.of(by).ask(asked);
            if said.as_deref() == Some("done") {
                return;
            }
            assert!(Instant::now() < end, "{asked}: {said:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves a slice to a worker, unless the worker owns it.
    pub(crate) fn until_moved(&mut self, by: &str, slice: usize, to: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen_by(by);
            if seen.open.is_empty() && seen.owner(slice) == to {
                return;
            }
            assert!(Instant::now() < end, "{slice} does not move to {to}: {seen:?}");
            // The slice may be moving already.
            self.of(by).ask(&format!("move {slice} {to}"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Slice and id of each item that a worker began, in the order over all workers.
    pub(crate) fn begun(&self) -> Vec<(i32, i64)> {
        let begun = std::fs::read(self.folder.root().join("begun")).unwrap();
        let entry = |entry: &[u8]| {
            let (slice, id) = entry.split_at(4);
            let slice = i32::from_le_bytes(slice.try_into().unwrap());
            (slice, i64::from_le_bytes(id.try_into().unwrap()))
        };
        begun.chunks_exact(12).map(entry).collect()
    }

    /// Number of times that each item was processed, by id.
    pub(crate) fn done(&self) -> BTreeMap<i64, u32> {
        let mut done = BTreeMap::new();
        for entry in std::fs::read_dir(self.folder.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "done") {
                ids(&path).for_each(|id| *done.entry(id).or_default() += 1);
            }
        }
        done
    }

    /// Ids of the items that a worker processed, in order.
    pub(crate) fn done_by(&self, worker: &str) -> Vec<i64> {
        ids(&self.folder.root().join(format!("{worker}.done"))).collect()
    }
}

fn ids(done: &Path) -> impl Iterator<Item = i64> {
    let bytes = std::fs::read(done).unwrap();
    let ids = bytes.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().unwrap()));
    ids.collect::<Vec<_>>().into_iter()
}

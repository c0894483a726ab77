//! A controller, workers and a client on one machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_dds::Settings;
use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{Answer, Client, Options, PublishError};
use equipoise_slice_dds::{Stream, client};
use serde_json::Value;

use crate::common::{Folder, Process, equipoise, kill, stderr, stdout, text};

/// Longest wait for processes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SLICES: u32 = 12;

/// Lease of a participant of DDS. It is short, so that a dead participant does not block others for
/// long.
const DDS_LEASE: Duration = Duration::from_secs(1);
/// Lease of a worker. It is long, so that a slow machine does not make a worker lost.
pub(crate) const LEASE: &str = "15s";
/// Lease of a worker in tests that wait for the loss of one. On a slow machine a live worker may be
/// lost, and items may be done twice.
pub(crate) const SHORT_LEASE: &str = "2s";

/// Whether Python is installed, in which the workers' program is written.
pub(crate) fn python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no python3");
    }
    found
}

/// Python with the `cyclonedds` package, which is installed if necessary; `None` without Python.
pub(crate) fn cyclonedds() -> Option<PathBuf> {
    if !python() {
        return None;
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new("make").args(["-s", "cyclonedds-python"]).current_dir(&root).output();
    let made = made.expect("make runs");
    assert!(made.status.success(), "make cyclonedds-python: {}", stderr(&made));
    Some(root.join("target/cyclonedds-python/bin/python"))
}

pub(crate) struct Bed {
    pub(crate) folder: Folder,
    pub(crate) domain: u32,
    pub(crate) controller: Option<Process>,
    pub(crate) workers: BTreeMap<String, Process>,
    /// Lease of a worker.
    lease: &'static str,
    /// Lease of a participant of DDS.
    dds_lease: Duration,
    pub(crate) socket: PathBuf,
    file: PathBuf,
}

impl Bed {
    /// Starts a controller. `more` is added to the `[[slice]]` table.
    pub(crate) fn new(test: &str, domain: u32, more: &str) -> Bed {
        let mut bed = Bed::unstarted(test, domain);
        bed.write(more);
        bed.start();
        bed
    }

    /// Starts a controller for tests in which workers are lost.
    pub(crate) fn with_losses(test: &str, domain: u32, more: &str) -> Bed {
        let mut bed = Bed { lease: SHORT_LEASE, ..Bed::unstarted(test, domain) };
        bed.write(more);
        bed.start();
        bed
    }

    /// Starts a controller for tests in which no process is killed and workers leave. With a short
    /// DDS lease, a worker could wrongly treat a slow client as dead; the client would not get its
    /// reply, and the item would be done again.
    pub(crate) fn without_deaths(test: &str, domain: u32, more: &str) -> Bed {
        let dds_lease = Duration::from_secs(20);
        let mut bed = Bed { dds_lease, ..Bed::unstarted(test, domain) };
        bed.write(more);
        bed.start();
        bed
    }

    /// Starts a controller with workers `one` and `two`, which each have slices, all with default
    /// options. `others` are tables besides the stream's.
    pub(crate) fn at_the_defaults(test: &str, domain: u32, others: &str) -> Bed {
        Bed::at_the_defaults_with(test, domain, others, 1)
    }

    /// The same, with programs that need `pause_ms` for each item.
    pub(crate) fn at_the_defaults_with(
        test: &str,
        domain: u32,
        others: &str,
        pause_ms: u32,
    ) -> Bed {
        let mut bed = Bed::unstarted(test, domain);
        bed.write_tables(&format!(
            "{others}[[slice]]\nname = \"items\"\nslices = {SLICES}\ndomain = {domain}\ninterfaces = \"lo\"\n"
        ));
        bed.start();
        bed.worker("one", pause_ms);
        bed.worker("two", pause_ms);
        bed.until("each has slices", |status| {
            let of = |name| slices_of(status, name);
            of("one") > 0 && of("two") > 0 && of("one") + of("two") == u64::from(SLICES)
        });
        bed
    }

    /// Starts a controller for tests in which workers are lost and no lease expires.
    pub(crate) fn without_leases(test: &str, domain: u32) -> Bed {
        let dds_lease = Duration::from_secs(600);
        let mut bed = Bed { lease: "10m", dds_lease, ..Bed::unstarted(test, domain) };
        bed.write("[slice.balancing]\nshare-max = 0");
        bed.start();
        bed
    }

    pub(crate) fn unstarted(test: &str, domain: u32) -> Bed {
        let folder = Folder::new(test);
        let (socket, file) = (folder.path("api.sock"), folder.path("equipoise.toml"));
        let (controller, workers) = Default::default();
        let (lease, dds_lease) = (LEASE, DDS_LEASE);
        Bed { folder, domain, controller, workers, lease, dds_lease, socket, file }
    }

    /// Writes the configuration file, with one stream.
    pub(crate) fn write(&self, more: &str) {
        self.write_tables(&self.table("items", more));
    }

    pub(crate) fn write_tables(&self, tables: &str) {
        let (socket, state) = (&self.socket, self.folder.path("state"));
        self.folder.write(
            "equipoise.toml",
            &format!(
                "[instance]\nname = \"here\"\nthreads = 1\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n\
                 [controller]\nstate = {state:?}\n{tables}"
            ),
        );
    }

    /// A stream's table. The stream's name is also the name of its topics.
    pub(crate) fn table(&self, name: &str, more: &str) -> String {
        let usual = table(self.domain, self.lease, name, more);
        usual.replace("lease = \"1s\"", &format!("lease = \"{}s\"", self.dds_lease.as_secs()))
    }

    pub(crate) fn start(&mut self) {
        let process = Process::start(&["run", text(&self.file)]);
        process.wait_for_text(" ready ");
        self.controller = Some(process);
    }

    /// Kills the controller with SIGKILL.
    pub(crate) fn kill_controller(&mut self) {
        let mut process = self.controller.take().unwrap();
        kill(process.pid(), libc::SIGKILL);
        process.ended();
    }

    /// Starts a worker whose program takes `pause_ms` for each item.
    pub(crate) fn worker(&mut self, name: &str, pause_ms: u32) {
        let (program, log) = (worker_program(), self.folder.path(&format!("{name}.done")));
        let pause = pause_ms.to_string();
        let program = ["python3", text(&program), text(&log), &pause];
        self.worker_of(name, &program);
    }

    pub(crate) fn worker_of(&mut self, name: &str, program: &[&str]) {
        self.worker_with(name, &[], program);
    }

    /// Starts a worker with additional options.
    pub(crate) fn worker_with(&mut self, name: &str, options: &[&str], program: &[&str]) {
        let config = self.file.clone();
        let args = ["slice", "worker", "--config", text(&config), "--name", name];
        let process = Process::start(&[&args[..], options, &["--"], program].concat());
        process.wait_for_text("worker started");
        self.workers.insert(name.to_string(), process);
    }

    pub(crate) fn kill_worker(&mut self, name: &str) {
        let mut process = self.workers.remove(name).unwrap();
        kill(process.pid(), libc::SIGKILL);
        process.ended();
    }

    /// Runs a command over the unix socket. Returns whether it succeeded, and its output.
    pub(crate) fn command(&self, args: &[&str]) -> (bool, String) {
        let args = [&["slice"], args, &["--api", text(&self.socket)]].concat();
        let output = equipoise(&args);
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    pub(crate) fn said(&self, args: &[&str]) -> String {
        let (worked, said) = self.command(args);
        assert!(worked, "{args:?}: {said}");
        said
    }

    /// The events of these types.
    pub(crate) fn events(&self, kinds: &str) -> String {
        stdout(&equipoise(&["events", "--type", kinds, "--api", text(&self.socket)]))
    }

    /// The stream as the API shows it.
    pub(crate) fn status(&self) -> Value {
        let said = self.said(&["status", "--json"]);
        let streams: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        streams["streams"][0].clone()
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            let all = self.controller.iter().chain(self.workers.values());
            let printed: Vec<_> = all.map(Process::printed).collect();
            assert!(Instant::now() < end, "{what}: {status:#}\n{}", printed.join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the plan has one of these reasons. It uses measurements, which arrive several
    /// times a second.
    pub(crate) fn until_plan(&self, reasons: &[&str]) -> Value {
        let reason = |plan: &Value| reasons.iter().any(|reason| plan["reason"] == *reason);
        self.until_planned(&reasons.join(" or "), reason)
    }

    /// Waits until the plan fulfils a condition.
    pub(crate) fn until_planned(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let plan: Value = serde_json::from_str(&self.said(&["plan", "--json"])).unwrap();
            if holds(&plan) {
                return plan;
            }
            assert!(Instant::now() < end, "{what}: {plan:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until every slice has an owner among `workers` and nothing moves.
    pub(crate) fn until_owned_by(&self, workers: &[&str]) -> Value {
        self.until(&format!("all slices are with {workers:?}"), |status| {
            let among = |slice: &Value| workers.iter().any(|name| slice["owner"] == *name);
            status["leading"] == true
                && status["handovers"].as_array().unwrap().is_empty()
                && status["slices"].as_array().unwrap().iter().all(among)
                && workers.iter().all(|name| slices_of(status, name) > 0)
        })
    }

    /// Starts workers `one` and `two`, and gives each half of the slices.
    pub(crate) fn two_workers(&mut self, pause_ms: u32) {
        self.worker("one", pause_ms);
        self.until("the first has all", |status| slices_of(status, "one") == u64::from(SLICES));
        self.worker("two", pause_ms);
        self.until("the second is there", |status| worker(status, "two")["state"] == "active");
        // Slices without load may be moving by balancing, and moving slices cannot be moved.
        let end = Instant::now() + PATIENCE;
        while !self.command(&["move", "0-5", "two"]).0 {
            assert!(Instant::now() < end, "{:#}", self.status());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.until_owned_by(&["one", "two"]);
    }

    /// How often each item was done.
    pub(crate) fn done(&self) -> BTreeMap<i64, u32> {
        done_in(&self.folder)
    }

    pub(crate) fn stream(&self) -> Stream {
        let mut stream = stream(self.domain);
        stream.dds.lease = self.dds_lease;
        stream
    }
}

/// A stream's table. The stream's name is also the name of its topics.
pub(crate) fn table(domain: u32, lease: &str, name: &str, more: &str) -> String {
    format!(
        "[[slice]]\nname = \"{name}\"\nslices = {SLICES}\ndomain = {domain}\nitems = \"{name}\"\ncontrol = \"{name}/control\"\n\
         interfaces = \"lo\"\nlease = \"{}s\"\n{more}\n[slice.workers]\nlease = \"{lease}\"\nmargin = \"500ms\"\nrecovery = \"5s\"\n",
        DDS_LEASE.as_secs()
    )
}

/// The stream `items` of a domain.
pub(crate) fn stream(domain: u32) -> Stream {
    let dds = Settings { interfaces: vec!["lo".into()], lease: DDS_LEASE, ..Settings::default() };
    let (items, control) = ("items".to_string(), "items/control".to_string());
    Stream { domain, dds, items, control, ..Stream::default() }
}

pub(crate) fn worker_program() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/slice/worker.py")
}

pub(crate) fn worker<'s>(status: &'s Value, name: &str) -> &'s Value {
    let mut workers = status["workers"].as_array().unwrap().iter();
    workers.find(|worker| worker["name"] == name).unwrap_or(&Value::Null)
}

pub(crate) fn slices_of(status: &Value, name: &str) -> u64 {
    worker(status, name)["slices"].as_u64().unwrap_or(0)
}

/// A client on its own thread, which publishes until [`Load::finish`].
pub(crate) struct Load {
    thread: JoinHandle<(i64, Vec<Answer>, Client)>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicI64>,
}

/// The items that a [`Load`] published.
pub(crate) struct Outcome {
    pub(crate) published: i64,
    pub(crate) resent: u64,
}

impl Load {
    /// Starts a client that publishes `per_second` items. Workers must be present.
    pub(crate) fn start(bed: &Bed, per_second: f64) -> Load {
        Load::over(&bed.stream(), per_second)
    }

    pub(crate) fn over(stream: &Stream, per_second: f64) -> Load {
        // A reply that was late because a process was paused must not delay later repetitions for
        // long.
        let resend_max = Duration::from_secs(2);
        let options = Options { window: 1000, resend_max, ..client::Options::new(7) };
        let mut client = Client::join(stream, options).unwrap();
        for slice in 0..SLICES {
            client.open(SliceId(slice), PATIENCE).unwrap();
        }
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (until, count) = (stop.clone(), answered.clone());
        let thread = std::thread::spawn(move || {
            let (begun, mut next, mut answers) = (Instant::now(), 0_i64, Vec::new());
            let mut finishing: Option<Instant> = None;
            loop {
                if until.load(Relaxed) {
                    let end = *finishing.get_or_insert_with(|| Instant::now() + PATIENCE);
                    if client.pending() == 0 || Instant::now() > end {
                        return (next, answers, client);
                    }
                } else {
                    let due = (begun.elapsed().as_secs_f64() * per_second) as i64;
                    while next < due {
                        let slice = SliceId(next as u32 % SLICES);
                        match client.publish(slice, next, &next.to_le_bytes()) {
                            Ok(()) => next += 1,
                            Err(PublishError::WindowFull(_)) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
                client.replies(Duration::from_millis(5), &mut answers).unwrap();
                count.store(answers.len() as i64, Relaxed);
            }
        });
        Load { thread, stop, answered }
    }

    /// Waits until `more` further items have been answered.
    pub(crate) fn wait_for(&self, more: i64) {
        let (goal, end) = (self.answered.load(Relaxed) + more, Instant::now() + PATIENCE);
        while self.answered.load(Relaxed) < goal {
            assert!(Instant::now() < end, "{} of {goal}", self.answered.load(Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops publishing, and checks that every item has exactly one reply, with the item's message.
    pub(crate) fn finish(self) -> Outcome {
        self.stop.store(true, Relaxed);
        let (published, answers, client) = self.thread.join().unwrap();
        assert_eq!(client.pending(), 0, "items without a reply");
        let mut ids: Vec<_> = answers.iter().map(|answer| answer.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..published).collect::<Vec<_>>());
        for answer in &answers {
            assert_eq!(answer.message, answer.id.to_le_bytes());
        }
        Outcome { published, resent: client.resent() }
    }
}

fn done_in(folder: &Folder) -> BTreeMap<i64, u32> {
    let mut done = BTreeMap::new();
    for entry in std::fs::read_dir(folder.path(".")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "done") {
            for id in std::fs::read(path).unwrap().chunks_exact(8) {
                *done.entry(i64::from_le_bytes(id.try_into().unwrap())).or_default() += 1;
            }
        }
    }
    done
}

/// Checks that every item was done exactly once.
pub(crate) fn each_done_once(bed: &Bed, outcome: &Outcome) {
    done_once(&bed.folder, outcome);
}

/// Checks that every item was done exactly once, by the logs of workers in a folder.
pub(crate) fn done_once(folder: &Folder, outcome: &Outcome) {
    let done = done_in(folder);
    let missing: Vec<_> = (0..outcome.published).filter(|id| !done.contains_key(id)).collect();
    assert!(missing.is_empty(), "never done: {missing:?}");
    let twice: Vec<_> = done.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "done twice: {twice:?} (resent: {})", outcome.resent);
}

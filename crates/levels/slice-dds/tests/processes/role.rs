//! The roles of a process, such as worker or controller. The environment determines the role. Then
//! the process answers each line of its standard input with a line that begins with `> `.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_dds::items::{DataItem, REPLY, Reply};
use equipoise_dds::{Domain, Multicast, Participant, Qos, Settings};
use equipoise_slice::{CheckpointConfig, Config, Order, SliceId};
use equipoise_slice_dds::worker::{self, Program, Threads, Worker};
use equipoise_slice_dds::{Passing, Stream, watch_messages};
use equipoise_slices::{self as controller, Controller};
use equipoise_store::{Embedded, EmbeddedOptions, Etcd, EtcdOptions, Store};

use crate::load::Load;

pub(crate) const SLICES: u32 = 12;

/// Times after which others replace a silent process.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// The lease of workers.
    pub(crate) lease: Duration,
    /// The lease of the leading controller.
    pub(crate) leadership: Duration,
}

impl Times {
    /// For tests that wait for a loss. On a busy machine a live worker may seem lost, too.
    pub(crate) const SHORT: Self =
        Self { lease: Duration::from_millis(1500), leadership: Duration::from_secs(1) };

    /// With these no worker is lost, although a busy machine may give it no CPU time for seconds.
    pub(crate) const LONG: Self = Self { lease: Duration::from_secs(10), ..Self::SHORT };

    pub(crate) fn variables(self) -> [(&'static str, String); 2] {
        let ms = |time: Duration| time.as_millis().to_string();
        [("LEASE_MS", ms(self.lease)), ("LEADERSHIP_MS", ms(self.leadership))]
    }
}

/// Whether the process uses the default times and limits.
fn has_defaults() -> bool {
    variable("DEFAULTS").is_some()
}

pub(crate) fn protocol(lease: Duration) -> Config {
    let usual = Config::default();
    let order = match variable("ORDER").as_deref() {
        Some("Strict") => Order::Strict,
        Some("Stateful") => Order::Stateful,
        _ => Order::Free,
    };
    if has_defaults() {
        return Config { order, ..usual };
    }
    Config {
        order,
        lease,
        margin: Duration::from_millis(300),
        recovery: Duration::from_millis(
            variable("RECOVERY_MS").map_or(600, |ms| ms.parse().unwrap()),
        ),
        checkpoint: variable("CHECKPOINT_MS").map(|_| CheckpointConfig {
            every: time("CHECKPOINT_MS"),
            folder: variable("CHECKPOINTS").is_some(),
            ..CheckpointConfig::default()
        }),
        remember: variable("REMEMBER_MS").map_or(usual.remember, |_| time("REMEMBER_MS")),
        ..usual
    }
}

fn time(name: &str) -> Duration {
    Duration::from_millis(variable(name).unwrap().parse().unwrap())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SLICE_ROLE_{name}")).ok()
}

pub(crate) fn stream(domain: u32, interface: &str, loss_permille: u16) -> Stream {
    let lease = Duration::from_secs(1);
    let dds = Settings {
        interfaces: vec![interface.into()],
        loss_permille,
        lease,
        ..Settings::default()
    };
    Stream { domain, dds, ..Stream::default() }
}

fn stream_of_role() -> Stream {
    let domain = variable("DOMAIN").unwrap().parse().unwrap();
    let loss = variable("LOSS_PERMILLE").map_or(0, |permille| permille.parse().unwrap());
    let mut stream = stream(domain, &variable("INTERFACE").unwrap_or("lo".into()), loss);
    if let Some(seconds) = variable("LEASE_S") {
        stream.dds.lease = Duration::from_secs(seconds.parse().unwrap());
    }
    match variable("PEERS") {
        Some(peers) => by_peers(stream, &peers.split(' ').collect::<Vec<_>>()),
        None => stream,
    }
}

/// The same stream without multicast: discovery asks these hosts.
pub(crate) fn by_peers(mut stream: Stream, peers: &[&str]) -> Stream {
    stream.dds.multicast = Multicast::Off;
    stream.dds.peers = peers.iter().map(ToString::to_string).collect();
    stream
}

/// The message at which this process ends itself, as `kill -9` does.
static ARMED: Mutex<Option<(String, String)>> = Mutex::new(None);

fn arm(at: &str) -> String {
    let (passing, message) = at.split_once(' ').unwrap();
    *ARMED.lock().unwrap() = Some((passing.into(), message.into()));
    "armed".into()
}

/// The file in which this process records its messages, each with the time in nanoseconds since
/// 1970.
static TRACE: OnceLock<(String, Mutex<File>)> = OnceLock::new();

fn trace(path: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    let _ = TRACE.set((variable("NAME").unwrap_or_default(), Mutex::new(file)));
}

fn passes(passing: Passing, message: &'static str) {
    if let Some((name, file)) = TRACE.get() {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let line = format!("{at} {name} {passing:?} {message}\n");
        file.lock().unwrap().write_all(line.as_bytes()).unwrap();
    }
    let armed = ARMED.lock().unwrap();
    let here = |(at, of): &(String, String)| *at == format!("{passing:?}") && of == message;
    if armed.as_ref().is_some_and(here) {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

pub(crate) fn run() {
    if let Some(path) = variable("TRACE") {
        trace(&path);
    }
    watch_messages(passes);
    match variable("IS").as_deref() {
        Some("worker") => run_worker(),
        Some("controller") => run_controller(),
        Some("client") => run_client(),
        Some("reader") => run_reader(),
        other => panic!("no role: {other:?}"),
    }
}

/// Answers each line until the input ends.
fn answer_lines(mut answer: impl FnMut(&str, &str) -> String) {
    println!("\n> ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let said = if word == "arm" { arm(rest) } else { answer(word, rest) };
        println!("> {said}");
        std::io::stdout().flush().unwrap();
    }
}

fn run_worker() {
    let (name, folder) = (variable("NAME").unwrap(), PathBuf::from(variable("FOLDER").unwrap()));
    let append = |file: PathBuf| {
        Mutex::new(std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap())
    };
    let log = append(folder.join(format!("{name}.done")));
    // All workers append to it, so it shows the order over all workers.
    let begun = append(folder.join("begun"));
    let work = variable("WORK_MS").map_or(0, |ms| ms.parse().unwrap());
    let process = move |item: &DataItem<'_>| {
        let of = [&item.slice_id.to_le_bytes()[..], &item.id.to_le_bytes()].concat();
        begun.lock().unwrap().write_all(&of).unwrap();
        std::thread::sleep(Duration::from_millis(work));
        // One write of few bytes is atomic.
        log.lock().unwrap().write_all(&item.id.to_le_bytes()).unwrap();
        item.message.to_vec()
    };
    let usual = worker::Options::new(&name, SLICES);
    let settle = if has_defaults() { usual.settle } else { Duration::from_secs(1) };
    let protocol = protocol(time("LEASE_MS"));
    let checkpoint_folder = variable("CHECKPOINTS").map(|name| folder.join(name).join("stream"));
    let options = worker::Options { protocol, settle, checkpoint_folder, ..usual };
    let stream = stream_of_role();
    let worker = match variable("PROGRAM") {
        Some(program) => {
            let python = move || {
                let mut command = Command::new("python3");
                command.arg(&program);
                command
            };
            Worker::start(&stream, options, Program::start(python).unwrap()).unwrap()
        }
        None => Worker::start(&stream, options, Threads::new(1, process)).unwrap(),
    };
    let (mut worker, mut ended) = (Some(worker), String::new());
    answer_lines(|word, _| {
        if let Some(over) = worker.take_if(|worker| !worker.is_running()) {
            ended = over.stop().map_or_else(|error| error.to_string(), |()| "ended".into());
        }
        match (word, &worker) {
            ("process", _) => std::process::id().to_string(),
            (_, None) => ended.clone(),
            ("fenced", Some(worker)) => worker.is_fenced().to_string(),
            ("late", Some(worker)) => worker.out_of_order().to_string(),
            ("exposed", Some(worker)) => worker.checkpoints().exposed.to_string(),
            ("unstored", Some(worker)) => worker.checkpoints().unstored.unwrap_or(0).to_string(),
            (_, Some(worker)) => worker.slices().to_string(),
        }
    });
}

/// A client that publishes steadily.
fn run_client() {
    let mut load = Some(Load::start(stream_of_role(), std::thread::spawn));
    answer_lines(|word, _| match word {
        "finish" => load.take().unwrap().finish().published.to_string(),
        "published" => load.as_ref().unwrap().published().to_string(),
        _ => {
            load.as_ref().unwrap().published_more(50);
            "published".into()
        }
    });
}

/// A program that reads replies, knows no slices and publishes nothing. Answers with the number of
/// items above an id of which it has a reply.
fn run_reader() {
    let stream = stream_of_role();
    let domain = Domain::open(stream.domain, &stream.dds).unwrap();
    let participant = Participant::new(domain, &[]).unwrap();
    let replies = participant.topic(&stream.replies, &REPLY).unwrap();
    let reader = replies.reader(&Qos::default()).unwrap();
    let (mut samples, mut ids) = (Vec::new(), BTreeSet::new());
    answer_lines(|_, above| {
        reader.take(&mut samples).unwrap();
        ids.extend(samples.drain(..).map(|sample| Reply::decode(sample.cdr()).unwrap().id));
        let above: i64 = above.parse().unwrap();
        ids.range(above..).count().to_string()
    });
}

async fn store() -> Arc<dyn Store> {
    match variable("ETCD") {
        Some(endpoint) => {
            let options = EtcdOptions::new([endpoint]);
            Arc::new(Etcd::connect(options).await.unwrap())
        }
        None => {
            let path = PathBuf::from(variable("FOLDER").unwrap()).join("store");
            Arc::new(Embedded::open(EmbeddedOptions::new(path)).await.unwrap())
        }
    }
}

fn run_controller() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let usual = controller::Options::new("processes", SLICES);
    let options = controller::Options {
        candidate: variable("NAME").unwrap(),
        protocol: protocol(time("LEASE_MS")),
        round: if has_defaults() { usual.round } else { Duration::ZERO },
        leadership: time("LEADERSHIP_MS"),
        ..usual
    };
    let stream = stream_of_role();
    let controller =
        runtime.block_on(async { Controller::start(&stream, store().await, options) }).unwrap();
    answer_lines(|word, rest| {
        let mut words = rest.split(' ');
        let mut next = || words.next().unwrap_or_default().to_string();
        let done = match word {
            "move" => {
                let slices = next().split(',').map(|s| SliceId(s.parse().unwrap())).collect();
                runtime.block_on(controller.move_slices(slices, &next())).map(|_| ())
            }
            "pin" => {
                let slice = SliceId(next().parse().unwrap());
                runtime.block_on(controller.pin(slice, Some(&next())))
            }
            "refused" => return twins(&controller.status()).to_string(),
            _ => return status(&controller.status()),
        };
        done.map_or_else(|error| error.to_string(), |()| "done".to_string())
    });
}

/// Number of workers with a name under which another process was refused recently.
fn twins(status: &controller::Status) -> usize {
    let has_twin = |problem: &String| problem.contains("another process has the same name");
    status.workers.iter().filter(|worker| worker.problem.as_ref().is_some_and(has_twin)).count()
}

/// Whether the controller leads, the open handovers, and each slice's owner and pin.
fn status(status: &controller::Status) -> String {
    let slices = status.slices.iter().map(|slice| {
        let owner = slice.owner.as_deref().unwrap_or("-");
        format!("{owner}/{}", slice.pinned.as_deref().unwrap_or("-"))
    });
    let slices: Vec<_> = slices.collect();
    let states: Vec<_> = status.handovers.iter().map(|open| open.state).collect();
    format!("{}|{}|{}", status.leading, states.join(";"), slices.join(" "))
}

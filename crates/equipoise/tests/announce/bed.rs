//! Two balancers and a client behind a router, and a load of new connections.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_testkit::HttpBackend;
use equipoise_testkit::netns::{Host, unavailable};

use crate::common::{EQUIPOISE, Folder, Process, text};

/// Whether these programs and namespaces can be had; otherwise says what is missing.
pub(crate) fn can_run(programs: &[&str]) -> bool {
    for program in programs {
        if !Path::new(program).exists() {
            println!("skipped: {program} is missing");
            return false;
        }
    }
    let reason = unavailable();
    if let Some(reason) = &reason {
        println!("skipped: {reason}");
    }
    reason.is_none()
}

/// A machine with equipoise in front of one backend.
pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) folder: Folder,
    pub(crate) file: PathBuf,
    pub(crate) equipoise: Option<Process>,
    _backend: HttpBackend,
}

impl Machine {
    /// A machine whose backend answers with the machine's name. `listen` is that of its front door.
    pub(crate) fn new(test: &str, name: &'static str, listen: &str) -> Machine {
        let host = Host::new(name).unwrap();
        host.ip("link set lo up").unwrap();
        let backend = host.enter(|| HttpBackend::named(name));
        let folder = Folder::new(&format!("{test}-{name}"));
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[api]\nsocket = '{}'\n[instance]\nname = '{name}'\nthreads = 1\n\
                 [shutdown]\ndelay = '5s'\ngrace = '1s'\n\
                 [[pool]]\nname = 'web'\nbackends = [{{ name = 'b', address = '{}' }}]\n\
                 [[session]]\nname = 'door'\nlisten = '{listen}:80'\nprotocol = 'http'\npool = 'web'\n",
                folder.path("api.sock").display(),
                backend.address(),
            ),
        );
        Machine { host, folder, file, equipoise: None, _backend: backend }
    }

    pub(crate) fn start(&mut self) {
        let process = self.of(&["run", text(&self.file)]);
        process.wait_for_text(" ready ");
        self.equipoise = Some(process);
    }

    /// Starts a command of equipoise on this machine.
    pub(crate) fn of(&self, args: &[&str]) -> Process {
        self.program(EQUIPOISE, args)
    }

    /// Starts a program on this machine.
    pub(crate) fn program(&self, program: &str, args: &[&str]) -> Process {
        let mut command = self.host.command(program);
        command.args(args);
        Process::of(command)
    }

    /// Runs a command of equipoise about this machine's process. Returns whether it succeeded, and
    /// its output.
    pub(crate) fn command(&self, args: &[&str]) -> (bool, String) {
        let socket = self.folder.path("api.sock");
        let mut process = self.of(&[args, &["--api", text(&socket)]].concat());
        let succeeded = process.ended().success();
        (succeeded, process.printed())
    }
}

/// Fetches from `vip` over a new connection. Returns the name of the machine that answered.
fn fetch(vip: IpAddr) -> Result<String, String> {
    let address = SocketAddr::new(vip, 80);
    let fetched = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: vip\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let answer = fetched().map_err(|error| error.to_string())?;
    match answer.starts_with("HTTP/1.1 200 ").then(|| answer.rsplit_once("\r\n\r\n")).flatten() {
        Some((_, name)) => Ok(name.to_owned()),
        None => Err(answer.lines().next().unwrap_or("an empty answer").to_owned()),
    }
}

/// Answers and failures so far, each with its time.
type Record = Vec<(Instant, Result<String, String>)>;

/// A client that fetches over one new connection after the other.
pub(crate) struct Load {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    record: Arc<std::sync::Mutex<Record>>,
}

impl Load {
    pub(crate) fn start(client: &Host, vip: &str) -> Load {
        let vip = vip.parse().unwrap();
        let (stop, record) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, records) = (Arc::clone(&stop), Arc::clone(&record));
        let thread = client.spawn_thread(move || {
            while !stopped.load(Relaxed) {
                let begun = Instant::now();
                let fetched = fetch(vip);
                let records: &std::sync::Mutex<Record> = &records;
                records.lock().unwrap().push((begun, fetched));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Load { thread, stop, record }
    }

    /// Waits until the last `count` fetches were answered by exactly these machines.
    pub(crate) fn until_served_by(&self, names: &[&str]) {
        const LAST: usize = 40;
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let record = self.record.lock().unwrap();
            let from = record.len().saturating_sub(LAST);
            let last: Vec<_> = record[from..].iter().map(|(_, fetched)| fetched.clone()).collect();
            drop(record);
            let mut by: Vec<_> = last.iter().map(|it| it.as_deref().unwrap_or("none")).collect();
            by.sort_unstable();
            by.dedup();
            if last.len() == LAST && by == names {
                return;
            }
            assert!(Instant::now() < end, "waited in vain for {names:?}: {last:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Fetches that failed so far, and the time from the first of them to the next answer.
    pub(crate) fn failures(&self) -> (Vec<String>, Duration) {
        let record = self.record.lock().unwrap();
        let failures = record.iter().filter_map(|(_, it)| it.clone().err()).collect();
        let first = record.iter().position(|(_, it)| it.is_err());
        let gap = first.and_then(|first| {
            let next = record[first..].iter().rposition(|(_, it)| it.is_err())? + first + 1;
            Some(record.get(next)?.0 - record[first].0)
        });
        (failures, gap.unwrap_or_default())
    }

    /// Forgets what was recorded.
    pub(crate) fn forget(&self) {
        self.record.lock().unwrap().clear();
    }

    pub(crate) fn finish(self) {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap();
    }
}

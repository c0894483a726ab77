//! Runs the real binary as a child process, with load.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses a part")]

#[path = "../../../app/config/tests/common/mod.rs"]
pub mod config;

pub mod certificates;
pub mod dns;
pub mod peer;
pub mod s_client;
pub mod scripts;
pub mod servers;
pub mod successor;
pub mod terminal;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use equipoise_testkit::Folder;
use equipoise_testkit::{Client, PATIENCE, Response, eventually};

/// The binary under test.
pub const EQUIPOISE: &str = env!("CARGO_BIN_EXE_equipoise");

/// Runs a command of the binary to its end.
pub fn equipoise(args: &[&str]) -> Output {
    Command::new(EQUIPOISE).args(args).output().expect("the binary runs")
}

/// The standard output of a command.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output of a command in a terminal with `columns` columns, without colours.
pub fn in_terminal(columns: u16, command: &[&str]) -> String {
    let (ours, theirs) = open_terminal(columns, 24);
    let mut process = Command::new(command[0]);
    process.args(&command[1..]).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(theirs);
    let mut child = process.spawn().expect("the command runs");
    // Closes the terminal on this side, so that reading ends when the command does.
    drop(process);
    let mut shown = Vec::new();
    // The end of a terminal shows as the error EIO.
    let _ = { ours }.read_to_end(&mut shown);
    assert!(child.wait().expect("it is our child").success(), "{command:?}");
    String::from_utf8(shown).expect("it is UTF-8").replace("\r\n", "\n")
}

/// Opens a pseudo terminal: our side, and that of a program.
pub fn open_terminal(columns: u16, rows: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: openpty writes two descriptors and reads one size; the other pointers may be null.
    let opened = unsafe {
        let none = std::ptr::null_mut();
        libc::openpty(&raw mut ours, &raw mut theirs, none, std::ptr::null(), &raw const size)
    };
    assert_eq!(opened, 0, "there are terminals: {}", std::io::Error::last_os_error());
    for end in [ours, theirs] {
        // Otherwise a process of another test would keep the terminal open.
        // SAFETY: fcntl sets a flag of a descriptor that openpty has just made.
        assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    }
    // SAFETY: openpty has created both descriptors, and no other code knows them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// The standard error of a command.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Everything that a process has printed so far, on both outputs.
type Printed = Arc<(Mutex<String>, Condvar)>;

/// A running process, which is killed when this is dropped.
pub struct Process {
    child: Child,
    printed: Printed,
    followers: [JoinHandle<()>; 2],
}

/// Time in which the output of an ended process is read, unless a process that it started still has
/// its outputs open.
const READ: Duration = Duration::from_secs(5);

impl Process {
    pub fn start(args: &[&str]) -> Process {
        let mut command = Command::new(EQUIPOISE);
        command.args(args);
        Process::of(command)
    }

    pub fn of(mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let printed = Printed::default();
        let stdout = follow(child.stdout.take().expect("it is piped"), &printed);
        let stderr = follow(child.stderr.take().expect("it is piped"), &printed);
        Process { child, printed, followers: [stdout, stderr] }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `found` finds something in the output.
    pub fn wait_for<T>(&self, what: &str, found: impl Fn(&str) -> Option<T>) -> T {
        let (text, changed) = &*self.printed;
        let end = Instant::now() + PATIENCE;
        let mut text = text.lock().expect("no reader panics");
        loop {
            if let Some(found) = found(&text) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}; printed so far:\n{text}");
            text = changed.wait_timeout(text, left).expect("no reader panics").0;
        }
    }

    /// Waits until `text` is printed.
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |printed| printed.contains(text).then_some(()));
    }

    pub fn printed(&self) -> String {
        self.printed.0.lock().expect("no reader panics").clone()
    }

    pub fn signal(&self, signal: libc::c_int) {
        kill(self.pid(), signal);
    }

    /// Waits until the process ends and its output is complete.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(|| {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        assert!(ended, "it does not end; it printed:\n{}", self.printed());
        let end = Instant::now() + READ;
        while Instant::now() < end && !self.followers.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
        status.expect("it has ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(output: impl Read + Send + 'static, printed: &Printed) -> JoinHandle<()> {
    let printed = Arc::clone(printed);
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|read| read > 0) {
            printed.0.lock().expect("no reader panics").push_str(&line);
            printed.1.notify_all();
            line.clear();
        }
    })
}

/// Sends a signal to a process that a test has started.
pub fn kill(pid: u32, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(pid).expect("process ids are small");
    // SAFETY: kill takes two numbers and touches no memory.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "process {pid} is there");
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the tests' paths are UTF-8")
}

/// Sends `GET path` on a new connection.
pub fn get(address: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Client::exchange(address, request).expect("it answers")
}

/// Sends a POST without a body.
pub fn post(address: SocketAddr, path: &str) -> Response {
    let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    Client::exchange(address, request).expect("it answers")
}

/// Asks the process at this unix socket to reload. Returns the status and the whole answer.
pub fn reload(socket: &Path) -> (u16, String) {
    post_unix(socket, "/v1/reload", "")
}

/// Sends a GET over a unix socket. Returns the whole answer.
pub fn get_unix(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the API listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    answer
}

/// Sends a POST of JSON over a unix socket. Returns the status and the whole answer.
pub fn post_unix(socket: &Path, path: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("the API listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("PATIENCE is not zero");
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("the API reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the API answers");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("it answers in HTTP"), answer)
}

/// Clients that send requests without pause, each on a persistent connection.
pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<(usize, Vec<String>)>>,
    answered: Arc<Mutex<usize>>,
}

impl Load {
    pub fn start(address: SocketAddr, clients: usize) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let one = || {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            thread::spawn(move || ask_until(address, &stop, &answered))
        };
        Load { clients: (0..clients).map(|_| one()).collect(), stop, answered }
    }

    /// Waits until `more` further requests have been answered.
    pub fn wait_for(&self, more: usize) {
        let answered = || *self.answered.lock().expect("no client panics");
        let goal = answered() + more;
        assert!(eventually(|| answered() >= goal), "the load stands still");
    }

    /// The number of requests that were answered with 200, and the outcomes of the others.
    pub fn finish(self) -> (usize, Vec<String>) {
        self.stop.store(true, Relaxed);
        let (mut good, mut bad) = (0, Vec::new());
        for client in self.clients {
            let (g, b) = client.join().expect("no client panics");
            good += g;
            bad.extend(b);
        }
        (good, bad)
    }
}

fn ask_until(address: SocketAddr, stop: &AtomicBool, all: &Mutex<usize>) -> (usize, Vec<String>) {
    let (mut good, mut bad) = (0, Vec::new());
    let mut client = Client::connect(address);
    while !stop.load(Relaxed) {
        match client.ask("GET /load HTTP/1.1\r\nHost: localhost\r\n\r\n") {
            Ok(response) if response.status() == 200 => {
                good += 1;
                *all.lock().expect("no client panics") += 1;
            }
            other => {
                bad.push(format!("{:?}", other.map(|response| response.head)));
                client = Client::connect(address);
            }
        }
    }
    (good, bad)
}

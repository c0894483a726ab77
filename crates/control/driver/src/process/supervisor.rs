//! One thread for each process: it starts the process, waits for its end, and starts it again.
//!
//! With `PR_SET_PDEATHSIG` the kernel kills a child when the *thread* that started it ends, which
//! need not be the end of the whole process. Here that thread waits for the child, so it ends only
//! with equipoise. No backend therefore survives equipoise, however it ends. Processes that a
//! backend starts are in its process group; while equipoise runs, they are killed with the backend.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::{mpsc, oneshot, watch};

use super::account::Account;
use super::limits::Group;
use super::log::{LastOutput, RotatedLog, copy};
use super::ports::Taken;
use super::restarts::Restarts;
use super::{ProcessError, Tail};
use crate::Backoff;
use crate::driver::{Added, Event};

/// Interval between two attempts to connect to a starting process.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Timeout of a connection on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Stack size. The threads only wait.
const STACK_BYTES: usize = 256 << 10;

/// A process to run.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) argv: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) inherit_environment: bool,
    pub(super) folder: Option<PathBuf>,
    pub(super) account: Option<Account>,
    pub(super) group: Option<Group>,
    pub(super) log: Option<RotatedLog>,
    pub(super) ready_timeout: Duration,
    pub(super) restart: Backoff,
    pub(super) well_after: Duration,
    pub(super) loop_after: u32,
    pub(super) events: mpsc::Sender<Event>,
    /// The port at which the process listens. It is free again when the job ends.
    pub(super) port: Taken,
}

/// A process that is restarted until it is terminated.
pub(super) struct Supervised {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_unwanted: bool,
    /// Set only until the process is reaped, so that no signal reaches another process that got its
    /// id.
    running: Option<Pid>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits, and returns early when the process becomes unwanted. Returns whether it is.
    fn is_unwanted_after(&self, wait: Duration) -> bool {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, wait, |state| !state.is_unwanted);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_unwanted
    }
}

impl Supervised {
    /// Starts the thread of a process. `first` receives the outcome of the first start; after a
    /// failure the thread ends.
    pub(super) fn start(
        job: Job,
        first: oneshot::Sender<Result<Added, ProcessError>>,
    ) -> Result<Arc<Supervised>, ProcessError> {
        let shared = Arc::new(Shared::default());
        let (ended_to, ended) = watch::channel(false);
        let (what, supervised) = (format!("a thread for {}", job.name), shared.clone());
        thread::Builder::new()
            .name("process".to_string())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                supervise(job, &supervised, first);
                // This fails only if the receiver is dropped.
                let _ = ended_to.send(true);
            })
            .map_err(|source| ProcessError::Prepare { what, source })?;
        Ok(Arc::new(Supervised { shared, ended }))
    }

    /// Sends SIGTERM to the process group. The process is not started again.
    pub(super) fn terminate(&self) {
        let mut state = self.shared.state();
        state.is_unwanted = true;
        self.shared.changed.notify_all();
        signal(state.running, Signal::TERM);
    }

    /// Sends SIGKILL to the process group.
    pub(super) fn kill(&self) {
        signal(self.shared.state().running, Signal::KILL);
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.shared.state().running.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    pub(super) async fn ended_within(&self, timeout: Duration) -> bool {
        let mut ended = self.ended.clone();
        let over = ended.wait_for(|ended| *ended);
        // The sender is dropped only when the thread ends.
        tokio::time::timeout(timeout, over).await.is_ok()
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(pid) = group {
        // An error means that the process has just ended.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// How a run ended.
struct Run {
    status: io::Result<ExitStatus>,
    was_ready: bool,
    is_late: bool,
}

fn supervise(mut job: Job, shared: &Shared, first: oneshot::Sender<Result<Added, ProcessError>>) {
    let log = Arc::new(Mutex::new(job.log.take()));
    let last = LastOutput::default();
    let mut first = Some(first);
    let mut restarts = Restarts::new(job.restart, job.well_after, job.loop_after);
    loop {
        let began = Instant::now();
        let outcome = start(&job, shared, &log, &last).map(|pid| {
            run(&job, shared, pid, || match first.take() {
                Some(first) => {
                    let added = Added { address: job.port.address(), id: pid.to_string() };
                    // An error means that the caller has given up.
                    first.send(Ok(added)).is_ok()
                }
                None => {
                    let (name, id) = (job.name.clone(), pid.to_string());
                    let _ = job.events.blocking_send(Event::Up { name, id });
                    true
                }
            })
        });
        let (error, is_over) = failure(&job, outcome, &last);
        if let Some(first) = first.take() {
            let _ = first.send(Err(if shared.state().is_unwanted {
                ProcessError::Stopped
            } else {
                error
            }));
            return;
        }
        if is_over || shared.state().is_unwanted {
            return;
        }
        let next = restarts.ended(began.elapsed());
        let (name, reason) = (job.name.clone(), equipoise_basics::with_causes(&error));
        let (again_in, is_loop) = (next.wait, next.is_loop);
        let _ = job.events.blocking_send(Event::Down { name, reason, again_in, is_loop });
        if shared.is_unwanted_after(next.wait) {
            return;
        }
    }
}

/// The reason why a process does not run, and whether to give it up.
fn failure(
    job: &Job,
    outcome: Result<Run, ProcessError>,
    last: &LastOutput,
) -> (ProcessError, bool) {
    let address = job.port.address();
    // Another thread reads the last output of the process. This gives it a moment.
    thread::sleep(Duration::from_millis(5));
    let tail = || Tail(last.take());
    match outcome {
        Err(error) => (error, false),
        Ok(Run { status: Err(source), .. }) => {
            let what = format!("to wait for {}", job.name);
            (ProcessError::Prepare { what, source }, true)
        }
        Ok(Run { is_late: true, .. }) => {
            let after = job.ready_timeout;
            (ProcessError::NotReady { address, after, tail: tail() }, false)
        }
        Ok(Run { status: Ok(status), was_ready: true, .. }) => {
            (ProcessError::Died { status, tail: tail() }, false)
        }
        Ok(Run { status: Ok(status), .. }) => {
            (ProcessError::Ended { status, address, tail: tail() }, false)
        }
    }
}

/// Starts the process, unless it is unwanted already.
fn start(
    job: &Job,
    shared: &Shared,
    log: &Arc<Mutex<Option<RotatedLog>>>,
    last: &LastOutput,
) -> Result<Pid, ProcessError> {
    let prepare =
        |what: &'static str| move |source| ProcessError::Prepare { what: what.to_string(), source };
    let (output, input) = io::pipe().map_err(prepare("a pipe for its output"))?;
    let mut command = command(job);
    command.stdout(input.try_clone().map_err(prepare("a pipe for its output"))?).stderr(input);
    let mut state = shared.state();
    if state.is_unwanted {
        return Err(ProcessError::Stopped);
    }
    let child = command
        .spawn()
        .map_err(|source| ProcessError::Start { program: job.argv[0].clone(), source })?;
    // `command` holds the pipe's write ends. While they are open, the output does not end.
    drop(command);
    let pid = Pid::from_child(&child);
    state.running = Some(pid);
    drop(state);
    let (log, last) = (log.clone(), last.clone());
    let copier = thread::Builder::new().name("process-log".to_string()).stack_size(STACK_BYTES);
    // If the thread does not start, the pipe closes here and the output is lost.
    let _ = copier.spawn(move || copy(output, &log, &last));
    Ok(pid)
}

fn command(job: &Job) -> Command {
    let mut command = Command::new(&job.argv[0]);
    command.args(&job.argv[1..]).stdin(Stdio::null()).process_group(0);
    if !job.inherit_environment {
        command.env_clear();
        for name in ["PATH", "LANG", "TZ"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
    }
    command.envs(&job.environment);
    if let Some(folder) = &job.folder {
        command.current_dir(folder);
    }
    if let Some(account) = job.account {
        command.uid(account.uid).gid(account.gid);
    }
    let groups: Vec<i32> =
        job.group.iter().flat_map(Group::files).map(AsRawFd::as_raw_fd).collect();
    let parent = rustix::process::getpid();
    let in_child = move || {
        // SAFETY: write, prctl and getppid are async-signal-safe. The descriptors live as long as
        // the job, which this thread holds.
        unsafe {
            for group in &groups {
                // "0" stands for the process that writes it.
                if libc::write(*group, b"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent.as_raw_nonzero().get() {
                // The parent ended before prctl took effect.
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only the calls above, and allocates only for an error that ends the
    // child.
    unsafe { command.pre_exec(in_child) };
    command
}

/// Waits until the process accepts connections, calls `ready`, and waits for the end of the
/// process. Kills the process if it is not ready in time or `ready` returns false.
fn run(job: &Job, shared: &Shared, pid: Pid, ready: impl FnOnce() -> bool) -> Run {
    let began = Instant::now();
    let (mut was_ready, mut is_late) = (false, false);
    while !has_ended(pid) && !shared.state().is_unwanted {
        if TcpStream::connect_timeout(&job.port.address(), CONNECT_TIMEOUT).is_ok() {
            was_ready = true;
            break;
        }
        if began.elapsed() >= job.ready_timeout {
            is_late = true;
            break;
        }
        if shared.is_unwanted_after(LOOK_EVERY) {
            break;
        }
    }
    if is_late || was_ready && !ready() {
        signal(Some(pid), Signal::KILL);
    }
    Run { status: reap(shared, pid), was_ready, is_late }
}

fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Waits for the end of the process, kills the rest of its group and then reaps it. Until it is
/// reaped, no other process gets its id, nor the group's.
fn reap(shared: &Shared, pid: Pid) -> io::Result<ExitStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let ended = loop {
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            ended => break ended,
        }
    };
    let mut state = shared.state();
    signal(Some(pid), Signal::KILL);
    state.running = None;
    let reaped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    drop(state);
    ended?;
    let status = reaped?.map_or(0, |(_, status)| status.as_raw());
    Ok(ExitStatus::from_raw(status))
}

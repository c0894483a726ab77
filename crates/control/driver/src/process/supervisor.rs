//! One thread for each process: it starts it, waits for its end, and starts it again.
//!
//! The kernel kills a child with `PR_SET_PDEATHSIG` when the *thread* that made it ends, not the process. Here that thread
//! waits for the child, so it ends with the process alone, and however this process ends, its backends do not
//! survive it. What a backend itself starts is in its process group, and is killed with it while we live.

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

/// Between two looks at whether a process listens.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A connection that is not made on this machine in so long is none.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// The threads only wait.
const STACK_BYTES: usize = 256 << 10;

/// What is to run.
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
    /// Where it listens. Given back when the job is over.
    pub(super) port: Taken,
}

/// A process that is kept running, until it is told to go.
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
    /// Set only while the process is not reaped, so that no other's id is ever signalled.
    running: Option<Pid>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, but not when it is to go. Whether it is.
    fn is_unwanted_after(&self, wait: Duration) -> bool {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, wait, |state| !state.is_unwanted);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_unwanted
    }
}

impl Supervised {
    /// Starts it. `first` hears whether it became ready; if not, it is over.
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
                // Whoever waited is gone if this fails.
                let _ = ended_to.send(true);
            })
            .map_err(|source| ProcessError::Prepare { what, source })?;
        Ok(Arc::new(Supervised { shared, ended }))
    }

    /// SIGTERM to its process group; it is not started again.
    pub(super) fn terminate(&self) {
        let mut state = self.shared.state();
        state.is_unwanted = true;
        self.shared.changed.notify_all();
        signal(state.running, Signal::TERM);
    }

    /// SIGKILL to its process group.
    pub(super) fn kill(&self) {
        signal(self.shared.state().running, Signal::KILL);
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.shared.state().running.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    pub(super) async fn ended_within(&self, timeout: Duration) -> bool {
        let mut ended = self.ended.clone();
        let over = ended.wait_for(|ended| *ended);
        // The sender is gone only with the thread.
        tokio::time::timeout(timeout, over).await.is_ok()
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(pid) = group {
        // It may have gone a moment ago: then there is nothing to signal.
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
                    // Nobody waits: it was given up.
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
        let (name, reason) = (job.name.clone(), crate::driver::chain(&error));
        let (again_in, is_loop) = (next.wait, next.is_loop);
        let _ = job.events.blocking_send(Event::Down { name, reason, again_in, is_loop });
        if shared.is_unwanted_after(next.wait) {
            return;
        }
    }
}

/// Why a process does not run, and whether it was given up.
fn failure(
    job: &Job,
    outcome: Result<Run, ProcessError>,
    last: &LastOutput,
) -> (ProcessError, bool) {
    let address = job.port.address();
    // What it wrote before it ended is read within a moment, by another thread.
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

/// Starts the process, unless it is to go already.
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
    // The pipe's other ends are in `command`: with them open, the output would never end.
    drop(command);
    let pid = Pid::from_child(&child);
    state.running = Some(pid);
    drop(state);
    let (log, last) = (log.clone(), last.clone());
    let copier = thread::Builder::new().name("process-log".to_string()).stack_size(STACK_BYTES);
    // Without the copier the pipe is closed here, and the process goes on unheard.
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
        // SAFETY: write, prctl and getppid are async-signal-safe; the descriptors live as long as the job, which this
        // thread holds.
        unsafe {
            for group in &groups {
                // "0" is the process that writes it.
                if libc::write(*group, b"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent.as_raw_nonzero().get() {
                // We died before the line above could tell the kernel.
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only the calls above, and allocates only for an error that ends the child.
    unsafe { command.pre_exec(in_child) };
    command
}

/// Waits until the process listens, tells `ready`, and waits for its end. It is killed if it does not become ready in time or
/// `ready` says that nobody wants it.
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

/// Waits for the end, without reaping: until then the process id, and with it the group's, stays ours. What is left of the
/// group is killed, and then it is reaped.
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

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

/// Resident memory of this process, bytes.
pub fn rss_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    pages.expect("statm has the resident pages second") * page_bytes
}

/// CPU time that `work` takes of this thread: a busy machine does not lengthen it as it does wall
/// time.
pub fn cpu_time(work: impl FnOnce()) -> Duration {
    let spent = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec that lives across the call.
        let read = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(read, 0, "clock_gettime: {}", io::Error::last_os_error());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = spent();
    work();
    spent() - before
}

/// Open file descriptors of this process.
pub fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// The limit of open files, soft and hard.
pub fn fd_limit() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that lives across the call.
    let outcome = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(outcome, 0, "getrlimit: {}", io::Error::last_os_error());
    (limit.rlim_cur, limit.rlim_max)
}

/// Sets the soft limit of open files, and the hard one if that is lower.
///
/// # Errors
/// What the operating system says: a hard limit takes privilege to raise.
pub fn set_fd_limit(soft: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: fd_limit().1.max(soft) };
    // SAFETY: `limit` is a valid rlimit that lives across the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Raises the soft limit of open files to `want` or as near as is allowed; returns the new limit.
pub fn raise_fd_limit(want: u64) -> u64 {
    let (soft, hard) = fd_limit();
    if soft < want && set_fd_limit(want).is_err() {
        set_fd_limit(hard).expect("the soft limit may be raised to the hard one");
    }
    fd_limit().0
}

type Ask = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The kernel's death signal comes when the *thread* that started the child ends, and test threads
/// end early. This one lives as long as the process.
static SPAWNER: LazyLock<mpsc::Sender<Ask>> = LazyLock::new(|| {
    let (sender, asked) = mpsc::channel::<Ask>();
    std::thread::spawn(move || {
        for (mut command, answer) in asked {
            // SAFETY: one prctl between fork and exec, which is async-signal-safe.
            unsafe {
                command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
            let _ = answer.send(command.spawn());
        }
    });
    sender
});

/// Starts a process that dies with this one, however this one ends.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_bound(command: Command) -> std::io::Result<Child> {
    let (answer, answered) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the thread lives");
    answered.recv().expect("the thread answers")
}

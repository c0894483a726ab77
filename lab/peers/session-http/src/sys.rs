//! The system calls that std does not wrap.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C and SIGTERM make [`check_interrupt`] fail, so that every child is ended on
/// the way out.
pub(crate) fn catch_interrupts() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid (empty mask, no flags); the handler only stores to
        // an atomic, which is async-signal-safe.
        let done = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = note_interrupt as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        result_of(done)?;
    }
    Ok(())
}

/// # Errors
/// After an interrupt.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted; every process that was started is ended");
    }
    Ok(())
}

/// Sleeps, but not through an interrupt.
pub(crate) fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check_interrupt()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// CPU time of the process so far: all its threads, ended ones too, user and system, in the
/// scheduler's nanoseconds (`/proc/PID/stat` counts ticks of 10 ms).
pub(crate) fn process_cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place to write one clockid_t.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write one timespec.
    result_of(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The CPUs that the calling thread may run on.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is the empty set, and its size is passed with it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        result_of(libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), &mut set))?;
        set
    };
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect())
}

/// Keeps the calling thread, and what it starts, on `cpus`. Async-signal-safe.
pub(crate) fn stay_on(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set; CPU_SET panics on an index beyond the set
    // rather than write there.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        result_of(libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &set))
    }
}

/// Raises this process's limit of open files to `files` if it can; the limit that then holds.
/// Async-signal-safe.
pub(crate) fn raise_open_files(files: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place to write one rlimit.
    result_of(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur >= files {
        return Ok(limit.rlim_cur);
    }
    let wanted = libc::rlimit { rlim_cur: files, rlim_max: limit.rlim_max.max(files) };
    // SAFETY: `wanted` is a valid rlimit. Only root may raise the hard limit: the second call is
    // for others.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } == 0 {
        return Ok(files);
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit.
    result_of(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_cur)
}

/// The kernel sends `signal` to the calling process when the thread that started it ends.
/// Async-signal-safe.
pub(crate) fn end_with_parent(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    result_of(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })
}

/// Lets timers of the calling thread expire when they are due instead of up to 50 us later.
pub(crate) fn exact_timers() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and touches no memory.
    result_of(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) })
}

/// Makes the children of our children ours when their parents end, so that [`kill_group`] can wait
/// for them.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a flag and touches no memory.
    result_of(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })
}

/// Kills a process group that we made for a child of ours, which we have not waited for yet, and
/// waits until all of it is gone: a worker that is still closing its connections would disturb the
/// next measurement.
pub(crate) fn kill_group(leader: u32) {
    let group = -(leader as libc::pid_t);
    // SAFETY: kill and waitpid touch no memory (the status is not asked for). That the group is
    // already empty is no error for us.
    unsafe {
        libc::kill(group, libc::SIGKILL);
        while libc::waitpid(group, std::ptr::null_mut(), 0) > 0
            || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// An epoll instance that reports readable descriptors by the caller's number.
pub(crate) struct Epoll {
    descriptor: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(crate) fn new(capacity: usize) -> io::Result<Epoll> {
        // SAFETY: epoll_create1 touches no memory.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        result_of(raw)?;
        // SAFETY: `raw` is a new descriptor without another owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Epoll { descriptor, events: Vec::with_capacity(capacity.max(1)) })
    }

    pub(crate) fn watch(&self, socket: &impl AsRawFd, number: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number as u64 };
        // SAFETY: both descriptors are open and `event` is a valid epoll_event.
        result_of(unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                socket.as_raw_fd(),
                &mut event,
            )
        })
    }

    /// Waits for at most `time`, with nanosecond resolution, and gives the numbers that are
    /// readable.
    pub(crate) fn wait(&mut self, time: Duration) -> io::Result<impl Iterator<Item = usize> + '_> {
        let timeout = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        self.events.clear();
        // SAFETY: the kernel writes at most `capacity` events into the vector's spare capacity and
        // returns how many; only those are then counted in. No signal mask is passed.
        unsafe {
            let count = libc::syscall(
                libc::SYS_epoll_pwait2,
                self.descriptor.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.capacity() as libc::c_int,
                &timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            );
            match count {
                count if count >= 0 => self.events.set_len(count as usize),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        Ok(self.events.iter().map(|event| event.u64 as usize))
    }
}

fn result_of(returned: libc::c_int) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

//! Capabilities of the packet level: only the threads that need them have them.
//!
//! Linux keeps capabilities for each thread, and a thread or process starts with those of the
//! thread that starts it. [`keep`] leaves them with one thread, which starts the engine and the
//! process that replaces this one. All other threads, and the processes that they start, have none.
//!
//! Threads share their memory, so this is no barrier against code that an attacker has brought into
//! the process. It is one for everything that goes through system calls of the other threads.
//!
//! Root keeps its capabilities: a program that root executes would get them back. [`reduce_to`] is
//! for a process that executes none, and also takes root's.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::process::geteuid;

/// Capabilities by their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// CAP_BPF and CAP_PERFMON: to load programs and create maps.
    pub const LOADING: Capabilities = Capabilities(1 << 39 | 1 << 38);
    /// The same, CAP_NET_ADMIN (interfaces, neighbours, offloads) and CAP_NET_RAW (checks through
    /// tunnels).
    pub const ALL: Capabilities = Capabilities(Self::LOADING.0 | Self::INTERFACES.0 | 1 << 13);
    /// CAP_NET_ADMIN: to attach and detach programs of interfaces, and to resolve neighbours.
    pub const INTERFACES: Capabilities = Capabilities(1 << 12);
    /// None.
    pub const NONE: Capabilities = Capabilities(0);
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that has kept the capabilities.
static KEEPER: OnceLock<Sender<Job>> = OnceLock::new();

/// Takes the packet level's capabilities from this thread, and so from those that it starts later;
/// one new thread keeps them, for [`run`]. Called before other threads exist. Does nothing in a
/// process without them, and in one of root.
///
/// # Errors
/// The thread cannot be started, or the capabilities cannot be read or changed.
pub fn keep() -> io::Result<()> {
    if geteuid().is_root() || Sets::read()?.permitted() & Capabilities::ALL.0 == 0 {
        return Ok(());
    }
    let (jobs, received) = mpsc::channel::<Job>();
    let work = move || received.into_iter().for_each(|job| job());
    thread::Builder::new().name("privileged".into()).spawn(work)?;
    Sets::read()?.without(Capabilities::ALL).write()?;
    // A second call finds no capabilities, and does not come here.
    let _ = KEEPER.set(jobs);
    Ok(())
}

/// Runs `job` with the capabilities of the packet level, if the process has them, and waits for its
/// end. Threads and processes that it starts have them, too.
pub fn run<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> R {
    let Some(jobs) = KEEPER.get() else { return job() };
    let (reply, answer) = mpsc::channel();
    let job = move || drop(reply.send(catch_unwind(AssertUnwindSafe(job))));
    let sent = jobs.send(Box::new(job)).ok().and_then(|()| answer.recv().ok());
    match sent.unwrap_or_else(|| unreachable!("the thread ends with the process")) {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// Takes capabilities from this thread, and so from those that it starts later.
pub(crate) fn give_up(capabilities: Capabilities) {
    if geteuid().is_root() {
        return;
    }
    let given_up = Sets::read().and_then(|sets| sets.without(capabilities).write());
    if let Err(error) = given_up {
        tracing::warn!("packet: a thread keeps capabilities that it does not need: {error}");
    }
}

/// Takes all capabilities but `kept` from this thread, and so from those that it starts later, also
/// if it is root's. No program that they execute gets more (`no_new_privs`). Called while the
/// process has no other thread.
///
/// # Errors
/// The capabilities cannot be read or changed.
pub fn reduce_to(kept: Capabilities) -> io::Result<()> {
    // SAFETY: this call reads and writes no memory.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Sets::read()?.without(Capabilities(!kept.0)).write()
}

/// `struct __user_cap_header_struct`, for this thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

impl Header {
    /// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
    const OWN: Header = Header { version: 0x2008_0522, pid: 0 };
}

/// The sets of a thread: two `struct __user_cap_data_struct`, with the lower and the upper half of
/// the bits.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sets([Half; 2]);

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

impl Sets {
    fn read() -> io::Result<Sets> {
        let (mut header, mut sets) = (Header::OWN, Sets::default());
        // SAFETY: the kernel writes the header and two halves; the structs have its layout.
        let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, &raw mut sets) };
        if result == 0 { Ok(sets) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets those of this thread. The kernel removes from the ambient set what is no longer
    /// permitted.
    fn write(self) -> io::Result<()> {
        let mut header = Header::OWN;
        // SAFETY: the kernel reads the two halves, and may write the header.
        let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, &raw const self) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn permitted(self) -> u64 {
        u64::from(self.0[0].permitted) | u64::from(self.0[1].permitted) << 32
    }

    fn without(self, capabilities: Capabilities) -> Sets {
        let Capabilities(bits) = capabilities;
        let halves = [bits as u32, (bits >> 32) as u32];
        let half = |index: usize| Half {
            effective: self.0[index].effective & !halves[index],
            permitted: self.0[index].permitted & !halves[index],
            inheritable: self.0[index].inheritable & !halves[index],
        };
        Sets([half(0), half(1)])
    }
}

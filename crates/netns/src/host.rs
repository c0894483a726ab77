use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::{Guest, NetnsError, offload, pass};

/// A host of its own as far as the network goes: a namespace with its loopback up.
///
/// IPv6 addresses are usable at once (no duplicate address detection), replies may take another way than requests
/// (`rp_filter` off). Dropped, it is gone with its interfaces once the processes inside have ended.
#[derive(Debug)]
pub struct Host {
    name: String,
    namespace: Arc<OwnedFd>,
    /// What must live as long as the host: the links of XDP programs.
    kept: Mutex<Vec<OwnedFd>>,
}

/// Set before there is any interface, so that each begins with them.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
];

impl Host {
    /// Makes one. `name` is for messages only.
    ///
    /// # Errors
    /// No privilege, no such feature in the kernel, or no `ip`.
    pub fn new(name: &str) -> Result<Host, NetnsError> {
        let made = thread::spawn(new_namespace).join().expect("making a namespace does not panic");
        let create = |source| NetnsError::Create { host: name.to_owned(), source };
        let namespace = Arc::new(made.map_err(create)?);
        let host = Host { name: name.to_owned(), namespace, kept: Mutex::default() };
        for (key, value) in SYSCTLS {
            host.sysctl(key, value)?;
        }
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace as a path that other processes of this machine can open, as long as this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs `work` on a thread of this host: its sockets, and threads it starts, are this host's.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let outcome = thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.move_thread_in();
                    work()
                })
                .join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Like [`Host::enter`], without waiting for the end.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = Arc::clone(&self.namespace);
        thread::spawn(move || {
            move_in(namespace.as_fd()).expect("a namespace that is open can be entered");
            work()
        })
    }

    fn move_thread_in(&self) {
        move_in(self.fd()).expect("a namespace that is open can be entered");
    }

    /// A program to be run on this host. It is killed when the *thread* that starts it ends, so that nothing survives
    /// us.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.namespace);
        let parent = std::process::id();
        let before_exec = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the line above took effect.
            if std::os::unix::process::parent_id() != parent {
                return Err(io::ErrorKind::NotConnected.into());
            }
            move_in(namespace.as_fd())
        };
        // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
        command
    }

    /// Runs a program to its end, and gives what it wrote on standard output.
    ///
    /// # Errors
    /// It cannot be started, or ends with a failure; then with what it wrote on both outputs.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, NetnsError> {
        let mut command = self.command(program);
        command.args(arguments).stdin(Stdio::null());
        let start = |source| NetnsError::Start {
            host: self.name.clone(),
            program: program.to_owned(),
            source,
        };
        let output = command.output().map_err(start)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(NetnsError::Failed {
            host: self.name.clone(),
            command: format!("{program} {}", arguments.join(" ")),
            status: output.status,
            output: (text(&output.stdout) + &text(&output.stderr)).trim().to_owned(),
        })
    }

    /// Starts a program that goes on until it ends or the [`Guest`] is dropped.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Result<Guest, NetnsError> {
        let mut command = self.command(program);
        command.args(arguments);
        let start = |source| NetnsError::Start {
            host: self.name.clone(),
            program: program.to_owned(),
            source,
        };
        Guest::of(command).map_err(start)
    }

    /// `ip` with these words, for instance `link set eth0 up`.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn ip(&self, words: &str) -> Result<String, NetnsError> {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>())
    }

    /// Gives an interface an address, usable at once.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn address(&self, interface: &str, address: IpAddr, prefix: u8) -> Result<(), NetnsError> {
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        self.ip(&format!("addr add {address}/{prefix} dev {interface} {nodad}")).map(drop)
    }

    /// Gives the host an address of a service on its loopback: packets to it are taken, but nobody on the wire is told
    /// of it (`arp_ignore`, `arp_announce`), as the backends of direct routing and of tunnels need it.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn hidden_address(&self, address: IpAddr) -> Result<(), NetnsError> {
        self.sysctl("net/ipv4/conf/all/arp_ignore", "1")?;
        self.sysctl("net/ipv4/conf/all/arp_announce", "2")?;
        self.address("lo", address, if address.is_ipv6() { 128 } else { 32 })
    }

    /// Adds a route, for instance to `default`.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn route(&self, to: &str, via: IpAddr) -> Result<(), NetnsError> {
        let family = if via.is_ipv6() { "-6" } else { "-4" };
        self.ip(&format!("{family} route add {to} via {via}")).map(drop)
    }

    /// Forwards packets between its interfaces.
    ///
    /// # Errors
    /// As [`Host::sysctl`].
    pub fn forward(&self) -> Result<(), NetnsError> {
        self.sysctl("net/ipv4/ip_forward", "1")?;
        self.sysctl("net/ipv6/conf/all/forwarding", "1")
    }

    /// Sets a sysctl by its path under /proc/sys.
    ///
    /// # Errors
    /// There is none of this name, or it does not take the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        let failed = |source| NetnsError::Sysctl {
            host: self.name.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            source,
        };
        self.enter(|| fs::write(format!("/proc/sys/{key}"), value)).map_err(failed)
    }

    /// Whether the kernel merges packets that come by an interface (GRO).
    ///
    /// # Errors
    /// The interface is not there.
    pub fn merges(&self, interface: &str) -> Result<bool, NetnsError> {
        offload::ask(self, interface, offload::GET_GRO, 0).map(|value| value != 0)
    }

    /// Has the kernel merge packets that come by an interface, or not.
    ///
    /// # Errors
    /// The interface is not there.
    pub fn set_merging(&self, interface: &str, on: bool) -> Result<(), NetnsError> {
        offload::ask(self, interface, offload::SET_GRO, u32::from(on)).map(drop)
    }

    /// Whether an interface takes 802.1Q tags out of frames (`rxvlan`).
    ///
    /// # Errors
    /// The interface is not there.
    pub fn strips_tags(&self, interface: &str) -> Result<bool, NetnsError> {
        let flags = offload::ask(self, interface, offload::GET_FLAGS, 0)?;
        Ok(flags & offload::FLAG_RXVLAN != 0)
    }

    /// Attaches an XDP program to an interface that passes everything, for the life of the host.
    ///
    /// # Errors
    /// The interface is not there, or has a program.
    pub fn pass_everything(&self, interface: &str) -> Result<(), NetnsError> {
        pass::attach(self, interface)
    }

    /// Keeps a descriptor open as long as the host lives.
    pub(crate) fn keep(&self, descriptor: OwnedFd) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor);
    }
}

/// Moves the calling thread; its namespaces were made or opened by us.
fn move_in(namespace: BorrowedFd<'_>) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// On a thread of its own, which it leaves in the new namespace.
fn new_namespace() -> io::Result<OwnedFd> {
    // SAFETY: a new network namespace for this thread alone changes no memory and closes no descriptor.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?)
}

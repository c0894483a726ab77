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

/// A network namespace with its loopback interface up.
///
/// IPv6 addresses are usable at once (no duplicate address detection). Asymmetric routing works
/// (`rp_filter` off). Dropping the host removes the namespace and its interfaces, after the
/// processes inside have ended.
#[derive(Debug)]
pub struct Host {
    name: String,
    namespace: Arc<OwnedFd>,
    /// Links of XDP programs, which must live as long as the host.
    kept: Mutex<Vec<OwnedFd>>,
}

/// Settings that are made before any interface exists, so that new interfaces inherit them.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
];

impl Host {
    /// Creates a host. `name` appears only in messages.
    ///
    /// # Errors
    /// The process lacks privileges, the kernel lacks a feature, or `ip` is not installed.
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

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a path to the namespace that other processes can open as long as this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Runs `work` on a new thread inside the namespace, and waits for it. Sockets and threads that
    /// it creates are inside, too.
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

    /// Runs `work` on a new thread inside the namespace, without waiting for it.
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

    /// Prepares a program to run on this host. The kernel kills it when the *thread* that starts it
    /// ends, so that no process outlives us.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.namespace);
        let parent = std::process::id();
        let before_exec = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // The parent may have died before the previous line took effect.
            if std::os::unix::process::parent_id() != parent {
                return Err(io::ErrorKind::NotConnected.into());
            }
            move_in(namespace.as_fd())
        };
        // SAFETY: between fork and exec the closure only makes system calls and does not allocate.
        unsafe { command.pre_exec(before_exec) };
        command
    }

    /// Runs a program until it ends. Returns its standard output.
    ///
    /// # Errors
    /// The program cannot be started, or it fails; the error has its output.
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

    /// Starts a program. It runs until it ends or the [`Guest`] is dropped.
    ///
    /// # Errors
    /// The program cannot be started.
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

    /// Runs `ip` with these arguments, for example `link set eth0 up`.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn ip(&self, words: &str) -> Result<String, NetnsError> {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>())
    }

    /// Adds an address to an interface, usable at once.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn address(&self, interface: &str, address: IpAddr, prefix: u8) -> Result<(), NetnsError> {
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        self.ip(&format!("addr add {address}/{prefix} dev {interface} {nodad}")).map(drop)
    }

    /// Adds a service address to the loopback interface. The host accepts packets to it, but does
    /// not answer or announce it by ARP (`arp_ignore`, `arp_announce`). Backends of direct routing
    /// and of tunnels need this.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn hidden_address(&self, address: IpAddr) -> Result<(), NetnsError> {
        self.sysctl("net/ipv4/conf/all/arp_ignore", "1")?;
        self.sysctl("net/ipv4/conf/all/arp_announce", "2")?;
        self.address("lo", address, if address.is_ipv6() { 128 } else { 32 })
    }

    /// Adds a route, for example to `default`.
    ///
    /// # Errors
    /// As [`Host::run`].
    pub fn route(&self, to: &str, via: IpAddr) -> Result<(), NetnsError> {
        let family = if via.is_ipv6() { "-6" } else { "-4" };
        self.ip(&format!("{family} route add {to} via {via}")).map(drop)
    }

    /// Enables packet forwarding between interfaces.
    ///
    /// # Errors
    /// As [`Host::sysctl`].
    pub fn forward(&self) -> Result<(), NetnsError> {
        self.sysctl("net/ipv4/ip_forward", "1")?;
        self.sysctl("net/ipv6/conf/all/forwarding", "1")
    }

    /// Sets a sysctl, given its path under /proc/sys.
    ///
    /// # Errors
    /// The sysctl does not exist, or it rejects the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        let failed = |source| NetnsError::Sysctl {
            host: self.name.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            source,
        };
        self.enter(|| fs::write(format!("/proc/sys/{key}"), value)).map_err(failed)
    }

    /// Whether the kernel merges packets received on an interface (GRO).
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn merges(&self, interface: &str) -> Result<bool, NetnsError> {
        offload::ask(self, interface, offload::GET_GRO, 0).map(|value| value != 0)
    }

    /// Switches the merging of received packets (GRO) on or off.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn set_merging(&self, interface: &str, on: bool) -> Result<(), NetnsError> {
        offload::ask(self, interface, offload::SET_GRO, u32::from(on)).map(drop)
    }

    /// Whether an interface strips 802.1Q tags from frames (`rxvlan`).
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn strips_tags(&self, interface: &str) -> Result<bool, NetnsError> {
        let flags = offload::ask(self, interface, offload::GET_FLAGS, 0)?;
        Ok(flags & offload::FLAG_RXVLAN != 0)
    }

    /// Attaches an XDP program that passes all packets to an interface, for the life of the host.
    ///
    /// # Errors
    /// The interface does not exist, or already has a program.
    pub fn pass_everything(&self, interface: &str) -> Result<(), NetnsError> {
        pass::attach(self, interface)
    }

    /// Keeps a descriptor open for the life of the host.
    pub(crate) fn keep(&self, descriptor: OwnedFd) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor);
    }
}

/// Moves the calling thread into a namespace.
fn move_in(namespace: BorrowedFd<'_>) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Creates a namespace. The calling thread stays in it, so it must be a thread of its own.
fn new_namespace() -> io::Result<OwnedFd> {
    // SAFETY: a new network namespace for this thread changes no memory and closes no descriptor.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?)
}

//! Two network namespaces joined by a pair of veth interfaces: the router's, and the balancer's.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, Pid, move_into_link_name_space};

/// The interface in either namespace.
pub(crate) const INTERFACE: &str = "wire";

/// The namespaces; removed when dropped.
pub(crate) struct Network {
    pub(crate) router: Namespace,
    pub(crate) balancer: Namespace,
}

/// A network namespace that was made here.
pub(crate) struct Namespace {
    name: String,
    pub(crate) ifindex: u32,
}

impl Network {
    pub(crate) fn make() -> Result<Network> {
        let namespace = |role: &str| -> Result<Namespace> {
            let name = format!("eqp-lab-{role}-{}", std::process::id());
            ip(&["netns", "add", &name])?;
            let namespace = Namespace { name, ifindex: 0 };
            // Or the kernel greets its neighbours there, and that would be counted.
            let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            namespace.inside(|| fs::write(quiet, "1").context("turning IPv6 off"))?;
            Ok(namespace)
        };
        let mut router = namespace("router")?;
        let mut balancer = namespace("balancer")?;
        let (here, there) = (&router.name, &balancer.name);
        // One queue: one CPU balances.
        let pair = ["name", INTERFACE, "netns", there];
        let link = ["-n", here, "link", "add", INTERFACE, "type", "veth", "peer"];
        ip(&[&link[..], &pair[..]].concat())?;
        for namespace in [&mut router, &mut balancer] {
            ip(&["-n", &namespace.name, "link", "set", INTERFACE, "up"])?;
            let shown = ip(&["-n", &namespace.name, "-o", "link", "show", INTERFACE])?;
            let index = shown.split(':').next().and_then(|index| index.trim().parse().ok());
            namespace.ifindex = index.with_context(|| format!("no index in: {shown}"))?;
        }
        Ok(Network { router, balancer })
    }
}

impl Namespace {
    /// Does `work` on this thread inside the namespace.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let back = fs::File::open("/proc/thread-self/ns/net")?;
        let there = fs::File::open(format!("/run/netns/{}", self.name))?;
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(there.as_fd(), network).context("entering the namespace")?;
        let result = work();
        move_into_link_name_space(back.as_fd(), network).context("leaving the namespace")?;
        result
    }

    /// Attaches an XDP program in the driver (native mode), or takes it off.
    pub(crate) fn attach(&self, program: Option<BorrowedFd<'_>>) -> Result<()> {
        const NATIVE: u32 = 1 << 2; // XDP_FLAGS_DRV_MODE
        let fd = program.map_or(-1, |program| program.as_raw_fd());
        self.inside(|| {
            // SAFETY: only numbers and a null pointer for options, which is allowed.
            let result = unsafe {
                libbpf_rs::libbpf_sys::bpf_xdp_attach(
                    self.ifindex as i32,
                    fd,
                    NATIVE,
                    std::ptr::null(),
                )
            };
            ensure!(result == 0, "attaching to {INTERFACE} in {}: error {result}", self.name);
            Ok(())
        })
    }

    /// Lets a kernel thread receive for the interface, on `cpu` alone. An XDP program must be
    /// attached. Gives the thread.
    pub(crate) fn receive_on(&self, cpu: usize) -> Result<Pid> {
        // The interface's own thread would run on the CPU of whoever sends.
        let before = napi_threads()?;
        let set = format!("echo 1 > /sys/class/net/{INTERFACE}/threaded");
        ip(&["netns", "exec", &self.name, "sh", "-c", &set])?;
        let mut pid = None;
        for _ in 0..100 {
            let after = napi_threads()?;
            pid = after.into_iter().find(|thread| !before.contains(thread));
            if pid.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = pid.and_then(Pid::from_raw).context("the interface has no thread of its own")?;
        stay_on(Some(pid), cpu)?;
        // Before whatever else runs on that CPU, as the interrupt of a network card would: a queue
        // has 256 places, and is lost while its thread waits for a turn.
        run("chrt", &["--fifo", "--pid", "1", &pid.as_raw_nonzero().to_string()])?;
        Ok(pid)
    }
}

/// Binds a thread to a CPU.
pub(crate) fn stay_on(pid: Option<Pid>, cpu: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(pid, &set).with_context(|| format!("staying on CPU {cpu}"))
}

/// Seconds that a thread has run on a CPU.
pub(crate) fn seconds_run(pid: Pid) -> Result<f64> {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
    Ok(ns.context("a thread's time")? / 1e9)
}

fn napi_threads() -> Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while we look.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with(&format!("napi/{INTERFACE}")) {
            threads.push(pid);
        }
    }
    Ok(threads)
}

pub(crate) fn ip(arguments: &[&str]) -> Result<String> {
    run("ip", arguments)
}

fn run(command: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(command).args(arguments).output();
    let output = output.with_context(|| format!("running `{command}` (iproute2, util-linux)"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = arguments.join(" ");
    ensure!(output.status.success(), "{command} {line}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A leftover ends with the next boot.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

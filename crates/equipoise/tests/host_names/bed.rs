//! Servers, resolvers and processes that several tests use.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use equipoise_testkit::{ReservedPort, eventually, free_port};

pub(crate) use crate::common::servers::{listen_at, serve_at};
use crate::common::{self, EQUIPOISE, Folder, Process, get, reload, stderr, stdout, text};

/// Whether the test may bind-mount `/etc/resolv.conf`, which needs root.
pub(crate) fn may_mount() -> bool {
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: needs root, for a resolv.conf of the process's own");
    }
    is_root
}

/// A loopback address for port 53 that no other test uses.
pub(crate) fn server_address() -> Ipv4Addr {
    static NUMBER: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + NUMBER.fetch_add(1, Relaxed), high, low)
}

/// The zone `names.test.`, served by a separate process.
pub(crate) struct Zone {
    _process: Process,
    pub(crate) folder: Folder,
    pub(crate) address: Ipv4Addr,
}

impl Zone {
    pub(crate) fn start(test: &str, records: &str) -> Zone {
        let (folder, address) = (Folder::new(test), server_address());
        folder.write("names.zone", records);
        let file = folder.write(
            "dns.toml",
            &format!(
                "[api]\nsocket = '{}'\nlisten = 'off'\n[instance]\nthreads = 1\n\
                 [[dns]]\nzone = 'names.test.'\nlisten = '{address}:53'\nzone-file = '{}'\n\
                 ns = [{{ name = 'ns1', addresses = '{address}' }}]\n[nameserver]\nrate-limit = 0\n",
                folder.path("dns.sock").display(),
                folder.path("names.zone").display(),
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Zone { _process: process, folder, address }
    }

    pub(crate) fn change(&self, records: &str) {
        self.folder.write("names.zone", records);
        let (status, answer) = reload(&self.folder.path("dns.sock"));
        assert_eq!(status, 200, "{answer}");
    }
}

/// A process with its own versions of some files in `/etc`.
pub(crate) struct Instance {
    pub(crate) process: Process,
    pub(crate) folder: Folder,
    pub(crate) file: PathBuf,
    pub(crate) door: ReservedPort,
}

impl Instance {
    pub(crate) fn start(test: &str, server: Ipv4Addr, pool: &str) -> Instance {
        Instance::start_in(test, server, pool, |command| command)
    }

    /// Starts it in a network namespace that has only loopback and no IPv6.
    pub(crate) fn start_without_ipv6(test: &str, pool: &str) -> Instance {
        let script = "ip link set lo up && \
                      (echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true) && exec \"$0\" \"$@\"";
        Instance::start_in(test, Ipv4Addr::LOCALHOST, pool, |inner| {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", script]).arg(inner.get_program());
            command.args(inner.get_args());
            command
        })
    }

    fn start_in(
        test: &str,
        server: Ipv4Addr,
        pool: &str,
        wrap: impl FnOnce(Command) -> Command,
    ) -> Instance {
        let (folder, door) = (Folder::new(&format!("{test}-balancer")), free_port());
        folder
            .write("resolv.conf", &format!("nameserver {server}\noptions timeout:5 attempts:2\n"));
        folder.write("hosts", "127.0.0.1 localhost\n127.0.0.1 listed.test\n2001:db8::1 six.test\n");
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[api]\nsocket = '{}'\nlisten = 'off'\n[instance]\nthreads = 2\n\
                 [[session]]\nlisten = '{}'\nprotocol = 'http'\npool = 'web'\n\
                 [[pool]]\nname = 'web'\n{pool}\n",
                folder.path("api.sock").display(),
                door.address()
            ),
        );
        let process = Process::of(wrap(with_own_files(&folder, &["run", text(&file)])));
        process.wait_for_text(" ready ");
        Instance { process, folder, file, door }
    }

    pub(crate) fn command(&self, args: &[&str]) -> (bool, String) {
        let socket = self.folder.path("api.sock");
        let output = common::equipoise(&[args, &["--api", text(&socket)]].concat());
        (output.status.success(), stdout(&output) + &stderr(&output))
    }

    pub(crate) fn check(&self) -> Output {
        with_own_files(&self.folder, &["check", text(&self.file)]).output().unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let (worked, printed) = self.command(&["status", "--json"]);
        assert!(worked, "{printed}");
        serde_json::from_str(&printed).unwrap()
    }

    /// The first backend in `status`.
    pub(crate) fn backend(&self) -> serde_json::Value {
        self.status()["pools"][0]["backends"][0].clone()
    }

    pub(crate) fn ask(&self) -> (u16, String) {
        let response = get(self.door.address(), "/");
        (response.status(), response.text())
    }

    /// Waits until requests arrive at the server with this name.
    pub(crate) fn arrives_at(&self, name: &str) {
        let arrived = eventually(|| self.ask() == (200, name.to_owned()));
        assert!(arrived, "{:?}; {:#}\n{}", self.ask(), self.backend(), self.process.printed());
    }
}

/// The binary in a mount namespace with `resolv.conf` and `hosts` of this folder.
pub(crate) fn with_own_files(folder: &Folder, args: &[&str]) -> Command {
    let mount = |name: &str| format!("mount --bind '{}' /etc/{name}", folder.path(name).display());
    let script = format!("{} && {} && exec \"$0\" \"$@\"", mount("resolv.conf"), mount("hosts"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, EQUIPOISE]);
    command.args(args);
    command
}

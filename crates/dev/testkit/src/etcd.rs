//! Real etcd members on loopback, with ports and folders of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Folder, ReservedPort, free_bytes, free_port, spawn_bound};

/// Members and what they were started with; killed when dropped, and when the test's process ends
/// however it does.
#[derive(Debug)]
pub struct EtcdMembers {
    members: Vec<Member>,
    scheme: &'static str,
    extra: Vec<String>,
    folder: PathBuf,
    /// Their databases. Elections last as long as the disk takes to write, so that they are in
    /// memory where there is room.
    data: Folder,
}

#[derive(Debug)]
struct Member {
    name: String,
    client: ReservedPort,
    peer: ReservedPort,
    child: Option<Child>,
}

/// Lines of a member's log that a failed test prints.
const LOG_LINES: usize = 15;

fn log_name(member: &str) -> String {
    format!("{member}.log")
}

/// The binary, or why the test is skipped. `apt-get install etcd-server` brings it.
fn binary() -> Option<PathBuf> {
    let found = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|file| file.is_file())
    });
    if found.is_none() {
        eprintln!("skipped: there is no etcd in PATH (Debian: apt-get install etcd-server)");
    }
    found
}

impl EtcdMembers {
    /// Starts `count` members with their logs in `folder`; `extra` are arguments, `scheme` is that
    /// of the client side. `None`: etcd is not installed; prints so.
    pub fn start(
        folder: &Path,
        count: usize,
        scheme: &'static str,
        extra: &[String],
    ) -> Option<EtcdMembers> {
        binary()?;
        let member = |index| Member {
            name: format!("m{index}"),
            client: free_port(),
            peer: free_port(),
            child: None,
        };
        let members = (0..count).map(member).collect();
        let (folder, extra) = (folder.to_path_buf(), extra.to_vec());
        let data = Folder::in_memory("etcd-data");
        let mut members = EtcdMembers { members, scheme, extra, folder, data };
        for index in 0..count {
            members.start_member(index);
        }
        Some(members)
    }

    /// Whether there is an etcd here; if not, that is printed.
    pub fn is_installed() -> bool {
        binary().is_some()
    }

    /// Starts one that does not run, with the files that it had.
    pub fn start_member(&mut self, index: usize) {
        let peers: Vec<_> = self
            .members
            .iter()
            .map(|m| format!("{}=http://{}", m.name, m.peer.address()))
            .collect();
        let member = &mut self.members[index];
        assert!(member.child.is_none(), "it runs already");
        let client = format!("{}://{}", self.scheme, member.client.address());
        let peer = format!("http://{}", member.peer.address());
        let log = self.folder.join(log_name(&member.name));
        let log = File::options().create(true).append(true).open(log).expect("a file for its log");
        let mut command = Command::new(binary().expect("it was there"));
        command
            .env_clear()
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(self.data.path(&member.name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--initial-cluster-state", "new", "--logger", "zap"])
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log);
        member.child = Some(spawn_bound(command).expect("etcd starts"));
    }

    /// How many there are, those that do not run included.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Whether a member was started and not stopped by this object.
    pub fn is_running(&self, index: usize) -> bool {
        self.members[index].child.is_some()
    }

    /// Where clients reach one.
    pub fn endpoint(&self, index: usize) -> String {
        format!("{}://{}", self.scheme, self.members[index].client.address())
    }

    /// Where clients reach them.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    /// `kill -9`.
    pub fn kill(&mut self, index: usize) {
        let mut child = self.members[index].child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    /// Stops it where it is, or lets it go on: a machine that hangs.
    pub fn freeze(&self, index: usize, frozen: bool) {
        let child = self.members[index].child.as_ref().expect("it runs");
        let signal = if frozen { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: a signal to a child of ours that has not been waited for.
        let sent = unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0, "it is ours");
    }
}

impl EtcdMembers {
    /// Prints what helps to understand a failed test: the room for their files, and the ends of
    /// their logs.
    fn print_logs(&self) {
        eprintln!(
            "{}: {} MiB are free",
            self.data.root().display(),
            free_bytes(self.data.root()) >> 20
        );
        for member in &self.members {
            let log = std::fs::read_to_string(self.folder.join(log_name(&member.name)));
            let log = log.unwrap_or_default();
            let from = log.lines().count().saturating_sub(LOG_LINES);
            eprintln!("the end of the log of etcd {}:", member.name);
            log.lines().skip(from).for_each(|line| eprintln!("  {line}"));
        }
    }
}

impl Drop for EtcdMembers {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

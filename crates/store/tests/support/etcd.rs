//! Real etcd members on loopback, with ports and folders of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use equipoise_store::{ConnectError, Etcd, EtcdOptions};
use equipoise_testkit::{ReservedPort, free_port};
use rustix::process::{Pid, Signal, kill_process};

use super::Scratch;
use super::process::spawn;

/// For elections of real processes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Members and what they were started with.
pub(crate) struct Members {
    pub(crate) members: Vec<Member>,
    scheme: &'static str,
    extra: Vec<String>,
    folder: Scratch,
}

pub(crate) struct Member {
    name: String,
    client: ReservedPort,
    peer: ReservedPort,
    child: Option<Child>,
}

/// The binary, or why the test is skipped. `apt-get install etcd-server` brings it.
pub(crate) fn binary() -> Option<PathBuf> {
    let found = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|file| file.is_file())
    });
    if found.is_none() {
        eprintln!("skipped: there is no etcd in PATH (Debian: apt-get install etcd-server)");
    }
    found
}

impl Members {
    /// Starts `count` members; `extra` are arguments, `scheme` that of the client side.
    pub(crate) fn start(count: usize, scheme: &'static str, extra: &[String]) -> Option<Members> {
        binary()?;
        let member = |index| Member {
            name: format!("m{index}"),
            client: free_port(),
            peer: free_port(),
            child: None,
        };
        let members = (0..count).map(member).collect();
        let folder = Scratch::new("etcd");
        let mut members = Members { members, scheme, extra: extra.to_vec(), folder };
        for index in 0..count {
            members.start_member(index);
        }
        Some(members)
    }

    pub(crate) fn start_member(&mut self, index: usize) {
        let peers: Vec<_> = self
            .members
            .iter()
            .map(|m| format!("{}=http://{}", m.name, m.peer.address()))
            .collect();
        let member = &mut self.members[index];
        assert!(member.child.is_none(), "it runs already");
        let client = format!("{}://{}", self.scheme, member.client.address());
        let peer = format!("http://{}", member.peer.address());
        let log = self.folder.file(&format!("{}.log", member.name));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(binary().expect("it was there"));
        command
            .env_clear()
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(self.folder.file(&member.name))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--initial-cluster-state", "new", "--logger", "zap"])
            .args(&self.extra)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        member.child = Some(spawn(command).expect("etcd starts"));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://{}", self.scheme, self.members[index].client.address())
    }

    /// All members, a namespace of one's own.
    pub(crate) fn options(&self, namespace: &str) -> EtcdOptions {
        let endpoints = (0..self.members.len()).map(|index| self.endpoint(index));
        let mut options = EtcdOptions::new(endpoints);
        options.namespace = namespace.to_string();
        options
    }

    pub(crate) async fn connect(&self, namespace: &str) -> Etcd {
        connect(self.options(namespace)).await
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, index: usize) {
        let mut child = self.members[index].child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }

    /// Stops it where it is, or lets it go on: a machine that hangs.
    pub(crate) fn freeze(&self, index: usize, frozen: bool) {
        let child = self.members[index].child.as_ref().expect("it runs");
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(child), signal).expect("it is ours");
    }

    /// Which member leads, by asking those that run.
    pub(crate) async fn leader(&self) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            for index in (0..self.members.len()).filter(|i| self.members[*i].child.is_some()) {
                let asked = async {
                    let mut client =
                        etcd_client::Client::connect([self.endpoint(index)], None).await?;
                    client.status().await
                };
                let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(1), asked).await
                else {
                    continue;
                };
                let own = status.header().map(|header| header.member_id());
                if own == Some(status.leader()) && status.leader() != 0 {
                    return index;
                }
            }
            assert!(Instant::now() < end, "no member leads");
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Connects as soon as the members are up.
pub(crate) async fn connect(options: EtcdOptions) -> Etcd {
    let end = Instant::now() + PATIENCE;
    loop {
        match Etcd::connect(options.clone()).await {
            Ok(etcd) => return etcd,
            Err(ConnectError::Unusable { source, .. })
                if source.is_passing() && Instant::now() < end => {}
            Err(error) => panic!("etcd does not come up: {error}: {:?}", error),
        }
    }
}

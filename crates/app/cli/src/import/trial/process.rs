//! The process that runs a translation during a trial, and its folder.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use equipoise_api::client::{Client, Endpoint, Place};
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::{Health, Status};
use equipoise_basics::die_with_parent;
use equipoise_basics::files::create_private_folder;
use equipoise_import::trial::Trial;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::{TcpSocket, UnixDatagram};
use tokio::time::{Instant, sleep, timeout};

use super::ask::socket_from_loopback;

/// Longest time until the front doors are open.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Longest time until each backend was checked once.
const CHECKED_WITHIN: Duration = Duration::from_secs(5);
/// Interval between two looks at the process.
const TICK: Duration = Duration::from_millis(50);
/// Lines of the log in the error of a process that has ended.
const LOG_LINES: usize = 5;
/// Variables that systemd sets for this process, not for its child.
const NOT_INHERITED: [&str; 5] =
    ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// A running translation. Dropping it kills the process and removes the folder.
pub(super) struct Trying {
    child: Child,
    folder: Folder,
    /// The address of each front door of the trial.
    pub(super) listen: Vec<SocketAddr>,
}

impl Trying {
    /// Starts the translation, and waits until it is ready and has checked its backends.
    ///
    /// # Errors
    /// There is no folder or port, or the process ends or is not ready in time.
    pub(super) async fn start(trial: &Trial) -> anyhow::Result<Trying> {
        let folder = Folder::create().context("cannot create a folder for the trial")?;
        let reserved: io::Result<Vec<_>> =
            trial.doors.iter().map(|door| reserve(door.old.ip())).collect();
        let reserved = reserved.context("no port is free on loopback")?;
        let listen: Vec<_> = reserved.iter().map(|(_, address)| *address).collect();
        let file = folder.path("equipoise.toml");
        let copy = trial.copy(&listen, &folder.0);
        fs::write(&file, copy).context("cannot write the trial's file")?;
        let socket = folder.path("notify.sock");
        let notices = UnixDatagram::bind(&socket).context("cannot wait for the trial's process")?;
        let log = File::create(folder.path("log")).context("cannot write the trial's log")?;
        // Not `current_exe`: it is a file name, and another build may have replaced the file.
        let mut command = Command::new("/proc/self/exe");
        command.arg("run").arg(&file).env("NOTIFY_SOCKET", &socket);
        command.envs(["STATE_DIRECTORY", "RUNTIME_DIRECTORY"].map(|name| (name, &folder.0)));
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A signal from the terminal reaches this process alone, which then ends the child.
        command.process_group(0);
        die_with_parent(&mut command);
        let child = command.spawn().context("cannot start the trial's process")?;
        let mut process = Trying { child, folder, listen };
        process.ready(&notices).await?;
        process.checked(&trial.checked_pools()).await;
        Ok(process)
    }

    /// Fails if the process has ended.
    pub(super) fn still_runs(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(self.folder.path("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        bail!("the process with the translation ended with {status}; its last lines:\n{last}")
    }

    async fn ready(&mut self, notices: &UnixDatagram) -> anyhow::Result<()> {
        let (end, mut notice) = (Instant::now() + READY_WITHIN, [0; 128]);
        loop {
            self.still_runs()?;
            if let Ok(length) = timeout(TICK, notices.recv(&mut notice)).await
                && notice[..length?].starts_with(b"READY=1")
            {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the process with the translation was not ready within {READY_WITHIN:?}");
            }
        }
    }

    /// Waits for the first check of each backend of these pools: until then they receive requests,
    /// healthy or not. Backends that are not checked in time are used as they are.
    async fn checked(&self, pools: &[&str]) {
        let client = Client::new(Place::from(Endpoint::Unix(self.folder.path("api.sock"))));
        let is_checked = |status: &Status| {
            let mut pools = status.pools.iter().filter(|it| pools.contains(&it.name.as_str()));
            pools.all(|pool| pool.backends.iter().all(|it| it.health != Health::Unknown))
        };
        let all = async {
            while !client.ask(STATUS, &()).await.is_ok_and(|status| is_checked(&status)) {
                sleep(TICK).await;
            }
        };
        let _ = timeout(CHECKED_WITHIN, all).await;
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It fails if the process has ended already.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// A free port on loopback, which no other process receives while the socket lives. The socket does
/// not listen; the data plane binds the port beside it, by `SO_REUSEPORT`.
fn reserve(beside: IpAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = socket_from_loopback(beside, |socket| {
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)
    })?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// A folder for this user only. Dropping it removes the folder with its content.
struct Folder(PathBuf);

impl Folder {
    fn create() -> io::Result<Folder> {
        create_private_folder("equipoise-try").map(Folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            crate::logs::print_error(&format!("{} is left: {error}", self.0.display()));
        }
    }
}

//! Where the program under test is, a folder for files, and processes on hosts.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use equipoise_netns::{Guest, Host, unavailable};
use rustix::process::Signal;

/// For a process to say that it is ready, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test and a folder for files, which goes with it.
pub(crate) struct Place {
    pub(crate) equipoise: String,
    folder: PathBuf,
}

impl Place {
    /// Beside this program, unless an option says where equipoise is.
    pub(crate) fn find(equipoise: Option<PathBuf>) -> Result<Place> {
        if let Some(reason) = unavailable() {
            bail!("no hosts can be made to measure between: {reason}");
        }
        let here = std::env::current_exe()?;
        let equipoise = equipoise.unwrap_or_else(|| here.with_file_name("equipoise"));
        if !equipoise.exists() {
            bail!("{} does not exist: build it with `make lab-control`", equipoise.display());
        }
        let folder = std::env::temp_dir().join(format!("equipoise-control-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Place { equipoise: equipoise.to_string_lossy().into_owned(), folder })
    }

    /// A folder that is empty, for one measurement.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// A command of the binary, on a host, to its end: what it printed.
    pub(crate) fn command(&self, host: &Host, arguments: &[&str]) -> Result<String> {
        Ok(host.run(&self.equipoise, arguments)?)
    }

    /// A sample backend, which listens on all addresses of its host.
    pub(crate) fn backend(&self, host: &Host, name: &str) -> Result<Guest> {
        let arguments = ["sample-backend", "--name", name, "--listen", "0.0.0.0", "--http", "80"];
        let guest = host.start(&self.equipoise, &arguments)?;
        ready(&guest, "ready http")?;
        Ok(guest)
    }

    /// `equipoise run` with this configuration, beside the API's socket and log level; ready.
    pub(crate) fn run(&self, host: &Host, folder: &str, config: &str) -> Result<Equipoise> {
        let folder = self.folder.join(folder);
        let (file, socket) = (folder.join("equipoise.toml"), folder.join("api.sock"));
        fs::create_dir_all(&folder)?;
        let text = format!("[api]\nsocket = \"{}\"\nlisten = \"off\"\n{config}", socket.display());
        fs::write(&file, text)?;
        let path = file.to_string_lossy().into_owned();
        let guest = host.start(&self.equipoise, &["run", &path])?;
        let equipoise = Equipoise { guest, file: path, socket };
        ready(&equipoise.guest, " ready ")?;
        Ok(equipoise)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ready(guest: &Guest, text: &str) -> Result<()> {
    let said = guest.wait_for(PATIENCE, |printed| printed.contains(text).then_some(()));
    said.map_err(|printed| anyhow!("it never printed `{}`, only:\n{printed}", text.trim()))
}

/// A running equipoise. Dropped, it is stopped as an operator does it: killed, the packet level
/// would leave its program behind.
pub(crate) struct Equipoise {
    guest: Guest,
    /// Its configuration.
    pub(crate) file: String,
    socket: PathBuf,
}

impl Equipoise {
    pub(crate) fn pid(&self) -> u32 {
        self.guest.pid()
    }

    /// `kill -9`, where it is to die.
    pub(crate) fn kill(&self) {
        self.guest.signal(Signal::KILL);
    }

    pub(crate) fn printed(&self) -> String {
        self.guest.printed()
    }

    pub(crate) fn socket(&self) -> String {
        self.socket.to_string_lossy().into_owned()
    }

    /// A response of its API.
    pub(crate) fn get(&self, path: &str) -> Result<serde_json::Value> {
        let mut stream = UnixStream::connect(&self.socket).context("the API's socket")?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").context("the API's answer has no body")?.1;
        serde_json::from_str(body).with_context(|| format!("the API's answer to {path}: {body}"))
    }
}

impl Drop for Equipoise {
    fn drop(&mut self) {
        self.guest.signal(Signal::TERM);
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while std::time::Instant::now() < end && matches!(self.guest.ended(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

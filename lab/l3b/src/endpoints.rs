//! Endpoints and balancers as processes, as a user starts them.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Programs and a folder for files.
pub(crate) struct Place {
    pub(crate) equipoise: PathBuf,
    pub(crate) endpoint: PathBuf,
    pub(crate) folder: PathBuf,
}

/// A process that ends when this is dropped.
pub(crate) struct Guest {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    /// Beside this program, unless an option says where equipoise is.
    pub(crate) fn find(equipoise: Option<PathBuf>) -> Result<Place> {
        let here = std::env::current_exe()?;
        let beside = |name: &str| here.with_file_name(name);
        let place = Place {
            equipoise: equipoise.unwrap_or_else(|| beside("equipoise")),
            endpoint: beside("equipoise-lab-l3b-endpoint"),
            folder: std::env::temp_dir().join(format!("equipoise-l3b-{}", std::process::id())),
        };
        for program in [&place.equipoise, &place.endpoint] {
            if !program.exists() {
                bail!("{} is not there: build it with `make lab-l3b`", program.display());
            }
        }
        fs::create_dir_all(&place.folder)?;
        Ok(place)
    }

    /// Endpoints with a share of a core each.
    pub(crate) fn endpoints(
        &self,
        kind: &str,
        count: usize,
        share: f64,
        page_ms: f64,
    ) -> Result<Vec<Guest>> {
        let endpoint = |number: usize| {
            let address = free_address()?;
            let mut command = Command::new(&self.endpoint);
            command.args(["--listen", &address.to_string(), "--share", &share.to_string()]);
            command.args(["--name", &format!("{kind}{number}")]);
            command.args(["--page-ms", &page_ms.to_string()]);
            start(command, address)
        };
        (1..=count).map(endpoint).collect()
    }

    /// equipoise with these pool options and its front door.
    pub(crate) fn balancer(&self, pool: &str) -> Result<Guest> {
        let address = free_address()?;
        let file = self.folder.join("equipoise.toml");
        let socket = self.folder.join("api.sock");
        let text = format!(
            "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[log]\nlevel = \"warn\"\n\n{pool}\n\
             [[session]]\nlisten = \"{address}\"\nprotocol = \"http\"\npool = \"endpoints\"\naccess-log = 0.0\n",
            socket.display()
        );
        fs::write(&file, text)?;
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(&self.equipoise);
        command.arg("run").arg(&file);
        start(command, address)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        for root in ["/sys/fs/cgroup/cpu/equipoise-l3b", "/sys/fs/cgroup/equipoise-l3b"] {
            remove_groups(Path::new(root));
        }
    }
}

/// Groups that are empty; those of endpoints of another run are not.
fn remove_groups(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        let _ = fs::remove_dir(entry.path());
    }
    let _ = fs::remove_dir(root);
}

/// The pool of an experiment: sessions are kept open for all that are in flight.
pub(crate) fn pool(endpoints: &[Guest]) -> String {
    let addresses: Vec<String> =
        endpoints.iter().map(|one| format!("\"{}\"", one.address)).collect();
    format!(
        "[[pool]]\nname = \"endpoints\"\nscheduler = \"least-connection\"\nretries = 0\n\
         idle-sessions-max = 2048\nbackends = [{}]\n",
        addresses.join(", ")
    )
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn start(mut command: Command, address: SocketAddr) -> Result<Guest> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: prctl is async-signal-safe and touches no memory. The lab has one thread that starts processes, and it
    // lives as long as the lab.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut guest = Guest { child, address };
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        if let Some(status) = guest.child.try_wait()? {
            bail!("{program} ended ({status}) before it listened; what it said is above");
        }
        if Instant::now() > until {
            bail!("{program} does not listen at {address}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(guest)
}

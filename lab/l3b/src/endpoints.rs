//! Endpoints and balancers as processes, as a user starts them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use equipoise_lab_runner::guest::{Guest, free_address};
use equipoise_lab_runner::share;

/// Programs and a folder for files.
pub(crate) struct Place {
    pub(crate) equipoise: PathBuf,
    pub(crate) endpoint: PathBuf,
    pub(crate) folder: PathBuf,
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
                bail!("{} does not exist: build it with `make lab-l3b`", program.display());
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
            Guest::start(command, address)
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
        Guest::start(command, address)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        share::remove("l3b");
    }
}

/// The paper's balancer gives each endpoint whatever comes.
pub(crate) const UNLIMITED: &str = "concurrency = \"none\"\n";

/// The pool of an experiment, with these options: sessions are kept open for all that are in
/// flight.
pub(crate) fn pool(endpoints: &[Guest], options: &str) -> String {
    let addresses: Vec<String> =
        endpoints.iter().map(|one| format!("\"{}\"", one.address)).collect();
    format!(
        "[[pool]]\nname = \"endpoints\"\nscheduler = \"least-connection\"\nretries = 0\n\
         idle-sessions-max = 2048\nbackends = [{}]\n{options}",
        addresses.join(", ")
    )
}

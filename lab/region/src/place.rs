//! Programs and a folder for files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use equipoise_lab_runner::guest::{Guest, free_address};
use equipoise_lab_runner::share;

pub(crate) struct Place {
    pub(crate) equipoise: PathBuf,
    pub(crate) haproxy: PathBuf,
    backend: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Descriptors for the clients of an overload, and for a proxy with as many.
const DESCRIPTORS: u64 = 65_536;

impl Place {
    /// Beside this program, unless an option names equipoise; HAProxy where Debian puts it.
    pub(crate) fn find(equipoise: Option<PathBuf>) -> Result<Place> {
        let here = std::env::current_exe()?;
        let beside = |name: &str| here.with_file_name(name);
        let place = Place {
            equipoise: equipoise.unwrap_or_else(|| beside("equipoise")),
            haproxy: PathBuf::from("/usr/sbin/haproxy"),
            backend: beside("equipoise-lab-region-backend"),
            folder: std::env::temp_dir().join(format!("equipoise-region-{}", std::process::id())),
        };
        for program in [&place.equipoise, &place.backend, &place.haproxy] {
            if !program.exists() {
                bail!("{} does not exist: run `make lab-region`", program.display());
            }
        }
        raise_descriptors()?;
        share::prefer("region").context("cannot make a control group: run it as root")?;
        fs::create_dir_all(&place.folder)?;
        Ok(place)
    }

    /// A backend with these options, in a control group of this name.
    pub(crate) fn backend(&self, name: &str, options: &[&str]) -> Result<Guest> {
        let address = free_address()?;
        let mut command = Command::new(&self.backend);
        command.args(["--listen", &address.to_string(), "--name", name]).args(options);
        Guest::start(command, address)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        share::remove("region");
    }
}

/// To the hard limit, unless that is more than is of use.
fn raise_descriptors() -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an rlimit to write to.
    let mut result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max.min(DESCRIPTORS.max(limit.rlim_cur));
    if result == 0 {
        // SAFETY: the limit is a valid rlimit, which the kernel only reads.
        result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("cannot change the limit of descriptors"),
    }
}

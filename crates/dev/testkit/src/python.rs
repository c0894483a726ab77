//! Programs in Python that tests run, each set of them in an environment of its own under target/.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// One test at a time sets up an environment: others of the same program wait for it.
static SETTING_UP: Mutex<()> = Mutex::new(());

/// The workspace's folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The folder of the programs of the environment that `make TARGET` sets up, made if it has to be;
/// `None` without Python.
///
/// # Panics
/// If `make` fails.
pub fn python_programs(target: &str) -> Option<PathBuf> {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: there is no python3, which {target} needs");
        return None;
    }
    let _one = SETTING_UP.lock().unwrap_or_else(PoisonError::into_inner);
    let made = Command::new("make").args(["-s", target]).current_dir(workspace()).output();
    let made = made.expect("make runs");
    let [printed, said] = [&made.stdout, &made.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(made.status.success(), "make {target}: {printed}{said}");
    Some(workspace().join("target").join(target).join("bin"))
}

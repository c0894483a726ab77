//! Programs in Python that tests run, each set of them in an environment of its own under target/.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{stderr, stdout};

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the programs of the environment that `make TARGET` sets up, made if it has to be; `None` without Python.
pub fn programs(target: &str) -> Option<PathBuf> {
    let python = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !python.is_ok_and(|status| status.success()) {
        println!("skipped: there is no python3, which {target} needs");
        return None;
    }
    let made = Command::new("make").args(["-s", target]).current_dir(root()).output();
    let made = made.expect("make runs");
    assert!(made.status.success(), "make {target}: {}{}", stdout(&made), stderr(&made));
    Some(root().join("target").join(target).join("bin"))
}

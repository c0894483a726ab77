//! Tells the crate whether `make web` has built the dashboard, which `routes/dashboard.rs` embeds.

use std::path::PathBuf;

fn main() {
    // The current folder: the build script may have been compiled before its folder was moved.
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let dist = PathBuf::from(crate_folder).join("../../../web/dist");
    println!("cargo:rerun-if-changed={}", dist.display());
    println!("cargo:rustc-check-cfg=cfg(has_dashboard)");
    let files = ["index.html", "dashboard.js", "dashboard.css"];
    if files.iter().all(|file| dist.join(file).is_file()) {
        println!("cargo:rustc-cfg=has_dashboard");
    }
}

//! Builds the BPF programs of this folder.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    for name in ["driver", "katran_style", "receiver"] {
        let source = Path::new("bpf").join(name).with_extension("bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .clang_args(["-O2", "-Wall", "-Werror", "-mcpu=v3", "-I/usr/include/x86_64-linux-gnu"])
            .build_and_generate(out.join(name).with_extension("skel.rs"))
            .with_context(|| format!("{} needs clang, libelf-dev, zlib1g-dev", source.display()))?;
    }
    println!("cargo::rerun-if-changed=bpf");
    Ok(())
}

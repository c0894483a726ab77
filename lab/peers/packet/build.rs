//! Builds the BPF programs of this folder.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

const ARGUMENTS: [&str; 5] =
    ["-O2", "-Wall", "-Werror", "-mcpu=v3", "-I/usr/include/x86_64-linux-gnu"];

/// Builds of our program without parts, by name, and what `without.bpf.c` takes for them.
const BUILDS: [(&str, &[&str]); 7] = [
    ("without_station", &["-DWITHOUT_STATION"]),
    ("without_lists", &["-DWITHOUT_LISTS"]),
    ("without_quic", &["-DWITHOUT_QUIC"]),
    ("without_backends", &["-DWITHOUT_BACKENDS"]),
    (
        "without_four",
        &["-DWITHOUT_STATION", "-DWITHOUT_LISTS", "-DWITHOUT_QUIC", "-DWITHOUT_BACKENDS"],
    ),
    ("without_sender", &["-DWITHOUT_SENDER"]),
    ("sender_each", &["-DSENDER_EACH"]),
];

fn main() -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let needs = "clang, libelf-dev, zlib1g-dev";
    for name in ["driver", "katran_style", "receiver"] {
        let source = Path::new("bpf").join(name).with_extension("bpf.c");
        SkeletonBuilder::new()
            .source(&source)
            .clang_args(ARGUMENTS)
            .build_and_generate(out.join(name).with_extension("skel.rs"))
            .with_context(|| format!("{} needs {needs}", source.display()))?;
    }
    for (name, defines) in BUILDS {
        let arguments = [&ARGUMENTS[..], &["-I../../../bpf/include"], defines].concat();
        SkeletonBuilder::new()
            .source("bpf/without.bpf.c")
            .obj(out.join(name).with_extension("bpf.o"))
            .clang_args(arguments)
            .build()
            .with_context(|| format!("{name} needs {needs}"))?;
    }
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-changed=../../../bpf");
    Ok(())
}

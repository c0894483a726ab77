//! Compiles the BPF programs with clang, against libbpf's own headers.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// `layout` has types only; a test uses it.
const PROGRAMS: &[&str] = &["balancer", "decap", "layout"];

fn main() {
    // The current folder: the build script may have been compiled before its folder was moved.
    let bpf = set_by_cargo("CARGO_MANIFEST_DIR").join("../../../bpf");
    let out = set_by_cargo("OUT_DIR");
    println!("cargo::rerun-if-changed={}", bpf.join("include").display());
    println!("cargo::rerun-if-env-changed=EQUIPOISE_CLANG");
    for program in PROGRAMS {
        let source = bpf.join(format!("{program}.bpf.c"));
        println!("cargo::rerun-if-changed={}", source.display());
        let built = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{program}.bpf.o")))
            .clang(env::var_os("EQUIPOISE_CLANG").unwrap_or_else(|| "clang".into()))
            .clang_args(clang_arguments(&bpf))
            .build();
        if let Err(error) = built {
            panic!(
                "cannot compile {}: {error:#}\nclang 14 or newer and the kernel's headers are needed: make setup",
                source.display()
            );
        }
    }
}

fn set_by_cargo(name: &str) -> PathBuf {
    env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}")).into()
}

/// `-mcpu=v3`: compare-and-exchange and 32-bit arithmetic, which every kernel from 5.12 on
/// supports.
fn clang_arguments(bpf: &Path) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
            .map(String::from)
            .to_vec();
    arguments.extend(["-I".into(), bpf.join("include").display().to_string()]);
    // Debian has asm/types.h of the kernel's headers in a folder per machine, which BPF targets do
    // not search.
    let machine = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    arguments.extend(["-idirafter".into(), format!("/usr/include/{machine}-linux-gnu")]);
    arguments
}

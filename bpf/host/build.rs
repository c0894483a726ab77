//! Compiles the packet programs as C for this machine.

fn main() {
    println!("cargo::rerun-if-changed=..");
    cc::Build::new()
        .file("src/host.c")
        .include("../include")
        .include("src")
        .define("EQP_HOST", None)
        .std("gnu11")
        .opt_level(2)
        // The programs read packets and tables as words of any size.
        .flag("-fno-strict-aliasing")
        .flag("-Wno-unused-parameter")
        .warnings(true)
        .extra_warnings(true)
        .compile("equipoise_packet_host");
}

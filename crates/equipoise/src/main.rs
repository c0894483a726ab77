//! equipoise: one load balancer from the name to the slice.

fn main() -> std::process::ExitCode {
    equipoise::main()
}

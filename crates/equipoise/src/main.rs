//! equipoise: one load balancer from the name to the slice.

use equipoise_heap::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> std::process::ExitCode {
    equipoise::main()
}

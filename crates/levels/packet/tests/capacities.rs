//! The program loads whatever the sizes: each is a constant that the verifier checks every access
//! against. Needs root.

use equipoise_packet::{Capacity, FlowTags, Limits, LoadError, Program};

/// Smallest, odd, powers of two and one beside them, default, large.
fn capacities() -> Vec<Capacity> {
    let small = Capacity {
        flows: 64,
        tags: FlowTags::Long,
        pins: 16,
        pending: 1 << 15,
        services: 1,
        backends: 1,
        prefixes: 16,
        full_nat_flows: 1024,
        rings: 2,
        ring_entries: 7,
        cpus: 1,
        log_events: 1,
        sample_every: 32,
    };
    let services = [1, 2, 3, 15, 16, 17, 31, 32, 33, 255, 1000].map(|services| Capacity {
        services,
        backends: services * 3,
        rings: services * 2,
        ..small
    });
    let logs = [2, 64, 1 << 12].map(|log_events| Capacity { log_events, services: 17, ..small });
    let large = Capacity {
        flows: 10_000_000,
        pins: 4 << 20,
        pending: 1 << 20,
        services: 4096,
        backends: 60_000,
        rings: 64,
        ring_entries: 65_537,
        ..Capacity::default()
    };
    let most = Capacity { flows: Capacity::FLOWS_MAX, pending: Capacity::PENDING_MAX, ..small };
    let short = [small, most].map(|capacity| Capacity { tags: FlowTags::Short, ..capacity });
    [&services[..], &logs, &[Capacity::default(), large, most], &short].concat()
}

#[test]
fn the_program_loads_with_every_capacity() {
    for capacity in capacities() {
        match Program::load(&Limits::new(&capacity)) {
            Ok(_) => {}
            Err(LoadError::Privilege(_)) => {
                println!("skipped: loading a program needs root");
                return;
            }
            Err(error) => panic!("{capacity:?}: {error}"),
        }
    }
}

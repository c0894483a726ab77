//! Workers that are killed while no lease expires in time.

use std::time::Instant;

use crate::bed::{Bed, Load, SLICES, python, slices_of, worker};
use crate::common::{Process, text};

#[test]
fn slices_of_a_killed_worker_are_served_again_long_before_any_lease_is_over() {
    if !python() {
        return;
    }
    let mut bed = Bed::without_leases("slice-death", 58);
    bed.two_workers(1);
    let load = Load::start(&bed, 300.0);
    for (victim, other) in [("one", "two"), ("two", "one"), ("one", "two")] {
        load.wait_for(100);
        let killed = Instant::now();
        bed.kill_worker(victim);
        bed.until("the other has its slices", |status| {
            slices_of(status, other) == u64::from(SLICES)
        });
        println!("{victim}: others have its slices after {:?}", killed.elapsed());
        // The load continues only if clients do not wait for the dead worker's readers.
        load.wait_for(100);
        let status = bed.status();
        let lost = worker(&status, victim);
        assert!(lost["reason"].as_str().unwrap().contains("its connection closed"), "{status:#}");
        // Its name can be used again at once.
        bed.worker(victim, 1);
        bed.until("it is back", |status| worker(status, victim)["state"] == "active");
        let end = Instant::now() + crate::bed::PATIENCE;
        while !bed.command(&["move", "0-5", victim]).0 {
            assert!(Instant::now() < end, "{:#}", bed.status());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        bed.until_owned_by(&["one", "two"]);
    }
    let outcome = load.finish();
    let done = bed.done();
    assert!((0..outcome.published).all(|id| done.contains_key(&id)));
}

#[test]
fn a_client_in_python_has_a_reply_to_each_item_though_a_worker_is_killed() {
    let Some(python) = crate::bed::cyclonedds() else { return };
    let mut bed = Bed::without_leases("slice-death-python", 34);
    bed.two_workers(5);
    let client = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = client.join("../levels/slice-dds/examples/client.py");
    let mut command = std::process::Command::new(python);
    command.args([text(&client), "34", &SLICES.to_string(), "1000", "lo", "modulo"]);
    command.env("CONTROL", "items/control");
    let mut client = crate::common::Process::of(command);
    client.wait_for_text("item ");
    bed.kill_worker("one");
    assert!(client.ended().success(), "{}", client.printed());
    let printed = client.printed();
    let ids: std::collections::BTreeSet<&str> =
        printed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((ids.len(), printed.lines().count()), (1000, 1000));
}

#[test]
fn a_python_client_reports_its_kept_items_so_no_successor_waits() {
    let Some(python) = crate::bed::cyclonedds() else { return };
    let mut bed = Bed::unstarted("slice-python-keeps", 35);
    // Without an answer a successor would hold items back for longer than the client waits. Slices
    // that may recover for so long do not move, so each worker has them by a loss.
    let table = bed.table("items", "order = \"strict\"\n[slice.balancing]\nshare-max = 0");
    bed.write_tables(&table.replace("recovery = \"5s\"", "recovery = \"10m\""));
    bed.start();
    bed.worker("one", 5);
    bed.until_owned_by(&["one"]);
    ["two", "three"].iter().for_each(|name| bed.worker(name, 5));
    bed.until("they are there", |status| {
        ["two", "three"].iter().all(|name| status.to_string().contains(&format!("\"{name}\"")))
    });
    let client = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = client.join("../levels/slice-dds/examples/client.py");
    for (victim, assignment) in [("one", &["modulo"][..]), ("two", &[])] {
        let mut command = std::process::Command::new(&python);
        command.args([text(&client), "35", &SLICES.to_string(), "600", "lo"]);
        command.args(assignment).env("CONTROL", "items/control");
        let mut client = Process::of(command);
        client.wait_for_text("item ");
        bed.kill_worker(victim);
        assert!(client.ended().success(), "{}", client.printed());
        assert_eq!(client.printed().lines().count(), 600, "a reply to each item");
    }
}

#[test]
fn a_long_recovery_time_does_not_block_operator_slice_moves() {
    if !crate::bed::python() {
        return;
    }
    let mut bed = Bed::unstarted("slice-recovery", 36);
    let table = bed.table("items", "order = \"strict\"\n[slice.balancing]\nshare-max = 0");
    bed.write_tables(&table.replace("recovery = \"5s\"", "recovery = \"10m\""));
    bed.start();
    // Moves the first slices, and waits until they have moved.
    bed.two_workers(1);
}

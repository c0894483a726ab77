//! Workers that end, leave, or have an expired lease; clients with the same number.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use equipoise_dds::items::DataItem;
use equipoise_slice::SliceId;
use equipoise_slice_dds::worker::{Program, Threads, WorkerError};

use crate::cluster::{Cluster, Load, PATIENCE};

#[test]
fn a_panicking_program_ends_its_worker_and_another_processes_its_items() {
    let cluster = Cluster::where_some_are_lost(51);
    let panics = |item: &DataItem<'_>| {
        assert!(item.id != 7, "of 7 it knows nothing");
        item.message.to_vec()
    };
    let one = cluster.worker_of("one", Threads::new(1, panics));
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(20);
    cluster.eventually("it has ended", || !one.is_running());
    let two = cluster.worker("two", Duration::ZERO);
    load.read_all();
    load.check();
    let error = one.stop().unwrap_err();
    let WorkerError::Panicked(text) = &error else { panic!("{error:?}") };
    assert_eq!(text, "of 7 it knows nothing");
    two.stop().unwrap();
}

#[test]
fn a_leaving_worker_loses_its_slices_before_the_next_balancing_round() {
    let cluster = Cluster::new(52, Duration::from_secs(3600));
    let one = cluster.worker("one", Duration::ZERO);
    let two = cluster.worker("two", Duration::ZERO);
    cluster.share("one", "two");
    one.leave();
    cluster.eventually("it has no slices", || one.slices() == 0 && two.slices() == 20);
}

#[test]
fn a_program_receives_no_item_while_its_worker_is_fenced() {
    let mut cluster = Cluster::with(53, |options| {
        options.protocol.lease = Duration::from_millis(700);
        options.protocol.retire = Duration::from_secs(3);
    });
    let folder = equipoise_testkit::Folder::new("slice-lapsed");
    let socket = folder.root().join("program");
    let program = Program::listen(&socket).unwrap();
    let one = cluster.worker_of("one", program);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(1);
    cluster.eventually("it has the item", || one.queued() > 0);
    // The cluster's controller ends.
    let mut elsewhere = Cluster::new(55, Duration::ZERO);
    std::mem::swap(&mut cluster.controller, &mut elsewhere.controller);
    drop(elsewhere);
    let end = Instant::now() + PATIENCE;
    while !one.is_fenced() {
        assert!(Instant::now() < end, "its lease does not lapse");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The item waits for a program, and one connects now.
    let mut program = UnixStream::connect(&socket).unwrap();
    program.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut batch = [0; 4];
    assert!(program.read(&mut batch).is_err(), "it was given what may be another's");
    while one.queued() > 0 {
        assert!(Instant::now() < end, "what was of the incarnation before is still in hand");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(program.read(&mut batch).is_err());
    one.stop().unwrap();
}

#[test]
fn two_clients_with_one_number_each_receive_their_own_replies() {
    let cluster = Cluster::new(54, Duration::ZERO);
    let one = cluster.worker("one", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut loads = [Load::new(&cluster), Load::new(&cluster)];
    loads.iter_mut().for_each(Load::open_all);
    for id in 0..100 {
        for (number, load) in loads.iter_mut().enumerate() {
            load.client.publish(SliceId(id % 20), i64::from(id), &[number as u8]).unwrap();
            // Replies to the other client arrive, too.
            load.read(Duration::ZERO);
        }
    }
    for (number, load) in loads.iter_mut().enumerate() {
        load.read_all();
        assert!(load.answers.iter().all(|answer| answer.message == [number as u8]));
        assert_eq!(load.answers.len(), 100);
        assert!(load.client.strange() > 0, "replies to the other client were distinguished");
    }
    one.stop().unwrap();
}

use std::fs::File;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::*;
use crate::*;

const NO_GRACE: Duration = Duration::ZERO;

fn region(sizes: SharedSizes) -> Arc<Region> {
    Arc::new(Region::anonymous(sizes.bytes::<u16>()).expect("the system has memory"))
}

fn controller(keys: u64) -> PogController<u64, u16> {
    let entries = (0..keys).map(|key| (key, key as u16));
    PogBuilder::new().random_seed(1).build(entries).expect("distinct keys")
}

fn agrees(reader: &Reader, pog: &Pog, keys: u64) -> bool {
    (0..keys).all(|key| reader.tau(&key) == pog.tau(&key))
}

#[test]
fn a_reader_sees_each_publication_and_no_unpublished_change() {
    let mut controller = controller(500);
    let sizes = SharedSizes::new(2000, None);
    let shared = region(sizes);
    let image = controller.pog().clone();
    let mut publisher = Publisher::create(shared.clone(), sizes, NO_GRACE, &image, None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    assert!(agrees(&reader, &image, 1000));
    let mut published = image;
    for round in 0..400_u64 {
        let delta = controller.insert(1000 + round, 9).unwrap();
        publisher.note(delta);
        let delta = controller.alter(&(round % 500), round as u16).unwrap();
        publisher.note(delta);
        if round % 50 == 49 {
            publisher.note(controller.rebalance());
        }
        assert!(agrees(&reader, &published, 300), "unpublished changes are not seen");
        publisher.publish(controller.pog(), None).unwrap();
        published = controller.pog().clone();
        assert!(agrees(&reader, &published, 1500), "round {round}");
        assert_eq!(reader.read(|view| view.generation()), published.generation());
    }
}

#[test]
fn a_change_without_a_note_is_published() {
    let mut controller = controller(500);
    let sizes = SharedSizes::new(1000, None);
    let shared = region(sizes);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    for key in 0..50 {
        controller.alter(&key, 777).unwrap();
        if key % 2 == 0 {
            publisher.note(controller.delta());
        }
        publisher.publish(controller.pog(), None).unwrap();
        assert!(agrees(&reader, controller.pog(), 1000));
    }
}

#[test]
fn the_image_of_another_controller_is_published_whole() {
    let sizes = SharedSizes::new(500, None);
    let shared = region(sizes);
    let one = controller(500);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, one.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    publisher.publish(one.pog(), None).unwrap();
    // An image with the same seed, sizes and generation.
    let entries = (0..500_u64).map(|key| (key, !(key as u16)));
    let other = PogBuilder::new().random_seed(1).build(entries).unwrap();
    publisher.publish(other.pog(), None).unwrap();
    assert!(agrees(&reader, other.pog(), 500));
}

#[test]
fn cells_and_hosts_change_together() {
    let builder = PogBuilder::new().random_seed(1);
    let mut sdlb = Sdlb::<u64>::new(&builder, 8, &[(1, 1), (2, 1)]).unwrap();
    let sizes = SharedSizes::new(1000, Some(8));
    let shared = region(sizes);
    let table = Some(sdlb.table());
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, sdlb.keys().pog(), table).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    sdlb.register(7, 2).unwrap();
    sdlb.join(3, 2).unwrap();
    sdlb.migrate(&7, 3).unwrap();
    publisher.publish(sdlb.keys().pog(), Some(sdlb.table())).unwrap();
    assert_eq!(reader.host(&7_u64), 3);
    assert!((0..500_u64).all(|key| reader.host(&key) == sdlb.host(&key)));
}

#[test]
fn extra_tables_are_published_together_with_the_cells() {
    let mut controller = controller(100);
    let sizes = SharedSizes::new(1000, Some(4)).with_extra(60);
    let shared = region(sizes);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    let seen = || reader.read(|view| (view.tau(&7_u64), view.extra()[7].load(Relaxed)));
    assert_eq!(seen(), (7, 0), "nothing yet");
    for round in 1..10_u16 {
        publisher.note(controller.alter(&7, round).unwrap());
        let extra = [u64::from(round); 8];
        publisher.publish_with(controller.pog(), None, &extra).unwrap();
        assert_eq!(seen(), (round, u64::from(round)));
    }
    let refused = publisher.publish_with(controller.pog(), None, &[0; 9]).unwrap_err();
    assert_eq!(refused, PublishError::Extra { words: 9, room: 8 }, "60 bytes are a line of 64");
    assert_eq!(seen(), (9, 9));
}

#[test]
fn the_fingerprint_form_is_published_and_the_plain_form_refused() {
    let form = Fingerprint::new::<u16>(6).unwrap();
    let entries = (0..500_u64).map(|key| (key, key as u16 % 64));
    let controller = PogBuilder::new().fingerprint(form).build(entries).unwrap();
    let sizes = SharedSizes::new(500, None);
    let shared = region(sizes);
    Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16, SipHash13, Fingerprint>::open(shared.clone(), form).unwrap();
    assert!((0..2000_u64).all(|key| reader.pinned(&key) == controller.pog().pinned(&key)));
    let other = Reader::<u16>::open(shared, Plain).unwrap_err();
    assert_eq!(other, OpenError::Kind { what: "bits of tau:", given: 6, wanted: 16 });
}

#[test]
fn an_oversized_publication_is_refused_and_readers_see_the_old_image() {
    let mut controller = controller(100);
    let sizes = SharedSizes::new(100, None);
    let shared = region(sizes);
    let before = controller.pog().clone();
    let mut publisher = Publisher::create(shared.clone(), sizes, NO_GRACE, &before, None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    controller.insert_all((1000..3000).map(|key| (key, 0))).unwrap();
    let refused = publisher.publish(controller.pog(), None).unwrap_err();
    assert!(matches!(refused, PublishError::Cells { room: 165, .. }), "{refused}");
    let refused = publisher.publish(&before, Some(&HostTable::new(4))).unwrap_err();
    assert_eq!(refused, PublishError::Entries { entries: 16, room: 0 });
    assert!(agrees(&reader, &before, 200));
    let small = Arc::new(Region::anonymous(4096).unwrap());
    let sizes = SharedSizes::new(1000, None);
    let refused = Publisher::create(small, sizes, NO_GRACE, &before, None).unwrap_err();
    assert_eq!(refused, PublishError::Region { given: 4096, wanted: sizes.bytes::<u16>() });
}

#[test]
fn a_publication_without_a_host_table_removes_all_hosts() {
    let controller = controller(500);
    let sizes = SharedSizes::new(500, Some(10));
    let shared = region(sizes);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    let no_hosts = || (0..500_u64).all(|key| reader.host(&key) == NO_HOST);
    assert!(no_hosts(), "never published");
    let mut table = HostTable::new(10);
    table.share_out(&[(5, 1)], |_| false, &mut Vec::new()).unwrap();
    for _ in 0..2 {
        publisher.publish(controller.pog(), Some(&table)).unwrap();
        assert!((0..500_u64).all(|key| reader.host(&key) == 5));
    }
    publisher.publish(controller.pog(), None).unwrap();
    assert!(no_hosts(), "no longer published");
}

#[test]
fn alternating_images_of_a_controller_and_its_clone_are_published_whole() {
    let sizes = SharedSizes::new(500, None);
    let shared = region(sizes);
    let (mut one, mut other) = (controller(500), controller(500));
    other.clone_from(&one);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, one.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    for round in 0..20_u64 {
        // The same generations, different cells.
        publisher.note(one.alter(&round, 1000).unwrap());
        publisher.publish(one.pog(), None).unwrap();
        assert!(agrees(&reader, one.pog(), 500));
        other.alter(&(round + 100), 2000).unwrap();
        publisher.publish(other.pog(), None).unwrap();
        assert!(agrees(&reader, other.pog(), 500));
    }
}

#[test]
fn deltas_of_another_controller_do_not_corrupt_a_publication() {
    let sizes = SharedSizes::new(500, None);
    let shared = region(sizes);
    let (mut one, mut other) = (controller(500), controller(300));
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, one.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    publisher.publish(one.pog(), None).unwrap();
    for round in 0..20_u64 {
        one.alter(&round, 1000).unwrap();
        publisher.note(other.alter(&(round + 100), 2000).unwrap());
        publisher.publish(one.pog(), None).unwrap();
        assert!(agrees(&reader, one.pog(), 500), "round {round}");
    }
}

#[test]
fn the_number_of_notes_is_bounded_without_loss_of_changes() {
    let mut controller = controller(500);
    let sizes = SharedSizes::new(500, None);
    let shared = region(sizes);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    publisher.publish(controller.pog(), None).unwrap();
    for step in 0..20_000_u64 {
        publisher.note(controller.alter(&(step % 500), step as u16).unwrap());
        assert!(publisher.notes() <= 2 * 1000);
    }
    publisher.publish(controller.pog(), None).unwrap();
    assert!(agrees(&reader, controller.pog(), 500));
}

#[test]
fn a_reader_refuses_memory_that_was_never_set_up() {
    let shared = region(SharedSizes::new(100, None));
    let refused = Reader::<u16>::open(shared, Plain).unwrap_err();
    assert_eq!(refused, OpenError::NotSetUp);
}

#[test]
fn memory_sized_for_keys_fits_every_smaller_number_of_keys() {
    for keys in [0, 1, 2, 3, 10, 999, 1000] {
        let sizes = SharedSizes::new(keys, None);
        let mut all = controller(0);
        for key in 0..keys as u64 {
            all.insert(key, 0).unwrap();
            assert!(all.pog().sizes().a() <= sizes.cells_max);
        }
    }
}

/// A controller that grows to all its keys, shrinks and grows again.
#[test]
fn a_controller_never_exceeds_the_memory_for_its_keys() {
    for keys in [1, 2, 3, 10, 999, 1000] {
        let cells_max = SharedSizes::new(keys, None).cells_max;
        for room in [0, 5, 10_000] {
            let builder = PogBuilder::<u16>::new().keys_max(keys).room(room).random_seed(7);
            let mut all = builder.build([(0, 0)]).unwrap();
            for _ in 0..2 {
                for key in 1..keys as u64 {
                    all.insert(key, 0).unwrap();
                    assert!(all.pog().sizes().a() <= cells_max, "{keys} keys, room {room}");
                }
                for key in 1..keys as u64 {
                    all.delete(&key).unwrap();
                    assert!(all.pog().sizes().a() <= cells_max, "{keys} keys, room {room}");
                }
            }
            let all = builder.build((0..keys as u64).map(|key| (key, 0))).unwrap();
            assert!(all.pog().sizes().a() <= cells_max, "{keys} keys, room {room}");
        }
    }
}

#[test]
fn readers_survive_a_writer_that_dies_midway_and_another_takes_over() {
    let mut controller = controller(500);
    let sizes = SharedSizes::new(1000, None);
    let shared = region(sizes);
    let before = controller.pog().clone();
    let publisher = Publisher::create(shared.clone(), sizes, NO_GRACE, &before, None).unwrap();
    let reader = Reader::<u16>::open(shared.clone(), Plain).unwrap();
    // The writer dies after writing garbage to the copy that is not in use.
    let copies = reader::Copies::<u16, SipHash13, Plain>::open(shared.clone(), Plain).unwrap();
    let shadow = copies.copy((publisher.epoch() as usize + 1) % 2);
    shadow.header.a.store(77, Relaxed);
    shadow.header.k0.store(99, Relaxed);
    shadow.a.iter().for_each(|cell| cell.store(0xdead, Relaxed));
    drop(publisher);
    assert!(agrees(&reader, &before, 1000));
    controller.alter(&3, 4).unwrap();
    let mut publisher = Publisher::attach(shared, NO_GRACE, Plain).unwrap();
    assert!(agrees(&reader, &before, 1000), "taking over changes nothing");
    for _ in 0..3 {
        publisher.publish(controller.pog(), None).unwrap();
        assert!(agrees(&reader, controller.pog(), 1000));
        controller.rebalance();
    }
}

#[test]
fn a_publication_waits_until_the_grace_period_after_the_last_one_is_over() {
    let controller = controller(10);
    let sizes = SharedSizes::new(10, None);
    let grace = Duration::from_millis(20);
    let mut earliest = Instant::now();
    let mut publisher =
        Publisher::create(region(sizes), sizes, grace, controller.pog(), None).unwrap();
    for _ in 0..3 {
        // The period begins with the last publication and is not longer.
        let ready_at = publisher.ready_at().unwrap();
        assert!((earliest + grace..=Instant::now() + grace).contains(&ready_at));
        publisher.publish(controller.pog(), None).unwrap();
        assert!(Instant::now() >= ready_at);
        earliest = ready_at;
    }
}

/// Readers and a continuous writer, with real threads: of a pair of keys that change together, no
/// reader sees one old and one new value.
#[test]
fn readers_never_see_a_partial_change_under_a_continuous_writer() {
    const PAIRS: u64 = 64;
    let mut controller = controller(4 * PAIRS);
    let sizes = SharedSizes::new(4 * PAIRS as usize, None);
    let shared = region(sizes);
    // Generation g gives keys 2p and 2p + 1 the taus g + p and !(g + p).
    let alter = |controller: &mut PogController<u64, u16>, generation: u16| {
        let updates = (0..PAIRS).flat_map(|pair| {
            let tau = generation.wrapping_add(pair as u16);
            [Update::Alter(2 * pair, tau), Update::Alter(2 * pair + 1, !tau)]
        });
        controller.update(updates, &mut Vec::new());
    };
    alter(&mut controller, 0);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let reader = Reader::<u16>::open(shared.clone(), Plain).unwrap();
            let over = &over;
            scope.spawn(move || {
                let (mut reads, mut pair) = (0_u64, 0);
                while !over.load(Relaxed) || reads < 1000 {
                    pair = (pair + 1) % PAIRS;
                    let (one, other) =
                        reader.read(|view| (view.tau(&(2 * pair)), view.tau(&(2 * pair + 1))));
                    assert_eq!(one, !other, "half a change was seen");
                    reads += 1;
                }
            });
        }
        for generation in 1..3000 {
            alter(&mut controller, generation);
            publisher.note(controller.delta());
            if generation % 100 == 0 {
                publisher.note(controller.rebuild().unwrap());
            }
            publisher.publish(controller.pog(), None).unwrap();
        }
        over.store(true, Relaxed);
    });
}

/// Environment variable of the child process: the file to map.
const CHILD_READS: &str = "POG_TEST_CHILD_READS";

/// The next test runs this in another process; otherwise it does nothing.
#[test]
fn child_reads() {
    let Ok(path) = std::env::var(CHILD_READS) else { return };
    let region = Region::map(&File::open(path).unwrap(), Access::Read).unwrap();
    let reader = Reader::<u16>::open(Arc::new(region), Plain).unwrap();
    assert!((0..500_u64).all(|key| reader.tau(&key) == key as u16));
}

#[test]
fn another_process_reads_the_published_image() {
    let path = std::env::temp_dir().join(format!("pog-test-{}", std::process::id()));
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let sizes = SharedSizes::new(500, None);
    file.set_len(sizes.bytes::<u16>() as u64).unwrap();
    let region = Arc::new(Region::map(&file, Access::Write).unwrap());
    let controller = controller(500);
    Publisher::create(region, sizes, NO_GRACE, controller.pog(), None).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["publish::tests::child_reads", "--exact"])
        .env(CHILD_READS, &path)
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = child.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn a_staged_image_is_visible_after_commit_and_replaceable_before() {
    let mut controller = controller(500);
    let sizes = SharedSizes::new(1000, None).with_extra(8);
    let shared = region(sizes);
    let mut publisher =
        Publisher::create(shared.clone(), sizes, NO_GRACE, controller.pog(), None).unwrap();
    let reader = Reader::<u16>::open(shared, Plain).unwrap();
    let mut published = controller.pog().clone();
    for round in 0..20_u64 {
        publisher.note(controller.alter(&round, 1).unwrap());
        publisher.stage(controller.pog(), None, &[100 + round]).unwrap();
        assert!(agrees(&reader, &published, 1000), "staged is not seen");
        publisher.note(controller.alter(&(round + 100), 2).unwrap());
        publisher.stage(controller.pog(), None, &[200 + round]).unwrap();
        let epoch = publisher.commit();
        published = controller.pog().clone();
        assert!(agrees(&reader, &published, 1000));
        let extra = reader.read(|view| view.extra()[0].load(Relaxed));
        assert_eq!((extra, publisher.epoch()), (200 + round, epoch));
    }
}

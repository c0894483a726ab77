//! Tests over loopback, each in its own domain.

use std::time::{Duration, Instant};

use crate::items::{DATA_ITEM, DATA_ITEM_BY_ID, DataItem};
use crate::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn loopback() -> Settings {
    // So long that a busy machine does not end a participant's lease.
    let lease = Duration::from_secs(30);
    Settings { interfaces: vec!["lo".into()], lease, ..Settings::default() }
}

fn participant(domain: u32) -> Participant {
    Participant::new(Domain::open(domain, &loopback()).unwrap(), b"test").unwrap()
}

fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(equipoise_testkit::eventually(holds), "{what}");
}

fn meet(writer: &Writer, reader: &Reader) {
    eventually("writer and reader meet", || {
        writer.matched().unwrap() == 1 && reader.writers().unwrap().len() == 1
    });
}

fn item(slice_id: i32, id: i64) -> Vec<u8> {
    let mut cdr = Vec::new();
    DataItem { slice_id, id, sender_id: 1, timestamp: 2, message: b"content" }.encode(&mut cdr);
    cdr
}

/// Takes until `count` samples have arrived.
fn take(waitset: &Waitset, reader: &Reader, count: usize) -> Vec<Sample> {
    let mut samples = Vec::new();
    let end = Instant::now() + PATIENCE;
    while samples.len() < count {
        assert!(Instant::now() < end, "{} of {count} samples came", samples.len());
        waitset.wait(Duration::from_millis(100), &mut Vec::new()).unwrap();
        reader.take(&mut samples).unwrap();
    }
    samples
}

fn none_of(reader: &Reader) -> usize {
    let mut samples = Vec::new();
    reader.take(&mut samples).unwrap();
    samples.len()
}

fn ids(samples: &[Sample]) -> Vec<i64> {
    samples.iter().map(|sample| DataItem::decode(sample.cdr()).unwrap().id).collect()
}

#[test]
fn a_sample_that_was_serialized_once_is_written_by_two_writers_and_outlives_both() {
    let here = participant(9);
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let reader = topic.reader(&Qos::default()).unwrap();
    let writer = || topic.writer(&Qos::default()).unwrap();
    let (first, again) = (writer(), writer());
    eventually("they meet", || reader.writers().unwrap().len() == 2);
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 5).unwrap();
    let sample = first.serialized(&item(3, 4), 1_000).unwrap();
    assert!(first.serialized(&[0; 3], 0).is_err(), "no header");
    first.write_again(&sample).unwrap();
    drop(first);
    again.write_again(&sample).unwrap();
    let samples = take(&waitset, &reader, 2);
    drop((sample, again));
    for sample in samples {
        assert_eq!((sample.cdr(), sample.timestamp_ns()), (&item(3, 4)[..], 1_000));
    }
}

#[test]
fn samples_arrive_unchanged_and_in_order_with_writer_and_timestamp() {
    let here = participant(10);
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let reader = topic.reader(&Qos::default()).unwrap();
    let qos = Qos { user_data: b"a client".to_vec(), ..Qos::default() };
    let writer = topic.writer(&qos).unwrap();
    meet(&writer, &reader);
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 5).unwrap();
    for id in 0..1000 {
        writer.write_at(&item(id as i32 % 7, id), 1_000_000 + id).unwrap();
    }
    let samples = take(&waitset, &reader, 1000);
    assert_eq!(ids(&samples), (0..1000).collect::<Vec<_>>());
    assert_eq!(samples[7].cdr(), item(0, 7));
    assert_eq!(samples[7].timestamp_ns(), 1_000_007);
    let endpoint = reader.writer(samples[7].writer()).expect("the writer is known");
    assert_eq!(endpoint.guid, writer.guid());
    assert_eq!(endpoint.participant, here.guid().unwrap());
    assert_eq!(endpoint.user_data, b"a client");
    assert_eq!(reader.writers().unwrap(), [samples[7].writer()]);
}

#[test]
fn a_sample_outlives_its_reader() {
    let sample = {
        let here = participant(11);
        let topic = here.topic("items", &DATA_ITEM).unwrap();
        let reader = topic.reader(&Qos::default()).unwrap();
        let writer = topic.writer(&Qos::default()).unwrap();
        meet(&writer, &reader);
        writer.write(&item(1, 9)).unwrap();
        let waitset = here.waitset().unwrap();
        waitset.attach(&reader, 0).unwrap();
        take(&waitset, &reader, 1).remove(0)
    };
    assert_eq!(sample.cdr(), item(1, 9));
}

#[test]
fn a_reader_receives_samples_of_its_own_partition_only() {
    let here = participant(12);
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let of = |name: &str| Qos { partition: Some(name.into()), ..Qos::default() };
    let (left, right) = (topic.reader(&of("left")).unwrap(), topic.reader(&of("right")).unwrap());
    let base = topic.reader(&Qos::default()).unwrap();
    let writer = topic.writer(&of("left")).unwrap();
    meet(&writer, &left);
    writer.write(&item(1, 1)).unwrap();
    let waitset = here.waitset().unwrap();
    waitset.attach(&left, 0).unwrap();
    assert_eq!(ids(&take(&waitset, &left, 1)), [1]);
    for other in [right, base] {
        assert_eq!(none_of(&other), 0);
        assert_eq!(other.writers().unwrap(), []);
    }
}

#[test]
fn a_late_reader_receives_the_last_sample_from_transient_local_writers() {
    let here = participant(13);
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let qos = Qos { transient_local: true, keep_last: Some(1), ..Qos::default() };
    let writer = topic.writer(&qos).unwrap();
    for id in 0..5 {
        writer.write(&item(7, id)).unwrap();
    }
    let reader = topic.reader(&qos).unwrap();
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    assert_eq!(ids(&take(&waitset, &reader, 1)), [4], "the last of the instance");
}

#[test]
fn a_writer_refuses_samples_that_do_not_match_its_type() {
    let here = participant(14);
    let writer = here.topic("items", &DATA_ITEM).unwrap().writer(&Qos::default()).unwrap();
    let good = item(1, 1);
    for length in 0..good.len() - 8 {
        assert_eq!(writer.write(&good[..length]), Err(Error::NotOfType { bytes: length }));
    }
    let mut strange = good.clone();
    strange[1] = 0x55;
    assert_eq!(writer.write(&strange), Err(Error::NotOfType { bytes: good.len() }));
    assert_eq!(writer.write(&good), Ok(()));
}

#[test]
fn an_open_domain_refuses_other_settings_until_its_last_user_ends() {
    let first = Domain::open(15, &loopback()).unwrap();
    let second = Domain::open(15, &loopback()).unwrap();
    let other = Settings { lease: Duration::from_secs(9), ..loopback() };
    let refused = Domain::open(15, &other).map(|_| ());
    assert_eq!(refused, Err(Error::OtherSettings { domain: 15 }));
    drop((first, second));
    let participant = Participant::new(Domain::open(15, &other).unwrap(), &[]).unwrap();
    assert!(participant.guid().is_ok());
}

#[test]
fn invalid_domain_settings_are_refused_and_discarded() {
    let wrong =
        Settings { more: Some("<CycloneDDS><Nonsense/></CycloneDDS>".into()), ..loopback() };
    assert!(matches!(
        Domain::open(16, &wrong),
        Err(Error::Refused { doing: "open the domain", .. })
    ));
    let nowhere = Settings { interfaces: vec!["no-such-interface".into()], ..Settings::default() };
    assert!(matches!(Domain::open(16, &nowhere), Err(Error::Refused { .. })));
    assert!(Domain::open(16, &loopback()).is_ok(), "and are forgotten");
}

#[test]
fn names_with_a_nul_are_refused() {
    let here = participant(17);
    assert!(matches!(here.topic("a\0b", &DATA_ITEM), Err(Error::Nul { .. })));
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let qos = Qos { partition: Some("\0".into()), ..Qos::default() };
    assert!(matches!(topic.reader(&qos), Err(Error::Nul { .. })));
}

#[test]
fn a_waker_ends_a_wait_from_another_thread() {
    let here = participant(18);
    let waitset = here.waitset().unwrap();
    let waker = waitset.waker();
    let waiting = std::thread::spawn(move || {
        let begun = Instant::now();
        waitset.wait(PATIENCE * 10, &mut Vec::new()).unwrap();
        let first = begun.elapsed();
        // The wake-up was consumed, so the next wait waits.
        waitset.wait(Duration::from_millis(50), &mut Vec::new()).unwrap();
        (first, begun.elapsed() - first)
    });
    waker.wake();
    let (first, second) = waiting.join().unwrap();
    assert!(first < PATIENCE && second >= Duration::from_millis(40), "{first:?}, {second:?}");
}

#[test]
fn a_deleted_writer_is_removed_from_the_readers_matched_writers() {
    let here = participant(19);
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let reader = topic.reader(&Qos::default()).unwrap();
    let writer = topic.writer(&Qos::default()).unwrap();
    meet(&writer, &reader);
    let known = reader.writers().unwrap()[0];
    drop(writer);
    eventually("the writer is gone", || reader.writers().unwrap().is_empty());
    assert_eq!(reader.writer(known), None);
}

/// A participant that shares no state with others, as in another process. A domain is configured
/// once per process, so these are several domains of one process with the same number on the wire.
fn strangers(domain: u32, on_the_wire: u32) -> Participant {
    let more = format!(
        "<CycloneDDS><Domain><Discovery><ExternalDomainId>{on_the_wire}</ExternalDomainId></Discovery></Domain></CycloneDDS>"
    );
    let settings = Settings { more: Some(more), ..loopback() };
    Participant::new(Domain::open(domain, &settings).unwrap(), &[]).unwrap()
}

#[test]
fn samples_of_another_type_under_the_same_name_are_counted_and_dropped() {
    let (here, there) = (strangers(20, 28), strangers(21, 28));
    let topic = here.topic("items", &DATA_ITEM).unwrap();
    let reader = topic.reader(&Qos::default()).unwrap();
    // A type with the same name and fewer members, of a peer that sends only the name.
    let short = StructType { name: DATA_ITEM.name, members: &DATA_ITEM.members[..2] };
    let foreign = there.topic_by_name_alone("items", &short).unwrap();
    let foreign = foreign.writer(&Qos::default()).unwrap();
    meet(&foreign, &reader);
    for slice in 0..3 {
        let mut cdr = Vec::new();
        let mut encoder = cdr::Encoder::new(&mut cdr);
        encoder.i32(slice);
        encoder.i64(7);
        encoder.finish();
        foreign.write(&cdr).unwrap();
    }
    eventually("the samples are counted", || topic.malformed() == 3);
    assert_eq!(none_of(&reader), 0);
    // The reader still accepts samples of others.
    let good = topic.writer(&Qos::default()).unwrap();
    eventually("a second writer is met", || reader.writers().unwrap().len() == 2);
    good.write(&item(1, 5)).unwrap();
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    assert_eq!(ids(&take(&waitset, &reader, 1)), [5]);
}

#[test]
fn types_that_are_not_assignable_do_not_match() {
    let (here, there) = (strangers(22, 29), strangers(23, 29));
    let reader = here.topic("items", &DATA_ITEM).unwrap().reader(&Qos::default()).unwrap();
    // A pair that matches, which shows that discovery is complete.
    let marker = here.topic("marker", &DATA_ITEM).unwrap().reader(&Qos::default()).unwrap();
    const SWAPPED: &[Member] = &[DATA_ITEM.members[1], DATA_ITEM.members[0]];
    let swapped = StructType { name: DATA_ITEM.name, members: SWAPPED };
    let foreign = there.topic("items", &swapped).unwrap().writer(&Qos::default()).unwrap();
    let mark = there.topic("marker", &DATA_ITEM).unwrap().writer(&Qos::default()).unwrap();
    meet(&mark, &marker);
    assert_eq!(reader.writers().unwrap(), []);
    assert_eq!(foreign.matched().unwrap(), 0);
}

#[test]
fn items_keyed_by_id_are_read_by_readers_keyed_by_slice() {
    let (here, there) = (strangers(26, 31), strangers(27, 31));
    let reader = here.topic("items", &DATA_ITEM).unwrap().reader(&Qos::default()).unwrap();
    let topic = there.topic("items", &DATA_ITEM_BY_ID).unwrap();
    let writer = topic.writer(&Qos::default()).unwrap();
    meet(&writer, &reader);
    for id in 0..100 {
        writer.write(&item(id as i32 % 3, id)).unwrap();
    }
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    assert_eq!(ids(&take(&waitset, &reader, 100)), (0..100).collect::<Vec<_>>());
}

#[test]
fn one_in_ten_packets_lost_loses_no_sample() {
    let wire = |domain, loss_permille| {
        let settings = Settings {
            loss_permille,
            more: Some("<CycloneDDS><Domain><Discovery><ExternalDomainId>30</ExternalDomainId></Discovery></Domain></CycloneDDS>".into()),
            ..loopback()
        };
        Participant::new(Domain::open(domain, &settings).unwrap(), &[]).unwrap()
    };
    let (here, there) = (wire(24, 0), wire(25, 100));
    let reader = here.topic("items", &DATA_ITEM).unwrap().reader(&Qos::default()).unwrap();
    let writer = there.topic("items", &DATA_ITEM).unwrap().writer(&Qos::default()).unwrap();
    meet(&writer, &reader);
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    for id in 0..500 {
        writer.write(&item(id as i32 % 11, id)).unwrap();
    }
    assert_eq!(ids(&take(&waitset, &reader, 500)), (0..500).collect::<Vec<_>>());
}

#[test]
fn a_participant_announced_dead_is_removed_and_blocks_no_writer() {
    let (alive, dead) = (strangers(34, 36), strangers(35, 36));
    let items = |of: &Participant| of.topic("items", &DATA_ITEM).unwrap();
    let reader = items(&dead).reader(&Qos::default()).unwrap();
    let writer = items(&alive).writer(&Qos::default()).unwrap();
    meet(&writer, &reader);
    // Its lease is 30 s, and it would announce itself again after 6 s.
    let announced = Instant::now();
    announce_death(36, &loopback(), dead.guid().unwrap()).unwrap();
    let end = announced + Duration::from_secs(5);
    while writer.matched().unwrap() > 0 {
        assert!(Instant::now() < end, "it is still waited for");
        std::thread::sleep(Duration::from_micros(200));
    }
    writer.write(&item(1, 1)).unwrap();
    writer.wait_for_acknowledgements(Duration::from_secs(1)).unwrap();
}

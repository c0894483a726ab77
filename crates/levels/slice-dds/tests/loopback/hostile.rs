//! Misbehaving publishers, workers and networks.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_dds::items::{DATA_ITEM, DataItem, REPLY};
use equipoise_dds::{Domain, Kind, Member, Participant, Qos, Settings, StructType};
use equipoise_slice::SliceId;
use equipoise_slice_dds::worker::{Program, Threads};
use equipoise_slice_dds::{DropReason, worker_id};
use equipoise_slices::WorkerState;

use crate::cluster::{Cluster, Load, PATIENCE, SLICES, SOON};

/// A program that reads and acknowledges nothing.
fn mute_program() -> Program {
    let command = || {
        let mut command = Command::new("sh");
        command.args(["-c", "cat > /dev/null"]);
        command
    };
    Program::start(command).unwrap()
}

/// The type of messages between workers and controllers.
const CONTROL: StructType = StructType {
    name: "equipoise::Control",
    members: &[
        Member { name: "to", kind: Kind::U64, key: true },
        Member { name: "body", kind: Kind::Octets, key: false },
    ],
};

/// A type that differs from that of items.
const STRANGE: StructType = StructType {
    name: "strange::Item",
    members: &[Member { name: "text", kind: Kind::Octets, key: false }],
};

#[test]
fn invalid_items_and_messages_are_counted_and_valid_items_processed() {
    let cluster = Cluster::new(48, Duration::ZERO);
    let one = cluster.worker("one", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let domain = Domain::open(cluster.stream.domain, &cluster.stream.dds).unwrap();
    let other = Participant::new(domain, &[]).unwrap();
    let items = other.topic(&cluster.stream.items, &DATA_ITEM).unwrap();
    let items = items.writer(&Qos::default()).unwrap();
    // For DDS these participants are in another process.
    let wire = "<CycloneDDS><Domain><Discovery><ExternalDomainId>48</ExternalDomainId></Discovery></Domain></CycloneDDS>";
    let settings = Settings { more: Some(wire.into()), ..cluster.stream.dds.clone() };
    let elsewhere = || Participant::new(Domain::open(56, &settings).unwrap(), &[]).unwrap();
    // A topic of the same name with another type has no counterpart.
    let stranger = elsewhere();
    let strange = stranger.topic(&cluster.stream.items, &STRANGE).unwrap();
    let strange = strange.writer(&Qos::default()).unwrap();
    // A writer that announces only the name of its type. The name is right, but members are
    // missing.
    let short = StructType { name: DATA_ITEM.name, members: &DATA_ITEM.members[..2] };
    let nameless = elsewhere();
    let short = nameless.topic_by_name_alone(&cluster.stream.items, &short).unwrap();
    let short = short.writer(&Qos::default()).unwrap();
    let mail = ["up", "down"].map(|way| {
        let topic = format!("{}/{way}", cluster.stream.control);
        other.topic(&topic, &CONTROL).unwrap().writer(&Qos::default()).unwrap()
    });
    cluster.eventually("they have met", || {
        [&items, &short, &mail[0], &mail[1]].iter().all(|writer| writer.matched().unwrap() > 0)
    });
    assert_eq!(strange.matched().unwrap(), 0);
    let mut cdr = Vec::new();
    for slice_id in [-1, SLICES as i32, i32::MAX, i32::MIN] {
        let message = b"nowhere";
        DataItem { slice_id, id: 1, sender_id: 1, timestamp: 1, message }.encode(&mut cdr);
        items.write(&cdr).unwrap();
    }
    // Too short for its type: our side of DDS refuses to send it.
    assert!(items.write(&cdr[..9]).is_err());
    // The other writer can send its samples.
    for slice in 0..3 {
        let mut encoder = equipoise_dds::cdr::Encoder::new(&mut cdr);
        encoder.i32(slice);
        encoder.i64(7);
        encoder.finish();
        short.write(&cdr).unwrap();
    }
    for (writer, to) in mail.iter().zip([0, worker_id("one").0]) {
        for body in [&[][..], &[9, 9, 9], &[1, 255, 255, 255], &[1]] {
            let mut encoder = equipoise_dds::cdr::Encoder::new(&mut cdr);
            encoder.u64(to);
            encoder.octets(body);
            encoder.finish();
            writer.write(&cdr).unwrap();
        }
    }
    cluster.eventually("items of no slice are counted", || one.drops(DropReason::NoSuchSlice) == 4);
    cluster.eventually("samples that are too short are counted", || {
        one.drops(DropReason::Malformed) == 3
    });
    cluster.eventually("status shows each", || {
        let drops = cluster.seen("one").map(|worker| worker.drops).unwrap_or_default();
        let of = |name: &str| drops.iter().find(|(of, _)| of == name).map_or(0, |(_, n)| *n);
        of("no_such_slice") == 4 && of("malformed") == 3
    });
    cluster.eventually("strange mail is counted", || {
        one.drops(DropReason::MailUnreadable) == 4
            && cluster.controller.status().mail_unreadable == 4
    });
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(200);
    load.read_all();
    load.check();
    one.stop().unwrap();
}

#[test]
fn endpoints_with_incompatible_types_or_qos_are_counted() {
    let cluster = Cluster::new(101, Duration::ZERO);
    let one = cluster.worker("one", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let participant = || {
        let domain = Domain::open(cluster.stream.domain, &cluster.stream.dds).unwrap();
        Participant::new(domain, &[]).unwrap()
    };
    let (items, replies) = (&cluster.stream.items, &cluster.stream.replies);
    // The right names and keys, but other members.
    const TEXT: Member = Member { name: "text", kind: Kind::Octets, key: false };
    const ITEM: [Member; 2] = [DATA_ITEM.members[0], TEXT];
    const ANSWER: [Member; 2] = [REPLY.members[0], TEXT];
    let foreign = StructType { name: DATA_ITEM.name, members: &ITEM };
    let (there, best_effort) = (participant(), participant());
    let stranger = there.topic(items, &foreign).unwrap().writer(&Qos::default()).unwrap();
    cluster.eventually("its type is counted", || one.drops(DropReason::IncompatibleType) > 0);
    assert_eq!(one.drops(DropReason::IncompatibleQos), 0);
    let qos = Qos { reliable: false, ..Qos::default() };
    let careless = best_effort.topic(items, &DATA_ITEM).unwrap().writer(&qos).unwrap();
    cluster.eventually("its QoS is counted", || one.drops(DropReason::IncompatibleQos) > 0);
    assert_eq!((stranger.matched(), careless.matched()), (Ok(0), Ok(0)));
    let foreign = StructType { name: REPLY.name, members: &ANSWER };
    let _reader = there.topic(replies, &foreign).unwrap().reader(&Qos::default()).unwrap();
    cluster.eventually("who reads replies is counted", || {
        one.drops(DropReason::IncompatibleReader) > 0
    });
    cluster.eventually("status shows each", || {
        let drops = cluster.seen("one").map(|worker| worker.drops).unwrap_or_default();
        ["incompatible_type", "incompatible_qos", "incompatible_reader"]
            .iter()
            .all(|name| drops.iter().any(|(of, count)| of == name && *count > 0))
    });
    // Counted once, and not at each check.
    assert!(one.drops(DropReason::IncompatibleType) < 10);
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(20);
    load.read_all();
    load.check();
    one.stop().unwrap();
}

#[test]
fn a_slow_worker_does_not_delay_other_workers() {
    let cluster = Cluster::with(49, |options| {
        // The worker is slow, but not stuck.
        options.policy.stuck = Duration::from_secs(3600);
    });
    // It processes nothing before the other worker has finished.
    let goes_on = Arc::new(AtomicBool::new(false));
    let may = goes_on.clone();
    let process = move |item: &DataItem<'_>| {
        while !may.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        item.message.to_vec()
    };
    let slow = cluster.worker_of("slow", Threads::new(1, process));
    let _quick = cluster.worker("quick", Duration::ZERO);
    cluster.share("slow", "quick");
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(300);
    let published = load.next;
    let of_quick: Vec<_> = (0..published)
        .filter(|id| cluster.owner((*id % i64::from(SLICES)) as u32).as_deref() == Some("quick"))
        .collect();
    let end = Instant::now() + PATIENCE;
    let answered = |load: &Load, id: &i64| load.answers.iter().any(|answer| answer.id == *id);
    while !of_quick.iter().all(|id| answered(&load, id)) {
        assert!(Instant::now() < end, "the quick one waits");
        load.read(Duration::from_millis(5));
    }
    // All its threads process items, so it reads arriving items every few milliseconds.
    cluster.eventually("the slow one has many left", || slow.queued() > 50);
    goes_on.store(true, Relaxed);
    load.read_all();
    load.check();
}

#[test]
fn a_program_that_acknowledges_nothing_blocks_only_its_own_slices() {
    let cluster = Cluster::where_some_are_lost(50);
    let mute = cluster.worker_of("mute", mute_program());
    let _good = cluster.worker("good", Duration::ZERO);
    cluster.share("mute", "good");
    let owners: Vec<_> = (0..SLICES).map(|slice| cluster.owner(slice).unwrap()).collect();
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(100);
    let expected = (0..100).filter(|id| owners[*id as usize % SLICES as usize] == "good").count();
    let end = Instant::now() + PATIENCE;
    while load.answers.len() < expected {
        assert!(Instant::now() < end, "{} of {expected}", load.answers.len());
        load.read(Duration::from_millis(5));
    }
    assert_eq!(mute.done(), 0);
    // Its slices move to the other worker, which processes new items. The item in hand waits until
    // the worker ends.
    let slices: Vec<_> =
        (0..SLICES).filter(|s| owners[*s as usize] == "mute").map(SliceId).collect();
    let moved = || {
        // New slices do not move for some time.
        let asked = cluster.controller.move_slices(slices.clone(), "good");
        let _ = cluster.runtime.block_on(asked);
        slices.iter().all(|slice| cluster.owner(slice.0).as_deref() == Some("good"))
    };
    cluster.eventually("the slices have moved", moved);
    let (before, end) = (load.answers.len(), Instant::now() + PATIENCE);
    load.publish(100);
    while load.answers.len() < before + 100 {
        assert!(Instant::now() < end, "{} of {}", load.answers.len() - before, 100);
        load.read(Duration::from_millis(5));
    }
    // Now it is killed, and its unfinished items are processed.
    drop(mute);
    load.read_all();
    load.check();
}

#[test]
fn a_program_that_acknowledges_nothing_is_reported_stuck_and_loses_slices() {
    let cluster = Cluster::with(39, |options| {
        options.protocol.lease = SOON;
        options.round = Duration::from_millis(200);
        options.policy.stuck = Duration::from_secs(1);
        // Balancing moves no load.
        options.policy.share_max = 0.0;
    });
    let mute = cluster.worker_of("mute", mute_program());
    let _good = cluster.worker("good", Duration::ZERO);
    cluster.share("mute", "good");
    assert_eq!(cluster.seen("mute").map(|worker| worker.state == WorkerState::Stuck), Some(false));
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(100);
    cluster.eventually("it is called stuck, and why", || {
        load.read(Duration::from_millis(5));
        let seen = cluster.seen("mute").unwrap();
        let why = seen.reason.unwrap_or_default();
        let stuck = seen.state == WorkerState::Stuck;
        stuck && seen.in_hand == 1 && why.contains("acknowledged nothing for")
    });
    let its_slices = || cluster.seen("mute").map(|worker| worker.slices);
    cluster.eventually("its slices go to others", || {
        load.read(Duration::from_millis(5));
        its_slices() == Some(0)
    });
    let asked = cluster.controller.move_slices(vec![SliceId(0)], "mute");
    let refused = cluster.runtime.block_on(asked).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("stuck") || refused.contains("in handover"), "{refused}");
    // New items are processed. The item in hand waits until the worker ends.
    let before = load.answers.len();
    load.publish(100);
    let end = Instant::now() + PATIENCE;
    while load.answers.len() < before + 100 {
        assert!(Instant::now() < end, "{} of 100", load.answers.len() - before);
        load.read(Duration::from_millis(5));
    }
    drop(mute);
    load.read_all();
    load.check();
}

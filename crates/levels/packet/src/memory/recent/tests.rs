use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use super::{Event, EventKind, RECENT};
use crate::limits::{Capacity, Limits};
use crate::memory::{CpuMemory, Memory};

fn cpu() -> CpuMemory {
    let limits = Limits::new(&Capacity { flows: 1024, log_events: 256, ..Capacity::default() });
    Memory::anonymous(&limits).unwrap().cpus.remove(0)
}

fn event(digest: u64) -> Event {
    let (slot, service) = (digest as u16, (digest >> 16) as u16);
    Event { digest, slot, service, kind: EventKind::Touch as u8, how: 1, padding: 0 }
}

/// As the program does when every event is news; waits for room in the log.
fn send(cpu: &CpuMemory, event: Event) {
    if !cpu.append(event) {
        return;
    }
    for (event, is_taken) in cpu.batch() {
        while !is_taken && !cpu.push(event) {
            thread::yield_now();
        }
    }
}

fn drained(cpu: &CpuMemory) -> Vec<u64> {
    let mut digests = Vec::new();
    let told = cpu.drain(|of| {
        assert_eq!(of, event(of.digest), "whole");
        digests.push(of.digest);
    });
    assert_eq!(told, digests.len());
    digests
}

#[test]
fn each_event_is_reported_immediately_and_only_once() {
    let cpu = cpu();
    assert_eq!(drained(&cpu), [0; 0]);
    let mut next = 1;
    for count in (0..100).chain([200, 0, 1, 255, 256]) {
        let sent: Vec<u64> = (next..next + count).collect();
        sent.iter().for_each(|&digest| send(&cpu, event(digest)));
        assert_eq!(drained(&cpu), sent);
        assert_eq!(drained(&cpu), [0; 0]);
        next += count;
    }
}

#[test]
fn events_are_reported_correctly_when_the_counters_wrap() {
    let cpu = cpu();
    for word in [cpu.recent_head(), cpu.recent_taken()] {
        word.store(u32::MAX - 40, Release);
    }
    for digest in 1..200 {
        send(&cpu, event(digest));
        assert_eq!(drained(&cpu), [digest]);
    }
}

/// Another process, or a defect, may have left any number there. Only a number within a batch can
/// hide events of that batch: those before it. Two batches are logged by then, the third begins at
/// 64 and the fourth at 96.
#[test]
fn a_taken_counter_hides_at_most_the_events_of_its_own_batch() {
    for taken in (60..104).chain([0, 1, 31, 32, 33, 1000, u32::MAX, u32::MAX - 31]) {
        let cpu = cpu();
        (1..=70).for_each(|digest| send(&cpu, event(digest)));
        cpu.recent_taken().store(taken, Release);
        (71..=100).for_each(|digest| send(&cpu, event(digest)));
        let from = |batch: std::ops::RangeInclusive<u32>| {
            u64::from(if batch.contains(&taken) { taken } else { *batch.start() }) + 1
        };
        let expected: Vec<u64> =
            (1..=64).chain(from(64..=96)..=96).chain(from(96..=100)..=100).collect();
        assert_eq!(drained(&cpu), expected, "{taken}");
    }
}

#[test]
fn concurrent_reads_lose_no_event_and_keep_events_whole_and_ordered() {
    const EVENTS: u64 = 200_000;
    let (cpu, ended) = (cpu(), AtomicBool::new(false));
    let mut last = 0;
    let mut twice = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..=EVENTS).for_each(|digest| send(&cpu, event(digest)));
            ended.store(true, Release);
        });
        loop {
            let is_last = ended.load(Acquire);
            let told = drained(&cpu);
            assert!(told.is_sorted_by(|a, b| a < b), "in order: {told:?}");
            if let (Some(&first), Some(&end)) = (told.first(), told.last()) {
                assert!(first <= last + 1, "{first} follows {last}");
                assert!(first + RECENT as u64 > last, "{first} again after {last}");
                twice += (last + 1 - first) as usize;
                assert_eq!(end - first + 1, told.len() as u64, "without a gap");
                last = last.max(end);
            }
            if is_last {
                break;
            }
        }
    });
    assert_eq!(last, EVENTS);
    println!("{twice} of {EVENTS} events came twice");
}

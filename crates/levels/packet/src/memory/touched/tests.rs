use super::*;
use crate::limits::{Capacity, FlowTags, Limits};
use crate::memory::Memory;

const FLOWS: u32 = 1 << 16;

fn memory(tags: FlowTags) -> Memory {
    Memory::anonymous(&Limits::new(&Capacity { flows: FLOWS, tags, ..Capacity::default() }))
        .unwrap()
}

/// A permutation of 64-bit numbers with outputs that look random.
///
/// # Source
/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[test]
fn a_full_bucket_keeps_as_many_flows_as_it_has_places() {
    for (tags, ways) in [(FlowTags::Long, 4), (FlowTags::Short, 6)] {
        let memory = memory(tags);
        memory.state.interval().store(1, Relaxed);
        // All in the first bucket, with different tags.
        let flows: Vec<u64> = (1..=ways as u64 + 1).map(|flow| flow << 44 | 0xff).collect();
        let of = |flow: u64| memory.state.touched_by(flow);
        for flow in &flows[..ways] {
            assert_eq!(of(*flow).place(), None);
            of(*flow).add();
        }
        assert_eq!(of(flows[0]).ways(), ways);
        assert!(flows[..ways].iter().all(|flow| of(*flow).place().is_some()), "{tags:?}");
        of(flows[ways]).add();
        let known = flows.iter().filter(|flow| of(**flow).place().is_some());
        assert_eq!(known.count(), ways, "the last one replaced another");
        assert_eq!(of(flows[ways]).place(), Some(of(flows[ways]).replaced()));
        of(flows[ways]).clear();
        assert_eq!(of(flows[ways]).place(), None);
        memory.state.clear_touched();
        assert!(flows.iter().all(|flow| of(*flow).place().is_none()));
    }
}

/// New flows that are hidden, of as many as fill the registry in each of `intervals`.
fn hidden(tags: FlowTags, intervals: u64) -> usize {
    let memory = memory(tags);
    let mut hidden = 0;
    for interval in 0..intervals {
        memory.state.interval().store(mix(interval) | 1, Relaxed);
        memory.state.clear_touched();
        for flow in 0..u64::from(FLOWS) {
            let touched = memory.state.touched_by(mix(interval << 32 | flow << 1 | 1));
            match touched.place() {
                Some(_) => hidden += 1,
                None => touched.add(),
            }
        }
    }
    hidden
}

/// While a table of short tags fills, a bucket has 2 of them on average: of 2^22 flows,
/// 2^22 * 2 / 2^21 = 4 are expected to be hidden.
#[test]
fn short_tags_hide_few_new_flows_and_long_tags_hide_none() {
    assert_eq!(hidden(FlowTags::Long, 64), 0);
    let short = hidden(FlowTags::Short, 64);
    assert!((1..=12).contains(&short), "{short} of 4 million are hidden");
}

//! Slices of streams in explanations.

use equipoise_api::wire::slice::{SlicePlan, SliceState, StreamStatus};
use equipoise_api::wire::why as wire;

use super::step;

/// The answer about an item in `slice`, which its key `by` has chosen. `None`: the stream has no
/// such slice.
pub fn item_answer(
    stream: &StreamStatus,
    plan: &SlicePlan,
    slice: u32,
    by: Option<&str>,
) -> Option<wire::WhyAnswer> {
    let state = stream.slices.iter().find(|state| state.slice == slice)?;
    let total = stream.slices_total;
    let mut lines = Vec::new();
    if let Some(by) = by {
        lines.push(format!("{by}: slice {slice} of {total}, by the hash of the key"));
    }
    if let Some(resizing) = &stream.resizing {
        lines.push(format!("the stream is being resized to {} slices", resizing.slices));
    }
    lines.push(owner(state));
    lines.extend(held(state));
    lines.push(moves(plan, slice));
    let worker = plan.workers.iter().find(|it| Some(&it.name) == state.owner.as_ref());
    lines.extend(worker.map(|it| format!("worker {}: {}", it.name, it.explanation)));
    let outcome = match &state.owner {
        Some(owner) => format!("worker {owner}"),
        None => "no worker".into(),
    };
    let subject = match by {
        Some(by) => format!("stream {}, {by}", stream.name),
        None => format!("stream {}, slice {slice}", stream.name),
    };
    let steps = lines.into_iter().map(|line| step("slice", line)).collect();
    Some(wire::WhyAnswer { subject, outcome, taken: true, backend: None, steps })
}

fn owner(state: &SliceState) -> String {
    let SliceState { slice, owner, load, queued, epoch, .. } = state;
    match owner {
        Some(owner) => format!(
            "slice {slice}: worker {owner} owns it by handover {epoch}; load {load:.2}, {queued} items wait"
        ),
        None => format!("slice {slice}: no worker owns it; {queued} items wait"),
    }
}

/// Why the slice stays where it is.
fn held(state: &SliceState) -> Vec<String> {
    let pinned = state.pinned.as_ref().map(|worker| format!("it is pinned to worker {worker}"));
    let blocked = state.blocked.as_ref().map(|why| match state.blocked_seconds {
        Some(seconds) => format!("it cannot be moved for {seconds:.1} s now: {why}"),
        None => format!("it cannot be moved now: {why}"),
    });
    let cools = state.cool_down_seconds.map(|seconds| {
        format!("balancing leaves it for {seconds:.1} s more, because it has moved")
    });
    [pinned, blocked, cools].into_iter().flatten().collect()
}

/// The move of the slice in a balancing round, or why it stays.
fn moves(plan: &SlicePlan, slice: u32) -> String {
    match plan.moves.iter().find(|step| step.slices.contains(&slice)) {
        Some(step) => {
            let why = if step.pinned { "because it is pinned there" } else { "to balance" };
            format!("a round now would move it to worker {} {why}", step.taker)
        }
        None => format!("a round now would not move it: {}", plan.explanation),
    }
}

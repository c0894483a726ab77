//! Repeated `kill -9` of workers in strict order: the items of a slice are begun in their order, in
//! all workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_dds::Settings;
use equipoise_slice::Order;

use crate::killed::DEFAULTS;
use crate::load::Load;
use crate::role::{Times, stream};
use crate::stage::{HERE, Here, Stage};

const DOMAIN: u32 = 56;
const WORKERS: [&str; 5] = ["one", "two", "three", "four", "five"];
/// Workers that are killed together.
const TOGETHER: usize = 2;
/// Number of kills, unless `SLICE_KILLS` is set.
const KILLS: usize = 20;
/// Limit of items without a reply, which may be published again after a loss.
const WINDOW: usize = 400;

/// The items that workers began, judged by their order.
#[derive(Debug, Default)]
struct Judged {
    begun: usize,
    /// Begun for the first time after a later item of its slice.
    out_of_order: Vec<(i32, i64, i64)>,
    /// Begun again, because the worker was killed before its reply arrived.
    repeated: usize,
}

fn judge(begun: &[(i32, i64)]) -> Judged {
    let mut known = BTreeSet::new();
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut judged = Judged { begun: begun.len(), ..Judged::default() };
    for (slice, id) in begun {
        let last = last.entry(*slice).or_insert(-1);
        if !known.insert(*id) {
            judged.repeated += 1;
        } else if *last > *id {
            judged.out_of_order.push((*slice, *id, *last));
        }
        *last = (*id).max(*last);
    }
    judged
}

#[test]
fn in_strict_order_workers_that_are_killed_leave_items_in_their_order() {
    let kills = std::env::var("SLICE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let here = Here { order: Order::Strict, work_ms: 1, more: DEFAULTS, ..HERE };
    let times = Times { leadership: Duration::from_secs(3), ..Times::LONG };
    let mut stage = Stage::new(DOMAIN, times, here, &WORKERS);
    let mut stream = stream(DOMAIN, "lo", 0);
    stream.dds.lease = Settings::default().lease;
    let load = Load::windowed(stream, WINDOW, std::thread::spawn);
    let mut next = WORKERS.iter().cycle();
    let mut killed = 0;
    while killed < kills {
        load.published_more(100);
        let victims: Vec<_> = next.by_ref().take(TOGETHER).collect();
        victims.iter().for_each(|victim| stage.kill(victim));
        victims.iter().for_each(|victim| stage.start("worker", victim));
        victims.iter().for_each(|victim| stage.until_heard(victim));
        killed += victims.len();
    }
    let outcome = load.finish();
    let judged = judge(&stage.begun());
    let Judged { begun, out_of_order, repeated } = judged;
    let late = out_of_order.len();
    println!("{killed} kills, {begun} items begun, {repeated} again, {late} out of order");
    assert!(begun as i64 >= outcome.published, "every item was begun: {begun}");
    assert!(repeated > 0, "no worker had anything when it was killed");
    let first = &out_of_order[..late.min(5)];
    assert_eq!(late, 0, "of {} items: {first:?}", outcome.published);
}

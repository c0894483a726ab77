//! TLLB's scenarios with real processes: a sharp fluctuation, and unbalanced resources. (The
//! failure of a node is in `dispatch.rs` and in `cluster/`; `lab/tllb` measures all three with
//! shares of real processors.)
//!
//! The load of a node's processor depends only on its requests, whatever else the real machine
//! does. The application serves one request at a time with a stated duration, and the node reads a
//! simulated `/proc/stat`. The assertions are therefore about the plan, not about the speed of the
//! machine. Durations are printed.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

#[path = "../common/mod.rs"]
mod common;

mod crowd;
mod machine;
mod quota;
mod site;

use std::cell::Cell;
use std::time::{Duration, Instant};

use crowd::{Asked, Crowd, done_by, p99_ms, wait_for};
use site::Site;

/// Processor time of a request.
const WORK: Duration = Duration::from_millis(10);
/// Interval between requests of a client.
const EVERY: Duration = Duration::from_millis(100);

fn assert_all_answered(asked: &[Asked]) {
    let failed = asked.iter().filter(|one| one.by.is_none()).count();
    assert_eq!(failed, 0, "of {} requests", asked.len());
}

/// Checks that the other nodes serve the first node's excess, and do not delegate it again. On a
/// busy machine a node may be paused and have too much for a moment.
fn assert_others_keep(site: &Site) {
    let [first, one, other] = [0, 1, 2].map(|node| site.total(node, "delegated_total"));
    assert!(4 * (one + other) < first, "{one} and {other} go on from there, of {first}");
}

#[test]
fn a_load_surge_at_one_node_is_delegated_until_it_ends() {
    let Some(site) = Site::start("scenario-crowd", &[WORK; 3]) else { return };
    // A tenth of each node's capacity.
    let usual: Vec<Crowd> =
        site.doors().into_iter().map(|door| Crowd::start(door, "/work", 1, EVERY)).collect();
    wait_for(10, &usual);
    assert_eq!([0, 1, 2].map(|node| site.total(node, "delegated_total")), [0; 3]);

    // Nine tenths of one node's capacity.
    let came = Instant::now();
    let crowd = Crowd::start(site.doors()[0], "/work", 8, EVERY);
    site.until("it delegates", || site.total(0, "delegated_total") > 0);
    let began = came.elapsed();
    let totals = || ["arrived_total", "delegated_total"].map(|what| site.total(0, what));
    let share = Cell::new(0.0);
    // Plans follow reported load, and a busy machine reports late now and then.
    site.until("it delegates more than a tenth", || {
        let before = totals();
        wait_for(160, std::slice::from_ref(&crowd));
        let [arrived, delegated] = [0, 1].map(|place| totals()[place] - before[place]);
        share.set(delegated as f64 / arrived as f64);
        share.get() > 0.1
    });
    assert_others_keep(&site);

    let left = Instant::now();
    let crowd = crowd.end();
    site.until("it keeps all again", || site.keep(0) == 1.0);
    let ended = left.elapsed();
    // Requests in flight at that time count when they are answered.
    site.until("nothing more is delegated", || {
        let delegated = site.total(0, "delegated_total");
        wait_for(10, &usual);
        site.total(0, "delegated_total") == delegated
    });

    let usual: Vec<Asked> = usual.into_iter().flat_map(Crowd::end).collect();
    assert_all_answered(&usual);
    assert_all_answered(&crowd);
    let within =
        |from: Instant, to: Instant| usual.iter().filter(move |one| (from..to).contains(&one.at));
    println!(
        "a crowd at one node: delegated after {began:.1?}, {:.0} % of what came then; kept all {ended:.1?} after it had left; \
         99th percentile {:.0} ms before, {:.0} during ({:.0} of the crowd's), {:.0} after; {} requests, none failed",
        100.0 * share.get(),
        p99_ms(within(came - Duration::from_secs(60), came)),
        p99_ms(within(came, left)),
        p99_ms(&crowd),
        p99_ms(within(left + ended, Instant::now())),
        usual.len() + crowd.len(),
    );
}

#[test]
fn a_slower_node_delegates_and_serves_fewer_computing_requests() {
    let Some(site) = Site::start("scenario-weak", &[WORK * 5 / 2, WORK, WORK]) else { return };
    let light = Crowd::start(site.doors()[0], "/light", 1, EVERY);
    // Three tenths of each node's capacity, which is three quarters of the first node's.
    let all: Vec<Crowd> =
        site.doors().into_iter().map(|door| Crowd::start(door, "/work", 3, EVERY)).collect();
    let began = Instant::now();
    site.until("it delegates", || site.total(0, "delegated_total") > 0);
    let delegated_after = began.elapsed();
    let settled = Instant::now();
    let done = || {
        [0, 1, 2].map(|node| {
            let total = |what| site.of_class(node, "computing", what);
            total("arrived_total") + total("taken_total") - total("delegated_total")
        })
    };
    let before = done();
    wait_for(90, &all);
    site.until("it does less than each of the others", || {
        let now = done();
        let [weak, one, other] = [0, 1, 2].map(|node| now[node] - before[node]);
        weak < one && weak < other
    });
    assert_others_keep(&site);

    let light = light.end();
    let all: Vec<Asked> = all.into_iter().flat_map(Crowd::end).collect();
    assert_all_answered(&all);
    assert_all_answered(&light);
    assert_eq!(done_by(&light, "n0"), light.len(), "light requests stay where they came");
    let since: Vec<Asked> = all.iter().filter(|one| one.at >= settled).cloned().collect();
    let [weak, one, other] = ["n0", "n1", "n2"].map(|node| done_by(&since, node));
    println!(
        "a node of two fifths: delegated after {delegated_after:.1?}; done {weak} by it, {one} and {other} by the others; \
         99th percentile {:.0} ms before, {:.0} since; light ones {:.0} ms",
        p99_ms(all.iter().filter(|one| one.at < settled)),
        p99_ms(&since),
        p99_ms(&light),
    );
}

#[test]
fn an_overload_refuses_computing_requests_but_no_light_requests() {
    // A part of the machines' capacity, so that clients with one request at a time can exceed it.
    let admit = "admit = 0.4\n";
    let Some(site) = Site::start_with("scenario-admit", &[WORK; 2], admit) else { return };
    let all = |path, clients| -> Vec<Crowd> {
        site.doors().into_iter().map(|door| Crowd::start(door, path, clients, EVERY)).collect()
    };
    let refused = || [0, 1].map(|node| site.total(node, "refused_total"));
    let light = all("/light", 1);
    let few = all("/work", 2);
    wait_for(20, &few);
    assert_eq!(refused(), [0; 2], "a fifth is let in");
    assert_all_answered(&few.into_iter().flat_map(Crowd::end).collect::<Vec<_>>());

    let came = Instant::now();
    let many = all("/work", 9);
    site.until("both refuse", || refused().iter().all(|count| *count > 0));
    let began = came.elapsed();
    site.until("a part of what has come is refused", || {
        site.of_class(0, "computing", "refuse") > 0.2
    });
    let left = Instant::now();
    let many: Vec<Asked> = many.into_iter().flat_map(Crowd::end).collect();
    site.until("all are let in again", || {
        (0..2).all(|node| site.of_class(node, "computing", "refuse") == 0.0)
    });
    let ended = left.elapsed();
    wait_for(5, &light);

    let light: Vec<Asked> = light.into_iter().flat_map(Crowd::end).collect();
    assert_all_answered(&light);
    for node in 0..2 {
        assert_eq!(site.of_class(node, "light", "refused_total"), 0.0);
    }
    println!(
        "more than all may do: refused after {began:.1?}, {} of {} computing requests; let in again {ended:.1?} after they had left; \
         of {} light ones none",
        many.iter().filter(|one| one.by.is_none()).count(),
        many.len(),
        light.len(),
    );
}

//! Reports of limits and of waiting: in status, and in the access log.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use equipoise_core::LineFormat;
use equipoise_core::concurrency::Region;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Gate, HttpBackend, LogBuffer, PATIENCE, eventually};
use serde_json::Value;

use crate::common::{Plan, both_upstreams, get};
use crate::{hold, holding, limited, started, wait_for};

both_upstreams! {
    a_stated_limit_shows_the_region_of_the_moment,
    a_backend_counts_the_wait_of_the_requests_that_it_served,
}

fn a_stated_limit_shows_the_region_of_the_moment(mode: Upstream) {
    let gate = Gate::new();
    let backend = holding(&gate);
    let proxy = limited(mode, &[backend.address()], 4);
    let live = &proxy.backends[0].live;
    let mut held = Vec::new();
    for region in [Region::UnderUsed, Region::UnderUsed, Region::Best, Region::Best] {
        assert_eq!(live.region(), Some(region), "{} held", held.len());
        held.push(hold(&proxy, &backend));
    }
    assert_eq!(live.region(), Some(Region::Best), "full");
    live.set_limit(NonZeroU32::new(3));
    assert_eq!(live.region(), Some(Region::Over));
    live.set_limit(None);
    assert_eq!((live.region(), live.learned()), (None, None), "without a limit");
    gate.open();
    assert!(held.iter_mut().all(|client| client.response().is_ok()));
}

fn a_backend_counts_the_wait_of_the_requests_that_it_served(mode: Upstream) {
    let (a, b) = (Gate::new(), Gate::new());
    let backends = [holding(&a), holding(&b)];
    let proxy = limited(mode, &backends.each_ref().map(HttpBackend::address), 1);
    let wait_us = |at: usize| {
        let stats = &proxy.backends[at].live.stats;
        stats.sum(|shard| shard.queue_wait_us.get())
    };
    let mut held: Vec<_> = (0..2).map(|_| proxy.connect()).collect();
    for client in &mut held {
        client.send(get("/held"));
    }
    let both = || backends.iter().all(|backend| backend.requests().len() == 1);
    assert!(eventually(both), "each has one");
    assert_eq!((wait_us(0), wait_us(1)), (0, 0), "they did not wait");
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    let since = Instant::now();
    thread::sleep(Duration::from_millis(20));
    let waited_us = since.elapsed().as_micros() as u64;
    b.open();
    assert_eq!(waiting.response().map(|r| r.text()), Ok("/a".to_owned()));
    assert!(wait_us(1) >= waited_us, "{} of {waited_us} us", wait_us(1));
    assert_eq!(wait_us(0), 0, "the other has not served it");
    a.open();
    assert!(held.iter_mut().all(|client| client.response().is_ok()));
}

#[test]
fn the_access_log_has_the_time_in_the_queue() {
    let gate = Gate::new();
    let backend = holding(&gate);
    let log = LogBuffer::default();
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).access_log(log.clone());
    let mut plan = plan.front(|front| front.access_log = 1.0);
    plan.access_log_format = LineFormat::JSON;
    let proxy = started(plan.pool(|pool| pool.queue.wait = PATIENCE), 1);
    let mut held = hold(&proxy, &backend);
    let mut waiting = wait_for(&proxy, proxy.address, "/a", 1);
    gate.open();
    assert_eq!(held.response().map(|r| r.status()), Ok(200));
    assert_eq!(waiting.response().map(|r| r.status()), Ok(200));
    let queued = |path: &str| {
        let lines = log.text();
        let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        lines.find(|line| line["path"] == path).map(|line| line["queue_seconds"].clone())
    };
    assert!(eventually(|| queued("/a").is_some() && queued("/held").is_some()));
    assert_eq!(queued("/held"), Some(Value::Null));
    assert!(queued("/a").is_some_and(|seconds| seconds.as_f64() > Some(0.0)));
}

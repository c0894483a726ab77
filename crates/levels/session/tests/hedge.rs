//! Hedged requests: sent to a second backend because the response of the first is late.

mod common;

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::{Plan, Proxy, get, post};
use equipoise_core::SchedulerKind;
use equipoise_session::Reason;
use equipoise_session::config::{Hedge, PoolOptions, Upstream};
use equipoise_testkit::{Answer, Gate, HttpBackend, PATIENCE, Step, eventually};

const SOON: Hedge = Hedge::After(Duration::from_millis(5));

/// A proxy with two backends. The test knows which one gets requests first, so each plays its role
/// however late its thread runs.
struct Bed {
    backends: [HttpBackend; 2],
    proxy: Proxy,
}

/// The script gets the role of the backend, first (0) or second (1), and answers requests for
/// `/held`. Others are answered at once.
fn bed(hedge: Hedge, script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Bed {
    let first = Arc::new(OnceLock::new());
    let script = Arc::new(script);
    let backends = [0, 1].map(|index| {
        let (first, script) = (Arc::clone(&first), Arc::clone(&script));
        HttpBackend::start(move |request| match request.head.target() {
            "/held" => script(usize::from(first.get() != Some(&index))),
            "/who" => Answer::ok(index.to_string()),
            target => Answer::ok(target),
        })
    });
    let addresses = backends.each_ref().map(HttpBackend::address);
    let plan = Plan::new(Upstream::Exclusive, &addresses).scheduler(SchedulerKind::SourceHash);
    let hedged = |pool: &mut PoolOptions| {
        (pool.hedge, pool.queue.wait) = (Some(hedge), PATIENCE);
    };
    let proxy = plan.pool(hedged).start();
    // A POST goes to one backend only.
    let index = proxy.ask(post("/who", "")).text().parse().expect("it is an index");
    first.set(index).expect("it is set once");
    Bed { backends, proxy }
}

impl Bed {
    /// Requests for `/held` that have arrived at both backends in total.
    fn held(&self) -> usize {
        let requests = self.backends.iter().flat_map(HttpBackend::requests);
        requests.filter(|request| request.head.target() == "/held").count()
    }

    #[track_caller]
    fn until_held(&self, count: usize) {
        assert!(eventually(|| self.held() == count), "{}", self.held());
    }
}

/// The number of hedged requests, and of those that the second backend answered.
fn hedges(proxy: &Proxy) -> (u64, u64) {
    (proxy.stats.sum(|it| it.hedges.get()), proxy.stats.sum(|it| it.hedges_won.get()))
}

fn waiting(gate: &Gate, text: &str) -> Answer {
    Answer::ok(text).first(Step::Wait(gate.clone()))
}

#[test]
fn a_second_backend_answers_while_the_first_is_late() {
    let gate = Gate::new();
    let bed = bed(SOON, {
        let gate = gate.clone();
        move |role| if role == 0 { waiting(&gate, "late") } else { Answer::ok("second") }
    });
    let proxy = &bed.proxy;
    assert_eq!(proxy.ask(get("/held")).text(), "second");
    assert_eq!(hedges(proxy), (1, 1));
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
    gate.open();
    assert_eq!(proxy.ask(get("/a")).text(), "/a", "the late response is nobody else's");
}

#[test]
fn the_response_that_begins_first_is_sent() {
    let gates = [Gate::new(), Gate::new()];
    let bed = bed(SOON, {
        let gates = gates.clone();
        move |role| waiting(&gates[role], ["first", "second"][role])
    });
    let proxy = &bed.proxy;
    let mut client = proxy.connect();
    client.send(get("/held"));
    bed.until_held(2);
    gates[0].open();
    assert_eq!(client.response().map(|it| it.text()), Ok("first".to_owned()));
    assert_eq!(hedges(proxy), (1, 0));
    proxy.assert_nothing_in_flight();
    gates[1].open();
    client.send(get("/a"));
    assert_eq!(client.response().map(|it| it.text()), Ok("/a".to_owned()));
}

#[test]
fn a_request_that_may_not_be_repeated_is_put_to_one_backend() {
    let gate = Gate::new();
    let bed = bed(SOON, {
        let gate = gate.clone();
        move |role| if role == 0 { waiting(&gate, "once") } else { Answer::ok("hedged") }
    });
    let proxy = &bed.proxy;
    let mut poster = proxy.connect();
    poster.send(post("/held", "body"));
    bed.until_held(1);
    // The POST is later than this GET, which is hedged.
    assert_eq!(proxy.ask(get("/held")).text(), "hedged");
    assert_eq!((bed.held(), hedges(proxy)), (3, (1, 1)));
    gate.open();
    assert_eq!(poster.response().map(|it| it.text()), Ok("once".to_owned()));
}

#[test]
fn a_second_backend_that_fails_leaves_the_request_to_the_first() {
    let gate = Gate::new();
    let bed = bed(SOON, {
        let gate = gate.clone();
        move |role| if role == 0 { waiting(&gate, "first") } else { Answer::close() }
    });
    let proxy = &bed.proxy;
    let mut client = proxy.connect();
    client.send(get("/held"));
    let failures = || -> u64 {
        let of = |it: &equipoise_session::stats::BackendStats| {
            it.failures[Reason::UpstreamClosed as usize].get()
        };
        proxy.backends.iter().map(|backend| backend.live.stats.sum(of)).sum()
    };
    assert!(eventually(|| failures() == 1));
    gate.open();
    assert_eq!(client.response().map(|it| it.text()), Ok("first".to_owned()));
    assert_eq!(hedges(proxy), (1, 0));
    proxy.assert_drops(&[]);
}

#[test]
fn a_first_backend_that_fails_leaves_the_request_to_the_second() {
    let gates = [Gate::new(), Gate::new()];
    let bed = bed(SOON, {
        let gates = gates.clone();
        move |role| match role {
            0 => Answer::close().first(Step::Wait(gates[0].clone())),
            _ => waiting(&gates[1], "second"),
        }
    });
    let proxy = &bed.proxy;
    let mut client = proxy.connect();
    client.send(get("/held"));
    bed.until_held(2);
    gates[0].open();
    assert!(eventually(|| hedges(proxy) == (1, 1)));
    gates[1].open();
    assert_eq!(client.response().map(|it| it.text()), Ok("second".to_owned()));
    assert_eq!(bed.held(), 2);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_full_backend_is_not_asked() {
    let gate = Gate::new();
    let bed = bed(Hedge::After(Duration::from_millis(200)), {
        let gate = gate.clone();
        move |_| waiting(&gate, "held")
    });
    let proxy = &bed.proxy;
    proxy.backends.iter().for_each(|backend| backend.live.set_limit(NonZeroU32::new(1)));
    let mut clients = [proxy.connect(), proxy.connect()];
    for client in &mut clients {
        client.send(get("/held"));
    }
    // On a slow machine one request is hedged before the other arrives, which then waits in the
    // queue.
    bed.until_held(2);
    let before = hedges(proxy).0;
    thread::sleep(Duration::from_millis(300));
    assert_eq!((bed.held(), hedges(proxy).0), (2, before));
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().map(|it| it.text()), Ok("held".to_owned()));
    }
}

#[test]
fn hedges_end_where_the_retry_budget_is_used_up() {
    let late = || Answer::ok("late").first(Step::Pause(Duration::from_millis(15)));
    let bed = bed(Hedge::After(Duration::from_millis(1)), move |_| late());
    let proxy = &bed.proxy;
    let (since, mut client, mut asked) = (Instant::now(), proxy.connect(), 0);
    // The budget allows 10 a second, for 10 s. When it is used up, requests wait for their first
    // backend.
    while asked < hedges(proxy).0 + 40 {
        asked += 1;
        client.send(get("/held"));
        assert_eq!(client.response().map(|it| it.status()), Ok(200));
        assert!(asked < 5000, "{:?}", hedges(proxy));
    }
    assert!(hedges(proxy).0 > 20, "{:?} of {asked}", hedges(proxy));
    let most = 100.0 + 10.0 * since.elapsed().as_secs_f64() + 0.1 * 2.0 * asked as f64;
    assert!(hedges(proxy).0 as f64 <= most + 1.0, "{:?} of {most}", hedges(proxy));
}

#[test]
fn the_delay_may_be_a_share_of_the_latest_responses() {
    let gate = Gate::new();
    let bed = bed(Hedge::Share(0.95), {
        let gate = gate.clone();
        move |role| if role == 0 { waiting(&gate, "late") } else { Answer::ok("second") }
    });
    let proxy = &bed.proxy;
    let mut client = proxy.connect();
    for _ in 0..100 {
        client.send(get("/a"));
        assert_eq!(client.response().map(|it| it.text()), Ok("/a".to_owned()));
    }
    client.send(get("/held"));
    assert_eq!(client.response().map(|it| it.text()), Ok("second".to_owned()));
    assert!(hedges(proxy).1 >= 1);
    gate.open();
}

//! Learned concurrency limits: harmless where there is nothing to learn, and otherwise near the
//! optimum.

mod common;
mod common_learnt;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Plan, Proxy, both_upstreams, every_upstream, get, request};
use common_learnt::{Backend, LARGE, SLOTS, UPLOAD};
use equipoise_core::concurrency::Region;
use equipoise_session::config::{Concurrency, QueueOptions, Upstream};
use equipoise_testkit::{Client, PATIENCE, eventually, undisturbed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

every_upstream! {
    a_thousand_long_polls_are_served,
    streams_of_events_leave_room_for_others,
    five_hundred_slow_downloads_leave_room_for_others,
    uploads_that_stall_leave_room_for_others,
    one_long_report_does_not_hold_up_short_requests,
    a_sudden_load_on_a_pool_that_never_saw_one_is_served,
    a_cold_start_is_served,
    a_backend_with_four_slots_is_held_near_four,
}

// HTTP/2 to backends has no upgrades.
both_upstreams! {
    tunnels_leave_room_for_others,
}

/// A proxy with the default queue before the backend, with a learned limit.
fn learning(mode: Upstream, backend: &Backend) -> Proxy {
    with_queue(mode, backend, QueueOptions::default())
}

/// As [`learning`], with a queue in which requests wait for as long as a test may take.
fn learning_patiently(mode: Upstream, backend: &Backend) -> Proxy {
    with_queue(mode, backend, QueueOptions { wait: PATIENCE, length: 10_000 })
}

fn with_queue(mode: Upstream, backend: &Backend, queue: QueueOptions) -> Proxy {
    let plan = Plan::new(mode, &[backend.address]).threads(2);
    let proxy = plan.pool(|pool| pool.queue = queue).start();
    let wait = QueueOptions::default().wait;
    proxy.backends[0].live.set_concurrency(Concurrency::Learnt, wait);
    proxy
}

/// This number of clients, each of which has sent the request.
fn asking(proxy: &Proxy, count: usize, request: &str) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(request);
    }
    clients
}

#[track_caller]
fn assert_all(clients: Vec<Client>, body: &str) {
    for mut client in clients {
        assert_eq!(client.response().map(|r| (r.status(), r.text())), Ok((200, body.to_owned())));
    }
}

fn a_thousand_long_polls_are_served(mode: Upstream) {
    raise_descriptor_limit();
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        let clients = asking(&proxy, 1000, &get("/poll"));
        // Refused requests do not arrive.
        let unserved = || proxy.queue.stats.sum(|shard| shard.unserved.get());
        assert!(eventually(|| backend.arrived() as u64 + unserved() >= 1000));
        assert_eq!((backend.arrived(), proxy.queue.len()), (1000, 0));
        backend.release();
        assert_all(clients, "poll");
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

fn streams_of_events_leave_room_for_others(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        let mut clients = asking(&proxy, 100, &get("/events"));
        for client in &mut clients {
            assert_eq!(client.head().map(|head| head.status()), Ok(200));
            assert_eq!(client.read_exactly(11), Ok(b"6\r\nfirst\n\r\n".to_vec()));
        }
        assert_all(asking(&proxy, 50, &get("/")), "short");
        backend.release();
        for client in &mut clients {
            assert_eq!(client.read_exactly(15), Ok(b"5\r\nlast\n\r\n0\r\n\r\n".to_vec()));
        }
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

/// Clients that do not read, each with four descriptors of this process: its own, that of the front
/// door, and both ends of the connection to the backend.
fn five_hundred_slow_downloads_leave_room_for_others(mode: Upstream) {
    const DOWNLOADS: usize = 500;
    raise_descriptor_limit();
    undisturbed(|| {
        let backend = Backend::start(mode);
        // On a busy machine such a backend takes seconds for all of them.
        let proxy = learning_patiently(mode, &backend);
        let slow = asking(&proxy, DOWNLOADS, &get("/large"));
        assert!(eventually(|| backend.arrived() >= DOWNLOADS), "{} arrived", backend.arrived());
        assert_all(asking(&proxy, 50, &get("/")), "short");
        assert_all(slow, &"x".repeat(LARGE));
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

fn tunnels_leave_room_for_others(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        let upgrade = request("GET", "/tunnel", "Connection: upgrade\r\nUpgrade: websocket\r\n");
        let mut tunnels = asking(&proxy, 100, &upgrade);
        for tunnel in &mut tunnels {
            assert_eq!(tunnel.response().map(|r| r.status()), Ok(101));
            tunnel.send("ping");
            assert_eq!(tunnel.read_exactly(4), Ok(b"ping".to_vec()));
        }
        let live = &proxy.backends[0].live;
        assert!(eventually(|| live.permits_held() == 0), "{} held", live.permits_held());
        assert_all(asking(&proxy, 50, &get("/")), "short");
        drop(tunnels);
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

fn uploads_that_stall_leave_room_for_others(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        let head = request("POST", "/upload", &format!("Content-Length: {UPLOAD}\r\n"));
        let mut uploads = asking(&proxy, 100, &format!("{head}abc"));
        assert!(eventually(|| backend.arrived() >= 100), "{} have arrived", backend.arrived());
        assert_all(asking(&proxy, 50, &get("/")), "short");
        for upload in &mut uploads {
            upload.send("def");
        }
        assert_all(uploads, "uploaded");
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

fn one_long_report_does_not_hold_up_short_requests(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        let report = asking(&proxy, 1, &get("/poll"));
        assert!(eventually(|| backend.arrived() >= 1));
        for _ in 0..20 {
            assert_all(asking(&proxy, 40, &get("/")), "short");
        }
        backend.release();
        assert_all(report, "poll");
        proxy.assert_drops(&[]);
        proxy.assert_nothing_in_flight();
    });
}

fn a_sudden_load_on_a_pool_that_never_saw_one_is_served(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        assert_eq!(proxy.backends[0].live.learned(), None, "no work, nothing learned");
        assert_eq!(proxy.backends[0].live.limit(), Some(4));
        assert_all(asking(&proxy, 200, &get("/")), "short");
        proxy.assert_drops(&[]);
        let live = &proxy.backends[0].live;
        assert!(eventually(|| live.limit() == live.learned().map(|it| it.limit)));
    });
}

fn a_cold_start_is_served(mode: Upstream) {
    undisturbed(|| {
        let backend = Backend::start(mode);
        let proxy = learning(mode, &backend);
        // The first requests wait as if caches were cold.
        let first = asking(&proxy, 60, &get("/poll"));
        assert!(eventually(|| backend.arrived() >= 60), "{} have arrived", backend.arrived());
        backend.release();
        assert_all(first, "poll");
        assert_all(asking(&proxy, 200, &get("/poll")), "poll");
        proxy.assert_drops(&[]);
    });
}

/// Clients that send requests one after the other.
fn closed_loop(proxy: &Proxy, clients: usize, stop: &AtomicBool) -> usize {
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let (mut client, mut count) = (proxy.connect(), 0);
                    while !stop.load(SeqCst) {
                        let response = client.ask(get("/work")).expect("a whole response");
                        assert_eq!(response.status(), 200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it is served")).sum()
    })
}

fn a_backend_with_four_slots_is_held_near_four(mode: Upstream) {
    let backend = Backend::with_slowdown(mode, Duration::from_millis(1));
    let proxy = learning_patiently(mode, &backend);
    let (stop, live) = (AtomicBool::new(false), &proxy.backends[0].live);
    thread::scope(|scope| {
        let load = scope.spawn(|| closed_loop(&proxy, 40, &stop));
        let is_near = || {
            let learned = live.learned();
            learned.and_then(|it| it.knee).is_some_and(|knee| (1.5..12.0).contains(&knee))
        };
        let near = eventually(is_near);
        stop.store(true, SeqCst);
        load.join().expect("all are served");
        assert!(near, "{:?}", live.learned());
    });
    assert_ne!(live.learned().map(|it| it.region), Some(Region::NotEnoughSeen));
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

/// One request on a new connection; its status, or 0.
async fn status_of(address: SocketAddr) -> u16 {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let head = request("GET", "/work", "Connection: close\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask.await.unwrap_or_default();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Numbers of served and of refused requests in each half second.
type Halves = Vec<[u32; 2]>;

/// Sends `rate` requests a second, each on a connection of its own, for this number of half
/// seconds.
async fn offer(address: SocketAddr, rate: u32, halves: usize) -> Halves {
    let counts = Arc::new(Mutex::new(vec![[0; 2]; halves]));
    let start = tokio::time::Instant::now();
    for number in 0..rate * halves as u32 / 2 {
        tokio::time::sleep_until(start + number * Duration::from_secs(1) / rate).await;
        let counts = counts.clone();
        tokio::spawn(async move {
            let is_refused = status_of(address).await != 200;
            let half = (start.elapsed().as_millis() / 500) as usize;
            if let Some(count) = counts.lock().expect("no task panics").get_mut(half) {
                count[usize::from(is_refused)] += 1;
            }
        });
    }
    tokio::time::sleep_until(start + halves as u32 * Duration::from_millis(500)).await;
    let counts = counts.lock().expect("no task panics");
    counts.clone()
}

/// A backend of four slots of 20 ms that slows down as more requests wait, and its proxy.
fn slowing(concurrency: Concurrency) -> (Backend, Proxy) {
    let backend = Backend::with_slowdown(Upstream::Exclusive, Duration::from_millis(5));
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address]).threads(2).start();
    proxy.backends[0].live.set_concurrency(concurrency, QueueOptions::default().wait);
    (backend, proxy)
}

fn client_runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made")
}

/// Three such backends get twice what each can serve at the same time, so that a busy machine slows
/// all of them down.
#[test]
fn a_backend_that_slows_down_as_more_wait_serves_nearly_as_much_as_at_its_best_concurrency() {
    const RATE: u32 = 400;
    const HALVES: usize = 14;
    /// The limit is learned in these.
    const FIRST: usize = 4;
    let best = NonZeroU32::new(SLOTS as u32).expect("it has slots");
    undisturbed(|| {
        let setups = [Concurrency::Fixed(best), Concurrency::Learnt, Concurrency::None];
        let setups = setups.map(slowing);
        let counts = client_runtime().block_on(async {
            let [best, learnt, none] =
                setups.each_ref().map(|(_, proxy)| offer(proxy.address, RATE, HALVES));
            let (best, learnt, none) = tokio::join!(best, learnt, none);
            [best, learnt, none]
        });
        let [best, learnt, none] =
            counts.map(|counts| counts[FIRST..].iter().map(|[served, _]| served).sum::<u32>());
        println!("served at the best concurrency {best}, learnt {learnt}, without a limit {none}");
        assert!(4 * learnt >= 3 * best, "{learnt} of {best}");
        assert!(2 * none < best, "{none} of {best}: without a limit it would serve as much");
    });
}

#[test]
#[ignore = "measures: cargo test --release -p equipoise-session --test learnt -- --ignored --nocapture"]
fn figures_of_a_backend_of_four_slots() {
    for rate in [160, 400, 800] {
        let (_backend, proxy) = slowing(Concurrency::Learnt);
        let counts = client_runtime().block_on(offer(proxy.address, rate, 12));
        let [served, refused] =
            [0, 1].map(|at| counts.iter().map(|count| 2 * count[at]).collect::<Vec<_>>());
        println!("{rate} a second offered: served {served:?}, refused {refused:?}");
        println!("{:?}", proxy.backends[0].live.learned());
    }
}

#[test]
fn a_stated_limit_ends_learning_and_the_other_way_round() {
    let backend = Backend::start(Upstream::Exclusive);
    let proxy = learning_patiently(Upstream::Exclusive, &backend);
    let wait = QueueOptions::default().wait;
    let live = &proxy.backends[0].live;
    let held = asking(&proxy, 40, &get("/poll"));
    assert!(eventually(|| backend.arrived() >= 40), "{} have arrived", backend.arrived());
    assert!(live.limit() >= Some(40));
    live.set_concurrency(Concurrency::Fixed(NonZeroU32::MIN), wait);
    // The learner's thread runs 200 times a second.
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        assert_eq!((live.limit(), live.learned()), (Some(1), None));
        thread::yield_now();
    }
    live.set_concurrency(Concurrency::None, wait);
    assert_eq!(live.limit(), None);
    live.set_concurrency(Concurrency::Learnt, wait);
    let others = asking(&proxy, 40, &get("/poll"));
    assert!(eventually(|| backend.arrived() >= 80), "{} have arrived", backend.arrived());
    backend.release();
    assert_all(held, "poll");
    assert_all(others, "poll");
    proxy.assert_drops(&[]);
}

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a valid rlimit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

//! An elastic pool of backends that process two requests at a time, without a stated concurrency.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use common::scripts::server_with_slots;
use equipoise_testkit::{Client, undisturbed};

use super::*;

/// Requests that a backend processes at a time, each for 50 ms: 40 a second.
const SLOTS: usize = 2;
/// Requests a second before and after the step.
const STEADY: u32 = 47;
const MORE: u32 = 120;
/// The least number of backends that are not full after the step.
const ENOUGH: usize = 4;
/// Interval between plans, and the number of plans for which nothing may change.
const PERIOD: &str = "500ms";
const PERIODS: u64 = 12;

/// Clients that send requests at fixed times, each on a connection of its own.
struct Paced {
    stop: Arc<AtomicBool>,
    clients: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Paced {
    /// `rate` requests a second in all. After a late response a client sends its next request at
    /// once.
    fn start(address: std::net::SocketAddr, rate: u32) -> Paced {
        let stop = Arc::new(AtomicBool::new(false));
        let start = Instant::now();
        let client = |number: u32| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let (mut client, mut failed) = (Client::connect(address), Vec::new());
                // Each sends a request a second.
                let due = (0..).map(|at| {
                    start + Duration::from_secs(1) * number / rate + at * Duration::from_secs(1)
                });
                for due in due.take_while(|_| !stop.load(Relaxed)) {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    match client.ask("GET /load HTTP/1.1\r\nHost: localhost\r\n\r\n") {
                        Ok(response) if response.status() == 200 => {}
                        other => {
                            failed.push(format!("{other:?}"));
                            client = Client::connect(address);
                        }
                    }
                }
                failed
            })
        };
        Paced { clients: (0..rate).map(client).collect(), stop }
    }

    /// The outcomes of requests that were not answered.
    fn finish(self) -> Vec<String> {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().expect("it ends")).collect()
    }
}

/// Waits for [`PERIODS`] plans in a row without a change of size and with an empty queue.
fn stands_still(instance: &Instance) {
    let steps = || instance.printed().matches("scaling:").count();
    let queued = || instance.json("/v1/status")["pools"][0]["queued"].as_u64();
    let mut since = (edition(&instance.plan()).1, steps());
    instance.until("many later plans without a step", |plan| {
        if steps() > since.1 || queued() != Some(0) {
            since = (edition(plan).1, steps());
        }
        // Each look takes CPU time from the backends.
        std::thread::sleep(Duration::from_millis(20));
        edition(plan).1 > since.0 + PERIODS
    });
}

fn size_follows_load(instance: &mut Instance) {
    let server = server_with_slots(&instance.folder);
    instance.start(&format!(
        "[pool.elastic]\nmin = 2\nmax = 8\nwarm-up = \"0s\"\nout-cool-down = \"1s\"\n\
         in-cool-down = \"3s\"\n[pool.elastic.process]\n\
         command = [\"python3\", {:?}, \"{SLOTS}\", \"{{port}}\"]\n",
        text(&server)
    ));
    let has = |count: usize| eventually(|| serving(instance).len() >= count);
    assert!(has(2), "{}", instance.printed());
    let steps = || instance.printed().matches("scaling:").count();
    let before = steps();
    let steady = Paced::start(instance.door.address(), STEADY);
    stands_still(instance);
    assert_eq!(steps(), before, "{}", instance.printed());

    let (begun, first) = (Instant::now(), edition(&instance.plan()).1);
    let more = Paced::start(instance.door.address(), MORE - STEADY);
    assert!(has(ENOUGH), "{}", instance.printed());
    let periods = edition(&instance.plan()).1 - first;
    println!("{ENOUGH} backends after {periods} periods, {:?}", begun.elapsed());
    stands_still(instance);
    let count = serving(instance).len();
    assert!(count >= ENOUGH, "{}", instance.printed());
    let failed = [steady.finish(), more.finish()].concat();
    println!("{count} backends at last, {} requests failed: {:?}", failed.len(), failed.first());
}

#[test]
fn a_pool_of_two_slots_each_keeps_its_size_at_a_steady_load_and_follows_a_step() {
    undisturbed(|| {
        let mut instance = Instance::new("slots");
        instance.period = PERIOD;
        size_follows_load(&mut instance);
    });
}

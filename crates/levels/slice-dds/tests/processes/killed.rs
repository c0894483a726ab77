//! `kill -9` of workers with default settings, while other programs use the processors: the time
//! until their slices are served again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_dds::Settings;
use equipoise_slice::SliceId;
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::role::{SLICES, Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Seen, Stage};

const DOMAIN: u32 = 30;
const WORKERS: [&str; 3] = ["one", "two", "three"];
/// Number of kills, unless `SLICE_KILLS` is set.
const KILLS: usize = 3;
const PER_SECOND: f64 = 1000.0;
/// The default times, also those of DDS.
pub(crate) const DEFAULTS: &[(&str, &str)] = &[("DEFAULTS", "1"), ("LEASE_S", "5")];

/// Threads that also use the processors.
pub(crate) struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    pub(crate) fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| {
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        Self { threads: (0..count).map(|_| spin(stop.clone())).collect(), stop }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The results of a client.
pub(crate) struct Outcome {
    pub(crate) published: i64,
    pub(crate) answered: Vec<Answered>,
    pub(crate) resent: u64,
}

/// A reply, with the time when its item was first published.
pub(crate) struct Answered {
    id: i64,
    published: Instant,
    at: Instant,
}

/// The progress of a client, which other threads follow and end.
#[derive(Default)]
pub(crate) struct Progress {
    stop: AtomicBool,
    /// Number of published items.
    published: AtomicI64,
    /// Number of items up to the newest one of each slice that has a reply.
    answered: [AtomicI64; SLICES as usize],
}

impl Progress {
    /// Publishes no further items.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    fn answer(&self, id: i64) {
        self.answered[id as usize % SLICES as usize].fetch_max(id + 1, Relaxed);
    }

    /// Waits until each slice has answered an item that is published from now on.
    fn until_served(&self) {
        let (from, end) = (self.published.load(Relaxed), Instant::now() + PATIENCE);
        let unserved = || {
            let slices = self.answered.iter().enumerate();
            let late = slices.filter(|(_, answered)| answered.load(Relaxed) <= from);
            late.map(|(slice, _)| slice).collect::<Vec<_>>()
        };
        while !unserved().is_empty() {
            assert!(Instant::now() < end, "slices {:?} are not served", unserved());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A client that has discovered the workers of all slices.
pub(crate) fn opened(stream: &Stream) -> Client {
    let mut client = Client::join(stream, Options::new(3)).unwrap();
    (0..SLICES).for_each(|slice| client.open(SliceId(slice), PATIENCE).unwrap());
    client
}

/// Publishes this number of items per second until it is stopped, and then waits for the last
/// reply.
pub(crate) fn publish(mut client: Client, per_second: f64, progress: &Progress) -> Outcome {
    let (begun, mut next, mut answers, mut answered) =
        (Instant::now(), 0_i64, Vec::new(), Vec::new());
    let mut stopped: Option<Instant> = None;
    loop {
        if progress.stop.load(Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < PATIENCE, "{} items have no reply", client.pending());
            if client.pending() == 0 {
                return Outcome { published: next, answered, resent: client.resent() };
            }
        } else {
            let due = (begun.elapsed().as_secs_f64() * per_second) as i64;
            // Only a few before the next check for replies.
            for _ in next..due.min(next + 50) {
                match client.publish(SliceId(next as u32 % SLICES), next, &next.to_le_bytes()) {
                    Ok(()) => next += 1,
                    Err(PublishError::WindowFull(_)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            progress.published.store(next, Relaxed);
        }
        client.replies(Duration::from_millis(2), &mut answers).unwrap();
        let at = Instant::now();
        answers.iter().for_each(|answer| progress.answer(answer.id));
        let came = answers.drain(..);
        answered.extend(came.map(|it| Answered { id: it.id, published: at - it.delay, at }));
    }
}

/// A worker that was killed or cut off, and the slices that it had.
pub(crate) struct Killed {
    pub(crate) name: &'static str,
    at: Instant,
    at_unix_ns: u128,
    slices: BTreeSet<usize>,
}

impl Killed {
    /// To be called just before the kill or cut.
    pub(crate) fn now(name: &'static str, seen: &Seen) -> Self {
        let slices = (0..SLICES as usize).filter(|slice| seen.owner(*slice) == name).collect();
        let at_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        Self { name, at: Instant::now(), at_unix_ns, slices }
    }
}

/// Time until each of its slices has answered an item that was published after the kill.
pub(crate) fn served_after(killed: &Killed, answered: &[Answered]) -> Duration {
    let mut unserved = killed.slices.clone();
    for answer in answered.iter().filter(|answer| answer.published > killed.at) {
        unserved.remove(&(answer.id as usize % SLICES as usize));
        if unserved.is_empty() {
            return answer.at - killed.at;
        }
    }
    panic!("slices {unserved:?} of {} were never served again", killed.name);
}

/// The longest time until the reply among items that were published within a second of the kill.
fn longest_wait(killed: &Killed, answered: &[Answered]) -> Duration {
    let about = |answer: &&Answered| {
        let begin = killed.at - Duration::from_millis(100);
        (begin..killed.at + Duration::from_secs(1)).contains(&answer.published)
    };
    answered.iter().filter(about).map(|it| it.at - it.published).max().unwrap_or_default()
}

/// Time of the first message of each kind in each process after the kill, in milliseconds.
fn timeline(trace: &str, killed: &Killed) -> String {
    let mut first: BTreeMap<String, f64> = BTreeMap::new();
    for line in trace.lines() {
        let (at, what) = line.split_once(' ').unwrap();
        let after = at.parse::<u128>().unwrap().checked_sub(killed.at_unix_ns);
        let Some(after) = after.filter(|after| *after < 2_000_000_000) else { continue };
        let is_told = ["probe", "assign", "active", "end"].iter().any(|m| what.ends_with(m));
        if is_told && !what.contains("Sent") {
            first.entry(what.to_string()).or_insert(after as f64 / 1e6);
        }
    }
    let mut all: Vec<_> = first.into_iter().collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all.iter().map(|(what, at)| format!("{what} {at:.0}")).collect::<Vec<_>>().join(", ")
}

fn per_mille(times: &mut [Duration], at: usize) -> u128 {
    times.sort_unstable();
    times[(times.len() - 1) * at / 1000].as_millis()
}

#[test]
fn slices_of_killed_workers_are_served_again_at_the_defaults_beside_busy_loops() {
    let kills = std::env::var("SLICE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let busy = std::env::var("BUSY_LOOPS").map_or(4, |count| count.parse().unwrap());
    let times = Times { leadership: Duration::from_secs(3), ..Times::LONG };
    let mut stage = Stage::traced(DOMAIN, times, Here { more: DEFAULTS, ..HERE }, &WORKERS);
    let mut stream = stream(DOMAIN, "lo", 0);
    stream.dds.lease = Settings::default().lease;
    let client = opened(&stream);
    let progress = Arc::new(Progress::default());
    let of_load = progress.clone();
    let load = std::thread::spawn(move || publish(client, PER_SECOND, &of_load));
    let busy = Busy::start(busy);
    let mut killed = Vec::new();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_secs(3));
        // The last loss has been recovered. Beside busy loops, balancing may always move a slice.
        progress.until_served();
        let seen = stage.until_owned("controller", &WORKERS);
        let count = |name: &&str| seen.owners.iter().filter(|owner| owner == name).count();
        let name = WORKERS.into_iter().max_by_key(count).unwrap();
        killed.push(Killed::now(name, &seen));
        stage.kill(name);
        stage.until("controller", "its slices have owners", |seen| {
            (0..SLICES as usize).all(|slice| ![name, "-"].contains(&seen.owner(slice)))
        });
        stage.start("worker", name);
        stage.until_heard(name);
    }
    std::thread::sleep(Duration::from_secs(3));
    drop(busy);
    progress.stop();
    let Outcome { published, answered, resent } = load.join().unwrap();
    let trace = stage.trace();
    let (mut served, mut waits) = (Vec::new(), Vec::new());
    for killed in &killed {
        served.push(served_after(killed, &answered));
        waits.push(longest_wait(killed, &answered));
        let (served, wait) = (served.last().unwrap(), waits.last().unwrap());
        println!("served after {served:?}, longest wait {wait:?}: {}", timeline(&trace, killed));
    }
    println!(
        "{kills} kills: served again after {} ms (median), {} ms (worst); longest wait for a reply {} ms \
         (median), {} ms (worst); {published} items, {resent} published again",
        per_mille(&mut served, 500),
        per_mille(&mut served, 1000),
        per_mille(&mut waits, 500),
        per_mille(&mut waits, 1000),
    );
    let ids: BTreeSet<_> = answered.iter().map(|answer| answer.id).collect();
    assert_eq!((ids.len(), answered.len()), (published as usize, published as usize));
    let done = stage.done();
    assert!((0..published).all(|id| done.contains_key(&id)), "answered and never done");
}

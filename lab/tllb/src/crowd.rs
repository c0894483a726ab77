//! Many clients, and what they saw.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use equipoise_netns::Host;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::client::{Way, ask, ask_with, connect};

/// A client that waits longer has given up.
const PATIENCE: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_millis(20);
/// Each request is sent up to so much later than in step, so that it is in step with no control
/// group's period.
const JITTER: Duration = Duration::from_millis(50);

/// Results of clients that always have a request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) failed: u64,
}

fn on<T: Send>(host: &Host, work: impl AsyncFnOnce() -> T + Send) -> Result<T> {
    host.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(LocalSet::new().block_on(&runtime, work()))
    })
}

/// Clients that each have a request in flight at all times, a number of them for each way: answers
/// a second in `window`, after `warm_up`. Clients that use the name resolve it for each connection,
/// which lasts.
pub(crate) fn closed(
    host: &Host,
    ways: &[Way],
    clients: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Rate> {
    on(host, async || {
        let from = Instant::now() + warm_up;
        let until = from + window;
        let (answered, failed) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
        let mut tasks = Vec::new();
        for client in 0..clients * ways.len() {
            let way = ways[client % ways.len()].clone();
            let (answered, failed) = (answered.clone(), failed.clone());
            tasks.push(tokio::task::spawn_local(async move {
                while Instant::now() < until {
                    let begun = converse(&way, client, from, until, &answered).await;
                    if begun.is_err() {
                        failed.set(failed.get() + 1);
                        sleep(AFTER_FAILURE).await;
                    }
                }
            }));
        }
        for task in tasks {
            // A client that panics is a lower figure, and its message is on the screen.
            let _ = task.await;
        }
        let per_second = answered.get() as f64 / window.as_secs_f64();
        Rate { per_second, failed: failed.get() }
    })
}

/// One connection, to the end of the window.
async fn converse(
    way: &Way,
    client: usize,
    from: Instant,
    until: Instant,
    answered: &Cell<u64>,
) -> std::io::Result<()> {
    let (_, mut stream) = connect(way, client).await?;
    while let Ok(asked) = timeout_at(until, ask(&mut stream, "/work")).await {
        if !asked? {
            return Err(std::io::ErrorKind::Other.into());
        }
        if Instant::now() >= from {
            answered.set(answered.get() + 1);
        }
    }
    Ok(())
}

/// A number of requests a second in a time range, whether those before were answered or not, each
/// on its own connection.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) label: &'static str,
    pub(crate) path: &'static str,
    /// Bytes that it sends, and that come back.
    pub(crate) body: usize,
    pub(crate) ways: Vec<Way>,
    pub(crate) rate: f64,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// A request, from when it was due; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) label: &'static str,
    pub(crate) due: f64,
    pub(crate) took: f64,
    pub(crate) is_fine: bool,
    /// The node that was asked, and when it was connected to.
    pub(crate) node: Option<(SocketAddr, f64)>,
}

/// Streams of requests under way.
pub(crate) struct Streams {
    pub(crate) began: std::time::Instant,
    thread: JoinHandle<Result<Vec<Asked>>>,
}

impl Streams {
    pub(crate) fn start(host: &Host, streams: Vec<Stream>, seed: u64) -> Streams {
        let began = std::time::Instant::now();
        let thread = host.spawn_thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(LocalSet::new().block_on(&runtime, send(streams, seed)))
        });
        Streams { began, thread }
    }

    /// Waits for the end; all requests, in the order in which they were due.
    pub(crate) fn end(self) -> Result<Vec<Asked>> {
        self.thread.join().map_err(|_| anyhow!("the clients' thread died"))?
    }
}

async fn send(streams: Vec<Stream>, seed: u64) -> Vec<Asked> {
    let begin = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let mut due: Vec<(Duration, usize, usize)> = Vec::new();
    for (which, stream) in streams.iter().enumerate() {
        let count = (stream.rate * (stream.until - stream.from).as_secs_f64()) as usize;
        for number in 0..count {
            let step = Duration::from_secs_f64(number as f64 / stream.rate);
            let late = JITTER.mul_f64(random.random_range(0.0..1.0));
            due.push((stream.from + step + late, which, number));
        }
    }
    due.sort_unstable();
    let asked = Rc::new(RefCell::new(Vec::with_capacity(due.len())));
    let mut tasks = Vec::new();
    for (due, which, number) in due {
        sleep_until(begin + due).await;
        let stream = &streams[which];
        let (way, label) = (stream.ways[number % stream.ways.len()].clone(), stream.label);
        let (path, body, asked) = (stream.path, stream.body, asked.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let node = Cell::new(None);
            let whole = async {
                let (address, mut stream) = connect(&way, number).await?;
                node.set(Some((address, begin.elapsed().as_secs_f64())));
                ask_with(&mut stream, path, body).await
            };
            let outcome = timeout(PATIENCE, whole).await;
            // From when it was due: a client that is late does not make the answer earlier.
            let took = (begin + due).elapsed().as_secs_f64();
            let is_fine = matches!(outcome, Ok(Ok(true)));
            let due = due.as_secs_f64();
            asked.borrow_mut().push(Asked { label, due, took, is_fine, node: node.get() });
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
    let mut asked = asked.take();
    asked.sort_unstable_by(|a: &Asked, b: &Asked| a.due.total_cmp(&b.due));
    asked
}

/// The 99th percentile of what was due in this time, milliseconds.
pub(crate) fn p99_ms<'a>(asked: impl IntoIterator<Item = &'a Asked>, from: f64, to: f64) -> f64 {
    let within = asked.into_iter().filter(|one| (from..to).contains(&one.due));
    let mut times: Vec<f64> = within.map(|one| 1e3 * one.took).collect();
    times.sort_unstable_by(f64::total_cmp);
    let at = (times.len() as f64 * 0.99).ceil() as usize;
    times.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Seconds after `at` from which on, for `for_s` seconds, the 99th percentile of each second is at
/// most `limit_ms`; endless if that never was.
pub(crate) fn recovered_after(
    asked: &[Asked],
    at: f64,
    until: f64,
    limit_ms: f64,
    for_s: usize,
) -> f64 {
    let mut by_second: BTreeMap<usize, Vec<Asked>> = BTreeMap::new();
    for one in asked.iter().filter(|one| (at..until).contains(&one.due)) {
        by_second.entry((one.due - at) as usize).or_default().push(*one);
    }
    let is_good = |second: usize| {
        let all = by_second.get(&second)?;
        Some(p99_ms(all, f64::NEG_INFINITY, f64::INFINITY) <= limit_ms)
    };
    let last = by_second.keys().last().copied().unwrap_or(0);
    (0..=last)
        .find(|first| (*first..first + for_s).all(|second| is_good(second).unwrap_or(false)))
        .map_or(f64::INFINITY, |second| second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(due: f64, took: f64) -> Asked {
        Asked { label: "", due, took, is_fine: true, node: None }
    }

    #[test]
    fn the_time_to_recover_is_to_the_first_of_several_good_seconds() {
        let times = [0.1, 5.0, 5.0, 0.1, 5.0, 0.1, 0.1, 0.1, 0.1];
        let all: Vec<Asked> =
            times.iter().enumerate().map(|(second, took)| asked(second as f64, *took)).collect();
        assert_eq!(recovered_after(&all, 1.0, 9.0, 200.0, 3), 4.0);
        assert_eq!(recovered_after(&all, 1.0, 6.0, 200.0, 3), f64::INFINITY);
        assert_eq!(p99_ms(&all, 0.0, 9.0), 5000.0);
        assert_eq!(p99_ms(&all, 5.0, 9.0), 100.0);
    }
}

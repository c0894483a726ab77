//! Clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use equipoise_testkit::Client;

use crate::site::PATIENCE;

/// A request with its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    took: Duration,
    /// The node that served it; `None` if it failed.
    pub(crate) by: Option<String>,
}

/// Running clients, each with a persistent connection and one request at a time.
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<Asked>>>,
}

impl Crowd {
    /// Starts `count` clients with a largest rate each. A client that had to wait does not send
    /// faster afterwards.
    pub(crate) fn start(
        door: SocketAddr,
        path: &'static str,
        clients: u32,
        every: Duration,
    ) -> Crowd {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number: u32| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let begin = Instant::now() + every * number / clients;
            thread::spawn(move || ask(door, path, (begin, every), &stop, &answered))
        };
        Crowd { clients: (0..clients).map(client).collect(), stop, answered }
    }

    /// Ends the clients, and returns all requests.
    pub(crate) fn end(self) -> Vec<Asked> {
        self.stop.store(true, Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

fn ask(
    door: SocketAddr,
    path: &str,
    (mut due, every): (Instant, Duration),
    stop: &AtomicBool,
    answered: &AtomicUsize,
) -> Vec<Asked> {
    let mut asked = Vec::new();
    let mut client = Client::connect(door);
    loop {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Relaxed) {
            return asked;
        }
        let at = Instant::now();
        due = at + every;
        let answer = client.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let by = answer.ok().filter(|it| it.status() == 200).map(|it| it.text());
        match by {
            Some(_) => drop(answered.fetch_add(1, Relaxed)),
            None => client = Client::connect(door),
        }
        asked.push(Asked { at, took: at.elapsed(), by });
    }
}

/// Waits until `more` further requests of each crowd have been answered.
pub(crate) fn wait_for(more: usize, crowds: &[Crowd]) {
    let goals = crowds.iter().map(|crowd| crowd.answered.load(Relaxed) + more);
    let (goals, end) = (goals.collect::<Vec<_>>(), Instant::now() + PATIENCE);
    for (crowd, goal) in crowds.iter().zip(goals) {
        while crowd.answered.load(Relaxed) < goal {
            assert!(Instant::now() < end, "no answers come");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The number of requests that a node served.
pub(crate) fn done_by(asked: &[Asked], node: &str) -> usize {
    asked.iter().filter(|one| one.by.as_deref() == Some(node)).count()
}

/// The 99th percentile of their durations, in milliseconds.
pub(crate) fn p99_ms<'a>(asked: impl IntoIterator<Item = &'a Asked>) -> f64 {
    let mut times: Vec<Duration> = asked.into_iter().map(|one| one.took).collect();
    times.sort();
    let place = (times.len() * 99).div_ceil(100).saturating_sub(1);
    times.get(place).map_or(f64::NAN, |took| 1e3 * took.as_secs_f64())
}

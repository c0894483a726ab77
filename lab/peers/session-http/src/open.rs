//! Open-loop load: requests leave at times that were drawn beforehand, however fast they are
//! answered.
//!
//! wrk waits for an answer before it sends again, so a proxy that stalls receives fewer requests
//! while it stalls, and most of the wait goes unseen ("coordinated omission"). Here arrivals are
//! Poisson; a due request takes the connection that has been idle longest, or waits for one; its
//! latency counts from its scheduled time.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::http::{self, Head};
use crate::sys::{self, Epoll};

/// How long after the last request its answer may come.
const GRACE: Duration = Duration::from_secs(5);

/// The load to offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) requests_per_second: f64,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

/// Measured times, nanoseconds, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// From the scheduled time to the last byte of the response.
    pub(crate) latencies_ns: Vec<u64>,
    /// From the scheduled time to the sending: what the load itself, or the lack of an idle
    /// connection, added.
    pub(crate) delays_ns: Vec<u64>,
    /// Sent or scheduled, and not answered within the grace.
    pub(crate) unanswered: u64,
    pub(crate) elapsed: Duration,
}

/// Offers the load of `plan` to the server at `address`, from the calling thread.
///
/// # Errors
/// If a connection fails or is closed, or a response is not a 200.
pub(crate) fn run(address: SocketAddr, path: &str, plan: Plan) -> Result<Outcome> {
    sys::exact_timers()?;
    let mut load = OpenLoad::connect(address, path, plan)?;
    let mut arrivals = Arrivals::new(plan);
    let mut check_at = Duration::ZERO;
    loop {
        let now = load.start.elapsed();
        load.waiting.extend(arrivals.due(now));
        load.send_waiting()?;
        let answered = load.waiting.is_empty() && load.idle.len() == plan.connections;
        if arrivals.next.is_none() && (answered || now > plan.time + GRACE) {
            break;
        }
        let wake = arrivals.next.unwrap_or(now + Duration::from_millis(10));
        load.receive(wake.saturating_sub(load.start.elapsed()))?;
        if now >= check_at {
            sys::check_interrupt()?;
            check_at = now + Duration::from_millis(100);
        }
    }
    load.outcome.elapsed = load.start.elapsed();
    load.outcome.unanswered = (load.waiting.len() + plan.connections - load.idle.len()) as u64;
    load.outcome.latencies_ns.sort_unstable();
    load.outcome.delays_ns.sort_unstable();
    Ok(load.outcome)
}

/// The times at which requests are due, from the start.
struct Arrivals {
    /// `None`: there are no more.
    next: Option<Duration>,
    mean_gap_s: f64,
    end: Duration,
    rng: StdRng,
}

impl Arrivals {
    fn new(plan: Plan) -> Arrivals {
        let rng = StdRng::seed_from_u64(plan.seed);
        let mean_gap_s = 1.0 / plan.requests_per_second;
        let mut arrivals = Arrivals { next: Some(Duration::ZERO), mean_gap_s, end: plan.time, rng };
        arrivals.advance();
        arrivals
    }

    fn advance(&mut self) {
        let uniform: f64 = self.rng.random_range(0.0..1.0);
        let gap = Duration::from_secs_f64(-(1.0 - uniform).ln() * self.mean_gap_s);
        self.next = self.next.map(|time| time + gap).filter(|time| *time < self.end);
    }

    fn due(&mut self, now: Duration) -> impl Iterator<Item = Duration> + '_ {
        std::iter::from_fn(move || {
            let time = self.next.filter(|time| *time <= now)?;
            self.advance();
            Some(time)
        })
    }
}

struct Connection {
    stream: TcpStream,
    /// When the request in flight was due.
    due: Duration,
    received: Vec<u8>,
}

struct OpenLoad {
    start: Instant,
    request: Vec<u8>,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    waiting: VecDeque<Duration>,
    buffer: Vec<u8>,
    epoll: Epoll,
    outcome: Outcome,
}

impl OpenLoad {
    fn connect(address: SocketAddr, path: &str, plan: Plan) -> Result<OpenLoad> {
        let epoll = Epoll::new(plan.connections)?;
        let mut connections = Vec::new();
        for number in 0..plan.connections {
            let stream = TcpStream::connect(address).context("opening a connection of the load")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll.watch(&stream, number)?;
            connections.push(Connection { stream, due: Duration::ZERO, received: Vec::new() });
        }
        let expected = (plan.requests_per_second * plan.time.as_secs_f64() * 1.1) as usize;
        let mut outcome = Outcome::default();
        outcome.latencies_ns.reserve(expected);
        outcome.delays_ns.reserve(expected);
        Ok(OpenLoad {
            start: Instant::now(),
            request: http::request(address, path),
            idle: (0..connections.len()).collect(),
            connections,
            waiting: VecDeque::new(),
            buffer: vec![0; 16 << 10],
            epoll,
            outcome,
        })
    }

    fn send_waiting(&mut self) -> Result<()> {
        while !self.waiting.is_empty()
            && let Some(number) = self.idle.pop_front()
            && let Some(due) = self.waiting.pop_front()
        {
            let connection = &mut self.connections[number];
            connection.due = due;
            let delay = self.start.elapsed() - due;
            self.outcome.delays_ns.push(delay.as_nanos() as u64);
            // An idle connection's send buffer is empty: a request always fits.
            let sent = connection.stream.write(&self.request).context("sending a request")?;
            ensure!(sent == self.request.len(), "only {sent} bytes of a request were taken");
        }
        Ok(())
    }

    /// Waits for responses for at most `time` and takes those that are there.
    fn receive(&mut self, time: Duration) -> Result<()> {
        for number in self.epoll.wait(time)? {
            let connection = &mut self.connections[number];
            let count = match connection.stream.read(&mut self.buffer) {
                Ok(0) => bail!("the proxy closed a kept-open connection"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error).context("reading a response"),
            };
            connection.received.extend_from_slice(&self.buffer[..count]);
            let Some(head) = Head::parse(&connection.received)? else { continue };
            ensure!(head.status == 200, "status {} instead of 200", head.status);
            if connection.received.len() >= head.length + head.body_length {
                connection.received.clear();
                let latency = self.start.elapsed() - connection.due;
                self.outcome.latencies_ns.push(latency.as_nanos() as u64);
                self.idle.push_back(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_planned_rate_and_stop_at_the_end() {
        let plan = Plan {
            connections: 1,
            requests_per_second: 10_000.0,
            time: Duration::from_secs(10),
            seed: 7,
        };
        let mut arrivals = Arrivals::new(plan);
        let times: Vec<_> = arrivals.due(Duration::from_secs(60)).collect();
        // A Poisson count of mean 100,000 has a standard deviation of 316.
        assert!((98_000..102_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && *times.last().unwrap() < plan.time);
        assert_eq!(arrivals.next, None);
    }

    #[test]
    fn the_same_seed_gives_every_proxy_the_same_arrivals() {
        let plan = Plan {
            connections: 1,
            requests_per_second: 100.0,
            time: Duration::from_secs(1),
            seed: 7,
        };
        let times = |plan| Arrivals::new(plan).due(Duration::from_secs(1)).collect::<Vec<_>>();
        assert_eq!(times(plan), times(plan));
    }
}

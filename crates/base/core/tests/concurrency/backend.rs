//! Models of backends: how fast they work at each number in flight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::RngExt;
use rand::rngs::StdRng;

use super::simulator::At;

/// Work of one request: seconds of service at full speed, and seconds of latency which use no
/// capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) work: f64,
    pub(crate) latency: f64,
}

/// Draws a request that arrives at a time (seconds).
pub(crate) type Draw = fn(&mut StdRng, f64) -> Job;

/// Exponential with this mean.
pub(crate) fn exponential(rng: &mut StdRng, mean: f64) -> f64 {
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// A backend under test.
#[derive(Clone, Copy)]
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    pub(crate) draw: Draw,
    /// Requests a second at its best number in flight.
    pub(crate) capacity: f64,
    /// Share of `capacity` that is there at a time.
    pub(crate) scale: fn(f64) -> f64,
    /// Factor of each request's work by the time of its start.
    pub(crate) slowdown: fn(f64) -> f64,
    /// Requests beyond this number in service fail at once.
    pub(crate) refuses_above: usize,
    /// An answer counts if it comes within this time from arrival, in seconds.
    pub(crate) deadline: f64,
}

/// How requests share the backend.
#[derive(Clone, Copy)]
pub(crate) enum Service {
    /// Processor sharing: seconds of work a second by the number in service, divided evenly.
    Sharing(fn(f64) -> f64),
    /// This many workers, first come first served.
    Workers(f64),
    /// This many workers. Each request that arrives takes so many seconds longer for each request
    /// beyond the workers that is there.
    Slowing(f64, f64),
}

/// The requests which a backend has in service.
pub(crate) struct Station {
    service: Service,
    scale: fn(f64) -> f64,
    at: f64,
    /// Service that each request in the shared station has received since the beginning.
    received: f64,
    shared: BinaryHeap<Reverse<(At, usize)>>,
    busy: BinaryHeap<Reverse<(At, usize)>>,
    queue: VecDeque<(f64, usize)>,
}

impl Station {
    pub(crate) fn new(backend: &Backend) -> Station {
        Station {
            service: backend.service,
            scale: backend.scale,
            at: 0.0,
            received: 0.0,
            shared: BinaryHeap::new(),
            busy: BinaryHeap::new(),
            queue: VecDeque::new(),
        }
    }

    fn speed(&self) -> f64 {
        let n = self.shared.len() as f64;
        match self.service {
            Service::Sharing(_) if n == 0.0 => 0.0,
            // A backend of half its size behaves at n as the whole one does at 2 n.
            Service::Sharing(f) => {
                let scale = (self.scale)(self.at);
                f(n / scale) * scale / n
            }
            Service::Workers(_) | Service::Slowing(..) => 0.0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.len() + self.busy.len() + self.queue.len()
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now: f64) {
        self.received += self.speed() * (now - self.at);
        self.at = now;
    }

    /// Takes a request; `advance` to the present first.
    pub(crate) fn start(&mut self, id: usize, work: f64) {
        match self.service {
            Service::Sharing(_) => self.shared.push(Reverse((At(self.received + work), id))),
            Service::Workers(_) => {
                self.queue.push_back((work, id));
                self.employ();
            }
            Service::Slowing(workers, seconds) => {
                let more = ((self.len() + 1) as f64 - workers).max(0.0);
                self.queue.push_back((work + more * seconds, id));
                self.employ();
            }
        }
    }

    fn employ(&mut self) {
        let (Service::Workers(workers) | Service::Slowing(workers, _)) = self.service else {
            return;
        };
        while (self.busy.len() as f64) < (workers * (self.scale)(self.at)).round() {
            let Some((work, id)) = self.queue.pop_front() else { return };
            self.busy.push(Reverse((At(self.at + work), id)));
        }
    }

    /// Time at which the next request is finished if nothing changes.
    pub(crate) fn next(&self) -> f64 {
        let shared = self
            .shared
            .peek()
            .map(|Reverse((At(due), _))| self.at + ((due - self.received) / self.speed()).max(0.0));
        let busy = self.busy.peek().map(|Reverse((At(due), _))| *due);
        shared.or(busy).unwrap_or(f64::INFINITY)
    }

    /// Takes out the request that is finished at `next()`.
    pub(crate) fn finish(&mut self) -> usize {
        match self.service {
            Service::Sharing(_) => {
                let Reverse((At(due), id)) = self.shared.pop().expect("a request is due");
                self.received = self.received.max(due);
                id
            }
            Service::Workers(_) | Service::Slowing(..) => {
                let Reverse((_, id)) = self.busy.pop().expect("a request is due");
                self.employ();
                id
            }
        }
    }
}

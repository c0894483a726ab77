//! A backend of which other programs take a part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::simulator::At;

/// The share that other programs take of a backend, and how requests share the rest.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// This many cores, of which other programs take some. A request uses a free core.
    Cores(f64),
    /// This many cores, of which other programs take a part each. A request uses one core.
    SlowCores(f64),
    /// This many workers, first come first served. Other programs slow each.
    SlowWorkers(f64),
}

impl Shape {
    pub(super) fn capacity(self) -> f64 {
        match self {
            Shape::Cores(count) | Shape::SlowCores(count) | Shape::SlowWorkers(count) => count,
        }
    }
}

pub(super) struct Request {
    pub(super) work: f64,
    pub(super) arrived: f64,
    pub(super) balancer: usize,
}

pub(super) struct Backend {
    shape: Shape,
    /// Share that other programs take.
    pub(super) taken: f64,
    /// Work that each request in service has received since the beginning.
    received: f64,
    /// By the `received` at which each is finished.
    in_service: BinaryHeap<Reverse<(At, usize)>>,
    waiting: VecDeque<usize>,
    requests: Vec<Request>,
    /// Seconds in which its cores were busy.
    pub(super) busy: f64,
}

impl Backend {
    pub(super) fn new(shape: Shape, taken: f64) -> Backend {
        Backend {
            shape,
            taken,
            received: 0.0,
            in_service: BinaryHeap::new(),
            waiting: VecDeque::new(),
            requests: Vec::new(),
            busy: 0.0,
        }
    }

    /// Seconds of work a second that other programs leave.
    pub(super) fn free(&self) -> f64 {
        self.shape.capacity() * (1.0 - self.taken)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_service.len() + self.waiting.len()
    }

    /// Seconds of work that each request in service receives a second.
    fn speed(&self) -> f64 {
        let n = self.in_service.len() as f64;
        match self.shape {
            _ if n == 0.0 => 0.0,
            Shape::Cores(_) => n.min(self.free()) / n,
            Shape::SlowCores(count) => n.min(count) * (1.0 - self.taken) / n,
            Shape::SlowWorkers(_) => 1.0 - self.taken,
        }
    }

    /// Seconds until the next request is finished if nothing changes.
    pub(super) fn next(&self) -> f64 {
        let due = self.in_service.peek().map(|Reverse((At(due), _))| due - self.received);
        due.map_or(f64::INFINITY, |work| work.max(0.0) / self.speed())
    }

    pub(super) fn pass(&mut self, seconds: f64) {
        let used = (self.in_service.len() as f64 / self.shape.capacity()).min(1.0 - self.taken);
        self.busy += seconds * (self.taken + used);
        self.received += self.speed() * seconds;
    }

    pub(super) fn begin(&mut self, request: Request) {
        self.requests.push(request);
        self.waiting.push_back(self.requests.len() - 1);
        self.employ();
    }

    /// Takes out the request that is finished first.
    pub(super) fn finish(&mut self) -> &Request {
        let Reverse((_, id)) = self.in_service.pop().expect("a request");
        self.employ();
        &self.requests[id]
    }

    fn employ(&mut self) {
        let most = match self.shape {
            Shape::Cores(_) | Shape::SlowCores(_) => usize::MAX,
            Shape::SlowWorkers(count) => count as usize,
        };
        while self.in_service.len() < most
            && let Some(id) = self.waiting.pop_front()
        {
            let due = At(self.received + self.requests[id].work);
            self.in_service.push(Reverse((due, id)));
        }
    }
}

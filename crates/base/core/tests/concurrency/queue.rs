//! The balancer's queue, with the disciplines that are compared.

use std::collections::VecDeque;

/// In which order requests leave a queue that stands, and for how long they may stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Discipline {
    /// First come, first served.
    Fifo,
    /// Last come, first served, always.
    Lifo,
    /// First come, first served; last come, first served while the queue has stood for 100 ms.
    AdaptiveLifo,
    /// First come, first served; last come, first served while the oldest has waited for half of
    /// the wait.
    LateLifo,
    /// First come, first served; requests may wait for 5 ms only while the queue has stood for 100
    /// ms (Maurer, "Fail at Scale", ACM Queue 2015).
    CoDel,
    /// The two above together, as Maurer has it.
    AdaptiveLifoCoDel,
    /// First come, first served; a request may wait for a quarter of the wait only while the queue
    /// has stood.
    ShortFifo,
}

/// Time for which a queue must not have been empty before it counts as standing.
const STANDS_AFTER: f64 = 0.1;

pub(crate) struct Queue {
    discipline: Discipline,
    /// Longest wait in seconds.
    pub(crate) wait: f64,
    length_max: usize,
    requests: VecDeque<(f64, usize)>,
    empty_at: f64,
}

impl Queue {
    pub(crate) fn new(discipline: Discipline, wait: f64, length_max: usize) -> Queue {
        Queue { discipline, wait, length_max, requests: VecDeque::new(), empty_at: 0.0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn oldest(&self) -> Option<f64> {
        self.requests.front().map(|&(at, _)| at)
    }

    fn stands(&mut self, now: f64) -> bool {
        if self.requests.is_empty() {
            self.empty_at = now;
        }
        now - self.empty_at > STANDS_AFTER
    }

    /// Adds a request, or returns the one that has to leave for it.
    pub(crate) fn push(&mut self, now: f64, id: usize) -> Option<usize> {
        if self.requests.is_empty() {
            self.empty_at = now;
        }
        self.requests.push_back((now, id));
        if self.requests.len() > self.length_max {
            return self.requests.pop_front().map(|(_, id)| id);
        }
        None
    }

    /// Takes out a request that has waited too long.
    pub(crate) fn expire(&mut self, now: f64) -> Option<usize> {
        let stands = self.stands(now);
        let wait = match self.discipline {
            Discipline::CoDel | Discipline::AdaptiveLifoCoDel if stands => 0.005,
            Discipline::ShortFifo if stands => self.wait / 4.0,
            _ => self.wait,
        };
        let &(at, id) = self.requests.front()?;
        (now >= at + wait).then(|| {
            self.requests.pop_front();
            id
        })
    }

    pub(crate) fn pop(&mut self, now: f64) -> Option<usize> {
        let stands = self.stands(now);
        let last = match self.discipline {
            Discipline::Fifo | Discipline::CoDel | Discipline::ShortFifo => false,
            Discipline::Lifo => true,
            Discipline::AdaptiveLifo | Discipline::AdaptiveLifoCoDel => stands,
            Discipline::LateLifo => self.oldest().is_some_and(|at| now - at > self.wait / 2.0),
        };
        let taken = if last { self.requests.pop_back() } else { self.requests.pop_front() };
        taken.map(|(_, id)| id)
    }
}

//! What a program has of its worker, and is to get. No I/O.
//!
//! An item that ends the program comes back to it when that is started again, and would end it for ever. So ends are counted for each
//! item that was in hand. Of several that were, one may be at fault: from then on each of them is given out *alone*, so that
//! what it is counted for is its own. What the program had not read was not in hand: a program that ends before it reads
//! anything, as one does whose database is gone, costs no item anything. An acknowledgement ends the count.
//!
//! # Source
//! As queues of messages do with what they have delivered too often: Amazon SQS (`maxReceiveCount`), RabbitMQ
//! (`delivery-limit`), NATS (`max_deliver`). Deviates: these count what was delivered and not acknowledged, whoever is at fault.

use std::collections::{BTreeMap, VecDeque};

use crate::worker::{Job, Work};

/// Jobs of a program.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// Those that it has, or is to get.
    jobs: BTreeMap<u64, Held>,
    /// Those it is to get.
    waiting: VecDeque<u64>,
    /// The one that it has alone.
    alone: Option<u64>,
    last: u64,
    /// No more to come.
    pub(super) closed: bool,
    /// Which start of the program is served: an earlier one's thread gives nothing out.
    pub(super) running: u64,
}

/// A job of the program's.
#[derive(Debug)]
struct Held {
    job: Job,
    /// How often in a row the program has ended with it in hand.
    ends: u32,
    /// Where it begins in what the program was given since it was started.
    at: u64,
}

/// A job that the program had in hand when it ended, not for the first time.
#[derive(Debug)]
pub(super) struct Suspect {
    /// Its number.
    pub(super) number: u64,
    /// How often that was.
    pub(super) ends: u32,
}

impl Desk {
    /// One more is to be done.
    pub(super) fn add(&mut self, job: Job) {
        self.last += 1;
        self.jobs.insert(self.last, Held { job, ends: 0, at: 0 });
        self.waiting.push_back(self.last);
    }

    /// Whether the program is to get more.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next job that the program is to get, if it may be begun now; it begins at `at` in what the program is given. What waits
    /// and is the worker's no more goes.
    pub(super) fn next(&mut self, at: u64) -> Option<(u64, &Job)> {
        while let Some(number) = self.waiting.front().copied() {
            let has_some = self.jobs.len() > self.waiting.len();
            match self.jobs.get_mut(&number) {
                Some(held) if held.job.may_begin() => {
                    let alone = held.ends > 0;
                    if has_some && (alone || self.alone.is_some()) {
                        return None;
                    }
                    held.at = at;
                    self.waiting.pop_front();
                    self.alone = alone.then_some(number);
                    return self.jobs.get(&number).map(|held| (number, &held.job));
                }
                Some(held) if held.job.is_current() => return None,
                _ => {
                    self.waiting.pop_front();
                    if let Some(held) = self.jobs.remove(&number) {
                        held.job.withdraw();
                    }
                }
            }
        }
        None
    }

    /// The program has acknowledged a job. `None`: it has none of this number, or acknowledged it before.
    pub(super) fn acknowledged(&mut self, number: u64) -> Option<Job> {
        if self.alone == Some(number) {
            self.alone = None;
        }
        Some(self.jobs.remove(&number)?.job)
    }

    /// The program has ended, and had read `read` bytes of what it was given. Returns what it had in hand before, too.
    pub(super) fn ended(&mut self, read: u64) -> Vec<Suspect> {
        self.alone = None;
        let mut suspects = Vec::new();
        for (number, held) in &mut self.jobs {
            if !self.waiting.contains(number) && held.at < read {
                held.ends += 1;
                // Once may be chance.
                if held.ends > 1 {
                    suspects.push(Suspect { number: *number, ends: held.ends });
                }
            }
        }
        suspects
    }

    /// What the program had is given once more, in the old order, to the next one.
    pub(super) fn again(&mut self) {
        self.running += 1;
        self.waiting = self.jobs.keys().copied().collect();
    }

    /// What is to be done by the job of this number.
    pub(super) fn work(&self, number: u64) -> Option<Work<'_>> {
        self.jobs.get(&number)?.job.work()
    }

    /// Whether the job of this number may be begun now, and so be answered, too. One that is the worker's no more goes.
    pub(super) fn may_begin(&mut self, number: u64) -> bool {
        match self.jobs.get(&number) {
            Some(held) if held.job.is_current() => held.job.may_begin(),
            _ => {
                if let Some(job) = self.remove(number) {
                    job.withdraw();
                }
                false
            }
        }
    }

    /// Takes a job from the program.
    pub(super) fn remove(&mut self, number: u64) -> Option<Job> {
        self.waiting.retain(|waiting| *waiting != number);
        Some(self.jobs.remove(&number)?.job)
    }
}

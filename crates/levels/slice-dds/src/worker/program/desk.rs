//! The jobs of a worker's program: those that it has, and those that wait. No I/O.
//!
//! A program that is started again receives its unacknowledged items again. An item that ends the
//! program would end it for ever. So the desk counts, for each item, the ends of the program with
//! this item in hand. If several items were in hand, any of them may be the cause. From then on the
//! program receives each of them *alone*, so that a further end counts for one item only. An item
//! that the program had not read was not in hand. So a program that ends before it reads anything,
//! for example because its database is down, adds to no count. An acknowledgement ends the count.
//!
//! # Source
//! Message queues limit deliveries in this way: Amazon SQS (`maxReceiveCount`), RabbitMQ
//! (`delivery-limit`), NATS (`max_deliver`). Deviates: these count every delivery without an
//! acknowledgement, whatever its cause.

use std::collections::{BTreeMap, VecDeque};

use crate::worker::{Job, Work};

/// Jobs of a program.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// The jobs that it has and those that wait, by number.
    jobs: BTreeMap<u64, Held>,
    /// Numbers of the jobs that wait, in order.
    waiting: VecDeque<u64>,
    /// Number of the job that it has alone.
    alone: Option<u64>,
    last: u64,
    /// No further jobs will come.
    pub(super) closed: bool,
    /// Number of the present run of the program. The thread of an earlier run sends nothing.
    pub(super) running: u64,
}

/// A job of the program.
#[derive(Debug)]
struct Held {
    job: Job,
    /// Successive ends of the program with this job in hand.
    ends: u32,
    /// Offset of the job in the bytes that were sent to this run of the program.
    at: u64,
}

/// A job that the program had in hand at several ends.
#[derive(Debug)]
pub(super) struct Suspect {
    /// The job's number.
    pub(super) number: u64,
    /// The number of these ends.
    pub(super) ends: u32,
}

impl Desk {
    /// Adds a job.
    pub(super) fn add(&mut self, job: Job) {
        self.last += 1;
        self.jobs.insert(self.last, Held { job, ends: 0, at: 0 });
        self.waiting.push_back(self.last);
    }

    /// Whether jobs wait for the program.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next job for the program, if it may begin now; `at` is its offset in the bytes sent.
    /// Withdraws waiting jobs that no longer belong to the worker.
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

    /// Handles an acknowledgement. `None`: there is no job of this number, or it was acknowledged
    /// before.
    pub(super) fn acknowledged(&mut self, number: u64) -> Option<Job> {
        if self.alone == Some(number) {
            self.alone = None;
        }
        Some(self.jobs.remove(&number)?.job)
    }

    /// The program has ended, after it had read `read` bytes. Returns the jobs that it had in hand
    /// at this and at an earlier end.
    pub(super) fn ended(&mut self, read: u64) -> Vec<Suspect> {
        self.alone = None;
        let mut suspects = Vec::new();
        for (number, held) in &mut self.jobs {
            if !self.waiting.contains(number) && held.at < read {
                held.ends += 1;
                // One end may be chance.
                if held.ends > 1 {
                    suspects.push(Suspect { number: *number, ends: held.ends });
                }
            }
        }
        suspects
    }

    /// All its jobs wait again, in the old order, for the next run.
    pub(super) fn again(&mut self) {
        self.running += 1;
        self.waiting = self.jobs.keys().copied().collect();
    }

    /// The work of the job with this number.
    pub(super) fn work(&self, number: u64) -> Option<Work<'_>> {
        self.jobs.get(&number)?.job.work()
    }

    /// Whether the job with this number may begin now, and so may also be answered. Withdraws a job
    /// that no longer belongs to the worker.
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

    /// Removes a job.
    pub(super) fn remove(&mut self, number: u64) -> Option<Job> {
        self.waiting.retain(|waiting| *waiting != number);
        Some(self.jobs.remove(&number)?.job)
    }
}

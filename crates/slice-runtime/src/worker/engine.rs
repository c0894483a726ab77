//! The worker as one that is told of time: drives the protocol, hands out jobs, reports. Waits for nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use equipoise_dds::Error;
use equipoise_slice::SliceId;
use equipoise_slice::transport::{Driver, Started, Task};
use equipoise_slice::worker::Reason;

use crate::drops::DropReason;
use crate::mail::{Report, SliceReport, Terms};
use crate::payload::Payload;
use crate::transport::DdsTransport;
use crate::worker::job::{Done, Exits, Job};
use crate::worker::{Application, Options, Shared};

/// What others may look at is told so often.
const TELL: Duration = Duration::from_millis(2);

pub(super) struct Engine {
    pub(super) driver: Driver<Payload, DdsTransport>,
    /// Who does the jobs, if it is not the worker's own threads.
    pub(super) outside: Option<Outside>,
    pub(super) shared: Arc<Shared>,
    pub(super) tally: Tally,
    pub(super) under_way: usize,
    pub(super) told: Duration,
    pub(super) options: Options,
    pub(super) begun: Instant,
}

/// An application that is given jobs, and says when it has done them.
pub(super) struct Outside {
    pub(super) application: Box<dyn Application>,
    pub(super) exits: Exits,
    pub(super) finished: Receiver<Done>,
    pub(super) jobs_max: usize,
}

/// What was done since the last report.
#[derive(Debug, Default)]
pub(super) struct Tally {
    slices: BTreeMap<SliceId, (Duration, u64)>,
    since: Duration,
}

impl Engine {
    /// Does what there is to do but jobs.
    pub(super) fn step(&mut self) -> Result<(), Error> {
        self.driver.step(self.begun.elapsed())?;
        if let Some(mut outside) = self.outside.take() {
            let done = self.serve(&mut outside);
            self.outside = Some(outside);
            done?;
        }
        self.tell(self.begun.elapsed())
    }

    fn serve(&mut self, outside: &mut Outside) -> Result<(), Error> {
        while let Ok(done) = outside.finished.try_recv() {
            self.done(done)?;
        }
        while self.under_way < outside.jobs_max {
            let Some(started) = self.start() else { return Ok(()) };
            outside.application.start(Job::new(started, outside.exits.clone()));
        }
        Ok(())
    }

    /// The next job, if there is one. [`Engine::done`] follows.
    pub(super) fn start(&mut self) -> Option<Started<Payload>> {
        let started = self.driver.start(self.begun.elapsed())?;
        self.under_way += 1;
        Some(started)
    }

    pub(super) fn done(&mut self, done: Done) -> Result<(), Error> {
        self.under_way -= 1;
        let now = self.begun.elapsed();
        match &done.started.task {
            Task::Execute(item) => {
                let (busy, count) = self.tally.slices.entry(item.slice).or_default();
                *busy += done.busy;
                *count += 1;
                self.shared.done.fetch_add(1, Relaxed);
                self.driver.finished(now, &done.started)
            }
            Task::Import { .. } => self.driver.finished(now, &done.started),
            Task::Export { .. } => self.driver.exported(now, &done.started, done.state),
        }
    }

    fn tell(&mut self, now: Duration) -> Result<(), Error> {
        let queued = self.driver.queued();
        self.driver.transport().full.store(queued >= self.options.queue_max, Relaxed);
        // Items may come one by one.
        if now.saturating_sub(self.told) < TELL {
            return Ok(());
        }
        self.told = now;
        let worker = self.driver.worker();
        self.shared.owned.store(worker.slice_count() as u64, Relaxed);
        self.shared.queued.store((queued + self.under_way) as u64, Relaxed);
        self.shared.fenced.store(worker.is_fenced(), Relaxed);
        self.shared.handovers.store(worker.handovers() as u64, Relaxed);
        let period = now.saturating_sub(self.tally.since);
        if period < self.options.report {
            return Ok(());
        }
        self.tally.since = now;
        let report = self.report(now, period, (queued + self.under_way) as u64);
        self.driver.transport().report(report)
    }

    fn report(&mut self, now: Duration, period: Duration, queued: u64) -> Report {
        let mut slices: BTreeMap<SliceId, SliceReport> = BTreeMap::new();
        let nothing = |slice| SliceReport {
            slice,
            busy: Duration::ZERO,
            done: 0,
            queued: 0,
            queue_age: Duration::ZERO,
        };
        for (slice, (busy, done)) in std::mem::take(&mut self.tally.slices) {
            slices.insert(slice, SliceReport { busy, done, ..nothing(slice) });
        }
        for waiting in self.driver.waiting(now) {
            let of = slices.entry(waiting.slice).or_insert_with(|| nothing(waiting.slice));
            (of.queued, of.queue_age) = (waiting.tasks as u64, waiting.age);
        }
        let malformed = self.driver.transport().malformed();
        let worker = self.driver.worker();
        let protocol =
            Reason::ALL.map(|reason| (reason.name().to_string(), worker.drops().of(reason)));
        let ours = DropReason::ALL.map(|reason| {
            // Most of what is no item DDS drops before we see it.
            let by_dds = match reason {
                DropReason::Malformed => malformed,
                _ => 0,
            };
            (reason.name().to_string(), self.shared.drops.of(reason) + by_dds)
        });
        Report {
            life: worker.life(),
            name: self.options.name.clone(),
            weight: self.options.weight,
            terms: Terms {
                slices: self.options.slices,
                order: self.options.protocol.order,
                lease: self.options.protocol.lease,
                topics: self.driver.transport().topics(),
            },
            leaving: self.shared.leaving.load(Relaxed),
            period,
            queued,
            done: self.shared.done.load(Relaxed),
            drops: protocol.into_iter().chain(ours).filter(|(_, count)| *count > 0).collect(),
            slices: slices.into_values().collect(),
        }
    }
}

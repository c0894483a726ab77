//! The worker's state machine, driven by time: runs the protocol, starts jobs, reports. It never
//! blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_dds::Error;
use equipoise_slice::transport::{Driver, Started, Task};
use equipoise_slice::worker::Reason;
use equipoise_slice::{Incarnation, Process, SliceId, Term};

use crate::drops::DropReason;
use crate::mail::{InHand, Report, SliceReport, Terms};
use crate::payload::Payload;
use crate::transport::DdsTransport;
use crate::worker::folder::Folder;
use crate::worker::item_times::ItemTimes;
use crate::worker::job::{Done, Exits, Job};
use crate::worker::losses::Losses;
use crate::worker::replies::Replies;
use crate::worker::{Application, Options, Shared, WorkerError};

/// Interval between updates of [`Shared`].
const TELL: Duration = Duration::from_millis(2);

pub(super) struct Engine {
    pub(super) driver: Driver<Payload, DdsTransport>,
    /// The application, unless the worker's own threads process jobs.
    pub(super) outside: Option<Outside>,
    pub(super) shared: Arc<Shared>,
    pub(super) replies: Arc<Replies>,
    pub(super) process: Process,
    pub(super) tally: Tally,
    pub(super) under_way: usize,
    /// Jobs in progress, one of each slice and incarnation, by round and key.
    pub(super) in_hand: BTreeMap<(u64, u64), InHandSince>,
    /// Time at which the application last finished a job, or received one after it had none.
    pub(super) acknowledged: Duration,
    /// Time at which clients were last asked for their items.
    pub(super) asked: Option<Duration>,
    /// Time at which clients were last asked for items that have not arrived.
    pub(super) lacked: Option<Duration>,
    pub(super) told: Duration,
    /// Whether the last update of [`Shared`] is current.
    pub(super) is_told: bool,
    /// The folder of checkpoints.
    pub(super) folder: Option<Folder>,
    pub(super) options: Options,
    pub(super) begun: Instant,
}

/// Start of a job in the application, its slice, and the publisher's id of the item.
type InHandSince = (Duration, SliceId, Option<i64>);

/// An application that receives jobs and reports finished ones.
pub(super) struct Outside {
    pub(super) application: Box<dyn Application>,
    pub(super) exits: Exits,
    pub(super) finished: Receiver<Done>,
    pub(super) jobs_max: usize,
}

/// Interval between requests to clients for items of slices that are recovered here.
const ASK: Duration = Duration::from_millis(200);
/// Interval between requests for items that clients keep and that have not arrived.
const ASK_LACKING: Duration = Duration::from_millis(50);
/// About the largest number of items in such a request.
const LACKING_MAX: usize = 4096;
/// Shortest interval between reports of a worker without work.
const IDLE_REPORT: Duration = Duration::from_secs(2);
/// Reports that are missing after a pause of the worker. Items of that time are still arriving.
const PAUSED_REPORTS: u32 = 4;
/// Interval between checks for memory that can be released.
const TRIM: Duration = Duration::from_secs(2);
/// A worker whose name is taken waits this much longer than the other's lease could last.
const REFUSED: Duration = Duration::from_secs(1);
/// Largest age of the last message of a live worker, in [`equipoise_slice::Config::idle_claims`].
const HEARD: u32 = 2;

/// Figures since the last report.
#[derive(Debug, Default)]
pub(super) struct Tally {
    slices: BTreeMap<SliceId, (Duration, u64)>,
    item_times: ItemTimes,
    /// Time of the first step after a pause.
    resumed: Option<Duration>,
    /// Samples that DDS itself had dropped in this process.
    by_dds: BTreeMap<DropReason, u64>,
    /// Number of incompatible readers of replies.
    readers_apart: u32,
    /// Losses that were logged.
    losses: Losses,
    /// The incarnation of the last report, and the controller's term at that time.
    reported: Option<(Incarnation, Term)>,
    since: Duration,
    /// Time of the last check of memory, number of processed items at the last release, and whether
    /// replies were forgotten since.
    trimmed: Duration,
    done_at_trim: u64,
    has_forgotten: bool,
}

impl Engine {
    /// Does all due work except jobs.
    pub(super) fn step(&mut self) -> Result<(), WorkerError> {
        self.driver.step(self.begun.elapsed())?;
        self.reply()?;
        if let Some(mut outside) = self.outside.take() {
            let standing = &outside.exits.standing;
            standing.set(self.driver.round(), self.driver.worker().lease_until());
            let done = self.serve(&mut outside);
            self.outside = Some(outside);
            done?;
        }
        let now = self.begun.elapsed();
        self.serve_folder(now)?;
        self.tell(now)?;
        self.give_memory_back(now);
        self.ask_again(now)?;
        self.ask_lacking(now)?;
        self.tell_covered()?;
        self.check_name()
    }

    /// Time for which no work is due without input. `None`: work is in progress.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let is_idle = self.has_no_work() && self.is_told && self.driver.transport().is_settled();
        if is_idle { self.driver.worker().idle_for(self.begun.elapsed()) } else { None }
    }

    /// Number of items that were processed since the worker started.
    pub(super) fn done_ever(&self) -> u64 {
        self.shared.done.load(Relaxed)
    }

    fn has_no_work(&self) -> bool {
        self.under_way == 0 && self.driver.queued() == 0 && self.replies.waiting() == 0
    }

    /// Handles replies that waited, and sends replies again that clients may have missed.
    fn reply(&mut self) -> Result<(), Error> {
        for item in self.driver.answers() {
            self.replies.send_again(&item);
        }
        for started in self.replies.taken() {
            self.driver.replied(self.begun.elapsed(), &started)?;
        }
        Ok(())
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

    /// Begins and ends work in the folder of checkpoints.
    fn serve_folder(&mut self, now: Duration) -> Result<(), Error> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        for task in self.driver.folder_tasks() {
            folder.begin(now, task);
        }
        for done in folder.done(now) {
            self.driver.folder_done(now, done)?;
        }
        Ok(())
    }

    /// Forgets old replies, and releases the memory of items, because glibc keeps freed memory.
    fn give_memory_back(&mut self, now: Duration) {
        if now.saturating_sub(self.tally.trimmed) < TRIM {
            return;
        }
        self.tally.trimmed = now;
        self.tally.has_forgotten |= self.replies.forget(self.options.protocol.remember);
        let done = self.shared.done.load(Relaxed);
        let has_some = self.tally.has_forgotten || self.tally.done_at_trim != done;
        // A busy worker soon needs again the memory that it frees.
        if has_some && self.has_no_work() && self.driver.worker().has_nothing_under_way() {
            (self.tally.has_forgotten, self.tally.done_at_trim) = (false, done);
            equipoise_dds::trim_heap();
        }
    }

    /// Asks clients for the items of a lost worker.
    fn ask_again(&mut self, now: Duration) -> Result<(), Error> {
        if self.asked.is_some_and(|asked| now.saturating_sub(asked) < ASK) {
            return Ok(());
        }
        let slices: Vec<_> = self.driver.worker().recovering().collect();
        if slices.is_empty() {
            // The next recovered slices cause a request at once.
            self.asked = None;
            return Ok(());
        }
        self.asked = Some(now);
        self.driver.transport().ask_again(slices)
    }

    /// Asks clients for items that they keep and that have not arrived.
    fn ask_lacking(&mut self, now: Duration) -> Result<(), Error> {
        let is_early = self.lacked.is_some_and(|asked| now.saturating_sub(asked) < ASK_LACKING);
        if is_early || self.asked.is_none() || self.options.protocol.checkpoints().is_none() {
            return Ok(());
        }
        let lacks = self.driver.worker().lacking(LACKING_MAX);
        if lacks.is_empty() {
            return Ok(());
        }
        self.lacked = Some(now);
        self.driver.transport().ask_lacking(lacks)
    }

    /// Handles clients' requests for checkpoints, and informs clients which items checkpoints
    /// contain.
    fn tell_covered(&mut self) -> Result<(), Error> {
        if self.options.protocol.checkpoints().is_none() {
            return Ok(());
        }
        let wanted = self.driver.transport().wanted();
        if !wanted.is_empty() {
            self.driver.checkpoint_wanted(&wanted);
        }
        let covered: Vec<_> = self.driver.covered().collect();
        match covered.is_empty() {
            true => Ok(()),
            false => self.driver.transport().tell_covered(covered),
        }
    }

    /// Ends the worker if another process with its name is alive. That process must have sent a
    /// message later than its loss would have been declared if it had ended.
    fn check_name(&self) -> Result<(), WorkerError> {
        let Some(refused) = self.driver.worker().refused() else { return Ok(()) };
        let protocol = &self.options.protocol;
        let ended = refused.since + protocol.lease + protocol.margin + REFUSED;
        let lives = refused.lives.is_some_and(|lives| lives >= ended);
        // A controller that was paused itself declares no worker lost for that, and reports later
        // times of the last messages.
        if !lives || refused.heard >= HEARD * protocol.idle_claims() {
            return Ok(());
        }
        let (name, holder) = (self.options.name.clone(), refused.holder.clone());
        Err(WorkerError::NameTaken { name, holder })
    }

    /// The next job, if there is one. A call of [`Engine::done`] must follow.
    pub(super) fn start(&mut self) -> Option<Started<Payload>> {
        let now = self.begun.elapsed();
        let started = self.driver.start(now)?;
        if self.under_way == 0 {
            self.acknowledged = now;
        }
        self.under_way += 1;
        let form = self.driver.transport().form();
        let id = match &started.task {
            Task::Execute(item) => form.item(item).ok().map(|item| item.id),
            Task::Import { .. } | Task::Export { .. } | Task::Snapshot { .. } => None,
        };
        let slice = started.slice();
        self.in_hand.insert((started.round(), started.key()), (now, slice, id));
        Some(started)
    }

    pub(super) fn done(&mut self, done: Done) -> Result<(), Error> {
        self.under_way -= 1;
        self.in_hand.remove(&(done.started.round(), done.started.key()));
        let now = self.begun.elapsed();
        self.acknowledged = now;
        if !self.driver.is_current(&done.started) {
            return Ok(());
        }
        match &done.started.task {
            Task::Execute(item) => {
                let slice = self.driver.worker().numbering().slice_of(item.key);
                let busy = self.tally.item_times.count(slice, done.busy);
                let (sum, count) = self.tally.slices.entry(slice).or_default();
                *sum += busy;
                *count += 1;
                self.shared.done.fetch_add(1, Relaxed);
                if done.is_replied {
                    return self.driver.finished(now, &done.started);
                }
                self.driver.processed(&done.started);
                Ok(())
            }
            Task::Import { .. } => self.driver.finished(now, &done.started),
            Task::Export { .. } | Task::Snapshot { .. } => {
                self.driver.exported(now, &done.started, done.state)
            }
        }
    }

    fn tell(&mut self, now: Duration) -> Result<(), Error> {
        let queued = self.driver.queued();
        let transport = self.driver.transport();
        let held = transport.held.load(Relaxed);
        let full = queued >= self.options.queue_max || held >= self.options.held_bytes_max;
        transport.full.store(full, Relaxed);
        // Not after every item, because items may arrive one by one.
        self.is_told = now.saturating_sub(self.told) >= TELL;
        if !self.is_told {
            return Ok(());
        }
        self.told = now;
        // Items without a reply delay the end of a worker, as waiting items do.
        let in_hand = self.under_way + self.replies.waiting();
        let worker = self.driver.worker();
        self.shared.owned.store(worker.slice_count() as u64, Relaxed);
        self.shared.queued.store((queued + in_hand) as u64, Relaxed);
        self.shared.fenced.store(worker.is_fenced(), Relaxed);
        self.shared.handovers.store(worker.handovers() as u64, Relaxed);
        self.shared.out_of_order.store(worker.drops().of(Reason::OutOfOrder), Relaxed);
        if self.options.protocol.checkpoints().is_some() {
            let status = worker.checkpoint_status(now);
            *lock(&self.shared.checkpoints) = status;
        }
        let period = now.saturating_sub(self.tally.since);
        if period < self.options.report {
            return Ok(());
        }
        let worker = self.driver.worker();
        let now_reported = Some((worker.incarnation(), worker.term()));
        // A new controller waits for a report. An operator who ends a worker waits for those of a
        // leaving one.
        let is_waited_for =
            self.tally.reported != now_reported || self.shared.leaving.load(Relaxed);
        let is_idle = !is_waited_for && self.has_no_work() && worker.has_nothing_under_way();
        let due = if is_idle { IDLE_REPORT } else { Duration::ZERO };
        if period < due {
            return Ok(());
        }
        if !is_waited_for && !is_idle && period >= PAUSED_REPORTS * self.options.report {
            let resumed = *self.tally.resumed.get_or_insert(now);
            if now.saturating_sub(resumed) < self.options.report {
                return Ok(());
            }
        }
        self.tally.resumed = None;
        (self.tally.since, self.tally.reported) = (now, now_reported);
        let stalled = u64::try_from(self.stalled(now).as_millis()).unwrap_or(u64::MAX);
        self.shared.stalled_ms.store(stalled, Relaxed);
        for (reason, count) in self.driver.transport().dropped_by_dds() {
            let known = self.tally.by_dds.insert(reason, count).unwrap_or(0);
            self.shared.drops.add(reason, count.saturating_sub(known));
        }
        self.shared.others.store(self.driver.transport().others()?.into(), Relaxed);
        self.driver.transport().count_incompatible()?;
        self.replies.count_incompatible(&mut self.tally.readers_apart)?;
        let report = self.report(now, period, (queued + self.under_way) as u64);
        self.tally.losses.tell(now, &report.drops);
        self.driver.transport().report(report)
    }

    /// Time for which the application has had jobs and has finished none.
    fn stalled(&self, now: Duration) -> Duration {
        match self.under_way {
            0 => Duration::ZERO,
            _ => now.saturating_sub(self.acknowledged),
        }
    }

    /// The oldest job in progress. It may hang while others are finished.
    fn oldest(&self, now: Duration) -> Option<InHand> {
        let oldest = self.in_hand.values().min_by_key(|(since, ..)| *since);
        oldest.map(|(since, slice, id)| InHand {
            slice: *slice,
            id: *id,
            age: now.saturating_sub(*since),
        })
    }

    fn report(&mut self, now: Duration, period: Duration, queued: u64) -> Report {
        let mut slices: BTreeMap<SliceId, SliceReport> = BTreeMap::new();
        let nothing = |slice| SliceReport {
            slice,
            busy: Duration::ZERO,
            done: 0,
            queued: 0,
            handed_over: 0,
            queue_age: Duration::ZERO,
        };
        for (slice, (busy, done)) in std::mem::take(&mut self.tally.slices) {
            slices.insert(slice, SliceReport { busy, done, ..nothing(slice) });
        }
        for waiting in self.driver.waiting(now) {
            let of = slices.entry(waiting.slice).or_insert_with(|| nothing(waiting.slice));
            (of.queued, of.queue_age) = (waiting.tasks as u64, waiting.age);
        }
        for (slice, count) in self.driver.take_handed_over() {
            slices.entry(slice).or_insert_with(|| nothing(slice)).handed_over = count;
        }
        let worker = self.driver.worker();
        let protocol =
            Reason::ALL.map(|reason| (reason.name().to_string(), worker.drops().of(reason)));
        let ours =
            DropReason::ALL.map(|reason| (reason.name().to_string(), self.shared.drops.of(reason)));
        Report {
            incarnation: worker.incarnation(),
            numbering: worker.numbering().epoch,
            name: self.options.name.clone(),
            process: self.process.clone(),
            weight: self.options.weight,
            terms: Terms {
                slices: self.options.slices,
                order: self.options.protocol.order,
                lease: self.options.protocol.lease,
                topics: self.driver.transport().topics(),
                checkpoints: self.options.protocol.checkpoints().is_some(),
                folder: self.folder.is_some(),
            },
            leaving: self.shared.leaving.load(Relaxed),
            period,
            queued,
            in_hand: self.under_way as u64,
            stalled: self.stalled(now),
            oldest: self.oldest(now),
            done: self.shared.done.load(Relaxed),
            drops: protocol.into_iter().chain(ours).filter(|(_, count)| *count > 0).collect(),
            slices: slices.into_values().collect(),
            checkpoints: self.options.protocol.checkpoints().map(|_| worker.checkpoint_status(now)),
            folder_problem: self.folder.as_ref().and_then(|it| it.problem()).map(Into::into),
        }
    }
}

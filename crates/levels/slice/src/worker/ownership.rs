//! Decides which items of an owned slice this worker processes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{HandoverId, Writer};
use crate::message::Item;
use crate::positions::Positions;
use crate::worker::reason::Reason;

/// A slice that this worker owns.
#[derive(Debug)]
pub(super) struct Owned<T> {
    /// The handover that gave the slice to this worker.
    pub epoch: HandoverId,
    /// C: items up to this belong to an earlier owner.
    pub cut: Arc<Positions>,
    /// C, raised by the tail: items up to this may still arrive late.
    pub floor: Arc<Positions>,
    /// Lower bounds of the committed positions up to `cut`: items after them came from the source
    /// unstarted, or were published again after its loss. They are this worker's.
    pub low: BTreeMap<Writer, u64>,
    /// Admitted items, while the source has not drained or not handed over its unstarted items.
    pub held: Option<Vec<Item<T>>>,
    /// Items that the source had not started, while items are held: they come first.
    pub unstarted: Vec<Item<T>>,
    /// Set while items of a lost worker may be published again.
    pub recovering: Option<Recovering>,
}

/// A slice that this worker gave away, and that may return until the handover is over.
#[derive(Debug)]
pub(super) struct Released {
    /// The handover that took it.
    pub handover: HandoverId,
    /// Positions up to which items belonged to an owner before this worker.
    pub cut: Arc<Positions>,
    /// See [`Owned::low`].
    pub low: BTreeMap<Writer, u64>,
}

/// Items that a lost worker may have left unfinished.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// For each writer: ranges from after the first to the second position.
    ranges: BTreeMap<Writer, Vec<(u64, u64)>>,
    /// Also all items of writers without a range.
    others: bool,
}

/// Items of one slice that this worker handed to a target unstarted.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Single items.
    pub items: BTreeSet<(Writer, u64)>,
    /// For a finished handover: all items of the writer after the position.
    pub after: BTreeMap<Writer, u64>,
}

/// The items of a lost worker that are accepted when clients publish them again.
#[derive(Debug)]
pub(super) struct Recovering {
    /// Shared by slices with the same lost items.
    lost: Arc<Lost>,
    /// Items that a lost target had received for this slice.
    handed: Handed,
    /// Items accepted already.
    done: HashSet<(Writer, u64)>,
    since: Duration,
    /// The slice never had an owner.
    is_new: bool,
    /// Answers of clients.
    answers: HashMap<Writer, Answer>,
    /// The first new item of each writer since the recovery began: all later ones arrive as well.
    heard: HashMap<Writer, u64>,
    /// The state of the slice was replaced, so that recovered items are processed again even by a
    /// worker that has processed them before. Until then it waits for items that clients keep.
    replays_until: Option<Duration>,
}

/// Longest recovery of a slice that never had an owner. A longer [`crate::Config::recovery`] is for
/// the order of a lost worker's items: items of new slices are not held back for it.
const NEW: Duration = Duration::from_secs(2);

/// Largest number of writers with stored answers, for each slice.
const ANSWERS_MAX: usize = 4096;

/// The items that the client of one writer keeps of a slice.
#[derive(Debug, Default)]
struct Answer {
    /// All items up to this have arrived.
    whole: u64,
    /// Position up to which the last answer is complete.
    through: u64,
    /// Items up to `through` that have not arrived.
    missing: BTreeSet<u64>,
}

impl Lost {
    /// All items after `after`: no other worker has any of them.
    pub(super) fn all_after(after: &Positions) -> Self {
        let ranges = after.iter().map(|(writer, at)| (writer, vec![(at, u64::MAX)])).collect();
        Self { ranges, others: true }
    }

    /// Adds items of `writer` after `after` up to `through`. An empty range excludes the writer
    /// from the others.
    pub(super) fn add(&mut self, writer: Writer, after: u64, through: u64) {
        let ranges = self.ranges.entry(writer).or_default();
        if after < through {
            ranges.push((after, through));
        }
    }

    /// Adds all items of writers without a range.
    pub(super) fn add_others(&mut self) {
        self.others = true;
    }

    fn covers(&self, writer: Writer, position: u64) -> bool {
        match self.ranges.get(&writer) {
            Some(ranges) => ranges.iter().any(|(a, through)| *a < position && position <= *through),
            None => self.others,
        }
    }

    /// The position before the first item of `writer` that may still arrive.
    fn least(&self, writer: Writer) -> Option<u64> {
        match self.ranges.get(&writer) {
            Some(ranges) => ranges.iter().map(|(after, _)| *after).min(),
            None => self.others.then_some(0),
        }
    }
}

impl Answer {
    fn is_whole(&mut self) -> bool {
        let is_whole = self.missing.is_empty();
        if is_whole {
            self.whole = self.through.max(self.whole);
        }
        is_whole
    }
}

impl Handed {
    fn covers(&self, writer: Writer, position: u64) -> bool {
        self.items.contains(&(writer, position))
            || self.after.get(&writer).is_some_and(|after| position > *after)
    }

    /// The position before the first item of `writer` in it.
    fn least(&self, writer: Writer) -> Option<u64> {
        let first = self.items.range((writer, 0)..=(writer, u64::MAX)).next();
        let first = first.map(|(_, position)| position - 1);
        first.into_iter().chain(self.after.get(&writer).copied()).min()
    }
}

impl Recovering {
    /// Accepts the items in `lost` from now on.
    pub(super) fn new(lost: Arc<Lost>, now: Duration) -> Self {
        let (handed, done, answers, heard) = Default::default();
        let (since, is_new, replays_until) = (now, false, None);
        Self { lost, handed, done, since, is_new, answers, heard, replays_until }
    }

    /// Accepts all items of a slice that never had an owner: there was no worker to receive them.
    pub(super) fn of_new(lost: Arc<Lost>, now: Duration) -> Self {
        Self { is_new: true, ..Self::new(lost, now) }
    }

    /// Whether its time is over, if no item is republished for `recovery`. Slices do not move
    /// before.
    pub(super) fn is_over(&self, now: Duration, recovery: Duration) -> bool {
        let recovery = if self.is_new { recovery.min(NEW) } else { recovery };
        now.saturating_sub(self.since) >= recovery
    }

    /// A client answers which items of this slice it keeps, up to `through`. `here`: whether an
    /// item has arrived.
    pub(super) fn answered(
        &mut self,
        now: Duration,
        writer: Writer,
        through: u64,
        keeps: &[u64],
        here: impl Fn(u64) -> bool,
    ) {
        if self.answers.len() >= ANSWERS_MAX && !self.answers.contains_key(&writer) {
            return;
        }
        let comes = |at: &u64| {
            *at <= through
                && self.covers(writer, *at)
                && !self.done.contains(&(writer, *at))
                && !here(*at)
        };
        let missing = keeps.iter().copied().filter(comes).collect();
        let answer = self.answers.entry(writer).or_default();
        (answer.through, answer.missing) = (through, missing);
        if !answer.is_whole() && self.replays_until.is_some_and(|until| now < until) {
            // The client lives and keeps them, so they will arrive.
            self.since = now;
        }
    }

    /// The items that clients keep and that have not arrived, by writer.
    pub(super) fn missing(&self) -> impl Iterator<Item = (Writer, &BTreeSet<u64>)> {
        let missing = self.answers.iter().filter(|(_, answer)| !answer.missing.is_empty());
        missing.map(|(writer, answer)| (*writer, &answer.missing))
    }

    /// An item has arrived. Returns whether all items that its client keeps have.
    pub(super) fn came(&mut self, writer: Writer, position: u64) -> bool {
        let answer = self.answers.get_mut(&writer);
        answer.is_some_and(|answer| answer.missing.remove(&position) && answer.is_whole())
    }

    /// A new item of the writer has arrived.
    pub(super) fn hears(&mut self, writer: Writer, position: u64) {
        if self.heard.len() < ANSWERS_MAX {
            self.heard.entry(writer).or_insert(position);
        }
    }

    /// Whether no item of the writer before this one is missing.
    pub(super) fn is_in_order(&self, writer: Writer, position: u64) -> bool {
        let follows = |whole| self.heard.get(&writer).is_some_and(|first| *first <= whole);
        let answer = self.answers.get(&writer);
        answer.is_some_and(|answer| position <= answer.whole || follows(answer.whole))
    }

    /// Of a slice that returns to an earlier state. It waits until `until` at most for items that
    /// clients keep.
    pub(super) fn replaying(now: Duration, until: Duration) -> Self {
        let lost = Arc::new(Lost::all_after(&Positions::default()));
        Self { replays_until: Some(until), ..Self::new(lost, now) }
    }

    /// Whether the state of the slice was replaced.
    pub(super) fn replays(&self) -> bool {
        self.replays_until.is_some()
    }

    /// The state contains items at or below these positions.
    pub(super) fn contains(&mut self, now: Duration, contained: &Positions) {
        self.lost = Arc::new(Lost::all_after(contained));
        self.since = now;
        for (writer, answer) in &mut self.answers {
            answer.missing.retain(|position| *position > contained.of(*writer));
            answer.is_whole();
        }
    }

    /// Adds the items that a lost target had received from this worker.
    pub(super) fn with_handed(self, handed: Handed) -> Self {
        Self { handed, ..self }
    }

    /// Marks items that were received already.
    pub(super) fn has(&mut self, items: impl Iterator<Item = (Writer, u64)>) {
        self.done.extend(items);
    }

    /// The accepted items, which other slices may share.
    pub(super) fn lost(&self) -> &Arc<Lost> {
        &self.lost
    }

    /// Starts the recovery time anew.
    pub(super) fn begins(&mut self, now: Duration) {
        self.since = now;
    }

    /// The position before the first item of `writer` that may still arrive.
    pub(super) fn least(&self, writer: Writer) -> Option<u64> {
        self.lost.least(writer).into_iter().chain(self.handed.least(writer)).min()
    }

    fn covers(&self, writer: Writer, position: u64) -> bool {
        self.lost.covers(writer, position) || self.handed.covers(writer, position)
    }
}

impl<T> Owned<T> {
    /// Positions up to which items belonged to earlier owners, and none is being recovered here.
    pub(super) fn committed_by_others(&self) -> Arc<Positions> {
        let Some(recovering) = &self.recovering else { return self.cut.clone() };
        let least = |writer, at: u64| recovering.least(writer).map_or(at, |least| least.min(at));
        Arc::new(self.cut.iter().map(|(writer, at)| (writer, least(writer, at))).collect())
    }

    /// Whether a lost worker may have left the item unfinished.
    pub(super) fn is_recovering(&self, writer: Writer, position: u64) -> bool {
        self.recovering.as_ref().is_some_and(|it| it.covers(writer, position))
    }

    /// Whether an item that is published again is being recovered here and has not arrived before.
    /// Such an item shows that more may follow, so the recovery time begins anew.
    pub(super) fn recovers(&mut self, now: Duration, writer: Writer, position: u64) -> bool {
        let Some(recovering) = &mut self.recovering else { return false };
        let is_new =
            recovering.covers(writer, position) && !recovering.done.contains(&(writer, position));
        if is_new {
            recovering.begins(now);
        }
        is_new
    }

    /// Whether this worker should process the item now. `fresh`: it arrives for the first time.
    pub(super) fn admit(
        &mut self,
        writer: Writer,
        position: u64,
        fresh: bool,
    ) -> Result<(), Reason> {
        if let Some(recovering) = &mut self.recovering
            && recovering.covers(writer, position)
        {
            let first = recovering.done.insert((writer, position));
            return if first { Ok(()) } else { Err(Reason::Duplicate) };
        }
        if !fresh {
            return Err(Reason::Duplicate);
        }
        if position <= self.floor.of(writer) {
            return Err(Reason::Late);
        }
        Ok(())
    }
}

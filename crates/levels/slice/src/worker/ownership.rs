//! Which items of an owned slice are this worker's to do.

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
    /// The handover that gave it.
    pub epoch: HandoverId,
    /// Items at or below this were another's (C).
    pub cut: Arc<Positions>,
    /// C, raised by the tail: items at or below this may still come, late.
    pub floor: Arc<Positions>,
    /// Lower bounds of what is committed at or below `cut`: items after these positions came from the giver unstarted, or
    /// were published again after the giver's loss. They are this worker's.
    pub low: BTreeMap<Writer, u64>,
    /// Admitted items, while the giver has not drained, or has not handed over what it had not started.
    pub held: Option<Vec<Item<T>>>,
    /// Items that the giver had not started, while there is `held`: they come before it.
    pub unstarted: Vec<Item<T>>,
    /// Set while items of a lost worker may be published again.
    pub recovering: Option<Recovering>,
}

/// A slice that this worker gave away, and may get back as long as that is not over.
#[derive(Debug)]
pub(super) struct Released {
    /// The handover that took it.
    pub handover: HandoverId,
    /// What was another's before the slice was this worker's.
    pub cut: Arc<Positions>,
    /// See [`Owned::low`].
    pub low: BTreeMap<Writer, u64>,
}

/// What a lost worker may have left undone.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// For each writer: after the first, up to the second.
    ranges: BTreeMap<Writer, Vec<(u64, u64)>>,
    /// Every item of writers that have no range, too.
    others: bool,
}

/// Items of one slice that this worker handed to a taker without having started them.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Single items.
    pub items: BTreeSet<(Writer, u64)>,
    /// Of a handover that is over: all items of the writer after the position.
    pub after: BTreeMap<Writer, u64>,
}

/// What of a lost worker's items is taken when it comes again.
#[derive(Debug)]
pub(super) struct Recovering {
    /// Slices of which the same is lost share it.
    lost: Arc<Lost>,
    /// What a lost taker of this slice alone had received.
    handed: Handed,
    /// Taken already.
    done: HashSet<(Writer, u64)>,
    since: Duration,
    /// What clients answered.
    answers: HashMap<Writer, Answer>,
    /// The first new item of each writer that came since it began: all after it come, too.
    heard: HashMap<Writer, u64>,
}

/// Writers of which answers are remembered, of each slice.
const ANSWERS_MAX: usize = 4096;

/// What the client of one writer keeps of a slice.
#[derive(Debug, Default)]
struct Answer {
    /// Everything up to this has come.
    whole: u64,
    /// Of the last answer.
    through: u64,
    /// Items up to `through` that have not come.
    missing: BTreeSet<u64>,
}

impl Lost {
    /// Whatever is after `after`: nobody else has any of it.
    pub(super) fn all_after(after: &Positions) -> Self {
        let ranges = after.iter().map(|(writer, at)| (writer, vec![(at, u64::MAX)])).collect();
        Self { ranges, others: true }
    }

    /// Items of `writer` after `after`, up to `through`. With none between, it is a writer of which nothing is taken,
    /// and so none of the others.
    pub(super) fn add(&mut self, writer: Writer, after: u64, through: u64) {
        let ranges = self.ranges.entry(writer).or_default();
        if after < through {
            ranges.push((after, through));
        }
    }

    /// Every item of writers that were not added.
    pub(super) fn add_others(&mut self) {
        self.others = true;
    }

    fn covers(&self, writer: Writer, position: u64) -> bool {
        match self.ranges.get(&writer) {
            Some(ranges) => ranges.iter().any(|(a, through)| *a < position && position <= *through),
            None => self.others,
        }
    }

    /// The least position of `writer` that may still come, less one.
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

    /// The least position of `writer` that it has, less one.
    fn least(&self, writer: Writer) -> Option<u64> {
        let first = self.items.range((writer, 0)..=(writer, u64::MAX)).next();
        let first = first.map(|(_, position)| position - 1);
        first.into_iter().chain(self.after.get(&writer).copied()).min()
    }
}

impl Recovering {
    /// What `lost` says, from now on.
    pub(super) fn new(lost: Arc<Lost>, now: Duration) -> Self {
        let (handed, done, answers, heard) = Default::default();
        Self { lost, handed, done, since: now, answers, heard }
    }

    /// The writer's client says what it keeps of this slice, up to `through`. `here`: which items
    /// have come.
    pub(super) fn answered(
        &mut self,
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
        answer.is_whole();
    }

    /// The item has come. Whether all has that its client keeps.
    pub(super) fn came(&mut self, writer: Writer, position: u64) -> bool {
        let answer = self.answers.get_mut(&writer);
        answer.is_some_and(|answer| answer.missing.remove(&position) && answer.is_whole())
    }

    /// A new item of the writer has come.
    pub(super) fn hears(&mut self, writer: Writer, position: u64) {
        if self.heard.len() < ANSWERS_MAX {
            self.heard.entry(writer).or_insert(position);
        }
    }

    /// Whether nothing of the writer before this item is missing.
    pub(super) fn is_in_order(&self, writer: Writer, position: u64) -> bool {
        let follows = |whole| self.heard.get(&writer).is_some_and(|first| *first <= whole);
        let answer = self.answers.get(&writer);
        answer.is_some_and(|answer| position <= answer.whole || follows(answer.whole))
    }

    /// As well as what a lost taker had received from this worker.
    pub(super) fn with_handed(self, handed: Handed) -> Self {
        Self { handed, ..self }
    }

    /// These items were received already.
    pub(super) fn has(&mut self, items: impl Iterator<Item = (Writer, u64)>) {
        self.done.extend(items);
    }

    /// What is taken, which other slices may share.
    pub(super) fn lost(&self) -> &Arc<Lost> {
        &self.lost
    }

    pub(super) fn since(&self) -> Duration {
        self.since
    }

    /// The time for it begins anew.
    pub(super) fn begins(&mut self, now: Duration) {
        self.since = now;
    }

    /// The least position of `writer` that may still come, less one.
    pub(super) fn least(&self, writer: Writer) -> Option<u64> {
        self.lost.least(writer).into_iter().chain(self.handed.least(writer)).min()
    }

    fn covers(&self, writer: Writer, position: u64) -> bool {
        self.lost.covers(writer, position) || self.handed.covers(writer, position)
    }
}

impl<T> Owned<T> {
    /// At or below these positions all was another's, and none of it is being recovered here.
    pub(super) fn committed_by_others(&self) -> Arc<Positions> {
        let Some(recovering) = &self.recovering else { return self.cut.clone() };
        let least = |writer, at: u64| recovering.least(writer).map_or(at, |least| least.min(at));
        Arc::new(self.cut.iter().map(|(writer, at)| (writer, least(writer, at))).collect())
    }

    /// Whether the item is one that a lost worker may have left undone.
    pub(super) fn is_recovering(&self, writer: Writer, position: u64) -> bool {
        self.recovering.as_ref().is_some_and(|it| it.covers(writer, position))
    }

    /// Whether the item, which comes again, is one that is being recovered here. What comes of a lost worker's items shows that
    /// more may: the time for it begins anew.
    pub(super) fn recovers(&mut self, now: Duration, writer: Writer, position: u64) -> bool {
        let Some(recovering) = &mut self.recovering else { return false };
        let is_new =
            recovering.covers(writer, position) && !recovering.done.contains(&(writer, position));
        if is_new {
            recovering.begins(now);
        }
        is_new
    }

    /// Whether the item is to be done here, now. `fresh`: it comes for the first time.
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

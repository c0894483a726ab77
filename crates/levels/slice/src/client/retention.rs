//! Keeps published items until their replies arrive, and decides when to publish them again.
//!
//! A reply may be late for two reasons:
//!
//! - Its item waits in a queue. Publishing it again only adds to the queue, so the timeout follows
//!   the measured reply times, and doubles while there are no replies ([`Timeout`]).
//! - The item was lost with its worker. Its successor accepts the item for a short time only, and
//!   *asks* for it. While the successor asks, items of its slices are published again at a fixed
//!   interval.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::client::replied::Replied;
use crate::client::timeout::{Timeout, doubled};
use crate::ids::{Group, SliceId, Writer};
use crate::message::{Covered, Lacks};
use crate::numbering::Numbering;

/// A successor has stopped asking when nothing arrived from it for this many times the lower bound.
const ASKING: u32 = 4;

/// Slices that the successor of a lost worker asks for.
#[derive(Debug, Clone)]
pub struct Asked<'n> {
    slices: BTreeSet<SliceId>,
    numbering: &'n Numbering,
}

impl<'n> Asked<'n> {
    /// These slices, as `numbering` names them.
    pub fn new(slices: &[SliceId], numbering: &'n Numbering) -> Self {
        Self { slices: slices.iter().copied().collect(), numbering }
    }

    /// The slice among them that contains the client's `slice`.
    fn of(&self, slice: SliceId) -> Option<SliceId> {
        let slice = self.numbering.slice_of(slice.0.into());
        self.slices.contains(&slice).then_some(slice)
    }

    /// Each slice with each group in which its items are published.
    pub fn groups(&self) -> impl Iterator<Item = (SliceId, Group)> {
        self.slices
            .iter()
            .flat_map(|slice| self.numbering.groups_of(*slice).map(|group| (*slice, group)))
    }
}

/// Items without a reply, by id.
#[derive(Debug, Clone)]
pub struct Retention<T> {
    min: Duration,
    max: Duration,
    kept: BTreeMap<u64, Kept<T>>,
    due: BTreeSet<(Duration, u64)>,
    timeouts: BTreeMap<SliceId, Timeout>,
    /// When a successor last asked for the items of a slice.
    asked: BTreeMap<SliceId, Duration>,
    /// The items that have replies, if checkpoints are taken.
    replied: Option<Replied>,
}

#[derive(Debug, Clone)]
struct Kept<T> {
    what: T,
    slice: SliceId,
    /// Its writer, and its position there.
    place: (Writer, u64),
    published: Duration,
    said: Duration,
    due: Duration,
    again: u32,
    /// There is a reply: it is published again only for a worker that lacks it.
    replied: bool,
}

impl<T> Retention<T> {
    /// Publishes items again after `min` at the earliest and, the first time, `max` at the latest.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self {
            // Time has to pass between two attempts.
            min: min.max(Duration::from_nanos(1)),
            max,
            kept: BTreeMap::new(),
            due: BTreeSet::new(),
            timeouts: BTreeMap::new(),
            asked: BTreeMap::new(),
            replied: None,
        }
    }

    /// Keeps items that have replies until a checkpoint contains them: [`Retention::covered`].
    #[must_use]
    pub fn with_checkpoints(self, checkpoints: bool) -> Self {
        Self { replied: checkpoints.then(Replied::default), ..self }
    }

    /// The number of items without a reply.
    pub fn len(&self) -> usize {
        self.kept.len() - self.replied.as_ref().map_or(0, Replied::len)
    }

    /// The number of kept items, with and without a reply.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Whether no item is without a reply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the item is kept.
    pub fn contains(&self, id: u64) -> bool {
        self.kept.contains_key(&id)
    }

    /// All items without a reply, by id.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let pending = self.kept.iter().filter(|(_, kept)| !kept.replied);
        pending.map(|(id, kept)| (*id, &kept.what))
    }

    /// Forgets the items that have replies and are in these checkpoints.
    pub fn covered(&mut self, covered: &[Covered], numbering: &Numbering) {
        let Some(replied) = &mut self.replied else { return };
        for id in replied.covered(covered, numbering) {
            self.remove(id);
        }
    }

    /// The slices of kept items that have replies: each waits for a checkpoint.
    pub fn replied_slices(&self) -> Vec<SliceId> {
        self.replied.iter().flat_map(Replied::slices).collect()
    }

    /// Keeps an item that is published now, at this position of its writer. Replaces one with the
    /// same id.
    pub fn keep(
        &mut self,
        now: Duration,
        id: u64,
        slice: SliceId,
        (writer, position): (Writer, u64),
        what: T,
    ) {
        self.remove(id);
        if let Some(replied) = &mut self.replied {
            replied.publishes(writer);
        }
        let due = now + self.wait(now, slice, 0);
        let (published, said, again, replied) = (now, now, 0, false);
        let place = (writer, position);
        let kept = Kept { what, slice, place, published, said, due, again, replied };
        self.kept.insert(id, kept);
        self.due.insert((due, id));
    }

    /// Handles a reply. Returns the time since the item was first published; `None` for an unknown
    /// item, or one that has a reply.
    pub fn reply(&mut self, now: Duration, id: u64) -> Option<Duration> {
        let kept = self.kept.get_mut(&id).filter(|kept| !kept.replied)?;
        let delay = now.saturating_sub(kept.published);
        // If the item was published more than once, the reply may be for any of them.
        if kept.again == 0 {
            self.timeouts.entry(kept.slice).or_default().sample(delay);
        }
        if let Some(replied) = &mut self.replied
            && replied.add(kept.place, id, kept.slice)
        {
            kept.replied = true;
            self.due.remove(&(kept.due, id));
        } else {
            self.remove(id);
        }
        Some(delay)
    }

    /// The next item to publish again, if one is due. Call it until it returns none.
    pub fn again(&mut self, now: Duration) -> Option<&T> {
        let (due, id) = *self.due.first()?;
        if due > now {
            return None;
        }
        self.due.pop_first();
        let kept = self.kept.get(&id)?;
        let (slice, said, again, replied) = (kept.slice, kept.said, kept.again, kept.replied);
        if replied {
            // A successor that still lacks the item asks once more.
            return self.kept.get(&id).map(|kept| &kept.what);
        }
        if !self.is_asked(now, slice) {
            self.timeouts.entry(slice).or_default().expired(now, said);
        }
        let due = now + self.wait(now, slice, again + 1);
        self.due.insert((due, id));
        let kept = self.kept.get_mut(&id)?;
        (kept.said, kept.due, kept.again) = (now, due, again + 1);
        Some(&kept.what)
    }

    /// When [`Retention::again`] has to be called next.
    pub fn due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The successor of a lost worker asks for what clients have of these slices.
    pub fn asked(&mut self, now: Duration, asked: &Asked<'_>) {
        let asking = ASKING * self.min;
        self.asked.retain(|_, asked| now.saturating_sub(*asked) <= asking);
        // Any process may send this, so slices without kept items or earlier replies are ignored.
        let kept = self.kept.values().map(|kept| kept.slice);
        let ours: BTreeSet<_> = kept.chain(self.timeouts.keys().copied()).collect();
        let new: BTreeSet<_> = ours
            .into_iter()
            .filter(|slice| asked.of(*slice).is_some())
            .filter(|slice| self.asked.insert(*slice, now).is_none())
            .collect();
        self.publish_now(now, |slice| new.contains(&slice));
    }

    /// A successor lacks these items, which have replies: publishes each once.
    pub fn lacks(&mut self, now: Duration, lacks: &[Lacks]) {
        let ids: Vec<_> = self.replied.iter().flat_map(|it| it.lacking(lacks)).collect();
        for id in ids {
            if let Some(kept) = self.kept.get_mut(&id) {
                self.due.remove(&(kept.due, id));
                kept.due = now;
                self.due.insert((now, id));
            }
        }
    }

    /// Writers of `group` matched a reader that lacks earlier items. It may be the reader of a
    /// successor that asks for slices of this group: publishes the kept items of those again.
    pub fn met(&mut self, now: Duration, group: Group) {
        let is_asked = |slice: &SliceId| Group::of(*slice) == group && self.is_asked(now, *slice);
        let of_group: BTreeSet<_> = self.asked.keys().copied().filter(is_asked).collect();
        if of_group.is_empty() {
            return;
        }
        self.publish_now(now, |slice| of_group.contains(&slice));
    }

    /// Makes all items without a reply of the slices that `of` accepts due now.
    fn publish_now(&mut self, now: Duration, of: impl Fn(SliceId) -> bool) {
        let pending = self.kept.iter_mut().filter(|(_, kept)| !kept.replied);
        for (id, kept) in pending.filter(|(_, kept)| of(kept.slice)) {
            if kept.due > now {
                self.due.remove(&(kept.due, *id));
                kept.due = now;
                self.due.insert((now, *id));
            }
        }
    }

    /// All kept items of these slices.
    pub fn of(&self, asked: &Asked<'_>) -> impl Iterator<Item = (SliceId, &T)> {
        self.kept.values().filter_map(|kept| Some((asked.of(kept.slice)?, &kept.what)))
    }

    /// Item `id`, if it has no reply.
    pub fn get(&self, id: u64) -> Option<&T> {
        self.kept.get(&id).filter(|kept| !kept.replied).map(|kept| &kept.what)
    }

    fn remove(&mut self, id: u64) -> Option<Kept<T>> {
        let kept = self.kept.remove(&id)?;
        if let Some(replied) = self.replied.as_mut().filter(|_| kept.replied) {
            replied.remove(kept.place);
        }
        self.due.remove(&(kept.due, id));
        Some(kept)
    }

    /// Time to wait for a reply after an item was published again `again` times.
    fn wait(&self, now: Duration, slice: SliceId, again: u32) -> Duration {
        if self.is_asked(now, slice) {
            return self.min;
        }
        let timeout = self.timeouts.get(&slice);
        let wait = timeout.map_or(self.min, |timeout| timeout.current(self.min, self.max));
        // Replies to other items may have reset the doubling of the slice.
        wait.max(doubled(self.min, again)).min(self.max.max(self.min))
    }

    fn is_asked(&self, now: Duration, slice: SliceId) -> bool {
        let asked = self.asked.get(&slice);
        asked.is_some_and(|asked| now.saturating_sub(*asked) <= ASKING * self.min)
    }
}

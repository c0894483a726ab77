//! The state of a lost worker's slices at its successor: each continues from its last checkpoint.
//!
//! The successor asks every living worker for its checkpoint of the slice. When all have answered,
//! it reads the folder of checkpoints, if there is one, and takes the latest. It recovers later
//! items in order (`recovery.rs`) from clients, which keep them even when they have replies.
//! Earlier work of this worker on the slice does not count any more.
//!
//! This includes slices that the lost worker was handing over. Their state may contain items whose
//! replies were lost with the source. Only items after a checkpoint can be processed again, with
//! their replies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{HandoverId, Incarnation, SliceId, Writer};
use crate::message::{Address, Item, Message, SnapshotId, SnapshotPart};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::checkpoint::{Checkpoint, Snapshot};
use crate::worker::keeper::Coming;
use crate::worker::ownership::{Owned, Recovering};
use crate::worker::{Output, TargetEvent, TargetState, Worker};

/// Longest time that a replay waits for items that clients keep, in units of
/// [`Config::recovery`](crate::Config::recovery).
const REPLAYS: u32 = 10;

/// Slices that wait for their checkpoints.
#[derive(Debug, Default)]
pub(super) struct Restores {
    slices: BTreeMap<SliceId, Search>,
    /// When the state of a slice was last replaced here, and the positions in the new one. Other
    /// items that this worker had processed before are not in the state.
    replaced: BTreeMap<SliceId, (Duration, Positions)>,
}

#[derive(Debug, Default)]
struct Search {
    epoch: HandoverId,
    /// The checkpoint of each worker.
    answers: BTreeMap<Incarnation, Option<SnapshotId>>,
    /// The checkpoint that is fetched, and its keeper.
    from: Option<(SnapshotId, Incarnation)>,
    coming: Option<Coming>,
    /// When the last message about it was sent.
    said: Option<Duration>,
    folder: Folder,
    /// The application is exporting the slice's state, which this worker had not handed over.
    exporting: bool,
}

/// The checkpoint in the folder.
#[derive(Debug, Default)]
enum Folder {
    #[default]
    Unread,
    Reading,
    Read(Option<Checkpoint>),
}

impl Search {
    /// The workers that have not answered.
    fn silent(&mut self, others: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        // Answers of lost workers do not count.
        self.answers.retain(|incarnation, _| others.contains(incarnation));
        others
            .iter()
            .filter(|incarnation| !self.answers.contains_key(incarnation))
            .copied()
            .collect()
    }

    /// The latest checkpoint that a worker has.
    fn last(&self) -> Option<(SnapshotId, Incarnation)> {
        let has = |(from, has): (&Incarnation, &Option<SnapshotId>)| Some(((*has)?, *from));
        self.answers.iter().filter_map(has).max()
    }

    fn has_read_folder(&self) -> bool {
        matches!(self.folder, Folder::Read(_))
    }

    /// Begins to read the folder, once.
    fn load<T>(&mut self, slice: SliceId, is_last: bool) -> Option<Output<T>> {
        let is_new = matches!(self.folder, Folder::Unread);
        self.folder = Folder::Reading;
        is_new.then_some(Output::Load { slice, epoch: self.epoch, is_last })
    }

    /// The checkpoint in the folder, if it is later than this one.
    fn stored_after(&self, version: Option<SnapshotId>) -> Option<Snapshot> {
        let Folder::Read(Some(stored)) = &self.folder else { return None };
        (Some(stored.version) > version).then(|| stored.clone().into())
    }
}

impl Restores {
    /// Whether the state of `slice` has not arrived yet.
    pub(super) fn has(&self, slice: SliceId) -> bool {
        self.slices.contains_key(&slice)
    }

    /// Whether this snapshot is fetched from `from`.
    pub(super) fn wants(&self, from: Address, slice: SliceId, version: SnapshotId) -> bool {
        let wanted = self.slices.get(&slice).and_then(|search| search.from);
        wanted
            .is_some_and(|(of, incarnation)| of == version && Address::Worker(incarnation) == from)
    }

    /// The application has exported `slice`. Returns whether the restore waited for that.
    pub(super) fn exported(&mut self, slice: SliceId) -> bool {
        let search = self.slices.get_mut(&slice);
        search.is_some_and(|search| std::mem::take(&mut search.exporting))
    }

    pub(super) fn take(&mut self, part: SnapshotPart) {
        let Some(search) = self.slices.get_mut(&part.slice) else { return };
        search.said = None;
        match &mut search.coming {
            Some(coming) => coming.add(part),
            None => search.coming = Coming::new(part),
        }
    }
}

impl<T: Clone> Worker<T> {
    /// The state of these slices was lost with their owner.
    pub(super) fn on_restore(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Arc<[SliceId]>,
        number: u64,
        others: Vec<Incarnation>,
    ) {
        if self.config.checkpoints().is_some() {
            self.on_keepers(now, number, None, others);
        }
        let taking = self.taking.get(&handover);
        match taking.map(|taking| (taking.source.is_some(), taking.recovered.is_none())) {
            Some((true, is_new)) => {
                if is_new {
                    self.recover_checkpoints(now, handover);
                }
                self.target_event(now, handover, TargetEvent::Recover);
            }
            _ => self.on_assign(now, handover, slices, Some(Positions::default())),
        }
        self.move_restores(now);
    }

    /// Takes slices of a lost owner, without a source.
    pub(super) fn assume_checkpoints(&mut self, now: Duration, handover: HandoverId) {
        let Some(taking) = self.taking.get(&handover) else { return };
        let slices = taking.slices.clone();
        // Clients publish these again.
        self.take_back(&slices);
        let mut back = Vec::new();
        for slice in slices.iter() {
            self.subscribe_to(*slice);
            let mut live = None;
            if let Some(released) = self.released.remove(slice)
                && let Some(giving) = self.giving.get_mut(&released.handover)
            {
                live = giving.undrained.remove(slice).then_some(released.handover);
                giving.drained.remove(slice);
                back.extend(giving.released.iter().filter(|item| item.slice == *slice).cloned());
            }
            match self.owned.get_mut(slice) {
                Some(owned) => owned.epoch = handover,
                None => self.roll_back(now, *slice, handover, live),
            }
        }
        for item in back {
            self.admit(item, true);
        }
        self.step_in(&slices);
        self.forget_given_of(now, &slices);
        // The slices count as assigned when the controller has these claims.
        self.say_claims(now);
    }

    /// The source was lost before the replies to all its items had arrived.
    fn recover_checkpoints(&mut self, now: Duration, handover: HandoverId) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        if taking.state != TargetState::Active {
            return;
        }
        // These are the claims sent at the end of this function.
        taking.recovered = Some(self.claims.next());
        (taking.held, taking.received) = Default::default();
        let slices = taking.slices.clone();
        let (waited, _) = taking.give_up_tails(&BTreeMap::new());
        for slice in slices.iter() {
            // The slice may have been given away since.
            if self.owned.get(slice).is_some_and(|owned| owned.epoch == handover) {
                self.roll_back(now, *slice, handover, None);
            }
        }
        for item in waited {
            self.admit(item, true);
        }
        self.step_in(&slices);
        self.say_claims(now);
    }

    /// Forgets the work of this worker on `slice`, and searches the last checkpoint. `live`: the
    /// slice was given away in this handover and is not drained. Then the application has the
    /// latest state, and the lost target may have been the keeper.
    fn roll_back(
        &mut self,
        now: Duration,
        slice: SliceId,
        epoch: HandoverId,
        live: Option<HandoverId>,
    ) {
        let is_asked = self.unfinished.of_slice(slice) == 0;
        self.unfinished.clear_slice(slice);
        match live {
            // Otherwise the application was asked when the last item finished.
            Some(handover) if !is_asked => {
                self.out.push_back(Output::Export { handover, slice });
            }
            Some(_) => {}
            None => self.discard(slice),
        }
        let new = Owned {
            epoch,
            cut: Arc::default(),
            floor: Arc::default(),
            low: BTreeMap::new(),
            held: Some(Vec::new()),
            unstarted: Vec::new(),
            recovering: Some(Recovering::replaying(now, now + REPLAYS * self.config.recovery)),
        };
        let before = self.owned.insert(slice, new);
        if live.is_none() {
            self.checkpoints.forget_given(slice);
        }
        self.track(now, slice, Positions::default(), 0);
        self.keeper.fence(slice, epoch);
        let search = Search { epoch, exporting: live.is_some(), ..Search::default() };
        self.restores.slices.insert(slice, search);
        self.restores.replaced.insert(slice, (now, Positions::default()));
        let (unstarted, held) =
            before.map(|it| (it.unstarted, it.held.unwrap_or_default())).unwrap_or_default();
        for item in unstarted.into_iter().chain(held) {
            self.admit(item, true);
        }
    }

    /// Whether the state of `slice` is here, contains what checkpoints of it contain, and will not
    /// be replaced by one, as that of a lost source will.
    #[cfg(test)]
    pub(crate) fn has_state(&self, slice: SliceId, lives: impl Fn(Incarnation) -> bool) -> bool {
        let is_here = |owned: &Owned<T>| {
            let taking = self.taking.get(&owned.epoch).filter(|taking| !taking.state.is_over());
            let waits = taking.is_some_and(|taking| taking.held.contains(&slice));
            let is_replaced = taking.and_then(|taking| taking.source).is_some_and(|it| !lives(it));
            !waits && !is_replaced && !self.restores.has(slice)
        };
        self.owned.get(&slice).is_some_and(is_here) || self.released.contains_key(&slice)
    }

    /// Whether this worker finished the item lately, and the slice's state contains it.
    pub(super) fn has_finished(&self, slice: SliceId, writer: Writer, position: u64) -> bool {
        match self.restores.replaced.get(&slice) {
            Some((since, contained)) if position > contained.of(writer) => {
                self.memory.has_finished_since(*since, writer, position)
            }
            _ => self.memory.has_finished(writer, position),
        }
    }

    /// Whether to process the item again, because the slice returned to an earlier state.
    pub(super) fn replays(&mut self, now: Duration, item: &Item<T>) -> bool {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return false };
        let replays = owned.recovering.as_ref().is_some_and(|recovering| recovering.replays());
        replays && owned.recovers(now, item.writer, item.position)
    }

    fn discard(&mut self, slice: SliceId) {
        #[cfg(test)]
        if self.sabotage == Sabotage::NoDiscard {
            return;
        }
        self.out.push_back(Output::Discard(slice));
    }

    /// A worker answers which checkpoints it has.
    pub(super) fn on_has(
        &mut self,
        now: Duration,
        from: Address,
        slices: &[SliceId],
        versions: &[(SliceId, SnapshotId)],
    ) {
        let Address::Worker(incarnation) = from else { return };
        let versions: BTreeMap<_, _> = versions.iter().copied().collect();
        for slice in slices {
            if let Some(search) = self.restores.slices.get_mut(slice) {
                search.answers.insert(incarnation, versions.get(slice).copied());
            }
        }
        self.move_restores(now);
    }

    /// Continues the searches, and restores the checkpoints that have arrived.
    pub(super) fn move_restores(&mut self, now: Duration) {
        self.restores.slices.retain(|slice, _| self.owned.contains_key(slice));
        let others = &self.checkpoints.others;
        let has_folder = self.config.has_folder();
        let (mut found, mut loads) = (Vec::new(), Vec::new());
        let mut asks: BTreeMap<(Incarnation, HandoverId), Vec<SliceId>> = BTreeMap::new();
        let mut wants: BTreeMap<Incarnation, Vec<(SliceId, SnapshotId, u64)>> = BTreeMap::new();
        for (slice, search) in &mut self.restores.slices {
            if search.exporting {
                continue;
            }
            let silent = search.silent(others);
            #[cfg(test)]
            let silent = match self.sabotage {
                Sabotage::NoAskAll if !search.answers.is_empty() => BTreeSet::new(),
                _ => silent,
            };
            let is_due = search.said.is_none_or(|at| now.saturating_sub(at) >= self.config.resend);
            if !silent.is_empty() {
                if is_due {
                    search.said = Some(now);
                    for incarnation in silent {
                        asks.entry((incarnation, search.epoch)).or_default().push(*slice);
                    }
                }
                continue;
            }
            let theirs = search.last();
            let own = self.keeper.version(*slice);
            let theirs_version = theirs.map(|(version, _)| version);
            if has_folder && !search.has_read_folder() {
                loads.extend(search.load(*slice, own.is_none() && theirs.is_none()));
                continue;
            }
            if let Some(stored) = search.stored_after(own.max(theirs_version)) {
                found.push((*slice, Some(stored)));
                continue;
            }
            if own >= theirs_version {
                found.push((*slice, self.keeper.get(*slice).cloned()));
                continue;
            }
            if search.from != theirs {
                (search.from, search.coming, search.said) = (theirs, None, None);
            }
            if search.coming.as_ref().is_some_and(Coming::is_whole) {
                found.push((*slice, search.coming.take().map(Coming::snapshot)));
                continue;
            }
            let is_due = search.said.is_none_or(|at| now.saturating_sub(at) >= self.config.resend);
            if let Some((version, incarnation)) = theirs
                && is_due
            {
                search.said = Some(now);
                let at = search.coming.as_ref().map_or(0, |coming| coming.came() - 1);
                wants.entry(incarnation).or_default().push((*slice, version, at));
            }
        }
        self.out.extend(loads);
        for ((incarnation, epoch), slices) in asks {
            self.send(Address::Worker(incarnation), Message::Ask { epoch, slices: slices.into() });
        }
        for (incarnation, wants) in wants {
            self.send(Address::Worker(incarnation), Message::Want { wants });
        }
        for (slice, snapshot) in found {
            self.restored(now, slice, snapshot);
        }
    }

    /// The last checkpoint of `slice` in the folder, as [`Output::Load`] asked.
    pub fn loaded(
        &mut self,
        now: Duration,
        slice: SliceId,
        epoch: HandoverId,
        stored: Option<Checkpoint>,
    ) {
        let search = self.restores.slices.get_mut(&slice);
        if let Some(search) = search.filter(|search| search.epoch == epoch) {
            search.folder = Folder::Read(stored);
            self.move_restores(now);
        }
    }

    /// The checkpoint of `slice` has arrived. `None`: there is none, and the slice begins with its
    /// first item.
    fn restored(&mut self, now: Duration, slice: SliceId, snapshot: Option<Snapshot>) {
        self.restores.slices.remove(&slice);
        let (contained, state) = match snapshot {
            Some(snapshot) => (snapshot.contained, snapshot.state),
            None => (Positions::default(), None),
        };
        if let Some((_, known)) = self.restores.replaced.get_mut(&slice) {
            known.clone_from(&contained);
        }
        let Some(owned) = self.owned.get_mut(&slice) else { return };
        owned.cut = Arc::new(contained.clone());
        owned.floor = owned.cut.clone();
        if let Some(recovering) = &mut owned.recovering {
            recovering.contains(now, &contained);
        }
        if let Some(held) = &mut owned.held {
            let known = std::mem::take(held);
            let (after, before): (Vec<_>, Vec<_>) =
                known.into_iter().partition(|item| item.position > contained.of(item.writer));
            *held = after;
            for item in before {
                self.unfinished.withdraw(slice, item.writer, item.position);
            }
        }
        // Its only checkpoint may be here.
        self.track(now, slice, contained, 1);
        let state = state.map(|state| state.to_vec());
        self.out.push_back(Output::Import { slice, state });
        self.start_known(slice);
    }
}

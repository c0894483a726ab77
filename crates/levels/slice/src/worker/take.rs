//! The target's part of a handover: from PREPARE to END, and assignments without a source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, Incarnation, SliceId};
use crate::message::{Address, Backlog, Item, Message, TailEntry};
use crate::positions::Positions;
use crate::worker::ownership::{Lost, Owned, Recovering};
use crate::worker::taking::{Came, Hole, Taking};
use crate::worker::{
    Output, REMEMBERED, Reason, SourceEvent, TargetAction, TargetEvent, TargetState, Worker,
};

impl<T: Clone> Worker<T> {
    pub(super) fn on_prepare(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Arc<[SliceId]>,
        source: Incarnation,
    ) {
        // It was called off before this arrived: the promise holds.
        if self.giving.contains_key(&handover) {
            return self.source_event(now, handover, SourceEvent::Abort);
        }
        // Sorted for binary searches.
        let slices = match slices.is_sorted() {
            true => slices,
            false => slices
                .iter()
                .copied()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect(),
        };
        self.supersede(now, handover, &slices);
        let free = slices.iter().all(|slice| {
            !self.owned.contains_key(slice)
                && !self.released.contains_key(slice)
                && self.shadow_of(*slice).is_none_or(|by| by == handover)
        });
        let groups = self.numbering.groups(&slices);
        let new = || Taking::new(slices, groups, Some(source));
        let taking = self.taking.entry(handover).or_insert_with(new);
        if taking.state == TargetState::Unknown {
            taking.since = now;
        }
        let event = if free { TargetEvent::Prepare } else { TargetEvent::PrepareForeign };
        self.target_event(now, handover, event);
        self.subscriptions_ready(now);
    }

    /// Drops shadows of earlier handovers of the same slices: the controller does not know them any
    /// more, or has called them off.
    fn supersede(&mut self, now: Duration, handover: HandoverId, slices: &[SliceId]) {
        let earlier = self.taking.range(..handover).filter(|(_, taking)| {
            taking.is_before_cut() && taking.slices.iter().any(|slice| slices.contains(slice))
        });
        for earlier in earlier.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.target_event(now, earlier, TargetEvent::Abort);
        }
    }

    pub(super) fn on_cut(
        &mut self,
        now: Duration,
        handover: HandoverId,
        cut: Positions,
        backlog: Vec<Backlog>,
    ) {
        if let Some(taking) = self.taking.get_mut(&handover)
            && taking.state == TargetState::Shadowing
        {
            taking.cut = Arc::new(cut);
            taking.floor = taking.cut.clone();
            taking.backlog = backlog;
            taking.covering = self.claims.next();
        }
        self.target_event(now, handover, TargetEvent::Cut);
    }

    pub(super) fn on_assign(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Arc<[SliceId]>,
        after: Option<Positions>,
    ) {
        let groups = self.numbering.groups(&slices);
        let new = || Taking::new(slices, groups, None);
        let taking = self.taking.entry(handover).or_insert_with(new);
        if taking.state == TargetState::Unknown {
            taking.owner_lost = after.is_some();
            taking.cut = Arc::new(after.unwrap_or_default());
            taking.floor = taking.cut.clone();
        }
        self.target_event(now, handover, TargetEvent::Assign);
    }

    pub(super) fn on_recover(&mut self, now: Duration, handover: HandoverId, after: &BySlice) {
        let is_new =
            self.taking.get(&handover).is_some_and(|t| t.source.is_some() && t.recovered.is_none());
        if is_new {
            self.recover(now, handover, after);
        }
        self.target_event(now, handover, TargetEvent::Recover);
    }

    /// ABORT may concern either side.
    pub(super) fn on_abort(&mut self, now: Duration, handover: HandoverId) {
        if self.taking.contains_key(&handover) {
            self.target_event(now, handover, TargetEvent::Abort);
        } else {
            self.source_event(now, handover, SourceEvent::Abort);
        }
    }

    /// Applies one event by the state table.
    pub(super) fn target_event(&mut self, now: Duration, handover: HandoverId, event: TargetEvent) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        let (next, actions) = taking.state.on(event);
        let before = std::mem::replace(&mut taking.state, next);
        for action in actions {
            self.take(now, handover, *action);
        }
        if next != before && matches!(next, TargetState::Ended | TargetState::Aborted) {
            if let Some(taking) = self.taking.get_mut(&handover) {
                (taking.received, taking.backlog) = Default::default();
            }
            self.stand_down(handover);
            self.unsubscribe_idle();
            self.forget_taken();
        }
    }

    fn take(&mut self, now: Duration, handover: HandoverId, action: TargetAction) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        match action {
            TargetAction::Subscribe => {
                for group in taking.groups.iter() {
                    self.subscribe(group);
                }
            }
            TargetAction::StartShadow => {
                self.shadows.push((handover, taking.slices.clone()));
                let positions = self.positions_of(handover);
                let settled = self.is_settled(handover);
                if let Some(taking) = self.taking.get_mut(&handover) {
                    taking.ready(&positions);
                    (taking.settled, taking.covered) = (settled, settled);
                    taking.ahead = positions;
                }
            }
            TargetAction::SendReady => {
                // Repeats the first P, as the source may use it.
                let (positions, settled) = (taking.ahead.clone(), taking.covered);
                self.send_controller(Message::Ready { handover, positions, settled });
            }
            TargetAction::DropShadow => {
                taking.shadow = Vec::new();
                self.drop_shadow_marks(handover);
            }
            TargetAction::TakeOver => self.take_over(now, handover),
            TargetAction::Assume => self.assume(now, handover),
            // Done in `on_recover`, which has the positions.
            TargetAction::StartRecovery => {}
            TargetAction::SendActive => self.say_active(now, handover),
            TargetAction::SendAborted => self.send_controller(Message::Aborted { handover }),
        }
    }

    fn drop_shadow_marks(&mut self, handover: HandoverId) {
        self.shadows.retain(|(by, _)| *by != handover);
    }

    /// The handover that shadows `slice`.
    pub(super) fn shadow_of(&self, slice: SliceId) -> Option<HandoverId> {
        let shadows = |slices: &[SliceId]| slices.binary_search(&slice).is_ok();
        self.shadows.iter().find(|(_, slices)| shadows(slices)).map(|(handover, _)| *handover)
    }

    fn positions_of(&self, handover: HandoverId) -> Positions {
        let Some(taking) = self.taking.get(&handover) else { return Positions::default() };
        let groups = taking.groups;
        let seen = self.seen.iter().filter(|(writer, _)| groups.contains(writer.group));
        seen.map(|(writer, seen)| (*writer, seen.last)).collect()
    }

    fn is_settled(&self, handover: HandoverId) -> bool {
        let settled = |group| self.subscriptions.get(&group).is_some_and(|s| s.settled);
        self.taking.get(&handover).is_some_and(|taking| taking.groups.iter().all(settled))
    }

    /// Keeps an item of a shadowed slice.
    pub(super) fn shadow(&mut self, now: Duration, handover: HandoverId, item: Item<T>) {
        let max = self.config.shadow_max;
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        if taking.shadow.len() >= max {
            self.drops.count(Reason::ShadowFull);
            return self.target_event(now, handover, TargetEvent::Overflow);
        }
        taking.shadow.push(item);
    }

    /// Takes the slices over at the cut: processes the items above it from the shadow.
    fn take_over(&mut self, now: Duration, handover: HandoverId) {
        let strict = self.config.order.is_strict();
        #[cfg(test)]
        let strict = strict && self.sabotage != super::Sabotage::NoHold;
        self.drop_shadow_marks(handover);
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        let shadow = std::mem::take(&mut taking.shadow);
        taking.repeat.first(now);
        if strict {
            taking.held = taking.slices.iter().copied().collect();
        }
        for slice in taking.slices.iter() {
            let (cut, floor) = (taking.cut.clone(), taking.floor.clone());
            let held = strict.then(Vec::new);
            let (low, unstarted) = Default::default();
            let owned =
                Owned { epoch: handover, cut, floor, low, held, unstarted, recovering: None };
            self.owned.insert(*slice, owned);
        }
        for Backlog { slice, writer, after } in &taking.backlog {
            if let Some(owned) = self.owned.get_mut(slice) {
                owned.low.insert(*writer, *after);
                // Newer items wait for these, in any order.
                owned.held.get_or_insert_default();
            }
        }
        let has_backlog = !taking.backlog.is_empty();
        self.track_taken(now, handover);
        for item in shadow {
            let first = self.seen.get(&item.writer).map_or(item.position, |seen| seen.first);
            let Some(taking) = self.taking.get_mut(&handover) else { return };
            if taking.hole(&item, first) == Hole::None {
                self.admit(item, true);
            }
        }
        if self.is_settled(handover) {
            self.cover(now, handover);
        }
        if has_backlog {
            // The source answers for these items until the controller has received these claims.
            self.say_claims(now);
        }
    }

    /// Takes slices without a source.
    fn assume(&mut self, now: Duration, handover: HandoverId) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        taking.covered = true;
        if taking.owner_lost && self.config.checkpoints().is_some() {
            return self.assume_checkpoints(now, handover);
        }
        let (slices, after) = (taking.slices.clone(), taking.cut.clone());
        let owner_lost = taking.owner_lost;
        let holds = owner_lost && self.recovers_in_order();
        // New slices may have items that no worker was there to receive.
        let lost = Arc::new(Lost::all_after(&after));
        let mut back = Vec::new();
        let mut returned = self.take_back(&slices);
        for slice in slices.iter() {
            self.subscribe_to(*slice);
            let mut state_lost = owner_lost;
            let (mut cut, mut low) = (after.clone(), BTreeMap::new());
            if let Some(released) = self.released.remove(slice)
                && let Some(giving) = self.giving.get_mut(&released.handover)
            {
                // Items from before it gave the slice away are still its own, and it may be
                // processing them.
                (cut, low) = (released.cut, released.low);
                // The state of a returning slice is here, or was just exported, or is lost with its
                // target.
                state_lost &= !giving.undrained.remove(slice);
                if let Some(state) = giving.drained.remove(slice) {
                    state_lost = false;
                    if state.is_some() {
                        self.out.push_back(Output::Import { slice: *slice, state });
                    }
                }
                back.extend(giving.released.iter().filter(|item| item.slice == *slice).cloned());
            }
            let handed = returned.handed.remove(slice).unwrap_or_default();
            low.extend(&handed.after);
            let recovering = match owner_lost {
                true => Recovering::new(lost.clone(), now),
                false => Recovering::of_new(lost.clone(), now),
            };
            let recovering = Some(recovering.with_handed(handed));
            let (floor, unstarted) = (after.clone(), Vec::new());
            let held = holds.then(Vec::new);
            let new = Owned { epoch: handover, cut, floor, low, held, unstarted, recovering };
            match self.owned.get_mut(slice) {
                Some(owned) => owned.epoch = handover,
                None => {
                    self.owned.insert(*slice, new);
                    self.track(now, *slice, Positions::default(), 0);
                    if state_lost {
                        self.import_lost(*slice);
                    }
                }
            }
        }
        for item in returned.items {
            self.execute(item);
        }
        for item in back {
            self.admit(item, true);
        }
        self.step_in(&slices);
        self.forget_given_of(now, &slices);
        // The slices count as assigned when the controller has these claims.
        self.say_claims(now);
    }

    /// These slices returned: forgets the handovers that gave them away.
    pub(super) fn forget_given_of(&mut self, now: Duration, slices: &[SliceId]) {
        // A slice returns by assignment only when its target is lost.
        let given: Vec<_> = self
            .giving
            .iter()
            .filter(|(_, giving)| {
                giving.has_cut() && giving.slices.iter().any(|slice| slices.contains(slice))
            })
            .map(|(given, _)| *given)
            .collect();
        for given in given {
            self.source_event(now, given, SourceEvent::Forget);
        }
    }

    fn import_lost(&mut self, slice: SliceId) {
        if self.config.order == crate::config::Order::Stateful {
            self.out.push_back(Output::Import { slice, state: None });
        }
    }

    pub(super) fn on_drained(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Vec<(SliceId, Option<Vec<u8>>)>,
    ) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        if taking.state != TargetState::Active {
            return;
        }
        for (slice, state) in slices {
            let Some(taking) = self.taking.get_mut(&handover) else { return };
            if taking.held.remove(&slice) {
                self.start_held(slice, state);
            }
        }
        self.say_active(now, handover);
        self.move_on(now);
    }

    /// The source is done with `slice`: starts the held items.
    fn start_held(&mut self, slice: SliceId, state: Option<Vec<u8>>) {
        if self.config.order == crate::config::Order::Stateful {
            self.out.push_back(Output::Import { slice, state });
        }
        self.release_held(slice);
    }

    /// Starts the waiting items of `slice`.
    fn release_held(&mut self, slice: SliceId) {
        let Some(owned) = self.owned.get_mut(&slice) else { return };
        if let Some(held) = owned.held.take() {
            let unstarted = std::mem::take(&mut owned.unstarted);
            self.out.extend(unstarted.into_iter().chain(held).map(Output::Execute));
        }
    }

    pub(super) fn on_tail(
        &mut self,
        now: Duration,
        handover: HandoverId,
        first: u64,
        entries: Vec<TailEntry<T>>,
    ) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        if taking.state != TargetState::Active {
            return;
        }
        let Came { unstarted, whole, ready } = taking.tail(first, entries);
        let (floor, slices) = (taking.floor.clone(), taking.slices.clone());
        for item in unstarted {
            self.admit_unstarted(handover, item);
        }
        if !self.config.order.is_strict() {
            whole.into_iter().for_each(|slice| self.start_held(slice, None));
        }
        for item in ready {
            self.admit(item, true);
        }
        // Only now, as the items would be below this floor.
        for slice in slices.iter() {
            if let Some(owned) = self.owned.get_mut(slice)
                && owned.epoch == handover
            {
                owned.floor = floor.clone();
            }
        }
        self.cover_if_settled(now, handover);
        self.begin_active(now, handover);
        self.move_on(now);
    }

    /// The source was lost with `after` committed: its unfinished items may be published again.
    fn recover(&mut self, now: Duration, handover: HandoverId, after: &BySlice) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        if taking.state != TargetState::Active {
            return;
        }
        // These are the claims sent at the end of this function.
        taking.recovered = Some(self.claims.next());
        let was_covered = taking.covered;
        let undrained = std::mem::take(&mut taking.held);
        let cut = taking.cut.clone();
        let slices = taking.slices.clone();
        let received = std::mem::take(&mut taking.received);
        let groups = taking.groups;
        let here = self.seen.iter().filter(|(writer, _)| groups.contains(writer.group));
        let here = here.map(|(writer, seen)| (*writer, seen.first)).collect();
        let (waited, holes) = taking.give_up_tails(&here);
        let lost_after = |after: &Positions| {
            let mut lost = Lost::default();
            for (writer, at) in cut.iter() {
                lost.add(writer, after.of(writer), at);
            }
            for (writer, from, through) in &holes {
                lost.add(*writer, *from, *through);
            }
            if !was_covered {
                lost.add_others();
            }
            Arc::new(lost)
        };
        let in_order = self.recovers_in_order();
        let by_part: Vec<_> = after.parts().map(|(_, after)| lost_after(after)).collect();
        for slice in slices.iter() {
            // The slice may have been given away since, and have returned by another handover.
            let owned = self.owned.get_mut(slice).filter(|owned| owned.epoch == handover);
            let Some(owned) = owned else { continue };
            if let Some(part) = after.part(*slice)
                && let Some(lost) = by_part.get(part)
            {
                let mut recovering = Recovering::new(lost.clone(), now);
                recovering.has(received.get(slice).into_iter().flatten().copied());
                owned.recovering = Some(recovering);
                let committed = after.of(*slice).cloned().unwrap_or_default();
                for (writer, at) in cut.iter() {
                    let low = owned.low.entry(writer).or_insert(at);
                    *low = committed.of(writer).min(*low);
                }
            }
            // A drained slice lacks only items of writers with lost tails.
            let holds = in_order && (undrained.contains(slice) || !was_covered);
            let holds = holds && owned.recovering.is_some();
            if holds {
                owned.held.get_or_insert_default();
            }
            if undrained.contains(slice) {
                self.import_lost(*slice);
            }
            if !holds {
                self.release_held(*slice);
            }
        }
        for item in waited {
            self.admit(item, true);
        }
        self.step_in(&slices);
        self.say_claims(now);
    }

    /// Continues handovers that waited for readers.
    pub(super) fn subscriptions_ready(&mut self, now: Duration) {
        let ready = |group| self.subscriptions.get(&group).is_some_and(|s| s.ready);
        let waiting = self.taking.iter().filter(|(_, t)| t.state == TargetState::Subscribing);
        let ready: Vec<_> =
            waiting.filter(|(_, t)| t.groups.iter().all(ready)).map(|(id, _)| *id).collect();
        for handover in ready {
            self.target_event(now, handover, TargetEvent::Subscribed);
        }
    }

    pub(super) fn subscriptions_settled(&mut self, now: Duration) {
        let active = self.taking.iter().filter(|(_, t)| t.state == TargetState::Active);
        for handover in active.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.cover_if_settled(now, handover) {
                self.say_active(now, handover);
            }
        }
        self.move_on(now);
    }

    fn cover_if_settled(&mut self, now: Duration, handover: HandoverId) -> bool {
        let settled = self.is_settled(handover);
        settled && self.cover(now, handover)
    }

    /// Settles the handover if no gap is open: no new gap can occur, and the source ends the tail
    /// when it receives this.
    fn cover(&mut self, _now: Duration, handover: HandoverId) -> bool {
        match self.taking.get_mut(&handover) {
            Some(taking) if !taking.settled && !taking.has_open() => {
                taking.settled = true;
                true
            }
            _ => false,
        }
    }

    /// Sends an ACTIVE that says something new.
    pub(super) fn begin_active(&mut self, now: Duration, handover: HandoverId) {
        if let Some(taking) = self.taking.get_mut(&handover) {
            taking.repeat.first(now);
        }
        self.say_active(now, handover);
    }

    pub(super) fn say_active(&mut self, now: Duration, handover: HandoverId) {
        let Some(taking) = self.taking.get_mut(&handover) else { return };
        taking.repeat.again(now);
        let (source, cut) = (taking.source, (*taking.cut).clone());
        let active = Message::Active { handover, cut, progress: taking.progress() };
        if let Some(source) = source {
            self.send(Address::Worker(source), active.clone());
        }
        self.send_controller(active);
    }

    pub(super) fn tick_taking(&mut self, now: Duration) {
        // Its controller has called it off long ago, or was lost before it recorded the beginning.
        let patience = 2 * self.config.patience;
        let forgotten = self.taking.iter().filter(|(_, taking)| {
            taking.is_before_cut() && now.saturating_sub(taking.since) >= patience
        });
        for handover in forgotten.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.target_event(now, handover, TargetEvent::Abort);
        }
        let resend = self.config.resend;
        let open = self
            .taking
            .iter()
            .filter(|(_, taking)| taking.has_open() && taking.repeat.is_due(now, resend));
        for handover in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.say_active(now, handover);
        }
    }

    fn forget_taken(&mut self) {
        let over = |taking: &Taking<T>| taking.state.is_over();
        while self.taking.values().filter(|taking| over(taking)).count() > REMEMBERED {
            let oldest = self.taking.iter().find(|(_, taking)| over(taking));
            let Some(oldest) = oldest.map(|(handover, _)| *handover) else { return };
            self.taking.remove(&oldest);
        }
    }
}

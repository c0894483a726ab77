//! The source's part of a handover: from RELEASE to CLOSED.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Order;
use crate::ids::{HandoverId, Incarnation, SliceId};
use crate::message::{Address, Item, Message, Progress};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::giving::Giving;
use crate::worker::ownership::Released;
use crate::worker::taking::Taking;
use crate::worker::{
    Output, REMEMBERED, Reason, SourceAction, SourceEvent, SourceState, TargetEvent, Worker,
};

impl<T: Clone> Worker<T> {
    pub(super) fn on_release(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Arc<[SliceId]>,
        target: Incarnation,
        positions: Positions,
        settled: bool,
    ) {
        let owns = |slice: &SliceId| self.owned.get(slice).is_some_and(|o| o.epoch < handover);
        let owns = slices.iter().all(owns);
        let giving = self.giving.entry(handover).or_insert_with(|| Giving::new(slices, target));
        if giving.state == SourceState::Unknown && owns {
            giving.wait(positions, settled);
        }
        let event = if owns { SourceEvent::Release } else { SourceEvent::ReleaseForeign };
        self.source_event(now, handover, event);
        self.move_on(now);
    }

    /// Handles the target's progress.
    pub(super) fn on_active(&mut self, now: Duration, handover: HandoverId, progress: &Progress) {
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if !giving.has_cut() {
            return;
        }
        let (before, first) = (giving.tail_end(), giving.tail_first());
        giving.heard(now, progress);
        #[cfg(test)]
        if self.sabotage == Sabotage::NoClaimed {
            giving.claimed = true;
        }
        let goes_on = giving.tail_first() > first && giving.is_next_due();
        let ended = giving.tail_end() > before;
        let slices = giving.drained_since(first);
        let target = Address::Worker(giving.target);
        self.watching.insert(handover);
        if !slices.is_empty() {
            giving.drained_repeat.first(now);
            self.send(target, Message::Drained { handover, slices });
        }
        if ended || goes_on {
            self.say_new_tail(now, handover);
        }
        self.source_event(now, handover, SourceEvent::Active);
        self.move_on(now);
    }

    /// Applies one event by the state table.
    pub(super) fn source_event(&mut self, now: Duration, handover: HandoverId, event: SourceEvent) {
        let giving = self.giving.entry(handover);
        // Of an unknown handover only the promise not to cut is kept.
        let giving = giving.or_insert_with(|| Giving::new([].into(), self.incarnation));
        let (next, actions) = giving.state.on(event);
        giving.state = next;
        for action in actions {
            self.give(now, handover, *action);
        }
        if matches!(next, SourceState::Closed | SourceState::Aborted | SourceState::Unknown) {
            self.watching.remove(&handover);
            self.forget_given();
        }
    }

    pub(super) fn give(&mut self, now: Duration, handover: HandoverId, action: SourceAction) {
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        match action {
            SourceAction::Wait => {
                self.watching.insert(handover);
            }
            SourceAction::StopWaiting => {
                giving.ahead = Positions::default();
                self.watching.remove(&handover);
            }
            SourceAction::MakeCut => self.make_cut(now, handover),
            // The message follows when the backlog is known.
            SourceAction::SendCut if giving.recalls => {}
            SourceAction::SendCut => {
                let target = Address::Worker(giving.target);
                let (positions, backlog) = (giving.cut.clone(), giving.backlog.clone());
                self.send(target, Message::Cut { handover, positions: positions.clone(), backlog });
                self.send_controller(Message::Cut { handover, positions, backlog: Vec::new() });
            }
            SourceAction::DropReleased => giving.released = Default::default(),
            SourceAction::DropTail => {
                giving.drop_tail();
                giving.drained.clear();
                self.check_finished(now, handover);
            }
            SourceAction::SendClosed => {
                // Other slices have returned in the meantime.
                let released = |slice: &&SliceId| {
                    self.released.get(*slice).is_some_and(|it| it.handover == handover)
                };
                let gone: BTreeSet<_> = giving.slices.iter().filter(released).copied().collect();
                self.released.retain(|slice, _| !gone.contains(slice));
                let (cut, is_inherited) = (giving.cut.clone(), giving.is_inherited);
                let mut backlog = std::mem::take(&mut giving.backlog);
                backlog.retain(|of| gone.contains(&of.slice));
                giving.unstarted = Default::default();
                #[cfg(test)]
                let gone = if self.sabotage == Sabotage::NoPast { BTreeSet::new() } else { gone };
                let slices: Vec<_> = gone.iter().copied().collect();
                let groups = self.numbering.groups(&slices);
                self.past.add(now, handover, gone, groups, &cut, backlog);
                if is_inherited {
                    // The current controller may not have asked yet, and later claims do not
                    // contain this handover as given.
                    self.past.tell();
                }
                self.send_controller(Message::Closed { handover, cut });
                self.unsubscribe_idle();
            }
            SourceAction::SendAborted => self.send_controller(Message::Aborted { handover }),
        }
    }

    /// Makes the cut: the only point at which ownership ends.
    fn make_cut(&mut self, now: Duration, handover: HandoverId) {
        let Some(giving) = self.giving.get(&handover) else { return };
        let slices = giving.slices.clone();
        let groups = self.numbering.groups(&slices);
        let seen = self.seen.iter().filter(|(writer, _)| groups.contains(writer.group));
        let mut cut: Positions = seen.map(|(writer, seen)| (*writer, seen.last)).collect();
        self.released.reserve(slices.len());
        let mut epochs = BTreeSet::new();
        for slice in slices.iter() {
            if let Some(owned) = self.owned.remove(slice) {
                self.checkpoints.give(*slice, owned.epoch);
                // Items below the floor are finished, although some may never have arrived here.
                if epochs.insert(owned.epoch) {
                    cut = cut.furthest(&owned.floor);
                }
                let released = Released { handover, cut: owned.cut, low: owned.low };
                self.released.insert(*slice, released);
            }
        }
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        giving.cut = cut;
        giving.repeat.first(now);
        giving.recalls = true;
        self.out.push_back(Output::Recall { handover, slices });
        // Slices move on only when the handover that brought them is over: a worker that has not
        // received END learns it here.
        for epoch in epochs {
            if self.owned.values().all(|owned| owned.epoch != epoch) {
                self.target_event(now, epoch, TargetEvent::End);
            }
        }
    }

    /// Handles an item of a slice that was cut.
    pub(super) fn release(&mut self, now: Duration, handover: HandoverId, item: Item<T>) {
        let max = self.config.released_max;
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if item.position <= giving.cut.of(item.writer) {
            return self.drops.count(Reason::NotOwned);
        }
        let before = giving.tail_end();
        if let Some(reason) = giving.release(item, max) {
            self.drops.count(reason);
        }
        if giving.tail_end() > before {
            self.say_tail_last(now, handover);
        }
    }

    /// All items of `slice` are finished.
    pub(super) fn slice_drained(&mut self, now: Duration, slice: SliceId) {
        let Some(handover) = self.released.get(&slice).map(|it| it.handover) else { return };
        if self.giving.get(&handover).is_some_and(|giving| giving.undrained.contains(&slice)) {
            self.drained(now, handover, vec![slice]);
        }
    }

    /// All items of these slices are finished.
    pub(super) fn drained(&mut self, now: Duration, handover: HandoverId, slices: Vec<SliceId>) {
        if self.config.order == Order::Stateful {
            let exports = slices.into_iter().map(|slice| Output::Export { handover, slice });
            return self.out.extend(exports);
        }
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        giving.drained_at = now;
        for slice in &slices {
            giving.undrained.remove(slice);
        }
        self.tell_drained(now, handover, slices.into_iter().map(|slice| (slice, None)).collect());
    }

    /// The application exported the state of a drained slice.
    pub fn exported(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slice: SliceId,
        state: Option<Vec<u8>>,
    ) {
        if self.restores.exported(slice) {
            self.keep_given(now, slice, state.as_deref());
            return self.move_restores(now);
        }
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        giving.drained_at = now;
        if !giving.undrained.remove(&slice) {
            // The slice has returned in the meantime, so its state returns, too.
            if self.owned.contains_key(&slice) && self.config.checkpoints().is_none() {
                self.out.push_back(Output::Import { slice, state });
            }
            return;
        }
        self.keep_given(now, slice, state.as_deref());
        self.tell_drained(now, handover, vec![(slice, state)]);
    }

    /// Sends DRAINED, which the target waits for in strict order.
    fn tell_drained(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: Vec<(SliceId, Option<Vec<u8>>)>,
    ) {
        let strict = self.config.order.is_strict() && !slices.is_empty();
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if giving.undrained.is_empty() {
            // From now on only the target's progress is missing.
            giving.repeat.first(now);
        }
        if strict && giving.state != SourceState::Closed {
            // Others that are not answered are repeated at their time.
            if giving.drained.is_empty() {
                giving.drained_repeat.first(now);
            }
            giving.drained.extend(slices.iter().cloned());
            let target = Address::Worker(giving.target);
            // Only for slices for which the target has received the unstarted items.
            let has_all = |(slice, _): &(SliceId, Option<Vec<u8>>)| giving.is_handed_over(*slice);
            let slices: Vec<_> = slices.into_iter().filter(has_all).collect();
            if !slices.is_empty() {
                self.send(target, Message::Drained { handover, slices });
            }
        }
        self.check_finished(now, handover);
    }

    pub(super) fn check_finished(&mut self, now: Duration, handover: HandoverId) {
        let reply = self.config.reply_is_sure();
        let finished = |giving: &Giving<T>| {
            giving.state == SourceState::Draining && giving.is_finished(now, reply)
        };
        if self.giving.get(&handover).is_some_and(finished) {
            self.source_event(now, handover, SourceEvent::Finished);
        }
    }

    /// Continues waiting handovers as far as possible.
    pub(super) fn move_on(&mut self, now: Duration) {
        let watched: Vec<_> = self.watching.iter().copied().collect();
        for handover in watched {
            let Some(mut giving) = self.giving.remove(&handover) else { continue };
            let passes = giving.state == SourceState::Waiting && self.can_cut(&giving);
            let patience = self.config.patience;
            let ended = giving.has_cut()
                && giving.end_tails(|writer, at, since| {
                    self.has_reached(writer, at) || now.saturating_sub(since) >= patience
                });
            self.giving.insert(handover, giving);
            if passes {
                self.source_event(now, handover, SourceEvent::Passed);
            }
            if ended {
                self.say_new_tail(now, handover);
            }
            self.check_finished(now, handover);
        }
    }

    fn can_cut(&self, giving: &Giving<T>) -> bool {
        #[cfg(test)]
        if self.sabotage == Sabotage::NoPosition {
            return true;
        }
        if !giving.ahead.iter().all(|(writer, at)| self.has_reached(writer, at)) {
            return false;
        }
        let mut epoch = None;
        giving.slices.iter().all(|slice| {
            let Some(owned) = self.owned.get(slice) else { return false };
            if owned.held.is_some() || owned.recovering.is_some() {
                return false;
            }
            if !self.is_safe_to_give(*slice) {
                return false;
            }
            let passed = epoch == Some(owned.epoch) || self.is_whole(owned.epoch, &owned.floor);
            epoch = Some(owned.epoch);
            passed
        })
    }

    /// Whether nothing is missing that `epoch` gave, and its late items have arrived.
    fn is_whole(&self, epoch: HandoverId, floor: &Positions) -> bool {
        let has_all = |taking: &Taking<T>| taking.covered && taking.has_backlog();
        let whole = self.taking.get(&epoch).is_none_or(has_all);
        // A writer without any item here was silent since it matched.
        let passed = |(writer, at)| self.last(writer).is_none() || self.has_reached(writer, at);
        whole && floor.iter().all(passed)
    }

    pub(super) fn tick_giving(&mut self, now: Duration) {
        let patience = self.config.patience;
        let waits = |giving: &Giving<T>| giving.waits_since(now.saturating_sub(patience));
        if now >= patience && self.giving.values().any(waits) {
            self.move_on(now);
        }
        let draining: Vec<_> =
            self.giving.iter().filter(|(_, g)| g.has_cut()).map(|(id, _)| *id).collect();
        for handover in draining {
            self.check_finished(now, handover);
            self.repeat_given(now, handover);
        }
    }

    /// Sends again what the target has not answered.
    fn repeat_given(&mut self, now: Duration, handover: HandoverId) {
        let resend = self.config.resend;
        let Some(giving) = self.giving.get_mut(&handover).filter(|giving| giving.has_cut()) else {
            return;
        };
        let repeats_tail = giving.repeats_tail(now, resend);
        if giving.drained_repeat.is_due(now, resend) {
            let (target, slices) = (Address::Worker(giving.target), giving.drained_since(0));
            if !slices.is_empty() {
                giving.drained_repeat.again(now);
                self.send(target, Message::Drained { handover, slices });
            }
        }
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        let waits = giving.state == SourceState::Cut || giving.needs_progress();
        if waits && giving.repeat.is_due(now, resend) {
            giving.repeat.again(now);
            self.give(now, handover, SourceAction::SendCut);
        }
        if repeats_tail {
            self.say_tail(now, handover);
        }
    }

    pub(super) fn say_tail(&mut self, now: Duration, handover: HandoverId) {
        let size = self.size;
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if let Some((first, entries)) = giving.tail(now, size) {
            let target = Address::Worker(giving.target);
            self.send(target, Message::Tail { handover, first, entries });
        }
    }

    /// Sends entries that were added, unless others are under way before them.
    fn say_new_tail(&mut self, now: Duration, handover: HandoverId) {
        match self.giving.get(&handover).is_some_and(Giving::is_next_due) {
            true => self.say_tail(now, handover),
            false => self.say_tail_last(now, handover),
        }
    }

    fn say_tail_last(&mut self, now: Duration, handover: HandoverId) {
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if let Some((first, entries)) = giving.tail_last(now) {
            let target = Address::Worker(giving.target);
            self.send(target, Message::Tail { handover, first, entries });
        }
    }

    fn forget_given(&mut self) {
        let over = |giving: &Giving<T>| giving.state.is_over();
        while self.giving.values().filter(|giving| over(giving)).count() > REMEMBERED {
            let oldest = self.giving.iter().find(|(_, giving)| over(giving));
            let Some(oldest) = oldest.map(|(handover, _)| *handover) else { return };
            self.giving.remove(&oldest);
        }
    }
}

//! The lease, and the claims that renew it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::by_slice::BySlice;
use crate::ids::{Group, Incarnation, SliceId, Writer};
use crate::message::{Backlog, Claims, Given, Message, Taken};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::checkpoint::Checkpoints;
use crate::worker::giving::Giving;
use crate::worker::keeper::Keeper;
use crate::worker::ownership::Owned;
use crate::worker::past::Pasts;
use crate::worker::restore::Restores;
use crate::worker::taking::Taking;
use crate::worker::{Output, Reason, SourceEvent, SourceState, TargetState, Worker};

/// Largest number of claims that wait for an answer.
const OUTSTANDING_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Lease {
    number: u64,
    sent: VecDeque<(u64, Duration)>,
    until: Duration,
    fenced: bool,
    said: Option<Duration>,
    /// When this incarnation sent its first claims.
    began: Option<Duration>,
    /// Something happened since the last claims that later ones may have to contain.
    changed: bool,
}

impl Default for Lease {
    fn default() -> Self {
        let (until, sent) = (Duration::ZERO, VecDeque::new());
        Self { number: 0, sent, until, fenced: true, said: None, began: None, changed: true }
    }
}

impl Lease {
    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Whether the controller has ever answered this incarnation.
    pub(super) fn was_granted(&self) -> bool {
        self.until > Duration::ZERO
    }

    /// The number of the next claims.
    pub(super) fn next(&self) -> u64 {
        self.number + 1
    }

    /// The next claims may contain something new.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// The lease is valid, and the last claims are complete.
    fn is_said(&self) -> bool {
        !self.fenced && !self.changed
    }
}

impl<T: Clone> Worker<T> {
    /// When the lease ends, unless it is renewed.
    pub fn lease_until(&self) -> Duration {
        self.claims.until
    }

    pub(super) fn tick_lease(&mut self, now: Duration) {
        let lapsed = !self.claims.fenced && now >= self.claims.until;
        #[cfg(test)]
        let lapsed = lapsed && self.sabotage != Sabotage::NoFence;
        if lapsed {
            self.claims.fenced = true;
            self.out.push_back(Output::Fence);
        }
        // Controllers may have forgotten that they gave it up, even if it was answered once and
        // does not know of its loss.
        let heard = self.claims.began.map(|began| began.max(self.claims.until));
        if heard.is_some_and(|heard| now >= heard + self.config.retire) {
            return self.expelled(now, self.incarnation.number);
        }
        let period = self.claims_period();
        if self.claims.said.is_none_or(|said| now.saturating_sub(said) >= period) {
            self.say_claims(now);
        }
    }

    fn claims_period(&self) -> Duration {
        if self.is_idle() { self.config.idle_claims() } else { self.config.claims }
    }

    /// Whether only messages and items can change anything, and the controller has received
    /// complete claims.
    fn is_idle(&self) -> bool {
        self.claims.sent.is_empty() && self.has_nothing_under_way()
    }

    /// Whether only messages and items can change anything but the lease.
    pub fn has_nothing_under_way(&self) -> bool {
        self.claims.is_said()
            && self.out.is_empty()
            && self.unfinished.is_clear()
            && self.released.is_empty()
            && self.shadows.is_empty()
            && self.watching.is_empty()
            && self.handovers() == 0
            && self.recovering().next().is_none()
            && self.announced.is_none()
            && self.checkpoints.is_idle()
    }

    /// The time until the next tick is due if nothing arrives. `None`: something is in progress
    /// that needs ticks.
    pub fn idle_for(&self, now: Duration) -> Option<Duration> {
        let next = self.claims.said? + self.config.idle_claims();
        self.is_idle().then(|| next.saturating_sub(now))
    }

    /// Handles an answer. The lease counts from when the claims were sent, which is before the
    /// controller counts.
    pub(super) fn granted(&mut self, now: Duration, number: u64) {
        let sent = self.claims.sent.iter().find(|(of, _)| *of == number).map(|(_, at)| *at);
        let Some(sent) = sent else { return };
        self.claims.sent.retain(|(of, _)| *of > number);
        self.past.heard(number, sent, self.config.forget);
        self.claims.until = self.claims.until.max(sent + self.config.lease);
        self.refused = None;
        self.covered_by(now, number);
        if self.claims.fenced && now < self.claims.until {
            self.claims.fenced = false;
            self.out.push_back(Output::Resume);
            // It may have been paused, and have missed items that were published again in that
            // time.
            let recovering = self.owned.values_mut().filter_map(|owned| owned.recovering.as_mut());
            recovering.for_each(|recovering| recovering.begins(now));
        }
    }

    /// Handles its loss: its slices have another owner. A new incarnation begins, with nothing.
    pub(super) fn expelled(&mut self, now: Duration, last: u64) {
        self.incarnation =
            Incarnation { number: self.incarnation.number.max(last) + 1, ..self.incarnation };
        // Only this worker has the items that a target may lack.
        let tails: usize = self.giving.values().map(Giving::tail_items).sum();
        self.drops.add(Reason::GivenUp, (self.unfinished.len() + tails) as u64);
        self.owned.clear();
        self.shadows.clear();
        self.released.clear();
        self.giving.clear();
        self.taking.clear();
        self.watching.clear();
        self.unfinished.clear();
        self.standby.clear();
        self.past = Pasts::default();
        self.checkpoints = Checkpoints::default();
        self.keeper = Keeper::default();
        self.restores = Restores::default();
        self.out.push_back(Output::Reset);
        if !self.claims.fenced {
            self.out.push_back(Output::Fence);
        }
        self.claims = Lease { number: self.claims.number, ..Lease::default() };
        self.unsubscribe_idle();
        self.say_claims(now);
    }

    /// Sends claims now.
    pub fn say_claims(&mut self, now: Duration) {
        self.claims.number += 1;
        self.claims.said = Some(now);
        self.claims.changed = false;
        self.claims.began.get_or_insert(now);
        if self.claims.sent.len() >= OUTSTANDING_MAX {
            self.claims.sent.pop_front();
        }
        self.claims.sent.push_back((self.claims.number, now));
        let reply = self.config.reply;
        #[cfg(test)]
        let reply = if self.sabotage == Sabotage::ClaimUnreplied { Duration::ZERO } else { reply };
        self.unfinished.replied(now.saturating_sub(reply));
        self.settle_backlogs();
        let marks = self.marks();
        let ready_for = self.ready_for(now, &marks);
        self.promised = ready_for.or(self.promised);
        let claims = Claims {
            numbering: self.numbering,
            ready_for,
            number: self.claims.number,
            process: self.process.clone(),
            slices: self.owned.iter().map(|(slice, owned)| (*slice, owned.epoch)).collect(),
            floors: self.floors(&marks),
            marks,
            given: self.given(),
            taken: self.taken(),
            past: self.past.say(self.claims.number),
        };
        self.send_controller(Message::Claims(Box::new(claims)));
    }

    /// The controller has claims with this number. The sources of the backlogs that they cover need
    /// not answer for these any more.
    fn covered_by(&mut self, now: Duration, number: u64) {
        let waiting = self.taking.iter_mut().filter(|(_, taking)| {
            let waits = taking.state == TargetState::Active && !taking.claimed;
            waits && !taking.backlog.is_empty() && number >= taking.covering
        });
        let mut told = Vec::new();
        for (handover, taking) in waiting {
            taking.claimed = true;
            told.push(*handover);
        }
        for handover in told {
            self.say_active(now, handover);
        }
    }

    /// The positions up to which all of this worker's items are finished, and their replies have
    /// arrived.
    pub(super) fn marks(&self) -> Positions {
        let open: Vec<&Taking<T>> = self
            .taking
            .values()
            .filter(|t| t.state == TargetState::Active && !t.covered && t.source.is_some())
            .collect();
        let recovering = self.owned.iter().flat_map(|(slice, owned)| {
            let recovering = owned.recovering.as_ref();
            let groups = recovering.map(|_| self.numbering.groups_of(*slice));
            groups.into_iter().flatten().filter_map(move |group| Some((group, recovering?)))
        });
        let recovering: Vec<_> = recovering.collect();
        let coming = self.backlogs_under_way();
        let of = |writer: Writer, last| {
            let unfinished = self.unfinished.least(writer).map(|position| position - 1);
            // This writer does not bring items of slices in other groups. Counting their gaps would
            // claim too little for slices that were given away, and they would be processed twice.
            let brings = |group: Group| writer.group == group || writer.group == Group::BASE;
            let holes = open.iter().filter(|taking| !taking.is_known(writer));
            let holes = holes.filter(|taking| taking.groups.iter().any(brings));
            let holes = holes.map(|taking| taking.floor.of(writer));
            let lost = recovering.iter().filter(|(group, _)| brings(*group));
            let lost = lost.filter_map(|(_, recovering)| recovering.least(writer));
            let given = self.giving.values().filter(|giving| giving.has_cut());
            let given = given.filter_map(|giving| giving.unstarted.after(writer));
            let coming = coming.get(&writer).copied();
            let all = unfinished.into_iter().chain(holes).chain(lost).chain(coming);
            #[cfg(test)]
            if self.sabotage == Sabotage::ClaimHanded {
                return all.fold(last, u64::min);
            }
            all.chain(given).fold(last, u64::min)
        };
        self.seen.iter().map(|(writer, seen)| (*writer, of(*writer, seen.last))).collect()
    }

    /// By writer: the position before the first item that a source has not started and that may
    /// still be in transit.
    fn backlogs_under_way(&self) -> BTreeMap<Writer, u64> {
        let mut all = BTreeMap::new();
        let coming =
            self.taking.values().filter(|t| t.state == TargetState::Active && !t.has_backlog());
        for Backlog { writer, after, .. } in coming.flat_map(|taking| &taking.backlog) {
            let least = all.entry(*writer).or_insert(*after);
            *least = (*after).min(*least);
        }
        #[cfg(test)]
        if self.sabotage == Sabotage::ClaimBacklog {
            return BTreeMap::new();
        }
        all
    }

    /// Floors that the marks have not passed.
    fn floors(&self, marks: &Positions) -> BySlice {
        // Slices that share these have the same floor.
        let key = |slice: SliceId| {
            let owned = self.owned.get(&slice);
            let recovering = owned.and_then(|owned| owned.recovering.as_ref());
            let lost = recovering.map(|recovering| Arc::as_ptr(recovering.lost()));
            let own = owned.is_some_and(|owned| !owned.low.is_empty()).then_some(slice);
            (owned.map(|owned| Arc::as_ptr(&owned.cut)), lost, own)
        };
        let floor = |slice: SliceId| {
            let Some(owned) = self.owned.get(&slice) else { return Arc::default() };
            #[cfg(test)]
            if self.sabotage == Sabotage::ClaimTail {
                return owned.floor.clone();
            }
            self.committed_by_others(slice, owned)
        };
        let mut floors = BySlice::grouped(self.owned.keys().copied(), key, floor);
        floors.retain(|floor| floor.iter().any(|(writer, at)| marks.of(writer) < at));
        floors
    }

    /// Positions up to which items belonged to earlier owners, and none came here to be processed.
    fn committed_by_others(&self, slice: SliceId, owned: &Owned<T>) -> Arc<Positions> {
        let committed = owned.committed_by_others();
        #[cfg(test)]
        if self.sabotage == Sabotage::ClaimBacklog {
            return committed;
        }
        if owned.low.is_empty() {
            return committed;
        }
        let comes = self.taking.get(&owned.epoch).is_some_and(|taking| !taking.has_backlog());
        let groups = self.numbering.groups(&[slice]);
        let own = committed.iter().filter(|(writer, _)| groups.contains(writer.group));
        let lowered = own.map(|(writer, at)| {
            let Some(low) = owned.low.get(&writer) else { return (writer, at) };
            let unfinished = self.unfinished.least(writer).map_or(u64::MAX, |least| least - 1);
            let own = if comes { *low } else { unfinished.max(*low) };
            (writer, at.min(own))
        });
        Arc::new(lowered.collect())
    }

    fn given(&self) -> Vec<Given> {
        let cut = self.giving.iter().filter(|(_, giving)| giving.has_cut());
        cut.map(|(handover, giving)| Given {
            handover: *handover,
            slices: giving.slices.clone(),
            target: giving.target,
            cut: giving.cut.clone(),
        })
        .collect()
    }

    fn taken(&self) -> Vec<Taken> {
        let open = self.taking.iter().filter(|(_, taking)| taking.is_coming());
        // Slices that were given away since belong to another: a new controller would take this
        // worker for their owner.
        let is_here = |handover, slice| {
            self.owned.get(&slice).is_some_and(|owned: &Owned<T>| owned.epoch == handover)
        };
        open.filter_map(|(handover, taking)| {
            let here = |slice: &&SliceId| taking.is_before_cut() || is_here(*handover, **slice);
            let slices: Arc<[SliceId]> = taking.slices.iter().filter(here).copied().collect();
            let some = !slices.is_empty();
            some.then_some(Taken { handover: *handover, slices, source: taking.source? })
        })
        .collect()
    }

    /// A new controller begins. Handovers of the last one without a cut are called off, so that
    /// claims from now on contain all that it left in progress.
    pub(super) fn begin_term(&mut self, now: Duration) {
        // The new controller announces the resize again if it continues.
        self.announced = None;
        self.past.begin_term(now);
        self.checkpoints.number = 0;
        let cut = self.giving.values_mut().filter(|giving| giving.has_cut());
        cut.for_each(|giving| giving.is_inherited = true);
        #[cfg(test)]
        if self.sabotage == Sabotage::NoPromise {
            return self.say_claims(now);
        }
        let waiting = self.giving.iter().filter(|(_, g)| g.state == SourceState::Waiting);
        for handover in waiting.map(|(handover, _)| *handover).collect::<Vec<_>>() {
            self.source_event(now, handover, SourceEvent::Abort);
        }
        self.say_claims(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ids::{Term, WorkerId};
    use crate::message::{Address, Envelope, Item};

    const LIFE: Incarnation = Incarnation { worker: WorkerId(1), number: 1 };

    /// The number of claims in 5 s, of a worker that receives an item every `items` milliseconds;
    /// the controller answers all.
    fn claims_in_five_seconds(items: Option<u64>) -> usize {
        let mut worker = Worker::<u64>::new(LIFE, Config::default());
        let (writer, mut claims) = (Writer { group: Group::BASE, id: 7 }, 0);
        for ms in 1..=5000 {
            let now = Duration::from_millis(ms);
            if items.is_some_and(|items| ms % items == 0) {
                let slice = SliceId(0);
                worker.item(
                    now,
                    Item {
                        key: u64::from(slice.0),
                        slice,
                        writer,
                        position: ms,
                        again: false,
                        payload: ms,
                    },
                );
            }
            if worker.idle_for(now).is_none_or(|idle| idle.is_zero()) {
                worker.tick(now);
            }
            while let Some(output) = worker.poll() {
                let Output::Send(Envelope { message: Message::Claims(said), .. }) = output else {
                    continue;
                };
                claims += 1;
                let (from, to) = (Address::Controller, Address::Worker(LIFE));
                let message = Message::Grant { number: said.number };
                worker.message(
                    now,
                    Envelope { from, to, term: Term(1), numbering: Default::default(), message },
                );
            }
            assert!(!worker.is_fenced());
        }
        claims
    }

    #[test]
    fn an_idle_worker_sends_only_the_claims_that_renew_its_lease() {
        let idle = claims_in_five_seconds(None);
        assert!((5..=8).contains(&idle), "{idle}");
        let busy = claims_in_five_seconds(Some(10));
        assert!((95..=101).contains(&busy), "{busy}");
    }
}

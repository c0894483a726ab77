//! The workers, their leases and their claims.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{HandoverId, Incarnation, Process, SliceId, WorkerId};
use crate::message::{Claims, Past};
use crate::numbering::Numbering;
use crate::positions::Positions;

/// A worker, as the controller sees it.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its current incarnation.
    pub incarnation: Incarnation,
    /// When its lease was last renewed; for an incarnation known only from the store, when the
    /// controller started.
    pub heard: Duration,
    /// Time since then in which the controller could not receive claims.
    allowed: Duration,
    /// It has sent claims to this controller.
    pub is_here: bool,
    /// An earlier controller knew it, and it has not reported its claims to this one yet.
    pub is_awaited: bool,
    /// It was given up.
    pub lost: bool,
    /// The reason, if this controller gave it up.
    pub loss: Option<Loss>,
    /// It has been silent for longer than a running worker. It receives no slices, and keeps those
    /// that it has.
    pub suspected: bool,
    /// It should lose all its slices.
    pub leaving: bool,
    /// It processes none of its items.
    pub stuck: bool,
    /// Another process that tried to work under its name, and when it was last refused.
    pub twin: Option<(Process, Duration)>,
    /// Its last claims.
    pub claims: Claims,
    /// Finished handovers of which it was the source under an earlier controller.
    past: Vec<Past>,
}

/// Why a worker was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its lease expired.
    Silence,
    /// Its connection closed, and it did not answer.
    Closed,
}

/// All incarnations in use.
#[derive(Debug, Default)]
pub(super) struct Members {
    current: BTreeMap<WorkerId, Member>,
    /// Earlier incarnations that still own slices.
    dead: BTreeMap<Incarnation, Claims>,
}

/// The result of received claims.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its lease was renewed.
    Renewed,
    /// A new worker.
    New,
    /// An unknown worker that claims slices.
    Stranger,
    /// Another incarnation of its name may still live, and the controller knows only that it
    /// exists.
    Unknown,
    /// It was given up, or has a successor.
    Expelled {
        /// The last incarnation of the worker.
        last: u64,
    },
    /// Another process works under its name.
    Refused {
        /// The last incarnation of the worker.
        last: u64,
        /// The other process.
        holder: Process,
        /// Time since its last claims.
        heard: Duration,
    },
    /// A new incarnation, which ends this one.
    Succeeds(Incarnation),
}

impl Members {
    /// Expects an incarnation that the store lists.
    pub(super) fn expect(&mut self, incarnation: Incarnation, now: Duration) {
        let expected = || Member { is_awaited: true, ..Member::new(incarnation, now) };
        let member = self.current.entry(incarnation.worker).or_insert_with(expected);
        if member.incarnation.number < incarnation.number {
            *member = expected();
        }
    }

    /// Adds an incarnation that an earlier controller gave up.
    pub(super) fn expect_lost(&mut self, incarnation: Incarnation, now: Duration) {
        self.current
            .insert(incarnation.worker, Member { lost: true, ..Member::new(incarnation, now) });
    }

    /// Handles claims. `knows_us`: they were sent to this controller, and not to an earlier one.
    pub(super) fn heard(
        &mut self,
        incarnation: Incarnation,
        mut claims: Claims,
        knows_us: bool,
        now: Duration,
    ) -> Heard {
        let Some(member) = self.current.get_mut(&incarnation.worker) else {
            // The store lists every worker that received slices until it is given up and forgotten.
            // So the slices of this one have another owner.
            let holds = !(claims.slices.is_empty() && claims.taken.is_empty());
            let lost = holds || !claims.given.is_empty();
            let claims = if lost { Claims::default() } else { claims };
            let member = Member { is_here: true, lost, claims, ..Member::new(incarnation, now) };
            self.current.insert(incarnation.worker, member);
            return if lost { Heard::Stranger } else { Heard::New };
        };
        let last = member.incarnation.number;
        if member.lost {
            return match incarnation.number > last {
                true => self.succeed(incarnation, claims, now),
                false => Heard::Expelled { last },
            };
        }
        let same_process = claims.process.key == member.claims.process.key;
        match (member.is_here, incarnation == member.incarnation) {
            (false, true) => {}
            // The incarnation in the store reports in time, or is given up.
            (false, false) => return Heard::Unknown,
            (true, _) if !same_process => {
                member.twin = Some((claims.process, now));
                let holder = member.claims.process.clone();
                return Heard::Refused { last, holder, heard: now.saturating_sub(member.heard) };
            }
            (true, false) if incarnation.number > last => {
                return self.succeed(incarnation, claims, now);
            }
            (true, false) => return Heard::Expelled { last },
            (true, true) => {}
        }
        (member.heard, member.allowed) = (now, Duration::ZERO);
        member.suspected = false;
        member.is_here = true;
        member.is_awaited &= !knows_us;
        // Later claims may lack it.
        if !claims.past.is_empty() {
            member.past = std::mem::take(&mut claims.past);
        }
        if claims.number > member.claims.number {
            member.claims = claims;
        }
        Heard::Renewed
    }

    /// A new incarnation of a worker begins.
    fn succeed(&mut self, incarnation: Incarnation, claims: Claims, now: Duration) -> Heard {
        let leaving = self.current.get(&incarnation.worker).is_some_and(|member| member.leaving);
        let next = Member { is_here: true, claims, leaving, ..Member::new(incarnation, now) };
        match self.current.insert(incarnation.worker, next) {
            Some(before) => {
                self.dead.insert(before.incarnation, before.claims);
                Heard::Succeeds(before.incarnation)
            }
            None => Heard::Renewed,
        }
    }

    /// The controller did not run for `time`, and received no claims. That does not count as
    /// silence of workers, except for `counted`: so even a controller that is paused again and
    /// again gives a silent worker up.
    pub(super) fn allow(&mut self, now: Duration, time: Duration, counted: Duration) {
        for member in self.current.values_mut().filter(|member| !member.lost) {
            let silence = now.saturating_sub(member.heard);
            member.allowed = (member.allowed + time.saturating_sub(counted)).min(silence);
        }
    }

    /// Gives up workers that were silent for `silence`.
    pub(super) fn give_up(&mut self, now: Duration, silence: Duration) -> Vec<Incarnation> {
        let silent = |member: &&mut Member| {
            !member.lost && now.saturating_sub(member.heard) >= silence + member.allowed
        };
        let silent = self.current.values_mut().filter(silent);
        let mut lost = Vec::new();
        for member in silent {
            (member.lost, member.loss) = (true, Some(Loss::Silence));
            lost.push(member.incarnation);
        }
        lost
    }

    /// Gives `incarnation` up, as its process has ended. `false`: it was given up before, or has a
    /// successor.
    pub(super) fn give_up_closed(&mut self, incarnation: Incarnation) -> bool {
        let member = self.current.get_mut(&incarnation.worker);
        let Some(member) = member.filter(|it| it.incarnation == incarnation && !it.lost) else {
            return false;
        };
        (member.lost, member.loss) = (true, Some(Loss::Closed));
        true
    }

    /// Suspects workers that were silent for `silence`.
    pub(super) fn suspect(&mut self, now: Duration, silence: Duration) {
        for member in self.current.values_mut().filter(|member| !member.lost) {
            member.suspected =
                member.is_here && now.saturating_sub(member.heard) >= silence + member.allowed;
        }
    }

    /// Workers that may receive slices, without suspected ones unless all are suspected.
    pub(super) fn prompt(&self) -> Vec<Incarnation> {
        let is_suspected = |incarnation: &Incarnation| {
            self.current(incarnation.worker).is_some_and(|member| member.suspected)
        };
        let prompt: Vec<_> = self.able().filter(|incarnation| !is_suspected(incarnation)).collect();
        if prompt.is_empty() { self.able().collect() } else { prompt }
    }

    pub(super) fn is_lost(&self, incarnation: Incarnation) -> bool {
        self.current.get(&incarnation.worker).is_none_or(|m| m.incarnation != incarnation || m.lost)
    }

    pub(super) fn current(&self, worker: WorkerId) -> Option<&Member> {
        self.current.get(&worker)
    }

    pub(super) fn current_mut(&mut self, worker: WorkerId) -> Option<&mut Member> {
        self.current.get_mut(&worker)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.current.values()
    }

    /// Whether some worker has not reported its claims yet.
    pub(super) fn awaits(&self) -> bool {
        self.current.values().any(|member| member.is_awaited && !member.lost)
    }

    /// The finished handovers that workers reported from before this controller. Each is returned
    /// once.
    pub(super) fn take_pasts(&mut self) -> Vec<Past> {
        self.current.values_mut().flat_map(|member| std::mem::take(&mut member.past)).collect()
    }

    /// Workers that live and have reported their claims.
    pub(super) fn living(&self) -> impl Iterator<Item = &Member> {
        self.current.values().filter(|member| member.is_here && !member.lost)
    }

    /// Workers that may receive slices, without stuck ones unless all are stuck.
    pub(super) fn able(&self) -> impl Iterator<Item = Incarnation> {
        let able = |member: &&Member| member.is_here && !member.lost && !member.leaving;
        let any_works = self.current.values().filter(able).any(|member| !member.stuck);
        let able = self.current.values().filter(able);
        able.filter(move |member| !(member.stuck && any_works)).map(|member| member.incarnation)
    }

    /// Whether there is anything to forget, now or later.
    pub(super) fn has_any_gone(&self) -> bool {
        !self.dead.is_empty() || self.current.values().any(|member| member.lost)
    }

    /// Forgets workers that were lost, have been silent for `after`, and are not needed. If there
    /// are more than `max`, those lost first go early.
    pub(super) fn forget(
        &mut self,
        now: Duration,
        after: Duration,
        max: usize,
        needed: impl Fn(Incarnation) -> bool,
    ) -> Vec<WorkerId> {
        let lost =
            self.current.values().filter(|member| member.lost && !needed(member.incarnation));
        let mut lost: Vec<_> = lost.map(|it| (it.heard, it.incarnation.worker)).collect();
        lost.sort_unstable();
        let excess = lost.len().saturating_sub(max);
        let gone = |(place, (heard, _)): &(usize, (Duration, WorkerId))| {
            *place < excess || now.saturating_sub(*heard) >= after
        };
        let gone: Vec<_> =
            lost.into_iter().enumerate().filter(gone).map(|(_, (_, id))| id).collect();
        for worker in &gone {
            self.current.remove(worker);
        }
        gone
    }

    /// Renumbers the slices in all claims.
    pub(super) fn renumber(&mut self, to: &Numbering) {
        let current = self.current.values_mut().map(|member| &mut member.claims);
        current.chain(self.dead.values_mut()).for_each(|claims| claims.renumber(to));
    }

    /// Forgets earlier incarnations that are not needed.
    pub(super) fn bury(&mut self, needed: impl Fn(Incarnation) -> bool) {
        self.dead.retain(|incarnation, _| needed(*incarnation));
    }

    /// The last claims of `incarnation`.
    pub(super) fn claims(&self, incarnation: Incarnation) -> Option<&Claims> {
        match self.current.get(&incarnation.worker) {
            Some(member) if member.incarnation == incarnation => Some(&member.claims),
            _ => self.dead.get(&incarnation),
        }
    }

    /// Whether `incarnation` has sent these claims or later ones.
    pub(super) fn has_claimed(&self, incarnation: Incarnation, number: u64) -> bool {
        self.claims(incarnation).is_some_and(|claims| claims.number >= number)
    }

    /// Whether `incarnation` claims to own `slice`.
    pub(super) fn claims_slice(&self, incarnation: Incarnation, slice: SliceId) -> bool {
        self.claims(incarnation).is_some_and(|claims| claims.epoch(slice).is_some())
    }

    /// The positions that `incarnation` committed of the slices that it gave away in `handover`, if
    /// it claims to have cut.
    pub(super) fn committed_as_source(
        &self,
        incarnation: Incarnation,
        handover: HandoverId,
    ) -> Option<Positions> {
        let claims = self.claims(incarnation)?;
        let given = claims.given.iter().find(|given| given.handover == handover)?;
        Some(claims.marks.least(&given.cut))
    }
}

impl Member {
    fn new(incarnation: Incarnation, now: Duration) -> Self {
        Self {
            incarnation,
            heard: now,
            allowed: Duration::ZERO,
            is_here: false,
            is_awaited: false,
            lost: false,
            loss: None,
            suspected: false,
            leaving: false,
            stuck: false,
            twin: None,
            claims: Claims::default(),
            past: Vec::new(),
        }
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.claims.process
    }

    /// Whether it has left as planned: it was leaving, and its last claims were empty.
    pub fn has_left(&self) -> bool {
        let Claims { slices, given, taken, .. } = &self.claims;
        let holds = !(slices.is_empty() && given.is_empty() && taken.is_empty());
        self.lost && self.leaving && self.is_here && !holds
    }
}

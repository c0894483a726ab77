//! Which workers live, and what they claim.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{HandoverId, Life, SliceId, WorkerId};
use crate::message::Claims;
use crate::positions::Positions;

/// A worker, as the controller sees it.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its life.
    pub life: Life,
    /// When its lease was last renewed; for a life that was only read of in the store, when the controller started.
    pub heard: Duration,
    /// It has sent claims to this controller.
    pub is_here: bool,
    /// It was there before this controller, and has not said yet what it holds.
    pub is_awaited: bool,
    /// Given up.
    pub lost: bool,
    /// To be left without slices.
    pub leaving: bool,
    /// Its last claims.
    pub claims: Claims,
}

/// All lives that matter.
#[derive(Debug, Default)]
pub(super) struct Members {
    current: BTreeMap<WorkerId, Member>,
    /// Earlier lives, while slices are theirs.
    dead: BTreeMap<Life, Claims>,
}

/// What claims make of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Its lease goes on.
    Renewed,
    /// A worker that is new.
    New,
    /// A worker that holds something, though the store knows nothing of it.
    Stranger,
    /// It was given up, or has a successor.
    Expelled,
    /// A new life, which ends this one.
    Succeeds(Life),
}

impl Members {
    /// A life that the store knows of.
    pub(super) fn expect(&mut self, life: Life, now: Duration) {
        let expected = || Member { is_awaited: true, ..Member::new(life, now) };
        let member = self.current.entry(life.worker).or_insert_with(expected);
        if member.life.number < life.number {
            *member = expected();
        }
    }

    /// A life that an earlier controller gave up.
    pub(super) fn expect_lost(&mut self, life: Life, now: Duration) {
        self.current.insert(life.worker, Member { lost: true, ..Member::new(life, now) });
    }

    /// `knows_us`: the claims were said to this controller, and not to an earlier one.
    pub(super) fn heard(
        &mut self,
        life: Life,
        claims: Claims,
        knows_us: bool,
        now: Duration,
    ) -> Heard {
        let Some(member) = self.current.get_mut(&life.worker) else {
            // The store knows whoever was ever given anything: this one has it of somebody else's.
            let holds = !(claims.slices.is_empty() && claims.taken.is_empty());
            let lost = holds || !claims.given.is_empty();
            let claims = if lost { Claims::default() } else { claims };
            let member = Member { is_here: true, lost, claims, ..Member::new(life, now) };
            self.current.insert(life.worker, member);
            return if lost { Heard::Stranger } else { Heard::New };
        };
        if life.number < member.life.number || (life == member.life && member.lost) {
            return Heard::Expelled;
        }
        if life.number > member.life.number {
            let leaving = member.leaving;
            let next = Member { is_here: true, claims, leaving, ..Member::new(life, now) };
            let before = std::mem::replace(member, next);
            self.dead.insert(before.life, before.claims);
            return Heard::Succeeds(before.life);
        }
        member.heard = now;
        member.is_here = true;
        member.is_awaited &= !knows_us;
        if claims.number > member.claims.number {
            member.claims = claims;
        }
        Heard::Renewed
    }

    /// Gives up those that were not heard of for `silence`.
    pub(super) fn give_up(&mut self, now: Duration, silence: Duration) -> Vec<Life> {
        let silent =
            |member: &&mut Member| !member.lost && now.saturating_sub(member.heard) >= silence;
        let silent = self.current.values_mut().filter(silent);
        let mut lost = Vec::new();
        for member in silent {
            member.lost = true;
            lost.push(member.life);
        }
        lost
    }

    pub(super) fn is_lost(&self, life: Life) -> bool {
        self.current.get(&life.worker).is_none_or(|m| m.life != life || m.lost)
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

    /// Whether somebody has still to say what it holds.
    pub(super) fn awaits(&self) -> bool {
        self.current.values().any(|member| member.is_awaited && !member.lost)
    }

    /// Workers that live and have said what they hold.
    pub(super) fn living(&self) -> impl Iterator<Item = &Member> {
        self.current.values().filter(|member| member.is_here && !member.lost)
    }

    /// Workers that may be given slices.
    pub(super) fn able(&self) -> impl Iterator<Item = Life> {
        let able = |member: &&Member| member.is_here && !member.lost && !member.leaving;
        self.current.values().filter(able).map(|member| member.life)
    }

    /// Forgets lives of which nothing is left.
    pub(super) fn bury(&mut self, needed: impl Fn(Life) -> bool) {
        self.dead.retain(|life, _| needed(*life));
    }

    fn claims(&self, life: Life) -> Option<&Claims> {
        match self.current.get(&life.worker) {
            Some(member) if member.life == life => Some(&member.claims),
            _ => self.dead.get(&life),
        }
    }

    /// Whether `life` has sent these claims or later ones.
    pub(super) fn has_claimed(&self, life: Life, number: u64) -> bool {
        self.claims(life).is_some_and(|claims| claims.number >= number)
    }

    /// Whether `life` claims to own `slice`.
    pub(super) fn claims_slice(&self, life: Life, slice: SliceId) -> bool {
        self.claims(life).is_some_and(|claims| claims.epoch(slice).is_some())
    }

    /// Whether `life` claims to own `slices` since `epoch`.
    pub(super) fn claims_epoch(&self, life: Life, slices: &[SliceId], epoch: HandoverId) -> bool {
        let owns = |claims: &Claims, slice: &SliceId| claims.epoch(*slice) == Some(epoch);
        self.claims(life).is_some_and(|claims| slices.iter().all(|slice| owns(claims, slice)))
    }

    /// What `life` committed of `slice`, if it claims to own it; with its epoch.
    pub(super) fn committed_as_owner(
        &self,
        life: Life,
        slice: SliceId,
    ) -> Option<(HandoverId, Positions)> {
        let claims = self.claims(life)?;
        let epoch = claims.epoch(slice)?;
        let floor = claims.floors.iter().find(|(of, _)| *of == epoch);
        Some(match floor {
            Some((_, floor)) => (epoch, claims.marks.furthest(floor)),
            None => (epoch, claims.marks.clone()),
        })
    }

    /// What `life` committed of each of `slices`, if it claims to own them all.
    pub(super) fn committed_of_all(&self, life: Life, slices: &[SliceId]) -> Option<Positions> {
        let committed = |slice: &SliceId| Some(self.committed_as_owner(life, *slice)?.1);
        let each: Option<Vec<_>> = slices.iter().map(committed).collect();
        each?.into_iter().reduce(|a, b| a.least(&b))
    }

    /// What `life` committed of what it gave in `handover`, if it says that it cut.
    pub(super) fn committed_as_giver(&self, life: Life, handover: HandoverId) -> Option<Positions> {
        let claims = self.claims(life)?;
        let given = claims.given.iter().find(|given| given.handover == handover)?;
        Some(claims.marks.least(&given.cut))
    }
}

impl Member {
    fn new(life: Life, now: Duration) -> Self {
        Self {
            life,
            heard: now,
            is_here: false,
            is_awaited: false,
            lost: false,
            leaving: false,
            claims: Claims::default(),
        }
    }
}

//! Resizes a stream: splits each slice in two, or joins pairs of slices, while items flow.
//!
//! | step | meaning |
//! |---|---|
//! | announce | workers report in their claims when they can take the new numbering |
//! | gather | before a join: both halves move to one owner, and stay together |
//! | close | no slice moves, for [`Config::patience`](crate::Config::patience) |
//! | record | no handover is open, and all workers can: the store gets the new numbering |
//! | take | every worker takes it on receipt, and reports it in its claims |
//!
//! The record changes no owner. Both sides ignore messages with another numbering, except claims,
//! which the controller converts. So moves and assignments go on at once: a worker that has not
//! taken the new numbering yet does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::Order;
use crate::controller::{Controller, HandoverState, Intent, MoveRefused, Output, Record, Row};
use crate::ids::{HandoverId, Incarnation, SliceId, WorkerId};
use crate::message::Message;
use crate::numbering::{Numbering, SLICES_MAX};
use crate::positions::Positions;

/// Why a stream is not resized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResizeRefused {
    /// The number is neither twice nor half the present one.
    #[error(
        "the stream has {has} slices, and {wanted} is neither twice nor half as many: resize in steps"
    )]
    NoStep {
        /// The present number of slices.
        has: u32,
        /// The requested number of slices.
        wanted: u32,
    },
    /// The number exceeds the limit.
    #[error("{0} slices are too many: at most {SLICES_MAX}")]
    TooMany(u32),
    /// Slices have a state, which only the programs could split or join.
    #[error(
        "the stream's order is `stateful`: programs have a state for each slice, and only they could split or join it"
    )]
    Stateful,
}

/// The condition that a resize waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeWaits {
    /// The controller has just begun.
    Survey,
    /// This number of slices have to move to the owner of their other half.
    Halves(usize),
    /// This number of slices have no owner.
    Owners(usize),
    /// These workers cannot take the new numbering yet.
    Workers(Vec<WorkerId>),
    /// This number of handovers are open.
    Handovers(usize),
}

/// A resize that is not stored yet.
#[derive(Debug, Clone)]
pub(super) struct Resizing {
    to: Numbering,
    said: Option<Duration>,
    /// When all halves had got one owner.
    gathered: Option<Duration>,
    /// No slice moves.
    closed: bool,
}

impl<T: Clone> Controller<T> {
    /// The numbering of slices.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// The requested number of slices, and the condition that it waits for.
    pub fn resizing(&self) -> Option<(u32, ResizeWaits)> {
        let resizing = self.resizing.as_ref()?;
        let waits = self.waits(&resizing.to).unwrap_or(ResizeWaits::Handovers(0));
        Some((resizing.to.slices, waits))
    }

    /// Requests this number of slices. It takes effect later: see [`Controller::resizing`] and
    /// [`Controller::numbering`]. The present number calls a resize off.
    ///
    /// # Errors
    /// [`ResizeRefused`]; then nothing has changed.
    pub fn resize(&mut self, slices: u32) -> Result<(), ResizeRefused> {
        let has = self.numbering.slices;
        if slices == has {
            self.resizing = None;
            return Ok(());
        }
        if slices > SLICES_MAX {
            return Err(ResizeRefused::TooMany(slices));
        }
        if !self.numbering.is_step_to(slices) {
            return Err(ResizeRefused::NoStep { has, wanted: slices });
        }
        if self.config.order == Order::Stateful {
            return Err(ResizeRefused::Stateful);
        }
        if self.resizing.as_ref().is_none_or(|resizing| resizing.to.slices != slices) {
            let to = self.numbering.resized(slices, self.number());
            self.resizing = Some(Resizing { to, said: None, gathered: None, closed: false });
        }
        Ok(())
    }

    /// The slices of a move from `source` to `target`: `slices`, and the other halves of those that
    /// will be joined.
    pub(super) fn with_halves(
        &self,
        mut slices: Vec<SliceId>,
        source: Incarnation,
        target: Incarnation,
    ) -> Result<Vec<SliceId>, MoveRefused> {
        let Some(resizing) = &self.resizing else { return Ok(slices) };
        if resizing.closed {
            return Err(MoveRefused::Resizing);
        }
        if resizing.to.slices > self.numbering.slices {
            return Ok(slices);
        }
        let halves = slices.iter().map(|slice| self.numbering.partner(*slice, &resizing.to));
        let mut more = Vec::new();
        for half in halves.filter(|half| !slices.contains(half)) {
            let Some(row) = self.table.get(&half) else { continue };
            match row.busy {
                Some(handover) => return Err(MoveRefused::Busy(half, handover, "over soon")),
                None if row.owner == Some(source) => more.push(half),
                None if row.owner == Some(target) => {}
                None => return Err(MoveRefused::Resizing),
            }
        }
        slices.extend(more);
        Ok(slices)
    }

    pub(super) fn tick_resize(&mut self, now: Duration) {
        let period = self.config.claims.max(self.config.resend);
        let Some(resizing) = &mut self.resizing else { return };
        let to = resizing.to;
        if resizing.said.is_none_or(|said| now.saturating_sub(said) >= period) {
            resizing.said = Some(now);
            let lives: Vec<_> = self.members.living().map(|member| member.incarnation).collect();
            for incarnation in lives {
                self.send(incarnation, Message::Resize { numbering: to, now: false });
            }
        }
        if self.surveying {
            return;
        }
        match self.waits(&to) {
            None => self.renumber(to),
            Some(ResizeWaits::Survey) => {}
            Some(ResizeWaits::Halves(_)) => {
                if let Some(resizing) = &mut self.resizing {
                    (resizing.gathered, resizing.closed) = (None, false);
                }
                self.gather(now, &to);
            }
            Some(_) => self.close(now, &to),
        }
    }

    /// Stops moves, so that open handovers end. It does so for short periods only, in case a worker
    /// cannot take the new numbering.
    fn close(&mut self, now: Duration, to: &Numbering) {
        let patience = self.config.patience.max(Duration::from_millis(1));
        let Some(resizing) = &mut self.resizing else { return };
        let since = *resizing.gathered.get_or_insert(now);
        let phase = now.saturating_sub(since).as_nanos() / patience.as_nanos();
        let closed = phase.is_multiple_of(2);
        let opens = resizing.closed && !closed;
        resizing.closed = closed;
        if opens {
            self.move_unlike(now, to);
        }
    }

    /// The first condition for storing the new numbering that is not fulfilled.
    fn waits(&self, to: &Numbering) -> Option<ResizeWaits> {
        if self.surveying {
            return Some(ResizeWaits::Survey);
        }
        let owner = |slice: SliceId| self.table.get(&slice).and_then(|row| row.owner);
        if to.slices < self.numbering.slices {
            let apart = self
                .table
                .keys()
                .filter(|slice| slice.0 < to.slices)
                .filter(|slice| owner(**slice) != owner(self.numbering.partner(**slice, to)));
            let apart = apart.count();
            if apart > 0 {
                return Some(ResizeWaits::Halves(apart));
            }
        }
        let unowned =
            self.table.values().filter(|row| row.owner.is_none_or(|it| self.members.is_lost(it)));
        let unowned = unowned.count();
        if unowned > 0 {
            return Some(ResizeWaits::Owners(unowned));
        }
        let cannot = self.members.living().filter(|member| {
            let claims = &member.claims;
            let open = !(claims.given.is_empty() && claims.taken.is_empty());
            open || claims.ready_for != Some(to.epoch)
        });
        let cannot: Vec<_> = cannot.map(|member| member.incarnation.worker).collect();
        if !cannot.is_empty() {
            return Some(ResizeWaits::Workers(cannot));
        }
        if !self.handovers.is_empty() {
            return Some(ResizeWaits::Handovers(self.handovers.len()));
        }
        // Claims from before the last move lack its slices.
        let unclaimed = self.table.iter().filter_map(|(slice, row)| {
            let owner = row.owner?;
            let claims = self.members.claims(owner)?;
            (claims.epoch(*slice) != Some(row.epoch)).then_some(owner.worker)
        });
        let unclaimed: std::collections::BTreeSet<_> = unclaimed.collect();
        (!unclaimed.is_empty()).then(|| ResizeWaits::Workers(unclaimed.into_iter().collect()))
    }

    /// Moves halves with different owners to one of them.
    fn gather(&mut self, now: Duration, to: &Numbering) {
        let able: Vec<_> = self.members.able().collect();
        let free = |slice: &SliceId| {
            let row = self.table.get(slice).filter(|row| row.busy.is_none())?;
            row.owner.filter(|owner| !self.members.is_lost(*owner))
        };
        let mut moves: BTreeMap<(Incarnation, Incarnation), Vec<SliceId>> = BTreeMap::new();
        for slice in (0..to.slices).map(SliceId) {
            let half = self.numbering.partner(slice, to);
            let (Some(one), Some(other)) = (free(&slice), free(&half)) else { continue };
            if one == other {
                continue;
            }
            if able.contains(&one) {
                moves.entry((other, one)).or_default().push(half);
            } else if able.contains(&other) {
                moves.entry((one, other)).or_default().push(slice);
            } else if let Some(third) = able.first() {
                moves.entry((one, *third)).or_default().push(slice);
            }
        }
        self.begin_moves(now, moves);
    }

    /// Halves that came to their owner by different handovers have different cuts. The owner passes
    /// both cuts, unless one of the writers is silent. Then both halves move in one handover, which
    /// gives them the same cut.
    fn move_unlike(&mut self, now: Duration, to: &Numbering) {
        if to.slices > self.numbering.slices {
            return;
        }
        let able: Vec<_> = self.members.able().collect();
        let mut moves: BTreeMap<(Incarnation, Incarnation), Vec<SliceId>> = BTreeMap::new();
        for slice in (0..to.slices).map(SliceId) {
            let half = self.numbering.partner(slice, to);
            let (Some(one), Some(other)) = (self.table.get(&slice), self.table.get(&half)) else {
                continue;
            };
            let is_busy = one.busy.is_some() || other.busy.is_some();
            let Some(owner) = one.owner.filter(|_| !is_busy && one.epoch != other.epoch) else {
                continue;
            };
            let Some(claims) = self.members.claims(owner) else { continue };
            let groups = self.numbering.groups(&[slice, half]);
            let of = |slice| -> Positions {
                let committed = claims.committed(slice);
                committed.iter().filter(|(writer, _)| groups.contains(writer.group)).collect()
            };
            if of(slice) == of(half) {
                continue;
            }
            let next =
                able.iter().position(|incarnation| *incarnation == owner).map_or(0, |at| at + 1);
            let target = able
                .get(next)
                .or_else(|| able.first())
                .filter(|incarnation| **incarnation != owner);
            if let Some(target) = target {
                moves.entry((owner, *target)).or_default().extend([slice, half]);
            }
        }
        self.begin_moves(now, moves);
    }

    fn begin_moves(
        &mut self,
        now: Duration,
        moves: BTreeMap<(Incarnation, Incarnation), Vec<SliceId>>,
    ) {
        for ((source, target), mut slices) in moves {
            slices.sort_unstable();
            let source = Some(source);
            let intent =
                Intent { slices: slices.into(), source, target, after: None, returns: None };
            self.begin(now, intent, HandoverState::Preparing);
        }
    }

    /// Takes the new numbering, here and in the store; workers follow.
    fn renumber(&mut self, to: Numbering) {
        let from = std::mem::replace(&mut self.numbering, to);
        self.resizing = None;
        self.out.push_back(Output::Record(Record::Resized { from, to }));
        let mut table: BTreeMap<SliceId, Row> = BTreeMap::new();
        for (slice, row) in &self.table {
            for becomes in from.becomes(*slice, &to) {
                let Some(joined) = table.get_mut(&becomes) else {
                    table.insert(becomes, row.clone());
                    continue;
                };
                joined.epoch = joined.epoch.max(row.epoch);
                if joined.floor != row.floor {
                    // Its owner has passed the positions that differ.
                    let claims = row.owner.and_then(|owner| self.members.claims(owner));
                    joined.floor = claims.map(|claims| Arc::new(claims.committed(*slice)));
                }
            }
        }
        self.table = table;
        self.members.renumber(&to);
        let lives: Vec<_> = self.members.living().map(|member| member.incarnation).collect();
        for incarnation in lives {
            self.send(incarnation, Message::Resize { numbering: to, now: true });
        }
    }

    /// Sends the numbering to a worker with an older one in its claims.
    pub(super) fn tell_numbering(&mut self, incarnation: Incarnation, numbering: HandoverId) {
        if numbering != self.numbering.epoch && !self.members.is_lost(incarnation) {
            let numbering = self.numbering;
            self.send(incarnation, Message::Resize { numbering, now: true });
        }
    }
}

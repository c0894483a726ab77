//! Each period: takes what this controller and the others hear, judges it, and writes it into this controller's record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{Entry, Key};
use tokio::time::Instant;

use crate::controller::Shared;
use crate::hearing::{HearingRecord, Verdict, Witnesses};

/// A better candidate that has not come to a vacant office within so many times to live is waited for no longer.
const VACANT_TIMES: u32 = 5;

/// Which members this controller and the others hear.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    pub(crate) witnesses: Arc<Witnesses>,
    /// Whether the store has said which controllers there are.
    is_read: bool,
    pub(crate) verdict: Verdict,
    /// When the verdict became one of this kind.
    since: Option<Instant>,
}

impl Hearing {
    /// The present fault of hearing, and since when it lasts.
    pub(crate) fn problem(&self) -> Option<(Duration, String)> {
        Some((self.since?.elapsed(), self.verdict.problem()?))
    }

    fn conclude(&mut self, verdict: Verdict) {
        let kind = |verdict: &Verdict| match verdict {
            Verdict::Hears => 0,
            Verdict::Unheard { .. } => 1,
            Verdict::Deaf { other: None, .. } => 2,
            Verdict::Deaf { other: Some(_), .. } => 3,
        };
        let (before, now) = (kind(&self.verdict), kind(&verdict));
        if before != now {
            self.since = Some(Instant::now());
            match verdict.problem() {
                Some(problem) => tracing::warn!("{problem}"),
                None => tracing::info!("this controller hears nodes again"),
            }
        }
        self.verdict = verdict;
    }
}

impl Shared {
    /// Takes in what members, the store and the clock say of this controller's hearing.
    pub(crate) fn listen(&self) {
        let (own, now) = (&self.options.name, self.now());
        let witnesses = Arc::clone(&self.known().hearing.witnesses);
        let newest = self.instructions.borrow().clone();
        let mut roll = self.roll();
        roll.hear_of(now, &witnesses);
        let (heard, fresh) = roll.heard(now, own);
        let is_expected = |name: &&String| {
            *name != own
                && (!witnesses.is_controller(name) || witnesses.is_there(name))
                && roll.evidence(now, name, &witnesses).is_none()
        };
        let all = roll.members().keys().chain(newest.members.keys());
        let expected: BTreeSet<String> = all.filter(is_expected).cloned().collect();
        let is_settled = now >= roll.silent_after();
        drop(roll);
        let verdict = witnesses.judge(&heard, &fresh, &expected);
        self.known().hearing.conclude(verdict);
        let record = HearingRecord {
            version: env!("CARGO_PKG_VERSION").to_string(),
            is_settled,
            hears: heard,
            controllers: witnesses.controllers.clone(),
        };
        self.record.send_if_modified(|told| {
            let differs = *told != record;
            *told = record;
            differs
        });
    }

    /// Whether this controller plans nothing for now, since what it hears is no ground for a plan.
    pub(crate) fn is_deaf(&self) -> bool {
        matches!(self.known().hearing.verdict, Verdict::Deaf { .. })
    }

    /// Whether the sizes of pools stay as they are for now.
    pub(crate) fn leaves_sizes(&self) -> bool {
        self.known().hearing.verdict != Verdict::Hears
    }

    /// Whether a controller that hears more is to lead instead: this one has been deaf for as long as a silent member has
    /// before it is gone, so that the others' records say no more of members that fell silent with its hearing.
    pub(crate) fn is_to_resign(&self) -> bool {
        let after = self.roll().silent_after();
        let known = self.known();
        let is_outdone = matches!(known.hearing.verdict, Verdict::Deaf { other: Some(_), .. });
        is_outdone && known.hearing.since.is_some_and(|since| since.elapsed() >= after)
    }

    /// Whether this controller stands for leader: none hears more nodes. The leader there is, or was last, is not asked: it
    /// steps down or is gone when there is an office to be had.
    pub(crate) fn may_stand(&self) -> bool {
        let hears = self.record.borrow().hears.clone();
        let known = self.known();
        let (hearing, leader) = (&known.hearing, known.leader.as_ref().map(|it| it.name.as_str()));
        if !hearing.is_read {
            return false;
        }
        let own = hearing.witnesses.count(&hears);
        let best = hearing.witnesses.best(leader.or(known.led_last.as_deref()));
        if best.is_none_or(|(_, most)| most <= own) {
            return true;
        }
        let vacant = known.vacant_since.unwrap_or(self.began).elapsed();
        leader.is_none() && vacant >= self.options.time_to_live * VACANT_TIMES
    }
}

/// Takes the records of all controllers that are there.
pub(crate) fn see_controllers(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let record =
        |(key, entry): (&Key, &Entry)| (key.name().to_string(), HearingRecord::read(&entry.value));
    let records = entries.iter().map(record).collect();
    let mut known = shared.known();
    known.controllers = entries.keys().map(|key| key.name().to_string()).collect();
    Arc::make_mut(&mut known.hearing.witnesses).see(&shared.options.name, records);
    known.hearing.is_read = true;
    drop(known);
    shared.others_hear.notify_one();
}

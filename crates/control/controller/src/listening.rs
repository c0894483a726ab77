//! Each period: judges which members this controller and the others hear, and writes this
//! controller's record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use equipoise_store::{Entry, Key};

use crate::hearing::{HearingRecord, Verdict};
use crate::shared::Shared;

/// How long a controller waits for a better candidate while there is no leader, in times to live.
const VACANT_TIMES: u32 = 5;

impl Shared {
    /// Judges what this controller hears now, and updates its record.
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

    /// True while this controller hears too little to plan.
    pub(crate) fn is_deaf(&self) -> bool {
        matches!(self.known().hearing.verdict, Verdict::Deaf { .. })
    }

    /// True while the sizes of pools must not change.
    pub(crate) fn leaves_sizes(&self) -> bool {
        self.known().hearing.verdict != Verdict::Hears
    }

    /// True if a controller that hears more should lead instead. This controller has then been deaf
    /// for as long as a member is silent before it is gone. By then the other controllers' records
    /// no longer list members that fell silent together with this controller's hearing.
    pub(crate) fn is_to_resign(&self) -> bool {
        let after = self.roll().silent_after();
        let known = self.known();
        let is_outdone = matches!(known.hearing.verdict, Verdict::Deaf { other: Some(_), .. });
        is_outdone && known.hearing.since.is_some_and(|since| since.elapsed() >= after)
    }

    /// True if this controller campaigns: no other hears more nodes. The present or last leader is
    /// not compared, because it has resigned or is gone when leadership becomes free.
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

/// Takes the records of all controllers that are present.
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

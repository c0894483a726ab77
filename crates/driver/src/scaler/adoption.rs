//! From one process to the next: the record, and going on with it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{Record, Recorded, RecordedState};
use super::roster::{Member, Phase, Roster};
use super::view::BackendState;
use crate::DriverOptions;
use crate::driver::{Added, Listed};

/// What drivers say there is, by their number; `None` for one that cannot say.
pub(crate) type Listings = BTreeMap<u32, Option<Vec<Listed>>>;

impl Roster {
    /// Goes on with what an earlier process made. `listings` has the drivers that there are.
    ///
    /// Of what is recorded and not listed, what was being added is asked for again under its key, and the rest is gone.
    /// What is listed under a name of this pool and not recorded is adopted: nobody else would ever remove it. What another
    /// driver made, which is not there, died with its process.
    pub(crate) fn adopt(&mut self, now: Duration, record: &Record, listings: &Listings) {
        self.next_number = self.next_number.max(record.next_number);
        for one in &record.backends {
            let Some(number) = self.number(&one.name) else { continue };
            self.next_number = self.next_number.max(number + 1);
            let listing = listings.get(&one.maker);
            let member = listing.and_then(|it| self.adopted(now, one, number, it.as_deref()));
            if let Some(member) = member {
                self.members.insert(one.name.clone(), member);
            }
        }
        for (maker, listed) in listings {
            for one in listed.iter().flatten() {
                self.take_in(*maker, one);
            }
        }
    }

    /// One that is recorded; `None` if it is gone.
    fn adopted(
        &self,
        now: Duration,
        one: &Recorded,
        number: u64,
        listed: Option<&[Listed]>,
    ) -> Option<Member> {
        let until = now + self.limits.drain_timeout;
        let seen = listed.map(|all| all.iter().find(|listed| listed.name == one.name));
        let known = one.address.zip(one.id.clone()).map(|(address, id)| Added { address, id });
        let (added, is_there) = match seen {
            Some(Some(listed)) => (Some(listed.added.clone()), true),
            Some(None) => (None, false),
            None => (known, one.state != RecordedState::Adding),
        };
        let phase = match (one.state, is_there) {
            (RecordedState::Adding | RecordedState::Ready, true) if added.is_some() => Phase::Ready,
            (RecordedState::Adding, _) | (RecordedState::Ready, true) => {
                Phase::Wanted { not_before: now }
            }
            (RecordedState::Draining, true) => Phase::Draining { until },
            (RecordedState::Leaving, true) => Phase::Unwanted { not_before: now },
            (_, false) => return None,
        };
        Some(Member {
            added,
            may_exist: true,
            maker: one.maker,
            ..Member::new(number, one.size.clone(), one.key.clone(), phase)
        })
    }

    /// One that a driver says is there.
    fn take_in(&mut self, maker: u32, one: &Listed) {
        let Some(number) = self.number(&one.name) else { return };
        if self.members.contains_key(&one.name) {
            return;
        }
        let key = format!("{}-{}", one.name, self.nonce);
        let member = Member {
            may_exist: true,
            maker,
            added: Some(one.added.clone()),
            ..Member::new(number, one.size.clone(), key, Phase::Ready)
        };
        self.members.insert(one.name.clone(), member);
        self.next_number = self.next_number.max(number + 1);
    }

    /// The number in a name of this pool; `None` for other names.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&self.pool)?.strip_prefix("-e")?;
        let is_canonical = !number.starts_with(['0', '+']);
        number.parse().ok().filter(|_| is_canonical)
    }

    /// What must be known if this process ends now.
    pub(crate) fn record(&self, drivers: &BTreeMap<u32, Option<DriverOptions>>) -> Record {
        let recorded = |(name, one): (&String, &Member)| Recorded {
            name: name.clone(),
            size: one.size.clone(),
            key: one.key.clone(),
            state: one.recorded(),
            address: one.address(),
            id: one.added.as_ref().map(|added| added.id.clone()),
            maker: one.maker,
        };
        let backends = self.members().into_iter().map(recorded).collect();
        let (version, pool, drivers) = (Record::VERSION, self.pool.clone(), drivers.clone());
        let (next_number, maker) = (self.next_number, self.maker);
        Record { version, pool, next_number, maker, drivers, backends }
    }
}

impl Member {
    fn recorded(&self) -> RecordedState {
        match self.state() {
            BackendState::Leaving => RecordedState::Leaving,
            BackendState::Draining => RecordedState::Draining,
            _ if self.added.is_some() => RecordedState::Ready,
            _ => RecordedState::Adding,
        }
    }
}

#[cfg(test)]
mod tests;

//! From one process to the next: the record, and going on with it.

use std::time::Duration;

use super::record::{Record, Recorded, RecordedState};
use super::roster::{Member, Phase, Roster};
use super::view::BackendState;
use crate::driver::{Added, Listed};

impl Roster {
    /// Goes on with what an earlier process made. `listed` is what the driver says there is, if it can; `age` says
    /// how long ago a moment in milliseconds since 1970 was.
    ///
    /// Of what is recorded and not listed, what was being added is asked for again under its key, and the rest is gone.
    /// What is listed under a name of this pool and not recorded is adopted: nobody else would ever remove it.
    pub(crate) fn adopt(
        &mut self,
        now: Duration,
        record: &Record,
        listed: Option<&[Listed]>,
        age: impl Fn(u64) -> Duration,
    ) {
        self.next_number = self.next_number.max(record.next_number);
        let until = now + self.limits.drain_timeout;
        for one in &record.backends {
            let Some(number) = self.number(&one.name) else { continue };
            let seen = listed.map(|all| all.iter().find(|listed| listed.name == one.name));
            let known = one.address.zip(one.id.clone()).map(|(address, id)| Added { address, id });
            let (added, is_there) = match seen {
                Some(Some(listed)) => (Some(listed.added.clone()), true),
                Some(None) => (None, false),
                None => (known, one.state != RecordedState::Adding),
            };
            let phase = match (one.state, is_there) {
                (RecordedState::Adding | RecordedState::Ready, true) if added.is_some() => {
                    Phase::Ready
                }
                (RecordedState::Adding, _) | (RecordedState::Ready, true) => {
                    Phase::Wanted { not_before: now }
                }
                (RecordedState::Draining, true) => Phase::Draining { until },
                (RecordedState::Leaving, true) => Phase::Unwanted { not_before: now },
                (_, false) => continue,
            };
            let age = one.ready_unix_ms.map_or(Duration::ZERO, &age);
            let member = Member {
                served: added.is_some().then_some((now, age)),
                added,
                may_exist: true,
                ..Member::new(number, one.size.clone(), one.key.clone(), phase)
            };
            self.members.insert(one.name.clone(), member);
            self.next_number = self.next_number.max(number + 1);
        }
        for one in listed.unwrap_or_default() {
            let Some(number) = self.number(&one.name) else { continue };
            if self.members.contains_key(&one.name) {
                continue;
            }
            let key = format!("{}-{}", one.name, self.nonce);
            let member = Member {
                may_exist: true,
                added: Some(one.added.clone()),
                served: Some((now, Duration::ZERO)),
                ..Member::new(number, one.size.clone(), key, Phase::Ready)
            };
            self.members.insert(one.name.clone(), member);
            self.next_number = self.next_number.max(number + 1);
        }
    }

    /// The number in a name of this pool; `None` for other names.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&self.pool)?.strip_prefix("-e")?;
        let is_canonical = !number.starts_with(['0', '+']);
        number.parse().ok().filter(|_| is_canonical)
    }

    /// What must be known if this process ends now. `unix_ms` gives the time of a moment of ours.
    pub(crate) fn record(&self, unix_ms: impl Fn(Duration) -> u64) -> Record {
        let recorded = |(name, one): (&String, &Member)| {
            let ready = one.served.map(|(at, age)| {
                let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                unix_ms(at).saturating_sub(age_ms)
            });
            Recorded {
                name: name.clone(),
                size: one.size.clone(),
                key: one.key.clone(),
                state: one.recorded(),
                address: one.address(),
                id: one.added.as_ref().map(|added| added.id.clone()),
                ready_unix_ms: ready,
            }
        };
        let backends = self.members().into_iter().map(recorded).collect();
        let (version, pool) = (Record::VERSION, self.pool.clone());
        Record { version, pool, next_number: self.next_number, backends }
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

//! What is to exist, as the leader says it, against what exists here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::warn;

use super::roster::{Member, Phase, Roster};
use crate::driver::{Added, Listed};

/// The backends of a pool that are to exist here, by the leader's roster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// These, each with its wish.
    pub backends: Vec<Desired>,
    /// These stay as they are: the roster has forgotten them, and the leader is to take them in.
    pub kept: BTreeSet<String>,
    /// Backends that the roster gives to other members. Those that outlive their member's process are left to them.
    pub others: BTreeSet<String>,
    /// The number of the next backend that the roster names.
    pub next_number: u64,
}

/// A backend that is to exist here, or to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Its name, unique in the pool for ever.
    pub name: String,
    /// The same for every try to add it, and no other's.
    pub key: String,
    /// Which of the pool's sizes.
    pub size: Option<String>,
    /// What is to become of it.
    pub wish: Wish,
    /// Where it is, if it was added, here or at another member.
    pub added: Option<Added>,
    /// The driver that made it or is to make it: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// Whether it outlives the process that made it.
    pub outlives: bool,
    /// The backend that it replaces.
    pub replaces: Option<String>,
}

/// What is to become of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is to serve.
    Serve,
    /// It is to finish what it has, and gets nothing new.
    Drain,
    /// It is to be taken away now.
    Leave,
}

/// What drivers say there is, by their number; without those that cannot say.
pub(crate) type Listings = BTreeMap<u32, Vec<Listed>>;

/// A listing that is older says nothing of what a roster names: others may have made it since.
const LISTING_AGE_MAX: Duration = Duration::from_secs(60);

/// Above the number of every backend: a name with a larger one is not ours.
const NUMBER_MAX: u64 = 1 << 53;
/// The same of those that only a driver names: the leader takes in none above it.
const LISTED_MAX: u64 = 1 << 52;

impl Roster {
    /// Goes on with what outlived an earlier process: `has`, by the roster that process used last. The next names have
    /// `next_number` and more.
    ///
    /// What is listed under a name of this pool and not in `has` is adopted: no other process would ever remove it.
    pub(crate) fn adopt(
        &mut self,
        now: Duration,
        has: &[Desired],
        next_number: u64,
        listings: Listings,
    ) {
        self.next_number = self.next_number.max(next_number);
        for one in has {
            if let Some(member) = self.taken_over(now, one, Some(&listings)) {
                self.next_number = self.next_number.max(member.number + 1);
                self.members.insert(one.name.clone(), member);
            }
        }
        for (maker, listed) in &listings {
            for one in listed {
                self.take_in(*maker, one);
            }
        }
        self.listing = Some((now, listings));
    }

    /// One that a driver lists.
    fn take_in(&mut self, maker: u32, one: &Listed) {
        let number = self.number(&one.name).filter(|number| *number < LISTED_MAX);
        let Some(number) = number.filter(|_| !self.members.contains_key(&one.name)) else { return };
        // The roster has its key, if it knows it.
        let key = one.name.clone();
        let member = Member {
            may_exist: true,
            maker,
            added: Some(one.added.clone()),
            ..Member::new(number, one.size.clone(), key, Phase::Ready)
        };
        self.members.insert(one.name.clone(), member);
        self.next_number = self.next_number.max(number + 1);
    }

    /// Makes what exists what is desired; saying it again changes nothing.
    pub(crate) fn desire(&mut self, now: Duration, desired: &DesiredState) {
        let listing = self.listing.take();
        let listing = listing.filter(|(at, _)| now.saturating_sub(*at) <= LISTING_AGE_MAX);
        for one in &desired.backends {
            if self.members.contains_key(&one.name) {
                self.heed(now, one);
            } else if let Some(member) = self.taken_over(now, one, listing.as_ref().map(|it| &it.1))
            {
                self.members.insert(one.name.clone(), member);
            }
        }
        let names: BTreeSet<&str> = desired.backends.iter().map(|one| one.name.as_str()).collect();
        let stays =
            |name: &String| names.contains(name.as_str()) || desired.kept.contains(name.as_str());
        let makers = &self.makers;
        let is_left = |name: &String, one: &Member| {
            let outlives = makers.get(&one.maker).is_some_and(|maker| maker.outlives);
            desired.others.contains(name) && outlives
        };
        self.members.retain(|name, one| stays(name) || one.may_exist && !is_left(name, one));
        let rest = self.members.iter_mut().filter(|(name, _)| !stays(name));
        rest.for_each(|(_, member)| member.go(now));
        self.next_number = self.next_number.max(desired.next_number);
    }

    pub(super) fn heed(&mut self, now: Duration, one: &Desired) {
        let drain_timeout = self.limits.drain_timeout;
        let Some(member) = self.members.get_mut(&one.name) else { return };
        // It was listed, and no driver was asked for it under another key here.
        if member.key == one.name {
            member.key.clone_from(&one.key);
        }
        member.replaces.clone_from(&one.replaces);
        match (one.wish, &member.phase) {
            (Wish::Serve, Phase::Draining { .. }) => member.phase = Phase::Ready,
            (Wish::Drain, Phase::Ready) => {
                member.phase = Phase::Draining { until: now + drain_timeout };
            }
            (Wish::Serve | Wish::Drain, _) => {}
            (Wish::Leave, Phase::Wanted { .. }) if !member.may_exist => {
                self.members.remove(&one.name);
            }
            (Wish::Leave, _) => member.go(now),
        }
    }

    /// One that the roster gives this member, and that is not known here. What died with an earlier process is not there,
    /// which the view shows; what outlives its process is gone on with, unless its driver does not list it.
    fn taken_over(
        &self,
        now: Duration,
        one: &Desired,
        listings: Option<&Listings>,
    ) -> Option<Member> {
        let number = self.number(&one.name)?;
        let maker = self.named(one.driver.as_ref());
        let is_new = number >= self.next_number;
        let wanted = Phase::Wanted { not_before: now };
        let (phase, added) = if one.outlives {
            if !is_new && !self.outlives(maker) {
                warn!(
                    pool = self.pool,
                    backend = one.name,
                    "no driver of this pool's made it: remove it by hand, if it runs"
                );
                return None;
            }
            // A driver that did not make it does not say whether it exists.
            let is_known = one.driver.as_ref().is_none_or(|name| self.names.contains_key(name));
            if !is_new && !is_known {
                warn!(
                    pool = self.pool,
                    backend = one.name,
                    "an unknown driver made it: it is kept by the roster, and the present driver is to remove it"
                );
            }
            let listed = listings.and_then(|all| all.get(&maker)).filter(|_| is_known);
            let seen = listed.map(|all| all.iter().find(|listed| listed.name == one.name));
            let added = match seen {
                Some(seen) => seen.map(|listed| listed.added.clone()),
                None => one.added.clone(),
            };
            let is_gone = seen == Some(None);
            let phase = match (one.wish, &added) {
                (Wish::Serve, Some(_)) => Phase::Ready,
                // It was being added: it is asked for again under its key.
                (Wish::Serve, None) if one.added.is_none() => wanted,
                _ if is_gone => return None,
                (Wish::Drain, Some(_)) => {
                    Phase::Draining { until: now + self.limits.drain_timeout }
                }
                (Wish::Serve | Wish::Drain | Wish::Leave, _) => Phase::Unwanted { not_before: now },
            };
            (phase, added)
        } else if is_new && one.wish == Wish::Serve && one.added.is_none() {
            (wanted, None)
        } else {
            return None;
        };
        let may_exist = !is_new || !matches!(phase, Phase::Wanted { .. });
        let (size, key, replaces) = (one.size.clone(), one.key.clone(), one.replaces.clone());
        let member = Member::new(number, size, key, phase);
        Some(Member { may_exist, maker, added, replaces, ..member })
    }

    /// The number in a name of this pool; `None` for other names.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&self.pool)?.strip_prefix("-e")?;
        let is_canonical = !number.starts_with(['0', '+']);
        number.parse().ok().filter(|number| is_canonical && *number < NUMBER_MAX)
    }
}

impl Member {
    /// It is to be gone, drained or not.
    fn go(&mut self, now: Duration) {
        match self.phase {
            Phase::Adding { .. } => self.phase = Phase::Adding { is_unwanted: true },
            Phase::Unwanted { .. } | Phase::Removing => {}
            _ => self.unwanted(now),
        }
    }
}

#[cfg(test)]
mod tests;

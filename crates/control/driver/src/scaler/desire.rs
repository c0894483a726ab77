//! Compares the leader's desired state of a pool with the backends that exist on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tracing::warn;

use super::roster::{Member, Phase, Roster};
use crate::driver::{Added, Listed};

/// The backends of a pool that should exist on this machine, by the leader's roster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// Backends of this machine, each with its wish.
    pub backends: Vec<Desired>,
    /// Backends that stay as they are: the roster has lost them, and the leader will adopt them.
    pub kept: BTreeSet<String>,
    /// Backends that the roster gives to other members. This machine forgets those that outlive the
    /// process that made them.
    pub others: BTreeSet<String>,
    /// The number of the next backend that the roster names.
    pub next_number: u64,
}

/// A backend that should exist on this machine, or leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The name, unique in the pool for ever.
    pub name: String,
    /// Idempotency key: the same for every attempt to add this backend, and different for every
    /// other.
    pub key: String,
    /// The size; `None` if all backends of the pool are alike.
    pub size: Option<String>,
    /// The state that the leader wants.
    pub wish: Wish,
    /// Address and identifier, if it was added, here or at another member.
    pub added: Option<Added>,
    /// The driver that made it or will make it: [`crate::DriverOptions::fingerprint`].
    pub driver: Option<String>,
    /// True if it outlives the process that made it.
    pub outlives: bool,
    /// The backend that it replaces.
    pub replaces: Option<String>,
}

/// The state that the leader wants for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The backend serves.
    Serve,
    /// The backend finishes its work and receives no new work.
    Drain,
    /// The backend is removed now.
    Leave,
}

/// The lists of the drivers that can list, by the driver's number.
pub(crate) type Listings = BTreeMap<u32, Vec<Listed>>;

/// Greatest age of a listing that is compared with a roster. Other members may have made backends
/// since an older one.
const LISTING_AGE_MAX: Duration = Duration::from_secs(60);

/// Names of this pool have smaller numbers than this. Other names are ignored.
const NUMBER_MAX: u64 = 1 << 53;
/// The same for names that only a driver lists: the leader adopts none with a larger number.
const LISTED_MAX: u64 = 1 << 52;

impl Roster {
    /// Adopts the backends that outlived an earlier process. `has` are those of the roster that the
    /// earlier process used last. New names begin at `next_number`.
    ///
    /// A listed backend with a name of this pool that is not in `has` is adopted too, because no
    /// other process would remove it.
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

    /// Adopts a listed backend.
    fn take_in(&mut self, maker: u32, one: &Listed) {
        let number = self.number(&one.name).filter(|number| *number < LISTED_MAX);
        let Some(number) = number.filter(|_| !self.members.contains_key(&one.name)) else { return };
        // The roster gives the real key later, if it knows this backend.
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

    /// Makes `desired` the target state. Repeating the call changes nothing.
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
        // The backend was only listed, so no driver received another key for it.
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

    /// A backend that the roster gives this machine, and that is not known here. `None` if it ended
    /// with an earlier process, so that the view shows its absence. A backend that outlives its
    /// process is adopted, unless its driver does not list it.
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
                    "no driver of this pool made this backend; if it runs, remove it by hand"
                );
                return None;
            }
            // The list of a driver that did not make the backend does not show whether the backend
            // exists.
            let is_known = one.driver.as_ref().is_none_or(|name| self.names.contains_key(name));
            if !is_new && !is_known {
                warn!(
                    pool = self.pool,
                    backend = one.name,
                    "an unknown driver made this backend; it stays in the roster, and the present driver will remove it"
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
                // It was being added. The driver is asked again, with the same key.
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
    /// Removes the backend, drained or not.
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

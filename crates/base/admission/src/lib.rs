//! Limits the connections of a control port: in total, per source and per member.
//!
//! A connection counts for its source until it proves to be a member's. At a limit, the admission
//! evicts a connection: of the source with the most connections, the one that has been silent
//! longest. Thus a client that holds connections open cannot lock out others, and a source cannot
//! displace a smaller one. Members are never evicted.
//!
//! While the server answers a request ([`Activity::answering`]), the connection is silent through
//! no fault of its client. Until a deadline it is evicted only for a source with fewer connections,
//! and only if no other connection can be. Otherwise the new connection is refused.
//!
//! In: sources and limits. Out: a [`Pass`] for each connection; [`Pass::evicted`] resolves when the
//! connection must end.

mod stream;
mod tcp;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use equipoise_basics::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use stream::Watched;
pub use tcp::bound_silence;

/// Limits on the connections of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total number of connections.
    pub connections_max: usize,
    /// Connections that have not proved to be a member's.
    pub unproven_max: usize,
    /// Unproven connections of one source.
    pub unproven_by_source_max: usize,
    /// Connections of one member.
    pub by_member_max: usize,
}

impl Limits {
    /// Limits of a port without members. A single source may use all connections while no other
    /// needs them.
    pub fn without_members(connections_max: usize) -> Limits {
        Limits {
            connections_max,
            unproven_max: connections_max,
            unproven_by_source_max: connections_max,
            by_member_max: 0,
        }
    }
}

/// Limit that caused a refusal or an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// [`Limits::connections_max`] is reached.
    #[error("no room for another connection")]
    Connections,
    /// [`Limits::unproven_max`] is reached.
    #[error("no room for another connection without a certificate")]
    Unproven,
    /// [`Limits::unproven_by_source_max`] is reached.
    #[error("no room for another connection of its source")]
    Source,
    /// [`Limits::by_member_max`] is reached.
    #[error("no room for another connection of its member")]
    Member,
}

/// The connections of one port. `S` identifies a source, `M` a member.
#[derive(Debug)]
pub struct Admission<S, M> {
    limits: Limits,
    since: Instant,
    inside: Arc<Mutex<Inside<S, M>>>,
}

impl<S, M> Clone for Admission<S, M> {
    fn clone(&self) -> Self {
        Admission { limits: self.limits, since: self.since, inside: Arc::clone(&self.inside) }
    }
}

#[derive(Debug)]
struct Inside<S, M> {
    last_number: u64,
    all: usize,
    /// Connections that have not proved to be a member's.
    unproven: BTreeMap<u64, Arc<Connection>>,
    by_source: BTreeMap<S, BTreeSet<u64>>,
    by_member: BTreeMap<M, usize>,
}

/// A connection that has not proved to be a member's.
#[derive(Debug)]
struct Connection {
    /// Time of the last byte moved, milliseconds since the port opened.
    moved: AtomicU64,
    /// Deadline of the current answer, milliseconds since the port opened; 0: no request is being
    /// answered.
    answering_until: AtomicU64,
    evicted: Notify,
}

/// An admitted connection. It counts until this is dropped.
#[derive(Debug)]
pub struct Pass<S: Ord, M: Ord> {
    admission: Admission<S, M>,
    number: u64,
    connection: Arc<Connection>,
    holder: Holder<S, M>,
}

#[derive(Debug)]
enum Holder<S, M> {
    Unproven(S),
    Member(M),
}

/// Records activity of a connection.
#[derive(Clone, Debug)]
pub struct Activity {
    since: Instant,
    connection: Arc<Connection>,
}

impl Activity {
    /// Records that bytes moved now.
    pub fn note(&self) {
        self.connection.moved.store(milliseconds(self.since), Relaxed);
    }

    /// Records that a complete request is being answered, until the result is dropped. After
    /// `within`, the connection counts as silent again.
    #[must_use]
    pub fn answering(&self, within: Duration) -> Answering {
        let until = milliseconds(self.since).saturating_add(to_milliseconds(within));
        self.connection.answering_until.store(until, Relaxed);
        Answering(self.clone())
    }
}

/// Guard of a request that is being answered.
#[derive(Debug)]
pub struct Answering(Activity);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.connection.answering_until.store(0, Relaxed);
        // The answer's first bytes follow now.
        self.0.note();
    }
}

fn milliseconds(since: Instant) -> u64 {
    to_milliseconds(since.elapsed())
}

fn to_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the source of an address: the IPv4 address, or the /64 of an IPv6 address, because one
/// host may own a whole /64.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

impl<S: Ord + Clone, M: Ord + Clone> Admission<S, M> {
    /// Makes an admission without connections.
    pub fn new(limits: Limits) -> Admission<S, M> {
        let inside = Inside {
            last_number: 0,
            all: 0,
            unproven: BTreeMap::new(),
            by_source: BTreeMap::new(),
            by_member: BTreeMap::new(),
        };
        Admission { limits, since: Instant::now(), inside: Arc::new(Mutex::new(inside)) }
    }

    /// Admits a connection of this source. If a limit is reached, evicts another connection and
    /// returns that limit.
    ///
    /// # Errors
    /// The limit, if no connection may be evicted: all are members' or are being answered.
    pub fn enter(&self, from: S) -> Result<(Pass<S, M>, Option<Full>), Full> {
        let mut inside = self.inside();
        let now = milliseconds(self.since);
        let of_source = inside.by_source.get(&from).map_or(0, BTreeSet::len);
        let full = if inside.all >= self.limits.connections_max {
            Some(Full::Connections)
        } else if inside.unproven.len() >= self.limits.unproven_max {
            Some(Full::Unproven)
        } else if of_source >= self.limits.unproven_by_source_max {
            Some(Full::Source)
        } else {
            None
        };
        match full {
            Some(Full::Source) => inside.evict_of(&from, now).ok_or(Full::Source)?,
            Some(full) => inside.make_room(of_source, now).ok_or(full)?,
            None => {}
        }
        inside.last_number += 1;
        let number = inside.last_number;
        let connection = Arc::new(Connection {
            moved: AtomicU64::new(now),
            answering_until: AtomicU64::new(0),
            evicted: Notify::new(),
        });
        inside.all += 1;
        inside.unproven.insert(number, Arc::clone(&connection));
        inside.by_source.entry(from.clone()).or_default().insert(number);
        let holder = Holder::Unproven(from);
        Ok((Pass { admission: self.clone(), number, connection, holder }, full))
    }
}

impl<S, M> Admission<S, M> {
    fn inside(&self) -> MutexGuard<'_, Inside<S, M>> {
        lock(&self.inside)
    }
}

impl<S: Ord + Clone, M: Ord + Clone> Pass<S, M> {
    /// Records that the connection has proved to be this member's. From now on it counts for the
    /// member.
    ///
    /// # Errors
    /// [`Full::Member`], or [`Full::Unproven`] if the connection was evicted before.
    pub fn prove(&mut self, member: &M) -> Result<(), Full> {
        let mut inside = self.admission.inside();
        let here = inside.by_member.get(member).copied().unwrap_or(0);
        if here >= self.admission.limits.by_member_max {
            return Err(Full::Member);
        }
        if let Holder::Unproven(source) = &self.holder
            && !inside.leave(source, self.number)
        {
            return Err(Full::Unproven);
        }
        inside.all += 1;
        inside.by_member.insert(member.clone(), here + 1);
        drop(inside);
        self.holder = Holder::Member(member.clone());
        Ok(())
    }
}

impl<S: Ord, M: Ord> Pass<S, M> {
    /// Returns a handle that records activity of the connection.
    pub fn activity(&self) -> Activity {
        Activity { since: self.admission.since, connection: Arc::clone(&self.connection) }
    }

    /// Resolves when the connection is evicted; never for a member's.
    pub async fn evicted(&self) {
        self.connection.evicted.notified().await;
    }
}

impl<S: Ord, M: Ord> Drop for Pass<S, M> {
    fn drop(&mut self) {
        let mut inside = self.admission.inside();
        match &self.holder {
            Holder::Unproven(source) => drop(inside.leave(source, self.number)),
            Holder::Member(member) => {
                inside.all -= 1;
                if let Some(count) = inside.by_member.get_mut(member) {
                    *count -= 1;
                    if *count == 0 {
                        inside.by_member.remove(member);
                    }
                }
            }
        }
    }
}

impl<S: Ord, M: Ord> Inside<S, M> {
    /// Removes an unproven connection. Returns `false` if it was already evicted.
    fn leave(&mut self, source: &S, number: u64) -> bool {
        if self.unproven.remove(&number).is_none() {
            return false;
        }
        self.all -= 1;
        if let Some(numbers) = self.by_source.get_mut(source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_source.remove(source);
            }
        }
        true
    }

    /// Returns the time of the last activity and the number of the connection that has been silent
    /// longest, among those with no answer deadline later than `after`.
    fn silent_longest(&self, numbers: &BTreeSet<u64>, after: u64) -> Option<(u64, u64)> {
        let silent = |number: &u64| {
            let connection = self.unproven.get(number)?;
            let is_answered = connection.answering_until.load(Relaxed) > after;
            (!is_answered).then(|| (connection.moved.load(Relaxed), *number))
        };
        numbers.iter().filter_map(silent).min()
    }
}

/// Later than every deadline: a search with it includes connections that are being answered.
const NEVER: u64 = u64::MAX;

impl<S: Ord + Clone, M: Ord> Inside<S, M> {
    /// Evicts a connection for a source that already has `of_source` connections.
    fn make_room(&mut self, of_source: usize, now: u64) -> Option<()> {
        if let Some(source) = self.fullest(now) {
            return self.evict_of(&source, now);
        }
        let source = self.fullest(NEVER)?;
        // Without this comparison, a flood of requests would evict a slow one.
        let has = self.by_source.get(&source).map_or(0, BTreeSet::len);
        if has > of_source + 1 { self.evict_of(&source, NEVER) } else { None }
    }

    /// Evicts the connection of this source that has been silent longest.
    fn evict_of(&mut self, source: &S, after: u64) -> Option<()> {
        let (_, number) = self.silent_longest(self.by_source.get(source)?, after)?;
        let connection = self.unproven.get(&number).cloned()?;
        self.leave(source, number);
        connection.evicted.notify_one();
        Some(())
    }

    /// Returns the source with the most connections among those with an evictable connection. Ties
    /// go to the one with the longest silence.
    fn fullest(&self, after: u64) -> Option<S> {
        let candidates = self.by_source.iter().filter_map(|(source, numbers)| {
            let silent = self.silent_longest(numbers, after)?;
            Some((Reverse(numbers.len()), silent, source))
        });
        candidates.min().map(|(_, _, source)| source.clone())
    }
}

#[cfg(test)]
mod tests;

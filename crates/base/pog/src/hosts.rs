//! The host table: the host of each tau.

mod maglev;
mod shares;
#[cfg(test)]
mod tests;

pub use maglev::maglev;
pub use shares::{SharesError, shares};

use crate::cell::Cell;

/// Number of a host; its meaning is up to the caller.
pub type HostId = u16;

/// An entry without a host.
pub const NO_HOST: HostId = HostId::MAX;

/// Maximum size of a table: 2^16 entries.
pub const TABLE_BITS_MAX: u32 = 16;

/// A table of `2^bits` entries with a host each: `host(k) = HT[tau(k)]`.
///
/// The taus of keys outside the set are uniform, so a host gets such keys in proportion to its
/// entries.
///
/// # Source
/// SDLB, MECOMM 2017, section "data plane".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTable {
    entries: Vec<HostId>,
}

/// One entry to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EntryWrite {
    /// Index of the entry.
    pub entry: u16,
    /// New host of the entry.
    pub host: HostId,
}

/// Effect of a change of shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of entries that changed their host.
    pub moved: usize,
    /// Minimum number of moves that reach these shares.
    pub least: usize,
    /// Number of entries that could not move, because keys of the set use them.
    pub held: usize,
}

impl HostTable {
    /// Makes a table without hosts.
    ///
    /// # Panics
    /// If `bits` is not in `1..=16` ([`TABLE_BITS_MAX`]).
    pub fn new(bits: u32) -> HostTable {
        assert!(
            (1..=TABLE_BITS_MAX).contains(&bits),
            "a host table has 2^1 to 2^16 entries, not 2^{bits}"
        );
        HostTable { entries: vec![NO_HOST; 1 << bits] }
    }

    /// Returns the host of `tau`. Uses its low bits if it has more than the table.
    #[inline(always)]
    pub fn host<C: Cell>(&self, tau: C) -> HostId {
        self.entries[self.entry_of(tau)]
    }

    /// Returns the index of the entry of `tau`.
    #[inline(always)]
    pub fn entry_of<C: Cell>(&self, tau: C) -> usize {
        tau.widen() as usize & (self.entries.len() - 1)
    }

    /// Returns all entries.
    pub fn entries(&self) -> &[HostId] {
        &self.entries
    }

    /// Changes the host of an entry.
    ///
    /// # Panics
    /// If the entry does not exist.
    pub fn point(&mut self, write: EntryWrite) {
        self.entries[usize::from(write.entry)] = write.host;
    }

    /// Returns the number of entries of each host in the table, and of [`NO_HOST`].
    pub fn counts(&self) -> std::collections::BTreeMap<HostId, usize> {
        let mut counts = std::collections::BTreeMap::new();
        for host in &self.entries {
            *counts.entry(*host).or_default() += 1;
        }
        counts
    }

    /// Gives every host its share of the entries with the fewest moves. Does not move entries that
    /// satisfy `held`. Appends the changed entries to `writes`.
    ///
    /// # Errors
    /// [`SharesError`]; then nothing has changed.
    pub fn share_out(
        &mut self,
        capacities: &[(HostId, u32)],
        held: impl Fn(usize) -> bool,
        writes: &mut Vec<EntryWrite>,
    ) -> Result<Moved, SharesError> {
        let counts = self.counts();
        let now = |host| counts.get(&host).copied().unwrap_or(0);
        let targets = shares(capacities, self.entries.len(), now)?;
        let mut surplus = counts.clone();
        let mut wanting = Vec::new();
        for &(host, target) in &targets {
            if let Some(count) = surplus.get_mut(&host) {
                *count = count.saturating_sub(target);
            }
            wanting.push((host, target.saturating_sub(now(host))));
        }
        let mut report =
            Moved { least: wanting.iter().map(|(_, count)| count).sum(), ..Moved::default() };
        let mut wanting = wanting.into_iter().filter(|(_, count)| *count > 0).peekable();
        for (entry, host) in self.entries.iter_mut().enumerate() {
            let surplus = surplus.get_mut(host).expect("every host of the table was counted");
            let Some((taker, wants)) = wanting.peek_mut() else { break };
            if *surplus == 0 || held(entry) {
                continue;
            }
            *surplus -= 1;
            *host = *taker;
            writes.push(EntryWrite { entry: entry as u16, host: *taker });
            report.moved += 1;
            *wants -= 1;
            if *wants == 0 {
                wanting.next();
            }
        }
        report.held = report.least - report.moved;
        Ok(report)
    }

    /// Fills the table by Maglev's permutations: every program with the same seed and capacities
    /// gets the same table. Keeps entries that satisfy `held`. Appends the changed entries to
    /// `writes`.
    ///
    /// # Errors
    /// [`SharesError`]; then nothing has changed.
    pub fn fill_maglev(
        &mut self,
        capacities: &[(HostId, u32)],
        seed: crate::hash::Seed,
        held: impl Fn(usize) -> bool,
        writes: &mut Vec<EntryWrite>,
    ) -> Result<Moved, SharesError> {
        let counts = self.counts();
        let filled = maglev(capacities, self.entries.len(), seed)?;
        let mut targets = std::collections::BTreeMap::<HostId, usize>::new();
        filled.iter().for_each(|host| *targets.entry(*host).or_default() += 1);
        let now = |host| counts.get(&host).copied().unwrap_or(0);
        let least = targets.iter().map(|(host, target)| target.saturating_sub(now(*host))).sum();
        let mut report = Moved { least, ..Moved::default() };
        for (entry, (host, wanted)) in self.entries.iter_mut().zip(filled).enumerate() {
            if *host == wanted {
                continue;
            }
            if held(entry) {
                report.held += 1;
                continue;
            }
            *host = wanted;
            writes.push(EntryWrite { entry: entry as u16, host: wanted });
            report.moved += 1;
        }
        Ok(report)
    }
}

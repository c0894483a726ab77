//! SDLB's controller: stateful keys, hosts with capacities, and the table between them.

mod hosts;
mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::builder::PogBuilder;
use crate::cell::Cell;
use crate::controller::PogController;
use crate::delta::Delta;
use crate::error::{BuildError, UpdateError};
use crate::hash::{KeyHash, SipHash13};
use crate::hosts::{EntryWrite, HostId, HostTable, Moved, SharesError};
use crate::key::Key;

/// Controller of a load balancer, with the operations of the paper.
///
/// A *stateful* key (its flow, device or application has state on a host) is in the set, and its
/// packets always go to that host. All other keys are *stateless*: their arbitrary taus spread them
/// by the hosts' capacities. An entry of the host table is *released* when no key of the set uses
/// it: it may then move to another host without affecting a stateful packet.
///
/// | paper | here |
/// |---|---|
/// | a key gets state | [`register`](Self::register), [`register_here`](Self::register_here) |
/// | its state ends | [`unregister`](Self::unregister) |
/// | merge and release | [`merge`](Self::merge), [`merge_host`](Self::merge_host) |
/// | capacity change | [`set_capacity`](Self::set_capacity) |
/// | host join and leave | [`join`](Self::join), [`leave`](Self::leave), [`fail`](Self::fail) |
/// | state migration | [`migrate`](Self::migrate) |
/// | rebalance | [`rebalance`](Self::rebalance) |
///
/// # Source
/// SDLB, MECOMM 2017, section "controller". Deviates: a key registered by host goes to an entry of
/// that host that keys already use, which merges from the start. Entries that a change of capacity
/// could not move, because keys used them, move when they are released.
#[derive(Clone, Debug)]
pub struct Sdlb<K, C: Cell = u16, H: KeyHash = SipHash13> {
    pogs: PogController<K, C, H>,
    table: HostTable,
    /// Number of keys of the set that use each entry.
    users: Vec<u32>,
    hosts: BTreeMap<HostId, Host>,
    writes: Vec<EntryWrite>,
    moved: Moved,
}

/// State of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Capacity; the host's share is this over the sum of all capacities. 0: the host is leaving.
    pub capacity: u32,
    /// Number of entries that it should have.
    pub target: usize,
    /// Number of entries that it has.
    pub entries: usize,
    /// Number of stateful keys on it.
    pub keys: usize,
    /// One of its entries, preferably one that keys use.
    home: Option<u16>,
}

/// Effect of an operation on data planes. Cells and entries must become visible together.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a, C> {
    /// Cells to write.
    pub cells: &'a Delta<C>,
    /// Entries of the host table to write.
    pub entries: &'a [EntryWrite],
    /// Number of entries that moved, and the minimum.
    pub moved: Moved,
}

/// An operation of [`Sdlb`] was rejected. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SdlbError {
    /// The host does not exist.
    #[error("there is no host {0}: let it join first")]
    UnknownHost(HostId),
    /// The host already exists.
    #[error("host {0} is there already: use set_capacity to change it")]
    HostExists(HostId),
    /// The host is leaving.
    #[error(
        "host {0} is leaving and takes no new keys: choose another, or let it join again with set_capacity"
    )]
    Leaving(HostId),
    /// The keys to merge are on different hosts.
    #[error("the keys are on hosts {0} and {1}: only keys of one host can share an entry")]
    DifferentHosts(HostId, HostId),
    /// Keys use every entry.
    #[error(
        "all {entries} entries of the host table are used by keys: merge some, or use a larger table"
    )]
    TableFull {
        /// Number of entries of the table.
        entries: usize,
    },
    /// The shares are impossible.
    #[error("the hosts' shares cannot be made")]
    Shares(
        #[from]
        #[source]
        SharesError,
    ),
    /// The set of keys rejected the change.
    #[error("the set of stateful keys cannot be changed")]
    Keys(
        #[from]
        #[source]
        UpdateError,
    ),
}

impl<K: Key + Eq + Clone, C: Cell, H: KeyHash> Sdlb<K, C, H> {
    /// Makes a controller without keys, with these hosts and a table of `2^table_bits` entries.
    ///
    /// # Errors
    /// [`SdlbError::Shares`] if the hosts' capacities are not valid shares, [`SdlbError::Keys`] if
    /// the system returns no random numbers.
    ///
    /// # Panics
    /// If `table_bits` is not in `1..=16`, or exceeds the bits of a cell.
    pub fn new(
        builder: &PogBuilder<C, H>,
        table_bits: u32,
        hosts: &[(HostId, u32)],
    ) -> Result<Sdlb<K, C, H>, SdlbError> {
        assert!(
            table_bits <= C::BITS,
            "a tau of {} bits does not reach 2^{table_bits} entries",
            C::BITS
        );
        let pogs = builder.build([]).map_err(UpdateError::from)?;
        let table = HostTable::new(table_bits);
        let mut sdlb = Sdlb {
            users: vec![0; table.entries().len()],
            pogs,
            table,
            hosts: BTreeMap::new(),
            writes: Vec::new(),
            moved: Moved::default(),
        };
        for &(host, capacity) in hosts {
            let new = Host { capacity, ..Host::default() };
            if sdlb.hosts.insert(host, new).is_some() {
                return Err(SharesError::Twice(host).into());
            }
        }
        sdlb.share_out()?;
        Ok(sdlb)
    }

    /// Returns the host of a key, stateful or not, as the data plane computes it.
    pub fn host(&self, key: &K) -> HostId {
        self.table.host(self.pogs.pog().tau(key))
    }

    /// Whether `key` is stateful.
    pub fn is_stateful(&self, key: &K) -> bool {
        self.pogs.contains(key)
    }

    /// Returns the set of stateful keys.
    pub fn keys(&self) -> &PogController<K, C, H> {
        &self.pogs
    }

    /// Returns the host table.
    pub fn table(&self) -> &HostTable {
        &self.table
    }

    /// Returns the hosts, including those that are leaving.
    pub fn hosts(&self) -> &BTreeMap<HostId, Host> {
        &self.hosts
    }

    /// Returns the number of released entries.
    pub fn released(&self) -> usize {
        self.users.iter().filter(|users| **users == 0).count()
    }

    /// Makes the taus of stateless keys uniform. See [`PogController::rebalance`].
    pub fn rebalance(&mut self) -> Change<'_, C> {
        self.begin();
        self.pogs.rebalance();
        self.change()
    }

    /// Hashes all keys with a new seed. See [`PogController::rebuild`]. Redistributes stateless
    /// keys.
    ///
    /// # Errors
    /// [`BuildError::NoSeed`]; then nothing has changed.
    pub fn rebuild(&mut self) -> Result<Change<'_, C>, BuildError> {
        self.begin();
        self.pogs.rebuild()?;
        Ok(self.change())
    }

    fn begin(&mut self) {
        self.pogs.begin();
        self.writes.clear();
        self.moved = Moved::default();
    }

    fn change(&self) -> Change<'_, C> {
        Change { cells: self.pogs.delta(), entries: &self.writes, moved: self.moved }
    }
}

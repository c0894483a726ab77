//! Hosts that join, leave, fail, or change their capacity.

use super::{Change, Host, Sdlb, SdlbError};
use crate::cell::Cell;
use crate::controller::Update;
use crate::hash::KeyHash;
use crate::hosts::{EntryWrite, HostId, NO_HOST, shares};
use crate::key::Key;

impl<K: Key + Eq + Clone, C: Cell, H: KeyHash> Sdlb<K, C, H> {
    /// Adds a host: released entries of other hosts move to it, up to its share.
    ///
    /// # Errors
    /// [`SdlbError::HostExists`], [`SdlbError::Shares`]; then nothing has changed.
    pub fn join(&mut self, host: HostId, capacity: u32) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        if self.hosts.contains_key(&host) {
            return Err(SdlbError::HostExists(host));
        }
        self.with_capacity(host, Host { capacity, ..Host::default() })?;
        Ok(self.change())
    }

    /// Changes a host's capacity: as few released entries as possible move. Entries in use by keys
    /// stay ([`Moved::held`](crate::Moved::held)) until they are released; [`Self::merge_host`]
    /// releases entries at once.
    ///
    /// # Errors
    /// [`SdlbError::UnknownHost`], [`SdlbError::Shares`] if no capacity would be left; then nothing
    /// has changed.
    pub fn set_capacity(
        &mut self,
        host: HostId,
        capacity: u32,
    ) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let now = *self.hosts.get(&host).ok_or(SdlbError::UnknownHost(host))?;
        self.with_capacity(host, Host { capacity, ..now })?;
        Ok(self.change())
    }

    /// Removes a host: it gets stateless packets only by entries that its stateful keys still use.
    /// The host is removed when the last of these is unregistered or migrated.
    ///
    /// # Errors
    /// As [`Self::set_capacity`].
    pub fn leave(&mut self, host: HostId) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let now = *self.hosts.get(&host).ok_or(SdlbError::UnknownHost(host))?;
        self.with_capacity(host, Host { capacity: 0, ..now })?;
        Ok(self.change())
    }

    /// Removes a failed host. The state of its keys is lost: they are removed from the set, and all
    /// its entries move to other hosts. O(n).
    ///
    /// # Errors
    /// As [`Self::set_capacity`].
    pub fn fail(&mut self, host: HostId) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let now = *self.hosts.get(&host).ok_or(SdlbError::UnknownHost(host))?;
        if !self.hosts.iter().any(|(other, state)| *other != host && state.capacity > 0) {
            return Err(crate::hosts::SharesError::NoCapacity.into());
        }
        let lost: Vec<K> = self.keys_of(host).map(|(key, _)| key.clone()).collect();
        for (entry, users) in self.users.iter_mut().enumerate() {
            if self.table.entries()[entry] == host {
                *users = 0;
            }
        }
        self.pogs.update(lost.into_iter().map(Update::Delete), &mut Vec::new());
        self.with_capacity(host, Host { capacity: 0, keys: 0, ..now })?;
        Ok(self.change())
    }

    /// Sets a host's state and divides the entries again. On an error nothing has changed.
    fn with_capacity(&mut self, host: HostId, state: Host) -> Result<(), SdlbError> {
        let before = self.hosts.insert(host, state);
        let shared = self.share_out();
        if shared.is_err() {
            match before {
                Some(before) => self.hosts.insert(host, before),
                None => self.hosts.remove(&host),
            };
        }
        shared
    }

    /// Divides released entries among hosts, by capacity.
    pub(super) fn share_out(&mut self) -> Result<(), SdlbError> {
        let capacities: Vec<(HostId, u32)> =
            self.hosts.iter().map(|(host, state)| (*host, state.capacity)).collect();
        let entries = |host| self.hosts.get(&host).map_or(0, |state| state.entries);
        let targets = shares(&capacities, self.table.entries().len(), entries)?;
        let users = &self.users;
        self.moved =
            self.table.share_out(&capacities, |entry| users[entry] > 0, &mut self.writes)?;
        let counts = self.table.counts();
        for (host, target) in targets {
            let state = self.hosts.get_mut(&host).expect("targets are made from the hosts");
            state.target = target;
            state.entries = counts.get(&host).copied().unwrap_or(0);
        }
        self.forget_gone();
        Ok(())
    }

    /// Moves a newly released entry to a host with too few entries, if its own host has too many.
    pub(super) fn settle(&mut self, entry: usize) {
        let from = self.table.entries()[entry];
        let surplus = self.hosts.get(&from).is_some_and(|state| state.entries > state.target);
        if self.users[entry] > 0 || !surplus {
            return;
        }
        let taker = self.hosts.iter().find(|(_, state)| state.entries < state.target);
        if let Some((&taker, _)) = taker {
            self.point(entry, taker);
            self.forget_gone();
        }
    }

    /// Moves an entry to a host and updates the counts.
    pub(super) fn point(&mut self, entry: usize, host: HostId) {
        let from = self.table.entries()[entry];
        if let Some(state) = self.hosts.get_mut(&from) {
            state.entries -= 1;
        }
        if let Some(state) = self.hosts.get_mut(&host) {
            state.entries += 1;
        }
        let write = EntryWrite { entry: entry as u16, host };
        self.table.point(write);
        self.writes.push(write);
        self.moved.moved += 1;
        self.moved.least += 1;
    }

    /// Removes hosts that have left and have no entries.
    fn forget_gone(&mut self) {
        self.hosts.retain(|_, state| state.capacity > 0 || state.entries > 0);
    }

    /// Returns an entry for one more key of `host`: an entry of the host that keys use, any other
    /// entry of the host, or a released entry of another host. [`Self::claim`] moves it to the
    /// host.
    pub(super) fn home(&self, host: HostId) -> Result<usize, SdlbError> {
        let state = self.hosts.get(&host).ok_or(SdlbError::UnknownHost(host))?;
        if state.capacity == 0 {
            return Err(SdlbError::Leaving(host));
        }
        let entries = self.table.entries();
        if let Some(home) = state.home.map(usize::from).filter(|home| entries[*home] == host) {
            return Ok(home);
        }
        let own = |entry: &usize| entries[*entry] == host;
        let used = |entry: &usize| self.users[*entry] > 0;
        let all = || 0..entries.len();
        all()
            .find(|entry| own(entry) && used(entry))
            .or_else(|| all().find(own))
            .or_else(|| all().find(|entry| !used(entry)))
            .ok_or(SdlbError::TableFull { entries: entries.len() })
    }

    /// Makes the entry from [`Self::home`] the entry for keys of `host`.
    pub(super) fn claim(&mut self, entry: usize, host: HostId) {
        if self.table.entries()[entry] != host {
            self.point(entry, host);
        }
        self.hosts.entry(host).and_modify(|state| state.home = Some(entry as u16));
    }

    /// Returns the stateful keys of `host`, each with its tau. O(n).
    pub fn keys_of(&self, host: HostId) -> impl Iterator<Item = (&K, C)> {
        debug_assert_ne!(host, NO_HOST);
        self.pogs.iter().filter(move |(_, tau)| self.table.host(*tau) == host)
    }
}

//! Stateful keys: register, merge, migrate, unregister.

use super::{Change, Sdlb, SdlbError};
use crate::cell::Cell;
use crate::controller::Update;
use crate::error::UpdateError;
use crate::hash::KeyHash;
use crate::hosts::{HostId, NO_HOST};
use crate::key::Key;

impl<K: Key + Eq + Clone, C: Cell, H: KeyHash> Sdlb<K, C, H> {
    /// Registers that `key` has state on `host`.
    ///
    /// # Errors
    /// [`SdlbError::UnknownHost`], [`SdlbError::Leaving`], [`SdlbError::TableFull`],
    /// [`UpdateError::Duplicate`]; then nothing has changed.
    pub fn register(&mut self, key: K, host: HostId) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        if let Some(tau) = self.pogs.get(&key) {
            return Err(UpdateError::Duplicate { tau: tau.widen() }.into());
        }
        let entry = self.home(host)?;
        self.pogs.insert(key, C::truncate(entry as u64))?;
        self.claim(entry, host);
        self.used(entry);
        Ok(self.change())
    }

    /// Registers that `key` has state on its current host: no packet changes its host.
    ///
    /// # Errors
    /// [`UpdateError::Duplicate`]; then nothing has changed.
    pub fn register_here(&mut self, key: K) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let tau = self.pogs.pog().tau(&key);
        self.pogs.insert(key, tau)?;
        self.used(self.table.entry_of(tau));
        Ok(self.change())
    }

    /// Unregisters `key`: its state has ended.
    ///
    /// # Errors
    /// [`UpdateError::Unknown`]; then nothing has changed.
    pub fn unregister(&mut self, key: &K) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let entry = self.entry_of_stateful(key)?;
        self.pogs.delete(key)?;
        self.unused(entry);
        self.settle(entry);
        Ok(self.change())
    }

    /// The paper's merge: moves `second` to the entry of `first`, a key of the same host. Its own
    /// entry is released if no other key uses it.
    ///
    /// # Errors
    /// [`SdlbError::DifferentHosts`], [`UpdateError::Unknown`]; then nothing has changed.
    pub fn merge(&mut self, first: &K, second: &K) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let entries = [self.entry_of_stateful(first)?, self.entry_of_stateful(second)?];
        let [kept, left] = entries.map(|entry| self.table.entries()[entry]);
        if kept != left {
            return Err(SdlbError::DifferentHosts(kept, left));
        }
        self.move_key(second, entries[1], entries[0])?;
        Ok(self.change())
    }

    /// Merges all stateful keys of `host` into one entry. Its other entries may move to hosts with
    /// too few. O(n).
    ///
    /// # Errors
    /// [`SdlbError::UnknownHost`]; then nothing has changed.
    pub fn merge_host(&mut self, host: HostId) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        if !self.hosts.contains_key(&host) {
            return Err(SdlbError::UnknownHost(host));
        }
        let most_used = (0..self.users.len())
            .filter(|entry| self.table.entries()[*entry] == host)
            .max_by_key(|entry| self.users[*entry]);
        let Some(home) = most_used else { return Ok(self.change()) };
        let tau = C::truncate(home as u64);
        let moving: Vec<Update<K, C>> = self
            .keys_of(host)
            .filter(|(_, tau)| self.table.entry_of(*tau) != home)
            .map(|(key, _)| Update::Alter(key.clone(), tau))
            .collect();
        let merged = moving.len() as u32;
        self.pogs.update(moving, &mut Vec::new());
        for entry in 0..self.users.len() {
            if self.table.entries()[entry] == host && entry != home {
                self.users[entry] = 0;
                self.settle(entry);
            }
        }
        self.users[home] += merged;
        if let Some(state) = self.hosts.get_mut(&host) {
            state.home = Some(home as u16);
        }
        Ok(self.change())
    }

    /// The paper's state migration: the state of `key` has moved to `host`.
    ///
    /// # Errors
    /// [`UpdateError::Unknown`], [`SdlbError::UnknownHost`], [`SdlbError::Leaving`],
    /// [`SdlbError::TableFull`]; then nothing has changed.
    pub fn migrate(&mut self, key: &K, host: HostId) -> Result<Change<'_, C>, SdlbError> {
        self.begin();
        let from = self.entry_of_stateful(key)?;
        if self.table.entries()[from] == host {
            return Ok(self.change());
        }
        let to = self.home(host)?;
        self.claim(to, host);
        self.move_key(key, from, to)?;
        Ok(self.change())
    }

    fn entry_of_stateful(&self, key: &K) -> Result<usize, SdlbError> {
        let tau = self.pogs.get(key).ok_or(UpdateError::Unknown)?;
        Ok(self.table.entry_of(tau))
    }

    fn move_key(&mut self, key: &K, from: usize, to: usize) -> Result<(), SdlbError> {
        if from != to {
            self.pogs.alter(key, C::truncate(to as u64))?;
            self.used(to);
            self.unused(from);
            self.settle(from);
        }
        Ok(())
    }

    fn used(&mut self, entry: usize) {
        self.users[entry] += 1;
        self.count_keys(entry, 1);
    }

    fn unused(&mut self, entry: usize) {
        self.users[entry] -= 1;
        self.count_keys(entry, -1);
    }

    fn count_keys(&mut self, entry: usize, more: isize) {
        let host = self.table.entries()[entry];
        debug_assert_ne!(host, NO_HOST);
        if let Some(state) = self.hosts.get_mut(&host) {
            state.keys = state.keys.saturating_add_signed(more);
        }
    }
}

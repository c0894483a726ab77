//! State of the embedded store in memory, without file, clock or task.

use std::collections::{BTreeMap, VecDeque};

use super::row;
use crate::{
    Change, Committed, Entry, Key, LeaseId, Listing, Prefix, Revision, StoreError, Transaction,
    Update, WatchEvent, Write,
};

/// Size limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum size of keys and values, bytes.
    pub(super) size_bytes_max: u64,
    /// Maximum number of changes in the history that watches resume from.
    pub(super) history_changes_max: usize,
    /// Maximum size of the history, bytes.
    pub(super) history_bytes_max: u64,
}

/// Identifies a content of the store; the file has it beside the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) revision: Revision,
    /// Sum of the entries' digests.
    pub(super) digest: u64,
}

/// Entries by key, and the latest updates.
#[derive(Debug)]
pub(super) struct State {
    limits: Limits,
    entries: BTreeMap<Key, Entry>,
    stamp: Stamp,
    size_bytes: u64,
    history: VecDeque<Update>,
    history_changes: usize,
    history_bytes: u64,
    /// Updates up to this revision are no longer in the history.
    compacted: Revision,
}

impl State {
    /// Makes the state of a file's entries. The history is empty.
    pub(super) fn new(limits: Limits, stamp: Stamp, entries: Vec<Entry>) -> State {
        let size_bytes = entries.iter().map(row::size_bytes).sum();
        State {
            limits,
            entries: entries.into_iter().map(|e| (e.key.clone(), e)).collect(),
            stamp,
            size_bytes,
            history: VecDeque::new(),
            history_changes: 0,
            history_bytes: 0,
            compacted: stamp.revision,
        }
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(super) fn list(&self, prefix: &Prefix) -> Listing {
        let start = std::ops::Bound::Included(prefix.as_str());
        let entries = self
            .entries
            .range::<str, _>((start, std::ops::Bound::Unbounded))
            .take_while(|(key, _)| prefix.has(key))
            .map(|(_, entry)| entry.clone())
            .collect();
        Listing { revision: self.stamp.revision, entries }
    }

    /// Returns the first event of a folder after `after`, and the revision up to which a watch has
    /// then seen everything.
    pub(super) fn event_after(
        &self,
        prefix: &Prefix,
        after: Revision,
    ) -> (Option<WatchEvent>, Revision) {
        if after < self.compacted || after > self.stamp.revision {
            return (Some(WatchEvent::Resync(self.list(prefix))), self.stamp.revision);
        }
        let start = self.history.partition_point(|update| update.revision <= after);
        for update in self.history.range(start..) {
            let inside = |change: &&Change| prefix.has(change.key());
            let changes: Vec<_> = update.changes.iter().filter(inside).cloned().collect();
            if !changes.is_empty() {
                let revision = update.revision;
                return (Some(WatchEvent::Update(Update { revision, changes })), revision);
            }
        }
        (None, self.stamp.revision)
    }

    /// Applies staged transactions. Call it after the file has them, because this cannot be undone.
    pub(super) fn adopt(&mut self, staged: Staged) {
        for (key, entry) in staged.overlay {
            match entry {
                Some(entry) => self.entries.insert(key, entry),
                None => self.entries.remove(&key),
            };
        }
        self.stamp = staged.stamp;
        self.size_bytes = staged.size_bytes;
        for update in staged.updates {
            self.history_changes += update.changes.len();
            self.history_bytes += update_bytes(&update);
            self.history.push_back(update);
        }
        while self.history_changes > self.limits.history_changes_max
            || self.history_bytes > self.limits.history_bytes_max
        {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_changes -= oldest.changes.len();
            self.history_bytes -= update_bytes(&oldest);
            self.compacted = oldest.revision;
        }
    }
}

fn update_bytes(update: &Update) -> u64 {
    let bytes = |change: &Change| match change {
        Change::Put(entry) => row::size_bytes(entry),
        Change::Deleted(key) => key.as_str().len() as u64,
    };
    update.changes.iter().map(bytes).sum()
}

/// Transactions that are accepted but not yet in the file.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    overlay: BTreeMap<Key, Option<Entry>>,
    updates: Vec<Update>,
    stamp: Stamp,
    size_bytes: u64,
}

impl Staged {
    pub(super) fn on(state: &State) -> Staged {
        Staged {
            overlay: BTreeMap::new(),
            updates: Vec::new(),
            stamp: state.stamp,
            size_bytes: state.size_bytes,
        }
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns the writes: the last value of each key, `None` to delete it.
    pub(super) fn writes(&self) -> impl Iterator<Item = (&Key, Option<&Entry>)> {
        self.overlay.iter().map(|(key, entry)| (key, entry.as_ref()))
    }

    fn get<'a>(&'a self, state: &'a State, key: &Key) -> Option<&'a Entry> {
        self.overlay.get(key).map_or_else(|| state.get(key), Option::as_ref)
    }

    /// Evaluates a transaction on top of the staged ones. `is_alive` tells whether a lease exists.
    pub(super) fn add(
        &mut self,
        state: &State,
        transaction: &Transaction,
        is_alive: impl Fn(LeaseId) -> bool,
    ) -> Result<Committed, StoreError> {
        transaction.check()?;
        if let Some(refusal) = transaction.refusal(|key| self.get(state, key)) {
            return Ok(Committed::Refused(refusal));
        }
        let revision = Revision(self.stamp.revision.0 + 1);
        let mut changes = Vec::with_capacity(transaction.writes().len());
        let mut next = (self.size_bytes, self.stamp.digest);
        for write in transaction.writes() {
            let old = self.get(state, write.key());
            if let Some(old) = old {
                next = (next.0 - row::size_bytes(old), next.1.wrapping_sub(row::digest(old)));
            }
            match write {
                Write::Put { key, value, lease } => {
                    if let Some(lease) = lease.filter(|lease| !is_alive(*lease)) {
                        return Err(StoreError::LeaseEnded(lease));
                    }
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created: old.map_or(revision, |old| old.created),
                        modified: revision,
                        lease: *lease,
                    };
                    next = (
                        next.0 + row::size_bytes(&entry),
                        next.1.wrapping_add(row::digest(&entry)),
                    );
                    changes.push(Change::Put(entry));
                }
                Write::Delete { key } if old.is_some() => {
                    changes.push(Change::Deleted(key.clone()));
                }
                Write::Delete { .. } => {}
            }
        }
        let max = state.limits.size_bytes_max;
        // Deleting must work above the limit, which may have been lowered.
        if next.0 > max && next.0 > self.size_bytes {
            let limit = format!("{} bytes of {max} (size_bytes_max of the embedded store)", next.0);
            return Err(StoreError::Full { limit });
        }
        if changes.is_empty() {
            return Ok(Committed::Done(self.stamp.revision));
        }
        for change in &changes {
            let entry = match change {
                Change::Put(entry) => Some(entry.clone()),
                Change::Deleted(_) => None,
            };
            self.overlay.insert(change.key().clone(), entry);
        }
        self.size_bytes = next.0;
        self.stamp = Stamp { revision, digest: next.1 };
        self.updates.push(Update { revision, changes });
        Ok(Committed::Done(revision))
    }

    /// Deletes the entries under a lease, as one update.
    pub(super) fn end_lease(&mut self, state: &State, lease: LeaseId) {
        let mut under: Vec<Entry> = Vec::new();
        for entry in state.entries().filter(|entry| entry.lease == Some(lease)) {
            if !self.overlay.contains_key(&entry.key) {
                under.push(entry.clone());
            }
        }
        let staged = self.overlay.values().flatten().filter(|entry| entry.lease == Some(lease));
        under.extend(staged.cloned());
        if under.is_empty() {
            return;
        }
        let revision = Revision(self.stamp.revision.0 + 1);
        let mut digest = self.stamp.digest;
        for entry in &under {
            digest = digest.wrapping_sub(row::digest(entry));
            self.size_bytes -= row::size_bytes(entry);
            self.overlay.insert(entry.key.clone(), None);
        }
        self.stamp = Stamp { revision, digest };
        let changes = under.into_iter().map(|entry| Change::Deleted(entry.key)).collect();
        self.updates.push(Update { revision, changes });
    }
}

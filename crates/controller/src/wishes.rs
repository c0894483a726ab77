//! What operators said: noted in the store, known to every controller.

use std::collections::BTreeMap;

use equipoise_core::AdminState;
use equipoise_planner::elastic::Mode;
use equipoise_store::{Entry, Key, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::controller::{ControllerError, ControllerHandle, Shared};

/// What operators said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    /// Of elastic pools.
    pub(crate) modes: BTreeMap<String, Mode>,
    /// Of nodes; those that are not here are up.
    pub(crate) admins: BTreeMap<String, AdminState>,
}

impl ControllerHandle {
    /// What operators said of pools: who decides on their size.
    pub fn modes(&self) -> BTreeMap<String, Mode> {
        self.shared.known().wishes.modes.clone()
    }

    /// Notes who decides on a pool's size; `None` returns to what the file says. Every controller learns of it, and
    /// the leader plans at once.
    ///
    /// # Errors
    /// [`ControllerError`], if the store does not note it; nothing has changed then.
    pub async fn set_mode(&self, pool: &str, mode: Option<Mode>) -> Result<(), ControllerError> {
        let key = self.shared.keys.wishes.key(pool);
        let key = key.map_err(|error| ControllerError::Name(pool.to_string(), error))?;
        self.wish(&key, mode.as_ref()).await?;
        note(&mut self.shared.known().wishes.modes, pool, mode);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// What operators want of nodes; those that are not here are up.
    pub fn admins(&self) -> BTreeMap<String, AdminState> {
        self.shared.known().wishes.admins.clone()
    }

    /// Notes what is wanted of a node, whatever it does then: drained, it leaves names' answers and takes nothing that
    /// others delegate. Every controller learns of it, and the leader plans at once.
    ///
    /// # Errors
    /// As [`Self::set_mode`].
    pub async fn set_admin(&self, node: &str, admin: AdminState) -> Result<(), ControllerError> {
        let key = self.shared.keys.nodes.key(node);
        let key = key.map_err(|error| ControllerError::Name(node.to_string(), error))?;
        let admin = Some(admin).filter(|admin| *admin != AdminState::Up);
        self.wish(&key, admin.as_ref()).await?;
        note(&mut self.shared.known().wishes.admins, node, admin);
        self.shared.wake.notify_one();
        Ok(())
    }

    async fn wish(&self, key: &Key, wish: Option<&impl Serialize>) -> Result<(), StoreError> {
        let store = &self.shared.store;
        let done = match wish {
            Some(wish) => {
                let value = serde_json::to_vec(wish).expect("a wish is a word or a number");
                store.put(key, value.into()).await
            }
            None => store.delete(key).await,
        };
        self.shared.note_store(&done);
        done.map(drop)
    }
}

pub(crate) fn see_modes(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let modes = read_wishes(entries);
    see_wishes(shared, |wishes| std::mem::replace(&mut wishes.modes, modes.clone()) != modes);
}

pub(crate) fn see_admins(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let admins = read_wishes(entries);
    see_wishes(shared, |wishes| std::mem::replace(&mut wishes.admins, admins.clone()) != admins);
}

fn see_wishes(shared: &Shared, change: impl FnOnce(&mut Wishes) -> bool) {
    let has_changed = change(&mut shared.known().wishes);
    if has_changed {
        shared.wake.notify_one();
    }
}

fn read_wishes<T: DeserializeOwned>(entries: &BTreeMap<Key, Entry>) -> BTreeMap<String, T> {
    let wish = |(key, entry): (&Key, &Entry)| {
        let read = serde_json::from_slice(&entry.value);
        let told = |error: &serde_json::Error| {
            tracing::error!(%error, %key, "an operator's wish cannot be read: it is not followed");
        };
        Some((key.name().to_string(), read.inspect_err(told).ok()?))
    };
    entries.iter().filter_map(wish).collect()
}

fn note<T>(wishes: &mut BTreeMap<String, T>, of: &str, wish: Option<T>) {
    match wish {
        Some(wish) => drop(wishes.insert(of.to_string(), wish)),
        None => drop(wishes.remove(of)),
    }
}

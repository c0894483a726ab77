//! Changes that operators ask for: stored, and known to every controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_store::{Entry, Key, Outcome, StoreError, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::failing::Late;
use crate::shared::{ControllerError, ControllerHandle, Shared};
use crate::wishes::{SizeWish, Wishes};

/// Longest time that an operator's command waits for the store.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

impl ControllerHandle {
    /// Operators' settings of pools' sizes.
    pub fn sizes(&self) -> BTreeMap<String, SizeWish> {
        self.shared.known().wishes.sizes.clone()
    }

    /// Stores the setting of a pool's size; `None` returns to the file's. Every controller learns
    /// of it, and the leader plans at once.
    ///
    /// # Errors
    /// [`ControllerError`], if the store does not accept it. Nothing has changed then, except that
    /// [`ControllerError::Unanswered`] and [`ControllerError::Unconfirmed`] may still take effect.
    pub async fn set_size(
        &self,
        pool: &str,
        wish: Option<SizeWish>,
    ) -> Result<(), ControllerError> {
        let key = self.shared.keys.wishes.key(pool);
        let key = key.map_err(|error| ControllerError::Name(pool.to_string(), error))?;
        let pool = pool.to_string();
        self.wish(&key, wish, |wishes, wish| note(&mut wishes.sizes, pool, wish)).await
    }

    /// Operators' admin states of nodes. Nodes that are missing here are up.
    pub fn admins(&self) -> BTreeMap<String, AdminState> {
        self.shared.known().wishes.admins.clone()
    }

    /// Stores the admin state of a node. A drained node leaves the answers of names and takes no
    /// delegated requests. Every controller learns of it, and the leader plans at once.
    ///
    /// # Errors
    /// As [`Self::set_size`].
    pub async fn set_admin(&self, node: &str, admin: AdminState) -> Result<(), ControllerError> {
        let key = self.shared.keys.nodes.key(node);
        let key = key.map_err(|error| ControllerError::Name(node.to_string(), error))?;
        let admin = Some(admin).filter(|admin| *admin != AdminState::Up);
        let node = node.to_string();
        self.wish(&key, admin, |wishes, admin| note(&mut wishes.admins, node, admin)).await
    }

    /// Writes a setting and then calls `note` with it, in its own task, which continues after the
    /// caller's timeout.
    ///
    /// Settings are written one after the other. The store could carry out two concurrent writes in
    /// any order, so that the earlier one would undo the later. While a write has no answer, others
    /// are refused.
    async fn wish<T: Serialize + Send + 'static>(
        &self,
        key: &Key,
        wish: Option<T>,
        note: impl FnOnce(&mut Wishes, Option<T>) + Send + 'static,
    ) -> Result<(), ControllerError> {
        let deadline = Instant::now() + ANSWERED_WITHIN;
        let is_unanswered =
            self.shared.known().unanswered.as_ref().is_some_and(|task| !task.is_finished());
        if is_unanswered {
            return Err(ControllerError::Busy);
        }
        let turn = timeout_at(deadline, Arc::clone(&self.shared.wish_turn).lock_owned());
        let turn = turn.await.map_err(|_| ControllerError::Busy)?;
        let write = match &wish {
            Some(wish) => {
                let value = serde_json::to_vec(wish).expect("a wish is a word or a number");
                Transaction::new().put(key.clone(), value)
            }
            None => Transaction::new().delete(key.clone()),
        };
        let (answer, answered) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move {
            let done = shared.store.commit(write).await;
            shared.note_store(&done);
            if done.is_ok() {
                note(&mut shared.known().wishes, wish);
                shared.wake.notify_one();
            }
            // The caller may have stopped waiting.
            drop(answer.send(done));
            drop(turn);
        });
        match timeout_at(deadline, answered).await {
            Ok(answered) => match answered.map_err(|_| StoreError::Closed)? {
                Ok(_unconditional) => Ok(()),
                Err(error) if error.outcome() == Outcome::Unknown => {
                    Err(ControllerError::Unconfirmed(error))
                }
                Err(error) => Err(error.into()),
            },
            Err(_) => {
                self.shared.note_failure(&Late(ANSWERED_WITHIN));
                self.shared.known().unanswered = Some(task);
                Err(ControllerError::Unanswered)
            }
        }
    }
}

pub(crate) fn see_sizes(shared: &Shared, entries: &BTreeMap<Key, Entry>) {
    let sizes = read_wishes(entries);
    see_wishes(shared, |wishes| std::mem::replace(&mut wishes.sizes, sizes.clone()) != sizes);
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
            tracing::error!(%error, %key, "cannot decode an operator's setting; ignoring it");
        };
        Some((key.name().to_string(), read.inspect_err(told).ok()?))
    };
    entries.iter().filter_map(wish).collect()
}

fn note<T>(wishes: &mut BTreeMap<String, T>, of: String, wish: Option<T>) {
    match wish {
        Some(wish) => drop(wishes.insert(of, wish)),
        None => drop(wishes.remove(&of)),
    }
}

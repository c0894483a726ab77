//! What operators said: noted in the store, known to every controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_planner::elastic::Mode;
use equipoise_store::{Entry, Key, StoreError, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::condition::Late;
use crate::controller::{ControllerError, ControllerHandle, Shared};

/// Limit of the time that an operator's command waits for the store.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// What operators said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    /// Of elastic pools.
    pub(crate) sizes: BTreeMap<String, SizeWish>,
    /// Of nodes; those that are not here are up.
    pub(crate) admins: BTreeMap<String, AdminState>,
}

/// What an operator said of an elastic pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SizeWish {
    /// Who decides.
    Mode(Mode),
    /// Nobody decides, and a pin waits for the end of that.
    PausedPin {
        /// How many backends there are to be then.
        paused_pin: u32,
    },
}

impl SizeWish {
    /// Who decides now.
    pub fn mode(self) -> Mode {
        match self {
            SizeWish::Mode(mode) => mode,
            SizeWish::PausedPin { .. } => Mode::Paused,
        }
    }

    /// How many backends there are to be, now or after a pause, if that is pinned.
    pub fn pin(self) -> Option<u32> {
        match self {
            SizeWish::Mode(Mode::Pinned(count)) | SizeWish::PausedPin { paused_pin: count } => {
                Some(count)
            }
            SizeWish::Mode(Mode::Auto | Mode::Paused) => None,
        }
    }

    /// The same, paused: a pin is kept.
    #[must_use]
    pub fn paused(self) -> SizeWish {
        match self.pin() {
            Some(paused_pin) => SizeWish::PausedPin { paused_pin },
            None => SizeWish::Mode(Mode::Paused),
        }
    }
}

impl ControllerHandle {
    /// What operators said of pools' sizes.
    pub fn sizes(&self) -> BTreeMap<String, SizeWish> {
        self.shared.known().wishes.sizes.clone()
    }

    /// Notes who decides on a pool's size; `None` returns to what the file says. Every controller learns of it, and
    /// the leader plans at once.
    ///
    /// # Errors
    /// [`ControllerError`], if the store does not note it. Nothing has changed then; only
    /// [`ControllerError::Unanswered`] may still take effect.
    pub async fn set_size(
        &self,
        pool: &str,
        wish: Option<SizeWish>,
    ) -> Result<(), ControllerError> {
        let key = self.shared.keys.wishes.key(pool);
        let key = key.map_err(|error| ControllerError::Name(pool.to_string(), error))?;
        self.wish(&key, wish.as_ref()).await?;
        note(&mut self.shared.known().wishes.sizes, pool, wish);
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
    /// As [`Self::set_size`].
    pub async fn set_admin(&self, node: &str, admin: AdminState) -> Result<(), ControllerError> {
        let key = self.shared.keys.nodes.key(node);
        let key = key.map_err(|error| ControllerError::Name(node.to_string(), error))?;
        let admin = Some(admin).filter(|admin| *admin != AdminState::Up);
        self.wish(&key, admin.as_ref()).await?;
        note(&mut self.shared.known().wishes.admins, node, admin);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Writes in a task of its own, which goes on after a caller that has waited long enough. While such a write has no
    /// answer, no other is begun: it would wait behind that one.
    async fn wish(&self, key: &Key, wish: Option<&impl Serialize>) -> Result<(), ControllerError> {
        let is_unanswered =
            self.shared.known().unanswered.as_ref().is_some_and(|task| !task.is_finished());
        if is_unanswered {
            return Err(ControllerError::Unanswered);
        }
        let write = match wish {
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
            // The caller may have stopped waiting.
            drop(answer.send(done));
        });
        match timeout(ANSWERED_WITHIN, answered).await {
            Ok(answered) => {
                let _unconditional = answered.map_err(|_| StoreError::Closed)??;
                Ok(())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_keeps_the_pin_and_wishes_of_before_are_read() {
        let pinned = SizeWish::Mode(Mode::Pinned(3));
        let paused = pinned.paused();
        assert_eq!((paused.mode(), paused.pin()), (Mode::Paused, Some(3)));
        assert_eq!(paused.paused(), paused, "twice is once");
        let auto = SizeWish::Mode(Mode::Auto).paused();
        assert_eq!((auto.mode(), auto.pin()), (Mode::Paused, None));
        for (wish, stored) in [
            (pinned, r#"{"pinned":3}"#),
            (auto, r#""paused""#),
            (SizeWish::Mode(Mode::Auto), r#""auto""#),
            (paused, r#"{"paused_pin":3}"#),
        ] {
            assert_eq!(serde_json::to_string(&wish).unwrap(), stored);
            assert_eq!(serde_json::from_str::<SizeWish>(stored).unwrap(), wish);
        }
    }
}

//! Keys in the cluster's store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_basics::OncePerMinute;
use equipoise_store::{
    CannotSeal, Committed, Entry, Expect, Key, KeyError, SealedStore, StoreError,
};
use equipoise_tls::{NoRandomNumbers, TicketKeys, Tickets};
use tokio::sync::watch;

/// Interval between looks at the store.
const LOOK: Duration = Duration::from_secs(60);

/// Wait after a look that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// Replacements of the keys that a look tries, when others replace them at the same time.
const TRIES: usize = 3;

/// Shared keys of session tickets could not be read or rotated.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The store failed.
    #[error("the cluster's store cannot be used: {0}")]
    Store(#[from] StoreError),
    /// The keys cannot be encrypted.
    #[error(transparent)]
    Seal(#[from] CannotSeal),
    /// The key in the store is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no new key.
    #[error("there are no random numbers for a key of session tickets")]
    Random(#[from] NoRandomNumbers),
    /// Other controllers replace the keys again and again.
    #[error("other controllers replace the keys of session tickets: compare the machines' clocks")]
    Replaced,
}

/// Uses the keys of the store while it is open, and rotates them; ends with the sender.
pub async fn follow_store(mut stores: watch::Receiver<Option<Arc<SealedStore>>>, tickets: Tickets) {
    let mut lines = OncePerMinute::default();
    loop {
        let opened = stores.borrow_and_update().clone();
        let wait = match opened {
            None => Duration::MAX,
            Some(store) => match look(&store, SystemTime::now()).await {
                Ok(keys) => {
                    tickets.share(keys);
                    LOOK
                }
                Err(error) => {
                    if lines.may_write() {
                        tracing::warn!(
                            "{error}; session tickets are by the keys that this process has"
                        );
                    }
                    AGAIN
                }
            },
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = stores.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads the keys, and rotates them if it is time and no other controller has.
async fn look(store: &SealedStore, now: SystemTime) -> Result<TicketKeys, ShareError> {
    let key = Key::new("tickets/keys")?;
    let mut entry = store.store().get(&key).await?;
    for _ in 0..TRIES {
        let found = entry.as_ref().and_then(|it| decoded(store, it)).unwrap_or_default();
        let Some(new) = found.rotated(now)? else { return Ok(found) };
        let expect = entry.map_or(Expect::Absent, |it| Expect::Modified(it.modified));
        let text = serde_json::to_vec(&new).expect("our types are plain JSON");
        let value = store.seal(&key, &text)?;
        match store.store().compare_and_put(&key, expect, value).await? {
            Committed::Done(_) => {
                tracing::info!("the keys of session tickets were rotated for the cluster");
                return Ok(new);
            }
            Committed::Refused(refusal) => entry = refusal.found,
        }
    }
    Err(ShareError::Replaced)
}

/// `None`: the keys are of another authority.
fn decoded(store: &SealedStore, entry: &Entry) -> Option<TicketKeys> {
    serde_json::from_slice(&store.open(entry)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use equipoise_store::{Embedded, EmbeddedOptions, Store};

    use super::*;

    fn at(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs((1_000 + hours) * 3600)
    }

    async fn opened(folder: &tempfile::TempDir) -> Arc<dyn Store> {
        let options = EmbeddedOptions::new(folder.path().join("store"));
        Arc::new(Embedded::open(options).await.unwrap())
    }

    #[tokio::test]
    async fn members_agree_on_keys_and_one_of_them_rotates() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder).await;
        let [a, b] = [(); 2].map(|()| SealedStore::new(Arc::clone(&store), &[7; 32]));
        let (first, same) = tokio::join!(look(&a, at(0)), look(&b, at(0)));
        let (first, same) = (first.unwrap(), same.unwrap());
        assert_eq!(first, same);
        assert_eq!(look(&b, at(5)).await.unwrap(), first);
        // The clocks differ: one rotates earlier.
        let second = look(&b, at(6)).await.unwrap();
        assert_ne!(second, first);
        assert_eq!(look(&a, at(5)).await.unwrap(), second);
        let mut written = Vec::new();
        for hour in 6..60 {
            let (a, b) = tokio::join!(look(&a, at(hour)), look(&b, at(hour)));
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!(a, b);
            if written.last() != Some(&a) {
                written.push(a);
            }
        }
        assert_eq!(written.len(), 9, "a rotation each six hours");
    }

    #[tokio::test]
    async fn keys_are_encrypted_and_those_of_another_authority_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder).await;
        let of = |secret| SealedStore::new(Arc::clone(&store), &[secret; 32]);
        let old = look(&of(1), at(0)).await.unwrap();
        let key = Key::new("tickets/keys").unwrap();
        let value = store.get(&key).await.unwrap().unwrap().value;
        assert!(serde_json::from_slice::<TicketKeys>(&value).is_err());
        let new = look(&of(2), at(0)).await.unwrap();
        assert_ne!(new, old);
        assert_eq!(look(&of(2), at(1)).await.unwrap(), new);
    }
}

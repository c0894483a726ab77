//! Keys in the cluster's store.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use equipoise_basics::OncePerMinute;
use equipoise_store::{
    CannotSeal, Committed, Entry, Expect, Key, Revision, SealedStore, SharedError,
};
use equipoise_tls::{TicketKeys, Tickets};
use tokio::sync::watch;

/// Interval between looks at the store.
const LOOK: Duration = Duration::from_secs(60);

/// Time after which keys from the future that no controller has renewed are replaced: longer than a
/// rotation (6 h), so that the controller that made them would have renewed them.
const RENEWED_WITHIN: Duration = Duration::from_secs(7 * 3600);

/// Wait after a look that failed.
const AGAIN: Duration = Duration::from_secs(2);

/// Replacements of the keys that a look tries, when others replace them at the same time.
const TRIES: usize = 3;

/// Uses the keys of the store while it is open, and rotates them; ends with the sender.
pub async fn follow_store(mut stores: watch::Receiver<Option<Arc<SealedStore>>>, tickets: Tickets) {
    let (mut lines, mut clocks) = (OncePerMinute::default(), Clocks::default());
    loop {
        let opened = stores.borrow_and_update().clone();
        let wait = match opened {
            None => Duration::MAX,
            Some(store) => match look(&store, Now::read(), &mut clocks).await {
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

/// The time of a look.
#[derive(Clone, Copy)]
struct Now {
    wall: SystemTime,
    /// By a clock that is never set.
    steady: Instant,
}

impl Now {
    fn read() -> Now {
        Now { wall: SystemTime::now(), steady: Instant::now() }
    }
}

/// Keys from the future: another controller's clock is ahead of this machine's by more than a
/// rotation, or was.
///
/// The controller that is behind does not rotate. Otherwise the two would replace each
/// other's keys each minute, and no ticket would be valid for longer, also if the clock that is
/// behind is the wrong one, as after a boot without NTP. It still opens tickets of these keys, and
/// encrypts its own with keys of its process. Keys that no controller renews are replaced, so that
/// a clock that was ahead for a moment does not end rotations.
#[derive(Default)]
struct Clocks {
    /// The keys from the future that were found, and since when they are the same.
    ahead: Option<(Revision, Instant)>,
    /// When keys from the future were found last. Of a clock that is ahead by less than two
    /// rotations, they are not always from the future.
    found_at: Option<Instant>,
    /// The keys that this process has written last. If they are from the future, its own clock was
    /// wrong.
    own: Option<Revision>,
}

impl Clocks {
    /// Whether the keys of an entry must stay. Logs it the first time.
    fn keep(&mut self, keys: &TicketKeys, modified: Revision, now: Now) -> bool {
        let Some(ahead) = keys.ahead(now.wall).filter(|_| self.own != Some(modified)) else {
            self.ahead = None;
            return false;
        };
        let passed = |since: Instant| now.steady.saturating_duration_since(since);
        if self.found_at.is_none_or(|at| passed(at) > RENEWED_WITHIN) {
            let hours = ahead.as_secs() / 3600;
            tracing::warn!(
                "the keys of session tickets in the cluster's store are of a controller whose clock is at least \
                 {hours} h ahead of this machine's: compare the controllers' clocks, and check NTP (`timedatectl`). \
                 Until then this controller does not replace these keys, and session tickets of this machine may be \
                 valid only here"
            );
        }
        self.found_at = Some(now.steady);
        let since = match self.ahead {
            Some((same, since)) if same == modified => since,
            _ => now.steady,
        };
        self.ahead = Some((modified, since));
        passed(since) < RENEWED_WITHIN
    }
}

/// Reads the keys, and rotates them if it is time and no other controller has.
async fn look(
    store: &SealedStore,
    now: Now,
    clocks: &mut Clocks,
) -> Result<TicketKeys, SharedError> {
    let key = Key::new("tickets/keys")?;
    let mut entry = store.store().get(&key).await?;
    let mut tries = 0..TRIES;
    loop {
        tries.next();
        let known = entry.as_ref().and_then(|it| Some((decoded(store, it)?, it.modified)));
        if let Some((found, modified)) = &known
            && clocks.keep(found, *modified, now)
        {
            return Ok(found.clone());
        }
        let found = known.map(|(found, _)| found).unwrap_or_default();
        let Some(new) = found.rotated(now.wall).map_err(|_| CannotSeal)? else { return Ok(found) };
        let expect = entry.map_or(Expect::Absent, |it| Expect::Modified(it.modified));
        let text = serde_json::to_vec(&new).expect("our types are plain JSON");
        let value = store.seal(&key, &text)?;
        match store.store().compare_and_put(&key, expect, value).await? {
            Committed::Done(revision) => {
                clocks.own = Some(revision);
                tracing::info!("the keys of session tickets were rotated for the cluster");
                return Ok(new);
            }
            Committed::Refused(refusal) if tries.is_empty() => {
                return Err(SharedError::Replaced(Box::new(refusal)));
            }
            Committed::Refused(refusal) => entry = refusal.found,
        }
    }
}

/// `None`: the keys are of another authority.
fn decoded(store: &SealedStore, entry: &Entry) -> Option<TicketKeys> {
    serde_json::from_slice(&store.open(entry)?).ok()
}

#[cfg(test)]
mod tests;

//! A watch that survives lost connections, failed members and compactions.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::Waits;
use etcd_client::{WatchOptions, WatchStream};
use tokio::time::{sleep, timeout};

use super::failure::{Verdict, judge};
use super::{Etcd, convert};
use crate::watch::WatchSource;
use crate::{Prefix, Revision, StoreError, Update, WatchEvent};

/// Minimum and maximum delay between reconnects.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Has the whole state that [`WatchSource::next`] needs to continue, so that it may be cancelled at
/// any `await`.
pub(super) struct Follower {
    etcd: Etcd,
    prefix: Prefix,
    /// Updates up to this revision were reported, or are in `pending`.
    seen: Revision,
    pending: VecDeque<Update>,
    stream: Option<WatchStream>,
    /// Updates after `seen` are no longer available.
    must_list: bool,
    waits: Waits,
}

impl Follower {
    pub(super) fn new(etcd: Etcd, prefix: Prefix, after: Revision) -> Follower {
        let pending = VecDeque::new();
        let (stream, must_list) = (None, false);
        let waits = Waits::new(PAUSE_MIN, PAUSE_MAX);
        Follower { etcd, prefix, seen: after, pending, stream, must_list, waits }
    }

    /// Processes the next answer of etcd: extends `pending`, sets `must_list`, or advances `seen`.
    async fn take_answer(&mut self) -> Result<(), etcd_client::Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => match timeout(self.etcd.patience, connect(&self.etcd, &self.prefix, self.seen))
                .await
            {
                Ok(connected) => none.insert(connected?),
                Err(_) => return Err(etcd_client::Error::WatchError("no answer".to_string())),
            },
        };
        let message = stream.message().await?;
        let Some(answer) = message else {
            return Err(etcd_client::Error::WatchError("the member ended the watch".to_string()));
        };
        if answer.compact_revision() > 0 {
            self.must_list = true;
            return Ok(());
        }
        if answer.canceled() {
            let reason = answer.cancel_reason().to_string();
            return Err(etcd_client::Error::WatchError(reason));
        }
        let now = answer.header().map(|header| convert::revision(header.revision()));
        if answer.created() {
            // A store with a smaller revision is a different store, or was restored from a backup.
            self.must_list = now.is_some_and(|now| now < self.seen);
        } else if answer.events().is_empty() {
            self.seen = self.seen.max(now.unwrap_or_default());
        }
        let (updates, last) = self.etcd.names.updates(&answer);
        self.seen = last.unwrap_or(self.seen);
        self.pending.extend(updates);
        self.waits.succeeded();
        Ok(())
    }
}

async fn connect(
    etcd: &Etcd,
    prefix: &Prefix,
    seen: Revision,
) -> Result<WatchStream, etcd_client::Error> {
    let options = WatchOptions::new()
        .with_prefix()
        .with_progress_notify()
        .with_start_revision(convert::revision_number(seen).saturating_add(1));
    etcd.client.watch_client().watch(etcd.names.folder(prefix), Some(options)).await
}

#[async_trait]
impl WatchSource for Follower {
    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(WatchEvent::Update(update));
            }
            if self.must_list {
                self.stream = None;
                match self.etcd.list_folder(&self.prefix).await {
                    Ok(listing) => {
                        self.seen = listing.revision;
                        self.must_list = false;
                        return Ok(WatchEvent::Resync(listing));
                    }
                    Err(error) if error.is_passing() => {}
                    Err(error) => return Err(error),
                }
            } else {
                let Err(error) = self.take_answer().await else { continue };
                self.stream = None;
                match judge(error, None) {
                    (Verdict::GiveUp(error @ StoreError::Denied(_)), _) => return Err(error),
                    (_, error) => {
                        tracing::info!(prefix = %self.prefix, %error, "a watch is connected anew");
                    }
                }
            }
            sleep(self.waits.failed()).await;
        }
    }
}

//! Behaviour of every store. [`behaviour!`] runs all tests against one implementation.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod concurrency;
mod entries;
mod leases;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_store::{Committed, Entry, Key, Prefix, Revision, Store, WatchEvent};

pub(crate) use concurrency::*;
pub(crate) use entries::*;
pub(crate) use leases::*;
pub(crate) use watches::*;

/// Set-up of an implementation for the tests.
#[async_trait]
pub(crate) trait Bench: Send + Sync {
    /// Returns a store without other users.
    fn store(&self) -> Arc<dyn Store>;
    /// Makes the store drop its history up to now.
    async fn forget_history(&self);
    /// Returns a short time to live that the store grants.
    fn time_to_live(&self) -> Duration;
}

/// Timeout of events that come without a request, such as the end of a lease.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key")
}

pub(crate) fn folder(text: &str) -> Prefix {
    Prefix::of(text).expect("a test's folder")
}

pub(crate) async fn put(store: &dyn Store, name: &str, value: &str) -> Revision {
    store.put(&key(name), value.as_bytes().into()).await.expect("a put")
}

pub(crate) async fn get(store: &dyn Store, name: &str) -> Option<Entry> {
    store.get(&key(name)).await.expect("a get")
}

pub(crate) fn done(committed: Committed) -> Revision {
    committed.done().expect("its conditions hold")
}

/// Returns the next event; fails the test after the timeout.
pub(crate) async fn next(watch: &mut equipoise_store::Watch) -> WatchEvent {
    let event = tokio::time::timeout(PATIENCE, watch.next()).await;
    event.expect("an event comes").expect("the watch lives")
}

/// Waits until `name` is deleted.
pub(crate) async fn until_gone(store: &dyn Store, name: &str) {
    let parent = name.rsplit_once('/').expect("keys of tests have folders").0;
    let listing = store.list(&folder(parent)).await.expect("a list");
    if !listing.entries.iter().any(|entry| entry.key.as_str() == name) {
        return;
    }
    let mut watch = store.watch(folder(parent), listing.revision).await.expect("a watch");
    loop {
        if let WatchEvent::Update(update) = next(&mut watch).await
            && update.changes.contains(&equipoise_store::Change::Deleted(key(name)))
        {
            return;
        }
    }
}

/// Defines a test of each behaviour for the store that `$bench` sets up (an async function that
/// returns `Option<impl Bench>`). Omits `a_watch_that_missed_forgotten_history_is_told_all_anew`,
/// which needs a store of its own.
macro_rules! behaviour {
    ($bench:path: $($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            if let Some(bench) = $bench().await {
                crate::behaviour::$name(&bench).await;
            }
        }
    )*};
    ($bench:path) => {
        behaviour!($bench:
            a_value_is_read_back,
            a_key_knows_when_it_was_made_and_when_it_was_put,
            deleting_what_is_not_there_changes_nothing,
            a_listing_is_one_folder_in_order,
            a_transaction_is_done_whole_or_not_at_all,
            a_refusal_names_the_first_condition_that_does_not_hold,
            what_breaks_a_limit_is_refused,
            of_those_who_compare_and_put_one_wins,
            a_counter_misses_no_increment,
            a_watch_tells_every_change_once_and_in_order,
            a_watch_tells_a_transaction_whole,
            a_watch_resumes_where_another_ended,
            a_watch_tells_only_of_its_folder,
            a_watch_from_a_revision_not_yet_reached_is_told_all_anew,
            a_cancelled_wait_loses_no_event,
            a_lease_that_nobody_keeps_alive_ends_with_what_is_under_it,
            a_lease_that_is_kept_alive_stays,
            a_revoked_lease_ends_at_once,
            an_ended_lease_takes_nothing_and_is_not_revived,
            a_put_without_lease_frees_the_key,
            a_held_lease_knows_that_it_was_lost,
            one_candidate_leads_and_the_next_after_it,
            a_former_leader_writes_nothing,
            a_leader_that_dies_is_replaced,
            a_member_is_seen_until_it_goes,
            a_name_is_taken_once,
            a_restarted_member_gets_its_name_back,
            a_member_that_lost_its_lease_joins_again,
        );
    };
}
pub(crate) use behaviour;

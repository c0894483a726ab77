//! The readers of groups: opened for slices that this worker receives, and closed when unused.

use std::time::Duration;

use crate::ids::{Group, Groups, SliceId};
use crate::worker::{Output, Worker};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Subscription {
    pub ready: bool,
    pub settled: bool,
    /// Since when it is not needed.
    pub idle: Option<Duration>,
}

impl<T: Clone> Worker<T> {
    /// The readers of `group` are open. They have matched every writer known at their opening, or
    /// have waited for it long enough. Items of later writers come by a detour, and are not lost.
    pub fn subscribed(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            self.subscriptions_ready(now);
        }
    }

    /// The readers of `group` have matched every writer that existed when they were opened, and
    /// earlier items of these writers have arrived at every reader: seconds after `subscribed`.
    pub fn settled(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            subscription.settled = true;
            self.subscriptions_ready(now);
            self.subscriptions_settled(now);
        }
    }

    pub(super) fn subscribe(&mut self, group: Group) {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.subscriptions.entry(group) {
            entry.insert(Subscription::default());
            self.out.push_back(Output::Subscribe(group));
        }
    }

    /// Opens readers of the groups that carry items of `slice`.
    pub(super) fn subscribe_to(&mut self, slice: SliceId) {
        for group in self.numbering.groups_of(slice) {
            self.subscribe(group);
        }
    }

    /// A reader may not be needed any more.
    pub(super) fn unsubscribe_idle(&mut self) {
        self.may_be_idle = true;
    }

    /// Closes readers that were not needed for [`Config::linger`].
    pub(super) fn tick_subscriptions(&mut self, now: Duration) {
        if !self.may_be_idle {
            return;
        }
        let mut needed = Groups::default();
        let slices = self.owned.keys().chain(self.released.keys()).copied();
        let slices = slices.chain(self.standby.slices());
        let groups = slices
            .flat_map(|slice| self.numbering.groups_of(slice))
            .chain(self.taking.values().filter(|t| t.is_coming()).flat_map(|t| t.groups.iter()))
            .chain([Group::BASE]);
        groups.for_each(|group| needed.insert(group));
        self.may_be_idle = false;
        let mut over = Vec::new();
        for (group, subscription) in &mut self.subscriptions {
            if needed.contains(*group) {
                subscription.idle = None;
                continue;
            }
            let since = *subscription.idle.get_or_insert(now);
            if now.saturating_sub(since) >= self.config.linger {
                over.push(*group);
            } else {
                self.may_be_idle = true;
            }
        }
        for group in over {
            self.subscriptions.remove(&group);
            self.seen.retain(|writer, _| writer.group != group);
            self.gone.retain(|writer, _| writer.group != group);
            self.out.push_back(Output::Unsubscribe(group));
        }
    }
}

//! Routes that no request can take, because an earlier one takes all of theirs.

use crate::Table;
use crate::condition::{Conditions, FieldCondition, HostCondition, PathCondition, is_below};

impl Table {
    /// Routes that never get a request, each with the earlier route that takes all of theirs. A
    /// route that only several earlier ones together hide is not found.
    pub fn hidden(&self) -> Vec<(usize, usize)> {
        let routes = self.routes();
        let hiding = |route: usize| {
            routes[..route].iter().position(|earlier| earlier.covers(&routes[route]))
        };
        (1..routes.len()).filter_map(|route| Some((route, hiding(route)?))).collect()
    }
}

impl Conditions {
    /// Whether every request that meets `other` meets these.
    fn covers(&self, other: &Conditions) -> bool {
        all_in(&self.hosts, &other.hosts, covers_host)
            && all_in(&self.paths, &other.paths, covers_path)
            && all_in(&self.methods, &other.methods, |a, b| a == b)
            && all_in(&self.sources, &other.sources, |a, b| a.covers(b))
            && are_stated(&self.headers, &other.headers)
            && are_stated(&self.query, &other.query)
    }
}

/// Whether each of `others` is covered by one of `these`. An empty list stands for everything.
fn all_in<T>(these: &[T], others: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    let is_covered = |other: &T| these.iter().any(|this| covers(this, other));
    these.is_empty() || (!others.is_empty() && others.iter().all(is_covered))
}

/// Whether all of `these` are among `others`.
fn are_stated(these: &[FieldCondition], others: &[FieldCondition]) -> bool {
    these.iter().all(|condition| {
        let covers = |other: &FieldCondition| {
            let is_any = condition.value == crate::ValueCondition::Present;
            condition.name == other.name && (is_any || condition.value == other.value)
        };
        others.iter().any(covers)
    })
}

fn covers_host(this: &HostCondition, other: &HostCondition) -> bool {
    match (this, other) {
        (HostCondition::Below(_), HostCondition::Exact(name)) => this.fits(name.as_bytes()),
        (HostCondition::Below(domain), HostCondition::Below(other)) => {
            domain == other || this.fits(other.as_bytes())
        }
        (HostCondition::Exact(_), _) => this == other,
    }
}

fn covers_path(this: &PathCondition, other: &PathCondition) -> bool {
    match (this, other) {
        (PathCondition::Prefix(prefix), _) if prefix.is_empty() => true,
        (
            PathCondition::Prefix(prefix),
            PathCondition::Exact(path) | PathCondition::Prefix(path),
        ) => is_below(path.as_bytes(), prefix.as_bytes()),
        (PathCondition::Regex(_), PathCondition::Exact(path)) => this.fits(path.as_bytes()),
        _ => this == other,
    }
}

//! Zones: from what the configuration and a zone file say to what queries are answered from.

mod balance;
mod build;
mod collect;
mod error;
pub mod file;
mod nested;
mod view;

pub use build::{SnapshotInput, build};
pub use collect::check;
pub use error::ZoneError;
pub use nested::{ZoneTree, check_below};

/// How a node stands, for the names that it serves. They are given in this order: those of the first standing that any
/// has, and those that are down never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is given to clients.
    #[default]
    Serving,
    /// It takes no new clients; names that it serves have a shorter TTL. Given if none of a name's nodes serves.
    Draining,
    /// Its checks fail: given only if nobody is better, for a check may be wrong.
    Unhealthy,
    /// It drains, and its checks fail.
    DrainingUnhealthy,
    /// It is set down: never given.
    Down,
}

impl Standing {
    /// Whether it takes no new clients by somebody's wish.
    pub fn drains(self) -> bool {
        matches!(self, Standing::Draining | Standing::DrainingUnhealthy)
    }
}

/// A node as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeState {
    /// How it stands.
    pub standing: Standing,
    /// Its share of clients against those of the others: a weight or a planned probability. Not negative.
    pub share: f64,
}

#[cfg(test)]
mod tests;

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
pub use nested::check_below;

/// How a node stands, for the names that it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is given to clients.
    #[default]
    Serving,
    /// It takes no new clients; names that it serves have a shorter TTL.
    Draining,
    /// Its checks fail: given only if all of a name's nodes are like that.
    Unhealthy,
    /// It is set down: never given.
    Down,
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

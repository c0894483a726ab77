//! Zones: from configuration and zone file to the snapshot that answers queries.

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

#[cfg(test)]
mod tests;

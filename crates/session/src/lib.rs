//! The session level: the virtual client.
//!
//! What comes in: [`Snapshot`]s (pools with their eligible backends, front doors with their limits),
//! published atomically. What goes out: [`BackendEvent`]s and counters ([`stats`]). How it fails: every
//! refusal and loss has a [`Reason`], counted under that name.

pub mod config;
mod engine;
pub mod health;
mod live;
mod reason;
pub mod registry;
mod snapshot;
pub mod stats;

pub use engine::{BindError, Engine, EngineOptions, StopReport};
pub use live::BackendLive;
pub use reason::Reason;
pub use snapshot::{BackendEvent, BackendView, FrontDoorView, PoolView, Snapshot};

//! The slice level over DDS: what `equipoise_slice` decides, done.
//!
//! - [`worker::Worker`]: reads the groups of its slices, speaks the protocol, and gives an [`worker::Application`] one job of
//!   each slice at a time. In: items and mail of DDS. Out: replies, mail, jobs.
//! - [`controller`]: the table of slices in the store, the balancing, what operators ask for; by the leader of an election.
//! - [`client::Client`]: publishes items, each into its group, and keeps them until there is a reply.
//!
//! It fails with DDS's or the store's errors. What comes of the network and makes no sense is dropped with a
//! [`DropReason`].

pub mod client;
pub mod controller;
mod drops;
mod mail;
mod payload;
mod sources;
mod stream;
mod transport;
pub mod worker;

pub use drops::DropReason;
#[doc(hidden)]
pub use mail::{Passing, watch_messages};
pub use mail::{Report, SliceReport};
pub use payload::Payload;
pub use stream::{Stream, partition, worker_id};

//! The slice level over DDS: carries out the decisions of `equipoise_slice`.
//!
//! - [`worker::Worker`]: reads the groups of its slices, runs the protocol, and gives an
//!   [`worker::Application`] one job of each slice at a time. Input: items and messages from DDS.
//!   Output: replies, messages, jobs.
//! - [`client::Client`]: publishes items, each into its group, and keeps each until its reply
//!   comes.
//!
//! A program with its own worker or client needs only this crate:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use equipoise_slice_dds::client::{self, Assignment, Client};
//! use equipoise_slice_dds::worker::{self, Threads, Worker};
//! use equipoise_slice_dds::{DataItem, Stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stream = Stream { domain: 5, ..Stream::default() };
//!
//! // A worker: two threads that answer each item with its length.
//! let process = |item: &DataItem<'_>| item.message.len().to_string().into_bytes();
//! let options = worker::Options::new("worker-1", 50);
//! let worker = Worker::start(&stream, options, Threads::new(2, process))?;
//!
//! // A client: publishes, and waits for the replies.
//! let (mut client, slices) = (Client::join(&stream, client::Options::new(1))?, Assignment::Hash(50));
//! for id in 0..100 {
//!     client.publish(slices.slice(id), id as i64, b"an item")?;
//! }
//! let mut answers = Vec::new();
//! while client.pending() > 0 {
//!     client.replies(Duration::from_millis(100), &mut answers)?;
//! }
//!
//! // Its slices go to other workers before it ends.
//! worker.leave();
//! # Ok(())
//! # }
//! ```
//!
//! The leader's side of the level is the crate `equipoise-slices`.
//!
//! Its functions fail with errors of DDS. Invalid input from the network is dropped with a
//! [`DropReason`].

pub mod client;
mod connections;
mod drops;
mod form;
#[doc(hidden)]
pub mod greyscale;
mod hello;
mod mail;
mod payload;
mod sources;
mod stream;
mod transport;
pub mod worker;

/// Messages, connections and topics, for the leader's side.
#[doc(hidden)]
pub mod leader {
    pub use crate::drops::DropCounts;
    pub use crate::hello::{FRAME, Hello, Listens, Nonce, Strange};
    pub use crate::mail::{CONTROLLERS, Mail, Unreadable};
    pub use crate::stream::{Topics, is_late, item_qos, mail_qos};
}

pub use drops::DropReason;
pub use equipoise_dds::items::DataItem;
pub use equipoise_dds::{Multicast, Settings};
pub use equipoise_slice::transport::Token;
pub use equipoise_slice::{Config, Order, SliceId};
pub use form::OwnType;
pub use mail::{InHand, Report, SliceReport, Terms};
#[doc(hidden)]
pub use mail::{Passing, watch_messages};
pub use payload::Payload;
pub use stream::{Stream, partition, worker_id};

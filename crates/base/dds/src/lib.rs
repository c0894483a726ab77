//! A safe wrapper over Cyclone DDS: what a stream of data items needs of it, and no more.
//!
//! - In: [`Settings`] of a [`Domain`], types as IDL has them ([`StructType`]), serialized samples. Out: serialized samples,
//!   without a copy ([`Sample`]); whoever wants one decoded does that himself ([`items`]).
//! - Everything may be used from any thread. What depends on something keeps it alive.
//! - Failures are [`Error`]s. Samples that are none of the topic's type are dropped and counted ([`Topic::malformed`]).
//!   Nothing that comes of the network panics.
//! - Cyclone's log goes to `tracing`.
//!
//! Cyclone DDS has threads of its own, which receive and repeat; [`Waitset`] is where one of ours waits for them.

pub mod cdr;
mod domain;
mod endpoint;
mod entity;
mod error;
mod farewell;
mod heap;
pub mod idl;
mod incompatible;
mod interfaces;
pub mod items;
mod log;
mod participant;
mod publications;
mod qos;
mod reader;
mod types;
mod wait;
mod writer;

#[cfg(test)]
mod tests;

pub use domain::{Domain, Multicast, Settings};
pub use endpoint::{Endpoint, Guid, WriterHandle};
pub use error::{Cause, Error};
pub use farewell::announce_death;
pub use heap::trim_heap;
pub use incompatible::{Incompatible, Mismatch};
pub use participant::{Participant, Topic};
pub use publications::{Publication, Publications};
pub use qos::Qos;
pub use reader::{Reader, Sample};
pub use types::{Kind, Member, StructType, is_ros2};
pub use wait::{Waitset, Waker};
pub use writer::Writer;

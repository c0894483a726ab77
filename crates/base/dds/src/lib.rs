//! A safe wrapper over the part of Cyclone DDS that streams of data items need.
//!
//! - In: [`Settings`] of a [`Domain`], types as in IDL ([`StructType`]), serialized samples.
//! - Out: serialized samples without a copy ([`Sample`]). The caller decodes them ([`items`]).
//! - Failures are [`Error`]s. A sample that is not of the topic's type is dropped and counted
//!   ([`Topic::malformed`]). No input from the network causes a panic.
//! - Every object may be used from any thread, and keeps alive the objects that it depends on.
//! - Cyclone's log goes to `tracing`.
//!
//! Cyclone DDS receives and retransmits in its own threads. A thread of ours waits for samples in a
//! [`Waitset`].

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
pub use endpoint::{Endpoint, Guid, ReaderHandle, WriterHandle};
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
pub use writer::{Serialized, Writer};

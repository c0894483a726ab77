//! Events: log lines that have a type.
//!
//! **In**: every line of the log with a field `event`, through [`layer`]. A line of the target
//! `event` is an event only, and is not in the log. **Out**: a bounded [`EventJournal`], and its
//! [`Reader`]s. **Fails** never: a reader that is too slow gets the number of events that it lost.
//!
//! The field `subject` names the object. Without it, the fields `pool` and `backend` do. Further
//! fields follow the message, as in the log.

mod journal;
mod layer;
mod reader;

pub use crate::wire::event_kinds::KINDS;
pub(crate) use crate::wire::event_kinds::{check, check_id};
pub use journal::EventJournal;
pub use layer::layer;
pub(crate) use reader::{Filter, Reader, Stopping};

#[cfg(test)]
mod tests;

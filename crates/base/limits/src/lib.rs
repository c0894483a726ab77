//! Limits on clients: which addresses are served, how often, and with how many connections.
//!
//! In: addresses, keys and the time. Out: whether a client is within the limit. Each table has a
//! bound, and its documentation states what happens beyond the bound. No I/O, no clock.

mod access;
mod open;
mod rate;
mod source;

pub use access::AccessList;
pub use open::{Entered, OpenCounts};
pub use rate::{KeyedRate, Rate};
pub use source::SourceMask;

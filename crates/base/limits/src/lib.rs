//! What a client may do: which addresses are let in, how often, and how many at once.
//!
//! In: addresses, keys and the time. Out: whether it is within the limit. Every table has a bound
//! that is stated when it is made; what happens beyond it is said at each. No I/O, no clock.

mod access;
mod open;
mod rate;
mod source;

pub use access::{AccessList, Verdict};
pub use open::{Entered, OpenCounts};
pub use rate::{Rate, RateLimit};
pub use source::SourceMask;

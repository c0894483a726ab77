//! DNS messages, as far as an authoritative server reads and writes them.
//!
//! The hot path has its own reader and writer, with fixed buffers and no allocation. Types, names
//! and record data of zones are those of the `domain` crate. The tests also read our answers with
//! it.

pub(crate) mod code;
pub(crate) mod edns;
pub(crate) mod name;
pub(crate) mod query;
pub(crate) mod tail;
pub(crate) mod tsig;

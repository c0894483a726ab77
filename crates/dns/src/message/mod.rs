//! Messages of the DNS, as far as an authoritative server reads and writes them.
//!
//! The hot path has its own reader and writer, over fixed places and without allocation; types, names and record data
//! of zones are those of the `domain` crate, which the tests also read our answers with.

pub(crate) mod code;
pub(crate) mod edns;
pub(crate) mod name;
pub(crate) mod query;
pub(crate) mod tail;
pub(crate) mod tsig;

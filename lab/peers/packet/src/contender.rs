//! A program under test.

use std::os::fd::BorrowedFd;

use anyhow::Result;

/// A program's counters since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Packets sent on to a backend.
    pub(crate) forwarded: u64,
    /// Packets of unknown flows: misses of the LRU, flows logged.
    pub(crate) new_flows: u64,
    /// Packets with a backend from a table of flows: the LRU, the POG.
    pub(crate) recorded: u64,
    /// Backends that have received packets.
    pub(crate) backends: usize,
}

/// A loaded program with its tables, ready for traffic.
pub(crate) trait Contender {
    /// Column of its figures, and its name in messages.
    fn name(&self) -> &str;
    /// The program.
    fn program(&self) -> BorrowedFd<'_>;
    /// VIPs that its packets go to.
    fn vips(&self) -> u32;
    /// Called between batches: userspace's share of the work, which is not timed.
    fn keep_up(&mut self) -> Result<()>;
    /// See [`Counters`].
    fn counters(&self) -> Result<Counters>;
    /// Why packets were not forwarded, in words, for a message.
    fn complaints(&self) -> String {
        String::new()
    }
    /// Bytes that go before the packet that came.
    fn grows_by(&self) -> usize;
    /// Whether the packet that came is found unchanged behind what was put before it.
    fn keeps_packet(&self) -> bool;
    /// Kernel memory of its maps, by name, in bytes.
    fn maps(&self) -> Result<Vec<(String, u64)>>;
}

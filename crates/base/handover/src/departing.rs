//! A replaced process, as its successors see it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::{pread, pwrite};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

/// The number of connections of a replaced process, in memory that its successors read, and a
/// descriptor of the process. It outlives the successor that received it: the next one receives it
/// too.
#[derive(Debug)]
pub struct Departing {
    memory: OwnedFd,
    process: OwnedFd,
}

impl Departing {
    /// That of this process.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn of_this_process() -> io::Result<Departing> {
        Departing::of(getpid())
    }

    fn of(process: Pid) -> io::Result<Departing> {
        let memory = rustix::fs::memfd_create("equipoise-connections", MemfdFlags::CLOEXEC)?;
        let departing = Departing { memory, process: pidfd_open(process, PidfdFlags::empty())? };
        departing.set_connections(0)?;
        Ok(departing)
    }

    /// That of an earlier process, from the descriptors of its message.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Departing> {
        let [memory, process] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
        Some(Departing { memory, process })
    }

    /// The descriptors for a successor.
    pub fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.memory, &self.process]
    }

    /// Publishes the number of connections.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn set_connections(&self, connections: u64) -> io::Result<()> {
        pwrite(&self.memory, &connections.to_ne_bytes(), 0)?;
        Ok(())
    }

    /// The number of connections; `None` once the process has ended.
    pub fn connections(&self) -> Option<u64> {
        let mut process = [PollFd::new(&self.process, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut process, Some(&now)).is_ok_and(|ended| ended > 0) {
            return None;
        }
        let mut connections = [0; 8];
        pread(&self.memory, &mut connections, 0).ok()?;
        Some(u64::from_ne_bytes(connections))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn connections_are_seen_until_the_process_ends() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = Departing::of(Pid::from_child(&child)).unwrap();
        let copy = own.descriptors().map(|fd| fd.try_clone().unwrap());
        let seen = Departing::from_descriptors(copy.into()).unwrap();
        assert_eq!(seen.connections(), Some(0));
        own.set_connections(7).unwrap();
        assert_eq!(seen.connections(), Some(7));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(seen.connections(), None);
    }
}

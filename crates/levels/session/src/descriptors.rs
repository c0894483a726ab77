//! The process's file descriptors, divided among their uses.
//!
//! The kernel gives out the lowest free descriptor. The number of a new one is therefore a lower
//! bound of how many the whole process has open, libraries and other levels included, and nothing
//! has to be counted. Each use has a line: a descriptor at or above the line of its use is closed
//! again at once.
//!
//! From the top of the limit downwards each of these keeps one reserve, a sixteenth of the limit:
//!
//! 1. the API, health checks, log files and the other levels, which have no line;
//! 2. upstream sessions of clients that were accepted;
//! 3. UDP clients, while there are UDP front doors.
//!
//! Client connections may use all descriptors below that. UDP clients beyond their reserve use only
//! the lower half of the limit, because their source addresses can be forged, and those of TCP
//! cannot.

use std::os::fd::RawFd;

/// A reserve is this part of the limit.
const RESERVE_PART: u64 = 16;

/// The smallest reserve.
const RESERVE_MIN: u64 = 16;

/// File descriptors that the process may have open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    limit: u64,
}

/// The first descriptor that each use must not have, and the UDP clients that a front door may have
/// on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) sessions: RawFd,
    pub(crate) connections: RawFd,
    datagrams: RawFd,
    datagrams_reserved: RawFd,
    /// UDP clients of a front door on a thread, at most.
    pub(crate) udp_clients_max: usize,
    /// Of them, how many the reserve has room for.
    udp_clients_reserved: usize,
}

impl Descriptors {
    /// The limit of this process now.
    pub(crate) fn of_process() -> Descriptors {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Descriptors { limit: limit.unwrap_or(u64::MAX).min(RawFd::MAX as u64) }
    }

    /// Divides them, for so many threads and UDP front doors.
    pub(crate) fn divided(self, threads: usize, udp_doors: usize) -> Lines {
        let reserve = RESERVE_MIN.max(self.limit / RESERVE_PART);
        let line = |reserves: u64| {
            let line = self.limit.saturating_sub(reserves * reserve);
            RawFd::try_from(line).unwrap_or(RawFd::MAX)
        };
        let sockets = (threads * udp_doors).max(1);
        let share = |of: u64| usize::try_from(of).unwrap_or(usize::MAX) / sockets;
        let half = self.limit / 2;
        Lines {
            sessions: line(1),
            connections: line(if udp_doors > 0 { 3 } else { 2 }),
            datagrams: RawFd::try_from(half).unwrap_or(RawFd::MAX).min(line(2)),
            datagrams_reserved: line(2),
            udp_clients_max: share(half).max(1),
            udp_clients_reserved: share(reserve).max(1),
        }
    }
}

impl Lines {
    /// The line of a UDP client's socket; `clients` is how many its front door has on this thread,
    /// itself included.
    pub(crate) fn datagrams(&self, clients: usize) -> RawFd {
        let within = clients <= self.udp_clients_reserved;
        if within { self.datagrams_reserved } else { self.datagrams }
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Descriptors { limit: RawFd::MAX as u64 }.divided(1, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_use_has_a_reserve_that_lower_uses_cannot_take() {
        for limit in [256, 1024, 4096, 1 << 20] {
            for (threads, doors) in [(1, 1), (2, 1), (2, 3), (64, 4)] {
                let lines = Descriptors { limit }.divided(threads, doors);
                let reserve = 16.max(limit / 16) as RawFd;
                assert_eq!(lines.sessions, limit as RawFd - reserve);
                assert_eq!(lines.datagrams(1), lines.sessions - reserve);
                assert_eq!(lines.connections, lines.datagrams(1) - reserve);
                assert_eq!(lines.datagrams(usize::MAX), limit as RawFd / 2);
                assert!(lines.udp_clients_max >= 1);
                assert!(lines.udp_clients_max * threads * doors <= (limit as usize / 2).max(256));
            }
        }
    }

    #[test]
    fn without_udp_front_doors_connections_get_the_udp_reserve() {
        let lines = Descriptors { limit: 1024 }.divided(2, 0);
        assert_eq!((lines.connections, lines.sessions), (896, 960));
    }

    #[test]
    fn a_limit_below_the_reserves_leaves_clients_nothing() {
        let lines = Descriptors { limit: 20 }.divided(1, 1);
        assert_eq!((lines.sessions, lines.connections, lines.datagrams(1)), (4, 0, 0));
    }

    #[test]
    fn an_infinite_limit_is_divided_too() {
        let lines = Descriptors { limit: RawFd::MAX as u64 }.divided(8, 2);
        assert!(lines.datagrams(usize::MAX) < lines.connections);
        assert!(lines.connections < lines.sessions);
    }
}

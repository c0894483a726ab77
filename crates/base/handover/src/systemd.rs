//! Sockets that systemd has bound.
//!
//! # Source
//! sd_listen_fds(3). Deviates: sockets are recognized by their addresses, not by `LISTEN_FDNAMES`.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketType, sockopt};
use socket2::SockRef;

use crate::sockets::{Inherited, SocketName};

/// The first descriptor that systemd passes.
const FIRST: RawFd = 3;

/// Takes the sockets that systemd has passed to this process. Must be called once, before the
/// process opens any file.
pub fn activated() -> Inherited {
    let inherited = Inherited::default();
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return inherited;
    }
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    for fd in FIRST..FIRST.saturating_add(count) {
        // SAFETY: borrowed only for this call, which fails if the descriptor is not open.
        let is_open = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::CLOEXEC).is_ok();
        if !is_open {
            continue;
        }
        // SAFETY: systemd passed the descriptor to this process, and no other code knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        if let Some(name) = name(socket.as_fd()) {
            inherited.add(name, vec![socket]);
        }
    }
    inherited
}

/// The name of a bound socket; `None` if no level listens on such a socket.
fn name(socket: BorrowedFd<'_>) -> Option<SocketName> {
    let kind = sockopt::socket_type(socket).ok()?;
    let address = SockRef::from(&socket).local_addr().ok()?;
    match (kind, address.as_socket()) {
        (SocketType::STREAM, Some(address)) => Some(SocketName::Stream(address)),
        (SocketType::DGRAM, Some(address)) => Some(SocketName::Datagram(address)),
        (SocketType::STREAM, None) if sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX) => {
            address.as_pathname().map(|path| SocketName::Unix(path.to_owned()))
        }
        _ => None,
    }
}

//! Reports the state of the process to systemd.
//!
//! # Source
//! sd_notify(3): one datagram of `KEY=value` lines to the socket that `NOTIFY_SOCKET` names.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// State of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The front doors are open.
    Ready,
    /// The configuration is being read again. [`Notice::Ready`] follows, whether the reload
    /// succeeds or fails.
    Reloading,
    /// The process finishes its work in flight.
    Stopping,
    /// The process with this id has taken over, and is ready.
    Replaced(u32),
}

impl Notice {
    fn lines(self) -> String {
        match self {
            Notice::Ready => "READY=1\n".into(),
            // `Type=notify-reload` needs the time to distinguish this notice from an older one.
            Notice::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}\n", monotonic_us()),
            Notice::Stopping => "STOPPING=1\n".into(),
            Notice::Replaced(pid) => format!("MAINPID={pid}\nREADY=1\n"),
        }
    }
}

/// Sends `notice`, if systemd started the process with a notification socket.
pub(crate) fn notify(notice: Notice) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, &notice.lines()) {
        tracing::warn!(?notice, %error, "could not notify systemd");
    }
}

fn send(socket: &OsStr, lines: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address).map(drop)
}

fn monotonic_us() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writes of one timespec, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_one_datagram_to_the_named_socket() {
        let name = format!("equipoise-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        for (notice, starts) in [
            (Notice::Ready, "READY=1\n"),
            (Notice::Reloading, "RELOADING=1\nMONOTONIC_USEC="),
            (Notice::Stopping, "STOPPING=1\n"),
            (Notice::Replaced(7), "MAINPID=7\nREADY=1\n"),
        ] {
            send(OsStr::new(&format!("@{name}")), &notice.lines()).unwrap();
            let mut buffer = [0; 128];
            let length = receiver.recv(&mut buffer).unwrap();
            assert!(std::str::from_utf8(&buffer[..length]).unwrap().starts_with(starts));
        }
    }
}

//! Ports for the demo's front doors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// Returns `wanted` on loopback if it is free, otherwise any free port.
///
/// Another process may take the port before it is used. The front door then reports an error, and
/// the demo must be started again.
///
/// # Errors
/// The error of the operating system if no port is free.
pub(crate) fn free(transport: Transport, wanted: u16) -> io::Result<SocketAddr> {
    bound(transport, wanted).or_else(|_| bound(transport, 0))
}

/// Binds a port and closes it again.
fn bound(transport: Transport, port: u16) -> io::Result<SocketAddr> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match transport {
        Transport::Tcp => TcpListener::bind(address)?.local_addr(),
        Transport::Udp => UdpSocket::bind(address)?.local_addr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_replaced_by_a_free_one() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = taken.local_addr().map(|address| (address, taken)).unwrap();
        let chosen = free(Transport::Tcp, taken.0.port()).unwrap();
        assert_ne!(chosen, taken.0);
        assert!(TcpListener::bind(chosen).is_ok());
    }
}

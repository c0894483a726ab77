//! Ports for the demo's front doors.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

/// A port that is bound until this is dropped, so that no other one is the same.
#[derive(Debug)]
pub(crate) enum Port {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Port {
    /// `wanted` on loopback if it is free, otherwise any free port.
    ///
    /// Another process may take the port before it is used. The front door then reports an error,
    /// and the demo must be started again.
    ///
    /// # Errors
    /// The error of the operating system if no port is free.
    pub(crate) fn tcp(wanted: u16) -> io::Result<Port> {
        either(wanted, TcpListener::bind).map(Port::Tcp)
    }

    /// As [`Port::tcp`], for UDP.
    ///
    /// # Errors
    /// As [`Port::tcp`].
    pub(crate) fn udp(wanted: u16) -> io::Result<Port> {
        either(wanted, UdpSocket::bind).map(Port::Udp)
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Port::Tcp(listener) => listener.local_addr(),
            Port::Udp(socket) => socket.local_addr(),
        }
    }
}

fn either<T>(wanted: u16, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let on = |port| bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    on(wanted).or_else(|_| on(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_replaced_by_a_free_one() {
        let taken = Port::tcp(0).unwrap();
        let port = taken.address().unwrap().port();
        let chosen = Port::tcp(port).unwrap().address().unwrap();
        assert_ne!(chosen.port(), port);
        assert!(TcpListener::bind(chosen).is_ok());
    }
}

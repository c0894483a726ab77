use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use socket2::{Domain, Socket, Type};

/// A loopback TCP port that stays reserved while this lives, and refuses connections until a
/// listener binds it.
///
/// The usual "bind port 0, note the number, close" leaves a gap in which any process may receive
/// the number. This keeps a bound socket that never listens. Both reuse options are set, so a
/// listener that sets either one (std and tokio listeners set `SO_REUSEADDR`, the data plane
/// `SO_REUSEPORT`) may bind it at any time and repeatedly. No process receives it by accident: the
/// kernel gives neither a port 0 bind nor an outgoing connection a port with a bound socket. A
/// bound socket that does not listen belongs to no `SO_REUSEPORT` group, so it receives no
/// connection.
#[derive(Debug)]
pub struct ReservedPort {
    _holder: Socket,
    address: SocketAddr,
}

/// Reserves a port; see [`ReservedPort`].
pub fn free_port() -> ReservedPort {
    let holder = reusable_socket();
    let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    holder.bind(&any.into()).expect("a loopback port is free");
    let address = holder.local_addr().ok().and_then(|a| a.as_socket());
    ReservedPort { _holder: holder, address: address.expect("a bound socket has an address") }
}

impl ReservedPort {
    /// Its address on loopback.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on it; several may in turn, and several at once share the connections.
    pub fn listen(&self) -> TcpListener {
        let socket = reusable_socket();
        socket.bind(&self.address.into()).expect("the port is reserved for us");
        socket.listen(1024).expect("a bound socket can listen");
        socket.into()
    }
}

fn reusable_socket() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
    socket.set_reuse_address(true).expect("SO_REUSEADDR is always allowed");
    socket.set_reuse_port(true).expect("SO_REUSEPORT is always allowed");
    socket
}

/// A port that listens, never accepts, and has a full queue: connecting to it times out.
#[derive(Debug)]
pub struct FullBacklog {
    _listener: Socket,
    _queued: Vec<Socket>,
    address: SocketAddr,
}

impl FullBacklog {
    /// Fills the queue until the kernel drops further handshakes.
    pub fn start() -> FullBacklog {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        listener.bind(&any.into()).expect("a loopback port is free");
        listener.listen(0).expect("a bound socket can listen");
        let address = listener.local_addr().ok().and_then(|a| a.as_socket());
        let address = address.expect("a bound socket has an address");
        let mut queued = Vec::new();
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            // The kernel completes connections that fit the queue within the call, unless the
            // machine is very busy.
            let patience = std::time::Duration::from_secs(1);
            let outcome = socket.connect_timeout(&address.into(), patience);
            queued.push(socket);
            match outcome {
                Ok(()) => assert!(queued.len() < 64, "the queue of {address} does not fill"),
                Err(_) => return FullBacklog { _listener: listener, _queued: queued, address },
            }
        }
    }

    /// Where it does not answer.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A loopback port, for UDP and for TCP, that no other user of this crate is given while this
/// lives.
///
/// A UDP socket kept bound as for TCP would be given datagrams. So the number is taken outside the
/// range of automatic ports, and a TCP socket bound to the same number of [`MARKS`] is the mark
/// that it is taken.
#[derive(Debug)]
pub struct UdpPort {
    _mark: Socket,
    address: SocketAddr,
}

/// A loopback address without listeners.
const MARKS: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 254);

impl UdpPort {
    /// Reserves one.
    pub fn reserve() -> UdpPort {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        const FIRST: u16 = 20_000;
        const COUNT: u16 = 12_000;
        let start = (std::process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let number = FIRST + (start + NEXT.fetch_add(1, Relaxed)) % COUNT;
            let mark = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
            if mark.bind(&SocketAddr::from((MARKS, number)).into()).is_err() {
                continue;
            }
            // Of all addresses, since some listen so.
            let any = (Ipv4Addr::UNSPECIFIED, number);
            if UdpSocket::bind(any).is_ok()
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                let address = (Ipv4Addr::LOCALHOST, number).into();
                return UdpPort { _mark: mark, address };
            }
        }
        panic!("no port from {FIRST} to {} is free", FIRST + COUNT);
    }

    /// Its address on loopback.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Makes the closing of `stream` a reset.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    let linger = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
    linger.expect("SO_LINGER is always allowed");
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reserved_port_refuses_then_serves_then_refuses_again() {
        let port = free_port();
        assert!(TcpStream::connect(port.address()).is_err());
        for _ in 0..3 {
            let listener = port.listen();
            let client = TcpStream::connect(port.address()).expect("somebody listens");
            drop((listener.accept().expect("the client is there"), client, listener));
            assert!(TcpStream::connect(port.address()).is_err());
        }
        let plain = TcpListener::bind(port.address()).expect("SO_REUSEADDR alone is enough");
        TcpStream::connect(port.address()).expect("somebody listens");
        drop(plain);
    }

    #[test]
    fn reserved_ports_differ() {
        let ports: Vec<_> = (0..200).map(|_| free_port()).collect();
        let mut numbers: Vec<_> = ports.iter().map(|p| p.address().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn a_port_for_both_can_be_listened_on_and_is_given_once() {
        let ports: Vec<_> = (0..20).map(|_| UdpPort::reserve()).collect();
        for port in &ports {
            let both = (UdpSocket::bind(port.address()), TcpListener::bind(port.address()));
            assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
        }
        let mut numbers: Vec<_> = ports.iter().map(|p| p.address().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn a_full_backlog_does_not_answer() {
        let full = FullBacklog::start();
        let patience = std::time::Duration::from_millis(200);
        let error = TcpStream::connect_timeout(&full.address(), patience).expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

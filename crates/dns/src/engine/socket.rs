//! Opens the sockets of an address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use super::{Bound, LOOK};

/// An address that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} ({protocol}){}",
    match .source.kind() {
        io::ErrorKind::AddrInUse => ": another program does, such as systemd-resolved (try: ss -lnup 'sport = :53'); \
                                     accepted: an address and port that are free",
        io::ErrorKind::PermissionDenied => ": ports below 1024 need root or CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => ": this machine has no such address",
        _ => "",
    }
)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// `UDP` or `TCP`.
    pub protocol: &'static str,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// Datagrams that wait while a thread answers a batch; the kernel may grant less.
const RECEIVE_BYTES: usize = 4 << 20;
const BACKLOG: i32 = 1024;

/// Binds all addresses, but takes those that `before` has from there.
pub(super) fn bind_all(
    addresses: &[SocketAddr],
    before: &[Bound],
    threads: usize,
) -> Result<Vec<Bound>, BindError> {
    let mut all: Vec<Bound> = Vec::new();
    for address in addresses {
        if all.iter().any(|bound| bound.asked == *address) {
            continue;
        }
        all.push(match before.iter().find(|bound| bound.asked == *address) {
            Some(bound) => bound.clone(),
            None => bind(*address, threads)?,
        });
    }
    Ok(all)
}

/// Ports that the system chose for UDP and TCP has in use, until another is tried no more.
const CHOICES_MAX: usize = 16;

/// A port of 0 is one that the system chooses for UDP; it may be in use for TCP, and then another is chosen.
fn bind(asked: SocketAddr, threads: usize) -> Result<Bound, BindError> {
    let is_in_use = |error: &BindError| error.source.kind() == io::ErrorKind::AddrInUse;
    let choice = |_| match bind_once(asked, threads) {
        Err(error) if asked.port() == 0 && is_in_use(&error) => None,
        done => Some(done),
    };
    (1..CHOICES_MAX).find_map(choice).unwrap_or_else(|| bind_once(asked, threads))
}

fn bind_once(asked: SocketAddr, threads: usize) -> Result<Bound, BindError> {
    let error = |protocol| move |source| BindError { address: asked, protocol, source };
    free(asked)?;
    let first = datagrams(asked).map_err(error("UDP"))?;
    let address = local(&first).map_err(error("UDP"))?;
    let mut bound =
        Bound { asked, address, datagrams: vec![Arc::new(first)], listeners: Vec::new() };
    for _ in 1..threads {
        bound.datagrams.push(Arc::new(datagrams(address).map_err(error("UDP"))?));
    }
    for _ in 0..threads {
        bound.listeners.push(Arc::new(listener(address).map_err(error("TCP"))?));
    }
    Ok(bound)
}

/// `SO_REUSEPORT` would let two processes of one user share a port and its queries: that is refused.
fn free(address: SocketAddr) -> Result<(), BindError> {
    let probe = |kind: Type, protocol: Protocol| {
        let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if kind == Type::STREAM {
            // As for any server: what is in TIME_WAIT is no other program.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())
    };
    probe(Type::DGRAM, Protocol::UDP).map_err(|source| BindError {
        address,
        protocol: "UDP",
        source,
    })?;
    probe(Type::STREAM, Protocol::TCP).map_err(|source| BindError {
        address,
        protocol: "TCP",
        source,
    })
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn datagrams(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    // More than `rmem_max` is cut to it without an error.
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    socket.set_read_timeout(Some(LOOK))?;
    if address.ip().is_unspecified() {
        tell_destination(&socket, address)?;
    }
    no_path_discovery(&socket, address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listener(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(true)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn option(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the kernel reads an integer of the size that is said.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel says which address of ours a query was sent to: the answer has to come from it.
fn tell_destination(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        SocketAddr::V6(_) => option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

/// Forged "too big" messages must not make us fragment: answers are small enough for every path.
fn no_path_discovery(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => {
            option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
        }
        SocketAddr::V6(_) => {
            option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)
        }
    }
}

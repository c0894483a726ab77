//! Opens the sockets of an address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use equipoise_basics::{Transport, explain_listen};
use equipoise_handover::{Inherited, SocketName};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Bound, LOOK};

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({protocol})")]
pub struct BindError {
    /// The configured address.
    pub address: SocketAddr,
    /// `UDP` or `TCP`.
    pub protocol: &'static str,
    /// Error of the system call.
    #[source]
    pub source: io::Error,
}

/// Receive buffer of a UDP socket, bytes. It holds datagrams while the thread answers a batch; the
/// kernel may grant less.
const RECEIVE_BYTES: usize = 4 << 20;
const BACKLOG: i32 = 1024;

impl BindError {
    fn new(address: SocketAddr, protocol: &'static str, source: io::Error) -> BindError {
        let transport = if protocol == "UDP" { Transport::Udp } else { Transport::Tcp };
        BindError { address, protocol, source: explain_listen(source, address, transport) }
    }
}

/// Binds all addresses. Reuses the sockets of `before` for addresses that stay, and inherited ones.
pub(super) fn bind_all(
    inherited: &Inherited,
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
            None => match adopt(inherited, *address, threads)? {
                Some(bound) => bound,
                None => bind(*address, threads)?,
            },
        });
    }
    Ok(all)
}

/// Binds the addresses without inherited sockets, and adds these sockets to `inherited`.
pub(super) fn prepare(
    inherited: &Inherited,
    addresses: &[SocketAddr],
    threads: usize,
) -> Result<(), BindError> {
    for address in addresses {
        let has = |name| inherited.has(&name);
        if has(SocketName::Datagram(*address)) && has(SocketName::Stream(*address)) {
            continue;
        }
        let bound = bind_all(inherited, &[*address], &[], threads)?;
        for (name, sockets) in bound.into_iter().flat_map(Bound::into_sockets) {
            inherited.add(name, sockets);
        }
    }
    Ok(())
}

/// Takes the inherited sockets of an address, and adds what is missing for `threads`; `None` if
/// there are none for datagrams.
fn adopt(
    inherited: &Inherited,
    asked: SocketAddr,
    threads: usize,
) -> Result<Option<Bound>, BindError> {
    let error = |protocol| move |source| BindError::new(asked, protocol, source);
    let Some(sockets) = inherited.take(&SocketName::Datagram(asked)) else { return Ok(None) };
    let mut datagrams_bound: Vec<_> = sockets.into_iter().map(Socket::from).collect();
    let address = local(&datagrams_bound[0]).map_err(error("UDP"))?;
    for socket in &datagrams_bound {
        set_up(socket, address).map_err(error("UDP"))?;
    }
    while datagrams_bound.len() < threads {
        datagrams_bound
            .push(another(datagrams(address), &datagrams_bound[0]).map_err(error("UDP"))?);
    }
    let sockets = inherited.take(&SocketName::Stream(asked)).unwrap_or_default();
    let mut listeners: Vec<Socket> = sockets.into_iter().map(Socket::from).collect();
    for socket in &listeners {
        socket.set_nonblocking(true).map_err(error("TCP"))?;
        socket.listen(BACKLOG).map_err(error("TCP"))?;
    }
    while listeners.len() < threads {
        let opened = listener(address).map(|listener| Socket::from(OwnedFd::from(listener)));
        listeners.push(match listeners.first() {
            Some(first) => another(opened, first).map_err(error("TCP"))?,
            None => opened.map_err(error("TCP"))?,
        });
    }
    let datagrams = datagrams_bound.into_iter().map(Arc::new).collect();
    let listeners = listeners.into_iter().map(|socket| Arc::new(socket.into())).collect();
    Ok(Some(Bound { asked, address, datagrams, listeners }))
}

/// A further socket of an address, or the first one again if that was bound without `SO_REUSEPORT`,
/// as by systemd.
fn another(opened: io::Result<Socket>, first: &Socket) -> io::Result<Socket> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => first.try_clone(),
        opened => opened,
    }
}

/// Maximum number of ports to try when the configured port is 0.
const CHOICES_MAX: usize = 16;

/// Binds an address. For port 0, the kernel chooses a UDP port. If that port is in use for TCP,
/// tries another.
fn bind(asked: SocketAddr, threads: usize) -> Result<Bound, BindError> {
    let is_in_use = |error: &BindError| error.source.kind() == io::ErrorKind::AddrInUse;
    let choice = |_| match bind_once(asked, threads) {
        Err(error) if asked.port() == 0 && is_in_use(&error) => None,
        done => Some(done),
    };
    (1..CHOICES_MAX).find_map(choice).unwrap_or_else(|| bind_once(asked, threads))
}

fn bind_once(asked: SocketAddr, threads: usize) -> Result<Bound, BindError> {
    let error = |protocol| move |source| BindError::new(asked, protocol, source);
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

/// Checks that no other process uses the address. `SO_REUSEPORT` alone would let two processes of
/// one user share its queries.
fn free(address: SocketAddr) -> Result<(), BindError> {
    let probe = |kind: Type, protocol: Protocol| {
        let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if kind == Type::STREAM {
            // Connections in TIME_WAIT must not block the address.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())
    };
    let error = |protocol| move |source| BindError::new(address, protocol, source);
    probe(Type::DGRAM, Protocol::UDP).map_err(error("UDP"))?;
    probe(Type::STREAM, Protocol::TCP).map_err(error("TCP"))
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
    set_up(&socket, address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Sets the options of a UDP socket that do not concern its address.
fn set_up(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    // The kernel reduces a value above `rmem_max` without an error.
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    socket.set_read_timeout(Some(LOOK))?;
    if address.ip().is_unspecified() {
        tell_destination(socket, address)?;
    }
    no_path_discovery(socket, address)
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
    // SAFETY: the kernel reads an integer of the given size.
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

/// Makes the kernel report the destination address of each query. The answer must have it as its
/// source.
fn tell_destination(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        SocketAddr::V6(_) => option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

/// Disables path MTU discovery: forged "too big" messages must not make us fragment. Answers are
/// small enough for every path.
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

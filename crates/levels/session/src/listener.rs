//! Listening and accepting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::OncePerMinute;
use equipoise_handover::{Inherited, SocketName};
use socket2::{Domain, SockRef, Type};

use crate::config::Protocol;
use crate::door::Door;
use crate::reason::Reason;
use crate::socket::{self, Socket};
use crate::worker::Worker;
use crate::{http, tcp, udp};

/// Connections that the kernel queues for us.
const BACKLOG: i32 = 4096;

/// Accepting rests this long when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepted in a row before other tasks get their turn.
const BURST: usize = 32;

/// The name of a front door's sockets.
pub(crate) fn name(address: SocketAddr, protocol: Protocol) -> SocketName {
    match protocol {
        Protocol::Udp => SocketName::Datagram(address),
        Protocol::Tcp | Protocol::Http => SocketName::Stream(address),
    }
}

/// The inherited sockets of `address`, or else one new socket per thread, all or none.
///
/// The kernel spreads connections over them (`SO_REUSEPORT`). Since that option would also let two
/// processes share the port unknowingly, a socket without it is bound first to see that it is free.
pub(crate) fn bind(
    inherited: &Inherited,
    address: SocketAddr,
    protocol: Protocol,
    threads: usize,
) -> io::Result<Vec<OwnedFd>> {
    if let Some(sockets) = inherited.take(&name(address, protocol)) {
        return adopt(sockets, address, protocol, threads);
    }
    drop(open(address, protocol, false)?);
    (0..threads).map(|_| open(address, protocol, true).map(OwnedFd::from)).collect()
}

/// The inherited UDP socket of a front door with HTTP/3, or else a new one.
pub(crate) fn bind_http3(inherited: &Inherited, address: SocketAddr) -> io::Result<OwnedFd> {
    let sockets = inherited.take(&http3_name(address)).unwrap_or_default();
    match sockets.into_iter().next() {
        Some(socket) => {
            SockRef::from(&socket).set_nonblocking(true)?;
            Ok(socket)
        }
        None => open(address, Protocol::Udp, false).map(OwnedFd::from),
    }
}

/// The name of the UDP socket of a front door with HTTP/3.
pub(crate) fn http3_name(address: SocketAddr) -> SocketName {
    name(address, Protocol::Udp)
}

/// Prepares inherited sockets, and adds what is missing for `threads`.
///
/// A group of UDP sockets keeps its size: the kernel assigns clients to sockets by a hash over
/// their number. Another size would move clients to threads that do not know them.
fn adopt(
    mut sockets: Vec<OwnedFd>,
    address: SocketAddr,
    protocol: Protocol,
    threads: usize,
) -> io::Result<Vec<OwnedFd>> {
    for socket in &sockets {
        let socket = SockRef::from(socket);
        socket.set_nonblocking(true)?;
        match protocol {
            Protocol::Udp => udp::prepare(&socket, address)?,
            Protocol::Tcp | Protocol::Http => {
                socket.set_tcp_nodelay(true)?;
                socket.listen(BACKLOG)?;
            }
        }
    }
    while protocol != Protocol::Udp && sockets.len() < threads {
        let local = SockRef::from(&sockets[0]).local_addr()?.as_socket().unwrap_or(address);
        sockets.push(match open(local, protocol, true) {
            Ok(socket) => socket.into(),
            // It was bound without SO_REUSEPORT, as by systemd: the threads share it.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => sockets[0].try_clone()?,
            Err(error) => return Err(error),
        });
    }
    Ok(sockets)
}

fn open(address: SocketAddr, protocol: Protocol, shared: bool) -> io::Result<socket2::Socket> {
    let kind = if protocol == Protocol::Udp { Type::DGRAM } else { Type::STREAM };
    let socket =
        socket2::Socket::new(Domain::for_address(address), kind.nonblocking().cloexec(), None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if protocol == Protocol::Udp {
        udp::prepare(&socket, address)?;
    } else {
        socket.set_reuse_address(true)?;
        // Inherited by accepted sockets, which saves a system call per connection.
        socket.set_tcp_nodelay(true)?;
    }
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    if protocol != Protocol::Udp && shared {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

/// Accepts connections for a TCP or HTTP door until it closes, then what its queue still holds,
/// unless a successor accepts that.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    door: Rc<Door>,
    listener: Arc<OwnedFd>,
) -> io::Result<()> {
    let listener = socket::watch_shared(listener)?;
    let (mut lines, mut scarce) = (OncePerMinute::default(), false);
    loop {
        let limit = door.view().config.limits.connections_max;
        if door.open.get() >= limit {
            door.stats(|stats| stats.accept_pauses.add(1));
            while door.open.get() >= limit && !door.closing.get() {
                door.room.notified().await;
            }
        }
        let mut ready = tokio::select! {
            biased;
            () = door.closed() => {
                while !door.is_handed_over()
                    && let Ok((fd, peer)) = socket::accept(listener.as_raw_fd()) {
                    serve(&worker, &door, fd, peer);
                }
                return Ok(());
            }
            ready = listener.readable() => ready?,
        };
        worker.deadlines.look_at_memory();
        if worker.deadlines.is_memory_short() {
            pause(&door, &io::ErrorKind::OutOfMemory.into(), &mut lines).await;
            continue;
        }
        let line = worker.lines.get().connections;
        for _ in 0..BURST {
            if scarce {
                scarce = next_descriptor(listener.get_ref()).is_ok_and(|next| next >= line);
            }
            let accepted = match scarce {
                true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                false => socket::accept(listener.as_raw_fd()),
            };
            match accepted {
                Ok((fd, peer)) => {
                    scarce = fd.as_raw_fd() >= line;
                    serve(&worker, &door, fd, peer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    break;
                }
                Err(error) if is_exhaustion(&error) => {
                    pause(&door, &error, &mut lines).await;
                    break;
                }
                // The connection died in the queue, or the kernel reports a network error of it.
                Err(_) => {}
            }
            if door.open.get() >= limit {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Pauses because a resource has run out. Logs that at most once a minute.
async fn pause(door: &Door, error: &io::Error, lines: &mut OncePerMinute) {
    door.stats(|stats| stats.accept_pauses.add(1));
    if lines.may_write() {
        let door = &door.view().config.name;
        let limit = match error.kind() {
            io::ErrorKind::OutOfMemory => "instance.memory-max",
            _ => "the limit (ulimit -n)",
        };
        tracing::warn!(%door, %error, "accepting pauses until resources are free; raise {limit} or lower connections-max");
    }
    tokio::time::sleep(PAUSE).await;
}

/// The lowest descriptor that is free.
fn next_descriptor(listener: &impl AsFd) -> io::Result<RawFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(listener.as_fd(), 0)?.as_raw_fd())
}

fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| exhausted.contains(&code))
}

fn serve(worker: &Rc<Worker>, door: &Rc<Door>, fd: OwnedFd, peer: SocketAddr) {
    let Ok(socket) = Socket::new(fd) else {
        door.dropped(Reason::OutOfResources);
        return;
    };
    let (worker, door) = (worker.clone(), door.clone());
    let protocol = door.view().config.protocol;
    match protocol {
        Protocol::Http => {
            tokio::task::spawn_local(http::serve(worker, door, socket, peer));
        }
        Protocol::Tcp => {
            tokio::task::spawn_local(tcp::serve(worker, door, socket, peer));
        }
        Protocol::Udp => unreachable!("UDP doors do not accept connections"),
    }
}

//! The kernel's queue in front of a UDP socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

/// Asked of the kernel for datagrams that wait for one thread. Without the capability
/// `CAP_NET_ADMIN` it grants up to `net.core.rmem_max`.
const RECEIVE_QUEUE_BYTES: usize = 4 << 20;

/// Sets a UDP door's socket up, before it is bound: what arrives from then on must find it like
/// this.
pub(crate) fn prepare(socket: &socket2::Socket, address: SocketAddr) -> io::Result<()> {
    enlarge(socket);
    if !address.ip().is_unspecified() {
        return Ok(());
    }
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set(socket.as_raw_fd(), level, option, 1)
}

fn enlarge(socket: &socket2::Socket) {
    let bytes = RECEIVE_QUEUE_BYTES as libc::c_int;
    if set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
        // The default queue works too, it only overflows earlier.
        let _ = socket.set_recv_buffer_size(RECEIVE_QUEUE_BYTES);
    }
}

fn set(
    socket: RawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`.
    let result = unsafe {
        libc::setsockopt(
            socket,
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that were lost because the socket's queue was full, since it was opened; 0 where the
/// kernel does not say.
pub(super) fn overflowed(socket: RawFd) -> u32 {
    /// `SK_MEMINFO_DROPS`, the last of `SK_MEMINFO_VARS` (include/uapi/linux/sock_diag.h).
    const DROPS: usize = 8;
    let mut memory = [0u32; DROPS + 1];
    let mut length = size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the pointer and length describe `memory`; the kernel writes at most that.
    unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &raw mut length,
        );
    }
    memory[DROPS]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_lost_by_a_full_queue_are_counted() {
        let (socket, sender) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        socket2::SockRef::from(&socket).set_recv_buffer_size(16 << 10).unwrap();
        socket.set_nonblocking(true).unwrap();
        assert_eq!(overflowed(socket.as_raw_fd()), 0);
        for _ in 0..200 {
            sender.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        }
        let mut received = 0;
        while socket.recv(&mut [0; 1000]).is_ok() {
            received += 1;
        }
        assert!(received < 200);
        assert_eq!(received + overflowed(socket.as_raw_fd()), 200);
    }
}

//! Sockets that send and receive the packets of checks, bypassing the kernel's routing and filters.

use std::io::{self, ErrorKind, Read};
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use super::encapsulation::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use super::rounds::MARK_SHIFT;
use super::segment::Segment;
use crate::packet::protocol::TCP;

/// Buffer size; longer than the headers of any answer.
const PACKET_BYTES: usize = 256;

/// Sockets of all checks.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Sends frames.
    out: Socket,
    pub(super) v4: Receiver,
    /// `None`: this machine has no IPv6.
    pub(super) v6: Option<Receiver>,
}

/// Receives answers of one IP family.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) packets: Socket,
    /// Source port of checks.
    pub(super) port: u16,
    /// A listening socket that discards all packets. It reserves the port, and keeps the kernel
    /// from answering with a reset, which its routes would send to some backend.
    _silence: Socket,
}

impl Sockets {
    /// `mark`: the upper bits of numbers that answers acknowledge.
    pub(super) fn open(mark: u8) -> io::Result<Sockets> {
        // Without a protocol it receives nothing.
        let out = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        // A blocked network card must not block the thread of the packet level.
        out.set_nonblocking(true)?;
        let v4 = Receiver::open(false, mark)?;
        let v6 = match Receiver::open(true, mark) {
            Ok(receiver) => Some(receiver),
            Err(error) if is_without_ipv6(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Sockets { out, v4, v6 })
    }

    /// Returns the source port of checks of VIPs of this family.
    pub(super) fn port(&self, v4: bool) -> Option<u16> {
        if v4 { Some(self.v4.port) } else { self.v6.as_ref().map(|it| it.port) }
    }

    /// Sends a frame, including its Ethernet header.
    pub(super) fn send(&self, frame: &[u8], ifindex: u32) -> io::Result<()> {
        let ethertype = frame.get(12..14).map_or(0, |it| u16::from_be_bytes([it[0], it[1]]));
        self.out.send_to(frame, &link_address(ethertype, ifindex)).map(drop)
    }
}

impl Receiver {
    fn open(v6: bool, mark: u8) -> io::Result<Receiver> {
        let (silence, port) = silence(v6)?;
        // Attaches the filter before the protocol is set, so that no other packet is queued.
        let packets = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        packets.attach_filter(&filter(v6, port, mark))?;
        packets.set_nonblocking(true)?;
        let ethertype = if v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        packets.bind(&link_address(ethertype, 0))?;
        Ok(Receiver { packets, port, _silence: silence })
    }

    /// Returns the next received segment; `None`: there is none.
    pub(super) fn next(&self) -> Option<Segment> {
        let mut packet = [0; PACKET_BYTES];
        loop {
            match (&self.packets).read(&mut packet) {
                Ok(bytes) => {
                    if let Some(segment) = Segment::read(&packet[..bytes]) {
                        return Some(segment);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}

/// Opens a listening socket that discards all packets. Returns it and its port.
fn silence(v6: bool) -> io::Result<(Socket, u16)> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SocketAddr::new(any, 0).into())?;
    socket.attach_filter(&[op(libc::BPF_RET | libc::BPF_K, 0, 0, 0)])?;
    socket.listen(1)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
    Ok((socket, port))
}

fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn op(code: u32, jump_true: u8, jump_false: u8, value: u32) -> SockFilter {
    SockFilter::new(code as u16, jump_true, jump_false, value)
}

/// Filter that accepts complete TCP packets to `port` that acknowledge a number with the mark, from
/// the IP header on.
fn filter(v6: bool, port: u16, mark: u8) -> Vec<SockFilter> {
    let byte = libc::BPF_LD | libc::BPF_B;
    let half = libc::BPF_LD | libc::BPF_H;
    let word = libc::BPF_LD | libc::BPF_W;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let shift = op(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, MARK_SHIFT);
    let take = op(libc::BPF_RET | libc::BPF_K, 0, 0, PACKET_BYTES as u32);
    let leave = op(libc::BPF_RET | libc::BPF_K, 0, 0, 0);
    let port = port.into();
    let mark = mark.into();
    if v6 {
        return vec![
            op(byte | libc::BPF_ABS, 0, 0, 6),
            op(equal, 0, 6, TCP.into()),
            op(half | libc::BPF_ABS, 0, 0, 42),
            op(equal, 0, 4, port),
            op(word | libc::BPF_ABS, 0, 0, 48),
            shift,
            op(equal, 0, 1, mark),
            take,
            leave,
        ];
    }
    vec![
        op(byte | libc::BPF_ABS, 0, 0, 9),
        op(equal, 0, 9, TCP.into()),
        op(half | libc::BPF_ABS, 0, 0, 6),
        // A fragment.
        op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 7, 0, 0x3fff),
        op(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
        op(half | libc::BPF_IND, 0, 0, 2),
        op(equal, 0, 4, port),
        op(word | libc::BPF_IND, 0, 0, 8),
        shift,
        op(equal, 0, 1, mark),
        take,
        leave,
    ]
}

/// Address of a packet socket: an interface (0: all) and a protocol.
fn link_address(ethertype: u16, ifindex: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is a kind of socket address, and all of its fields are valid as zeros.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = ifindex.cast_signed();
    // SAFETY: the storage has an initialized `sockaddr_ll`, which has this length.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

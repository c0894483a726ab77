//! Receiving and sending many datagrams with one system call: `recvmmsg(2)`, `sendmmsg(2)`.
//!
//! A datagram may have 65,535 bytes. Each of the places for one has them, as address space: a
//! place's later pages become resident only when a datagram of that size has come. So one batch,
//! which serves all front doors of a thread, costs 4 MiB of address space and some 300 KiB of
//! memory.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::RawFd;

use socket2::{SockAddr, SockAddrStorage};

/// Datagrams in a batch.
pub(super) const BATCH: usize = 64;

const DATAGRAM_BYTES_MAX: usize = 65_535;

/// Between the starts of two places; a little more than a power of two, so that the starts do not
/// all fall into the same few sets of the processor's cache.
const STRIDE: usize = 65_536 + 192;

/// Room for either packet-information message with its header.
const CONTROL_BYTES: usize = 64;

/// One datagram's ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ends {
    /// The client.
    pub(super) peer: SocketAddr,
    /// The address of ours that the client sent to, where the socket is bound to no single one: a
    /// reply has to come from it.
    pub(super) local: Option<IpAddr>,
}

/// As aligned as a control message's header has to be.
type Control = [u64; CONTROL_BYTES / 8];

/// The datagrams that a thread has in its hands.
pub(crate) struct Batch {
    data: Vec<u8>,
    lengths: [usize; BATCH],
    ends: [Ends; BATCH],
    names: Vec<SockAddrStorage>,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        // SAFETY: these are plain C structures of integers and pointers, for which all-zero is a
        // value.
        let (vector, message) = unsafe { (zeroed(), zeroed()) };
        Batch {
            // Zeroed memory comes from the kernel untouched, page by page as it is used.
            data: vec![0; BATCH * STRIDE],
            lengths: [0; BATCH],
            ends: [Ends { peer: nobody, local: None }; BATCH],
            names: (0..BATCH).map(|_| SockAddrStorage::zeroed()).collect(),
            controls: vec![Control::default(); BATCH],
            vectors: vec![vector; BATCH],
            messages: vec![message; BATCH],
        }
    }

    /// Ends of the datagram at `place`.
    pub(super) fn ends(&self, place: usize) -> Ends {
        self.ends[place]
    }

    /// Bytes in these places.
    pub(super) fn bytes(&self, places: Range<usize>) -> u64 {
        self.lengths[places].iter().sum::<usize>() as u64
    }

    /// Sets the destination of the datagrams in these places.
    pub(super) fn address(&mut self, places: Range<usize>, to: Ends) {
        self.ends[places].fill(to);
    }

    /// Receives into the places from the start of the range on, with their ends; returns how many.
    /// Fewer than asked for: there are no more.
    pub(super) fn receive_with_ends(
        &mut self,
        socket: RawFd,
        places: Range<usize>,
    ) -> io::Result<usize> {
        for place in places.clone() {
            self.prepare(place, DATAGRAM_BYTES_MAX);
            let header = &mut self.messages[place].msg_hdr;
            header.msg_name = (&raw mut self.names[place]).cast();
            header.msg_namelen = self.names[place].size_of();
            header.msg_control = (&raw mut self.controls[place]).cast();
            header.msg_controllen = CONTROL_BYTES;
        }
        let received = self.receive_prepared(socket, places.clone())?;
        for place in places.take(received) {
            self.ends[place] = Ends { peer: self.peer(place)?, local: self.local(place) };
        }
        Ok(received)
    }

    /// As [`Batch::receive_with_ends`] from a connected socket with known ends.
    pub(super) fn receive(&mut self, socket: RawFd, places: Range<usize>) -> io::Result<usize> {
        for place in places.clone() {
            self.prepare(place, DATAGRAM_BYTES_MAX);
        }
        self.receive_prepared(socket, places)
    }

    /// Sends these places over a connected socket; returns how many before the kernel took no more.
    pub(super) fn send(&mut self, socket: RawFd, places: Range<usize>) -> io::Result<usize> {
        for place in places.clone() {
            self.prepare(place, self.lengths[place]);
        }
        self.send_prepared(socket, places)
    }

    /// Sends these places to the peers they are addressed to; returns how many before the kernel
    /// took no more.
    pub(super) fn send_to_ends(
        &mut self,
        socket: RawFd,
        places: Range<usize>,
    ) -> io::Result<usize> {
        for place in places.clone() {
            self.prepare(place, self.lengths[place]);
            let Ends { peer, local } = self.ends[place];
            let peer = SockAddr::from(peer);
            let length = peer.len();
            self.names[place] = peer.as_storage();
            let header = &mut self.messages[place].msg_hdr;
            header.msg_name = (&raw mut self.names[place]).cast();
            header.msg_namelen = length;
            if let Some(local) = local {
                header.msg_control = (&raw mut self.controls[place]).cast();
                header.msg_controllen = CONTROL_BYTES;
                write_source(header, local);
            }
        }
        self.send_prepared(socket, places)
    }

    fn prepare(&mut self, place: usize, length: usize) {
        let data = self.data[place * STRIDE..][..length].as_mut_ptr();
        self.vectors[place] = libc::iovec { iov_base: data.cast(), iov_len: length };
        // SAFETY: as in `new`.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        message.msg_hdr.msg_iov = &raw mut self.vectors[place];
        message.msg_hdr.msg_iovlen = 1;
        self.messages[place] = message;
    }

    fn receive_prepared(&mut self, socket: RawFd, places: Range<usize>) -> io::Result<usize> {
        let messages = &mut self.messages[places.clone()];
        // SAFETY: each message points to buffers of this batch, with their lengths; nothing else
        // uses them during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for place in places.take(received) {
            self.lengths[place] = self.messages[place].msg_len as usize;
        }
        Ok(received)
    }

    fn send_prepared(&mut self, socket: RawFd, places: Range<usize>) -> io::Result<usize> {
        let messages = &mut self.messages[places];
        // SAFETY: as in `receive_prepared`; the kernel only reads the buffers.
        let sent = unsafe {
            libc::sendmmsg(
                socket,
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn peer(&mut self, place: usize) -> io::Result<SocketAddr> {
        let name = std::mem::replace(&mut self.names[place], SockAddrStorage::zeroed());
        let length = self.messages[place].msg_hdr.msg_namelen;
        // SAFETY: the kernel wrote an address of this length.
        let peer = unsafe { SockAddr::new(name, length) };
        peer.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn local(&self, place: usize) -> Option<IpAddr> {
        let header = &raw const self.messages[place].msg_hdr;
        // SAFETY: the kernel wrote whole control messages and their total length to the header; its
        // buffer is aligned for them; the payload's type follows from level and type.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(header);
            if message.is_null() {
                return None;
            }
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned();
                    Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into())
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info =
                        libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().read_unaligned();
                    Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into())
                }
                _ => None,
            }
        }
    }
}

/// Makes a message's control buffer say which address to send from.
fn write_source(header: &mut libc::msghdr, source: IpAddr) {
    // SAFETY: the header points to a control buffer of `CONTROL_BYTES`, aligned, which holds either
    // message; the macros compute places within it.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        let length = match source {
            IpAddr::V4(ip) => {
                (*message).cmsg_level = libc::IPPROTO_IP;
                (*message).cmsg_type = libc::IP_PKTINFO;
                let mut info: libc::in_pktinfo = zeroed();
                info.ipi_spec_dst.s_addr = u32::from_ne_bytes(ip.octets());
                libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().write_unaligned(info);
                size_of::<libc::in_pktinfo>()
            }
            IpAddr::V6(ip) => {
                (*message).cmsg_level = libc::IPPROTO_IPV6;
                (*message).cmsg_type = libc::IPV6_PKTINFO;
                let mut info: libc::in6_pktinfo = zeroed();
                info.ipi6_addr.s6_addr = ip.octets();
                libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().write_unaligned(info);
                size_of::<libc::in6_pktinfo>()
            }
        } as libc::c_uint;
        (*message).cmsg_len = libc::CMSG_LEN(length) as usize;
        header.msg_controllen = libc::CMSG_SPACE(length) as usize;
    }
}

/// # Safety
/// All-zero must be a value of `T`.
unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}

//! Receives queries and sends answers in batches: `recvmmsg(2)`, `sendmmsg(2)`.
//!
//! An answer reuses the peer name and the control message of its query as the kernel wrote them:
//! the client's address, and the local address that it queried.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use crate::config::UDP_PAYLOAD_MAX;

/// Number of queries in a batch.
pub(super) const BATCH: usize = 64;
/// Size of the query buffer. The longest query is a name and an OPT record padded to a block of 468
/// bytes (RFC 8467).
const QUERY_BYTES_MAX: usize = 2048;
const ANSWER_BYTES_MAX: usize = UDP_PAYLOAD_MAX as usize;
/// Space for either packet-information message with its header.
const CONTROL_BYTES: usize = 64;

/// Buffers of one datagram. The alignment satisfies that of a control message header. The vectors
/// share a cache line with the start of the peer name, which is all that IPv4 needs.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Place {
    query: [u8; QUERY_BYTES_MAX],
    answer: [u8; ANSWER_BYTES_MAX],
    vector: libc::iovec,
    answer_vector: libc::iovec,
    name: libc::sockaddr_storage,
    control: [u64; CONTROL_BYTES / 8],
}

const _: () = {
    let (vector, name) = (std::mem::offset_of!(Place, vector), std::mem::offset_of!(Place, name));
    assert!(vector / 64 == (name + size_of::<libc::sockaddr_in>() - 1) / 64);
};

/// The datagrams that a thread receives and answers with two system calls.
pub(super) struct Batch {
    places: Box<[Place]>,
    received: Box<[libc::mmsghdr]>,
    answers: Box<[libc::mmsghdr]>,
    answered: usize,
    /// Length of the prefix of `received` that the kernel may have modified since the last reset.
    touched: usize,
}

/// A received datagram.
pub(super) struct Received<'b> {
    /// Address and port of the client. `None`: the address family is not supported.
    pub(super) peer: Option<(IpAddr, u16)>,
    /// Whether the datagram was longer than the buffer and was truncated.
    pub(super) cut: bool,
    pub(super) query: &'b [u8],
    pub(super) answer: &'b mut [u8],
}

impl Batch {
    pub(super) fn new() -> Batch {
        // SAFETY: plain C structures and bytes, for which all-zero is a value.
        let (place, message): (Place, libc::mmsghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut batch = Batch {
            places: vec![place; BATCH].into(),
            received: vec![message; BATCH].into(),
            answers: vec![message; BATCH].into(),
            answered: 0,
            touched: BATCH,
        };
        // The addresses of the places stay valid: the box never reallocates.
        for (place, message) in batch.places.iter_mut().zip(&mut batch.received) {
            place.vector =
                libc::iovec { iov_base: place.query.as_mut_ptr().cast(), iov_len: QUERY_BYTES_MAX };
            message.msg_hdr.msg_iov = &raw mut place.vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = (&raw mut place.name).cast();
            message.msg_hdr.msg_control = place.control.as_mut_ptr().cast();
        }
        batch
    }

    /// Receives up to [`BATCH`] datagrams and returns their number. With `wait`, blocks until the
    /// first arrives or the socket's timeout expires.
    pub(super) fn receive(&mut self, socket: RawFd, wait: bool) -> io::Result<usize> {
        self.answered = 0;
        // Resets only the headers that the last call modified: batches are small under low load.
        for message in &mut self.received[..self.touched] {
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            message.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: each message points to the buffers of its place, with their lengths. Nothing else
        // uses them during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                self.received.as_mut_ptr(),
                BATCH as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error());
        // The kernel may also have modified the header after the last received one.
        self.touched = received.as_ref().map_or(BATCH, |received| (received + 1).min(BATCH));
        received
    }

    /// Returns the received datagram at index `place`.
    #[inline]
    pub(super) fn datagram(&mut self, place: usize) -> Received<'_> {
        let message = &self.received[place];
        let length = (message.msg_len as usize).min(QUERY_BYTES_MAX);
        let cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let place = &mut self.places[place];
        Received {
            peer: peer(&place.name),
            cut,
            query: &place.query[..length],
            answer: &mut place.answer,
        }
    }

    /// Queues the first `length` bytes of the answer at `place`, addressed to the sender of its
    /// query.
    #[inline]
    pub(super) fn answer(&mut self, place: usize, length: usize) {
        let (from, to) =
            (&mut self.received[place].msg_hdr, &mut self.answers[self.answered].msg_hdr);
        leave_interface_to_routing(from);
        let place = &mut self.places[place];
        place.answer_vector =
            libc::iovec { iov_base: place.answer.as_mut_ptr().cast(), iov_len: length };
        to.msg_iov = &raw mut place.answer_vector;
        to.msg_iovlen = 1;
        to.msg_name = from.msg_name;
        to.msg_namelen = from.msg_namelen;
        to.msg_control = from.msg_control;
        to.msg_controllen = from.msg_controllen;
        self.answered += 1;
    }

    /// Sends the queued answers. Returns the number of answers that the kernel rejected.
    pub(super) fn send(&mut self, socket: RawFd) -> u64 {
        let (mut next, mut failed) = (0, 0);
        while next < self.answered {
            let messages = &mut self.answers[next..self.answered];
            // SAFETY: as in `receive`; the kernel only reads the buffers.
            let sent = unsafe {
                libc::sendmmsg(
                    socket,
                    messages.as_mut_ptr(),
                    messages.len() as libc::c_uint,
                    libc::MSG_NOSIGNAL,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => next += sent,
                // The error concerns the first message, for example no route or a firewall rule.
                // Skips it.
                _ => {
                    if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                        failed += 1;
                        next += 1;
                    }
                }
            }
        }
        self.answered = 0;
        failed
    }
}

#[inline]
fn peer(name: &libc::sockaddr_storage) -> Option<(IpAddr, u16)> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the kernel wrote a `sockaddr_in`.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some((address.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for `sockaddr_in6`.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some((Ipv6Addr::from(name.sin6_addr.s6_addr).into(), u16::from_be(name.sin6_port)))
        }
        _ => None,
    }
}

/// Clears the interface index of the packet-information message, so that routing chooses the
/// interface of the answer. A link-local address keeps its index, because it is ambiguous without
/// one.
fn leave_interface_to_routing(header: &mut libc::msghdr) {
    // SAFETY: the kernel wrote whole control messages, and their total length to the header. The
    // buffer is aligned for them. Level and type determine the type of the payload.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        if message.is_null() {
            return;
        }
        match ((*message).cmsg_level, (*message).cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>();
                (*info).ipi_ifindex = 0;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info = libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>();
                if !Ipv6Addr::from((*info).ipi6_addr.s6_addr).is_unicast_link_local() {
                    (*info).ipi6_ifindex = 0;
                }
            }
            _ => {}
        }
    }
}

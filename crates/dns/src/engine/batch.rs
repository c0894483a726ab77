//! Receiving queries and sending answers, many with one system call: `recvmmsg(2)`, `sendmmsg(2)`.
//!
//! An answer goes back with the name and the control message that its query came with: the peer's address as the
//! kernel wrote it, and the address of ours that it had asked. Nothing of that is converted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use crate::config::UDP_PAYLOAD_MAX;

/// Queries in a batch.
pub(super) const BATCH: usize = 64;
/// No query has to be longer: a name, and an OPT record padded to a block of 468 bytes (RFC 8467) at most.
const QUERY_BYTES_MAX: usize = 2048;
const ANSWER_BYTES_MAX: usize = UDP_PAYLOAD_MAX as usize;
/// Room for either packet-information message with its header.
const CONTROL_BYTES: usize = 64;

/// As aligned as a control message's header has to be. The vectors share a cache line with the name, as far as an IPv4
/// address needs it.
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

/// The datagrams that a thread has in its hands.
pub(super) struct Batch {
    places: Box<[Place]>,
    received: Box<[libc::mmsghdr]>,
    answers: Box<[libc::mmsghdr]>,
    answered: usize,
    /// Of `received` from the first one on: what the kernel may have written to since it was made ready.
    touched: usize,
}

/// A datagram that was received.
pub(super) struct Received<'b> {
    /// Whose it is; `None`: of a family that we do not serve.
    pub(super) peer: Option<(IpAddr, u16)>,
    /// Whether it was longer than a place.
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
        // The places never move again: they are behind a box.
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

    /// Receives what has come; waits for the first, if `wait`, as long as the socket's time-out says.
    pub(super) fn receive(&mut self, socket: RawFd, wait: bool) -> io::Result<usize> {
        self.answered = 0;
        // Most batches are small when there is little to do: then most headers are as they were.
        for message in &mut self.received[..self.touched] {
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            message.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        // SAFETY: each message points to the buffers of its place, with their lengths; nothing else uses
        // them during the call.
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
        // The one behind the last is that at which the kernel gave up.
        self.touched = received.as_ref().map_or(BATCH, |received| (received + 1).min(BATCH));
        received
    }

    /// The datagram at `place` of those that were received.
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

    /// Puts the first `length` bytes of `place`'s answer in line to be sent to where its query came from.
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

    /// Sends what is in line; returns how many the kernel did not take.
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
                // What is wrong is wrong with the first of them: no route, a firewall.
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
            // SAFETY: the family says that this is what the kernel wrote.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some((address.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            Some((Ipv6Addr::from(name.sin6_addr.s6_addr).into(), u16::from_be(name.sin6_port)))
        }
        _ => None,
    }
}

/// The control message names the interface that the query came in by; the answer may have to leave by another. A
/// link-local address means nothing without its interface, and keeps it.
fn leave_interface_to_routing(header: &mut libc::msghdr) {
    // SAFETY: the kernel wrote whole control messages and their total length to the header, whose buffer is aligned
    // for them; the payload's type follows from level and type.
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

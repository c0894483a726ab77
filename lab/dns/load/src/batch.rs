//! Many datagrams with one system call.
//!
//! Queries of one length leave as one buffer that the kernel cuts (`UDP_SEGMENT`, udp(7)), so that
//! it goes through the network stack once; answers come by `recvmmsg(2)`.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// More than any answer has.
const ANSWER_BYTES_MAX: usize = 4096;

/// Largest number of datagrams that the kernel cuts a buffer into (`UDP_MAX_SEGMENTS` of older
/// kernels).
pub(crate) const WINDOW_MAX: usize = 64;

/// Has what is sent on a socket cut into datagrams of so many bytes.
pub(crate) fn cut(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    // SAFETY: the option's value is an int, given with its address and size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for answers.
pub(crate) struct Answers {
    headers: Vec<libc::mmsghdr>,
    // The memory that the headers point to; none of it moves or is resized.
    _vectors: Vec<libc::iovec>,
    _bytes: Vec<u8>,
}

impl Answers {
    pub(crate) fn new() -> Answers {
        let mut bytes = vec![0; WINDOW_MAX * ANSWER_BYTES_MAX];
        let vector = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut vectors: Vec<_> = bytes.chunks_mut(ANSWER_BYTES_MAX).map(vector).collect();
        let header = |vector: &mut libc::iovec| {
            // SAFETY: a plain C structure, for which all-zero is a value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = vectors.iter_mut().map(header).collect();
        Answers { headers, _vectors: vectors, _bytes: bytes }
    }

    /// Receives what has come, at most a window; how many there were.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        // SAFETY: each header points to its vector and that to its bytes, all of which live as long
        // as `self`; nothing else uses them during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(received) {
            Ok(received) => Ok(received),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            },
        }
    }
}

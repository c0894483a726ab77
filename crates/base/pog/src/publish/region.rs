//! Memory that several threads or processes share.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Acquire;

use super::layout::{Header, MAGIC};
use crate::memory;
use crate::sync::Shareable;

/// A region of shared memory.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    access: Access,
    mapped: bool,
}

/// Access rights of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For readers.
    Read,
    /// For the publisher.
    Write,
}

// SAFETY: the region is plain memory that belongs to no thread. All access uses atomics, except to
// header fields that never change after the set-up.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps memory for the threads of this process, and for its forked children.
    ///
    /// # Errors
    /// The system has not enough memory.
    pub fn anonymous(len: usize) -> io::Result<Region> {
        Region::mmap(len, Access::Write, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// Maps a whole file, for example in `/dev/shm` or a memfd, for every process that maps it.
    ///
    /// The file must not be truncated while it is mapped: an access beyond its end kills the
    /// process.
    ///
    /// # Errors
    /// The file is empty or cannot be mapped.
    pub fn map(file: &File, access: Access) -> io::Result<Region> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Region::mmap(len, access, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps the first `len` bytes of an object without a length, such as a BPF map.
    ///
    /// # Errors
    /// The object cannot be mapped.
    pub fn map_len(file: impl AsFd, len: usize, access: Access) -> io::Result<Region> {
        Region::mmap(len, access, libc::MAP_SHARED, file.as_fd().as_raw_fd())
    }

    /// Uses memory that the caller has mapped, for example a BPF arena.
    ///
    /// # Safety
    /// `len` bytes from `start` on must be readable, and writable if `access` says so, for the life
    /// of the region. Only a [`Publisher`](super::Publisher) may write there.
    ///
    /// # Panics
    /// If `start` is not a multiple of 64.
    pub unsafe fn borrow(start: NonNull<u8>, len: usize, access: Access) -> Region {
        assert!(start.addr().get().is_multiple_of(64), "shared memory begins at a cache line");
        Region { start, len, access, mapped: false }
    }

    fn mmap(len: usize, access: Access, flags: libc::c_int, fd: libc::c_int) -> io::Result<Region> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice affects no memory that is in
        // use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        memory::advise(start.addr().get(), len);
        Ok(Region { start, len, access, mapped: true })
    }

    /// Returns the size, bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping has at least one byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a publisher has set up the region; for processes that wait for their publisher.
    pub fn is_set_up(&self) -> bool {
        self.len >= size_of::<Header>()
            && self.array::<Header>(0, 1)[0].magic.load(Acquire) == u64::from_ne_bytes(MAGIC)
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Returns `count` values at `offset`.
    ///
    /// # Panics
    /// If they are not inside the region, or not aligned.
    pub(super) fn array<T: Shareable>(&self, offset: usize, count: usize) -> &[T] {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.len), "the array ends inside the region");
        let start = self.start.as_ptr().wrapping_add(offset);
        assert!(start.addr().is_multiple_of(align_of::<T>()), "the array is aligned");
        // SAFETY: inside the region, which lives as long as `self`, and aligned, as just asserted.
        // `Shareable` types have no invalid bits. They are atomics, which others may write through
        // a shared reference, or fields that are written before any reader reads them.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }

    /// Returns the start of the region.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: this region made the mapping, and all borrows of it also borrow the region.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

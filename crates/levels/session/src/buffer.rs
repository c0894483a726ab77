//! Byte buffers that a thread's connections share: taken when there is something to read, given
//! back when a connection is idle.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use bytes::BytesMut;

/// The size of a pooled buffer, bytes.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;

/// The size of a large buffer, bytes: what TLS encrypts in one write.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// Buffers kept for reuse at the most.
const KEPT_MAX: usize = 1024;
const LARGE_KEPT_MAX: usize = 64;

/// The size of a block of which small copies are parts, bytes.
const BLOCK_BYTES: usize = 16 << 10;

/// A larger copy has memory of its own, bytes.
const SMALL_COPY_BYTES: usize = 4 << 10;

/// The free buffers of one thread.
#[derive(Default)]
pub(crate) struct Buffers {
    free: RefCell<Vec<Box<[u8]>>>,
    free_large: RefCell<Vec<Box<[u8]>>>,
    /// The unused rest of a block.
    block: RefCell<BytesMut>,
}

impl Buffers {
    /// An empty buffer of [`BUFFER_BYTES`].
    pub(crate) fn take(self: &Rc<Self>) -> Buffer {
        self.take_from(&self.free, BUFFER_BYTES)
    }

    /// An empty buffer of [`LARGE_BYTES`].
    pub(crate) fn take_large(self: &Rc<Self>) -> Buffer {
        self.take_from(&self.free_large, LARGE_BYTES)
    }

    /// A copy of `bytes`. Small ones share a block, which is used again when the last of them is
    /// dropped: they cost no allocation. Each may keep a block.
    pub(crate) fn copy(&self, bytes: &[u8]) -> BytesMut {
        if bytes.len() > SMALL_COPY_BYTES {
            return BytesMut::from(bytes);
        }
        let mut block = self.block.borrow_mut();
        if block.capacity() < bytes.len() {
            block.reserve(BLOCK_BYTES);
        }
        block.extend_from_slice(bytes);
        block.split()
    }

    /// Frees the buffers that are kept for reuse.
    pub(crate) fn trim(&self) {
        self.free.take();
        self.free_large.take();
    }

    fn take_from(self: &Rc<Self>, free: &RefCell<Vec<Box<[u8]>>>, bytes: usize) -> Buffer {
        let data = free.borrow_mut().pop();
        let data = data.unwrap_or_else(|| vec![0; bytes].into_boxed_slice());
        Buffer { data, start: 0, end: 0, owner: self.clone() }
    }
}

/// Bytes read and not yet used: `data[start..end]`.
pub(crate) struct Buffer {
    data: Box<[u8]>,
    start: usize,
    end: usize,
    owner: Rc<Buffers>,
}

impl Buffer {
    /// Room after the unread bytes, after moving them to the front if there is none.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.data.len() && self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.data[self.end..]
    }

    /// Says that `count` bytes of [`Buffer::space`] were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.data.len());
    }

    /// Drops `count` unread bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Whether nothing more can be read into it.
    pub(crate) fn is_full(&self) -> bool {
        self.start == 0 && self.end == self.data.len()
    }

    /// Makes it hold `capacity` bytes at least (a head larger than a pooled buffer).
    pub(crate) fn grow(&mut self, capacity: usize) {
        if capacity > self.data.len() {
            let mut data = vec![0; capacity].into_boxed_slice();
            data[..self.end - self.start].copy_from_slice(&self.data[self.start..self.end]);
            (self.start, self.end) = (0, self.end - self.start);
            self.data = data;
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (free, kept_max) = match self.data.len() {
            BUFFER_BYTES => (&self.owner.free, KEPT_MAX),
            LARGE_BYTES => (&self.owner.free_large, LARGE_KEPT_MAX),
            _ => return,
        };
        let mut free = free.borrow_mut();
        if free.len() < kept_max {
            free.push(std::mem::take(&mut self.data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_size_stay_intact_while_others_are_dropped() {
        let buffers = Buffers::default();
        let sizes = [0, 1, 1024, SMALL_COPY_BYTES, SMALL_COPY_BYTES + 1, 3 * BLOCK_BYTES];
        let mut kept = Vec::new();
        for round in 0..100u8 {
            for size in sizes {
                let bytes = vec![round; size];
                kept.push((buffers.copy(&bytes), bytes));
            }
            // Every second one stays.
            if round % 2 == 1 {
                let mut at = 0;
                kept.retain(|_| {
                    at += 1;
                    at % 2 == 0
                });
            }
            assert!(kept.iter().all(|(copy, bytes)| copy == bytes));
        }
    }
}

//! The bound on the process's memory.

/// The memory that the process may allocate. Beyond it, no client's work is accepted, and clients
/// that are slow to take their responses lose them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryBound {
    /// Largest number of bytes.
    pub max_bytes: usize,
    /// Returns the number of bytes in use.
    pub used_bytes: fn() -> usize,
}

impl MemoryBound {
    /// No bound.
    pub const NONE: MemoryBound = MemoryBound { max_bytes: usize::MAX, used_bytes: || 0 };

    /// Whether more is in use than may be.
    pub(crate) fn is_exceeded(self) -> bool {
        (self.used_bytes)() > self.max_bytes
    }
}

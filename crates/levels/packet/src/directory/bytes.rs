//! Conversion between structs of the layout and words.

use crate::abi::Plain;

// SAFETY: an integer: every bit pattern is valid, and there is no padding.
unsafe impl Plain for u16 {}

pub(super) fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    let len = size_of_val(words);
    // SAFETY: the same memory and lifetime; bytes have no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory and lifetime; bytes have no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Writes element `index` of an array of `T` that begins at `start`.
pub(super) fn put<T: Plain>(bytes: &mut [u8], start: usize, index: usize, value: &T) {
    let at = start + index * size_of::<T>();
    // SAFETY: `Plain`: all bytes of the value are initialized, and it is borrowed while they are
    // read.
    let value = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    };
    bytes[at..at + size_of::<T>()].copy_from_slice(value);
}

/// Reads element `index` of an array of `T` that begins at `start`; `None` beyond the end.
pub(super) fn get<T: Plain>(bytes: &[u8], start: usize, index: usize) -> Option<T> {
    let at = start.checked_add(index.checked_mul(size_of::<T>())?)?;
    let bytes = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: the slice has the size of the value; `Plain`: all bit patterns are valid.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

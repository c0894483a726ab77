//! Structs of the layout from and to words.

use crate::abi::Plain;

// SAFETY: an integer: every bit pattern is a value, and there is no padding.
unsafe impl Plain for u16 {}

pub(super) fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    let len = size_of_val(words);
    // SAFETY: the same memory, borrowed for as long; bytes have no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

pub(super) fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory, borrowed for as long; bytes have no alignment and no invalid values.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Writes the `index`th `T` of an array that begins at `start`.
pub(super) fn put<T: Plain>(bytes: &mut [u8], start: usize, index: usize, value: &T) {
    let at = start + index * size_of::<T>();
    // SAFETY: `Plain`: all bytes of the value are set, and it is borrowed while they are read.
    let value = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>())
    };
    bytes[at..at + size_of::<T>()].copy_from_slice(value);
}

/// Reads the `index`th `T` of an array that begins at `start`; `None` beyond the end.
pub(super) fn get<T: Plain>(bytes: &[u8], start: usize, index: usize) -> Option<T> {
    let at = start.checked_add(index.checked_mul(size_of::<T>())?)?;
    let bytes = bytes.get(at..at.checked_add(size_of::<T>())?)?;
    // SAFETY: as many bytes as the value has, just borrowed; `Plain`: whatever they are, they are a
    // value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

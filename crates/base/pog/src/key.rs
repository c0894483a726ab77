//! Keys: any string of bytes, of fixed or variable length.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A key as the hash reads it: a string of bytes, split into 64-bit little-endian words.
///
/// All programs that read the same tables must agree on the bytes (a BPF program has only the
/// packet), so the implementations here use network order. Two keys are equal exactly if their
/// bytes are.
///
/// ```
/// use equipoise_pog::Key;
///
/// struct Device { site: u16, serial: u32 }
///
/// impl Key for Device {
///     const FIXED_LEN: Option<usize> = Some(6);
///     fn byte_len(&self) -> usize { 6 }
///     fn word(&self, _index: usize) -> u64 { u64::from(self.site) << 32 | u64::from(self.serial) }
/// }
/// ```
pub trait Key {
    /// The length, if it is the same for all keys of this type; several keys are then hashed at
    /// once.
    const FIXED_LEN: Option<usize> = None;

    /// Returns the length in bytes.
    fn byte_len(&self) -> usize;

    /// Returns the bytes `8 * index ..` as a little-endian word, padded with zeros.
    ///
    /// Called only with `index < byte_len().div_ceil(8)`.
    fn word(&self, index: usize) -> u64;
}

impl<K: Key + ?Sized> Key for &K {
    const FIXED_LEN: Option<usize> = K::FIXED_LEN;

    #[inline(always)]
    fn byte_len(&self) -> usize {
        K::byte_len(self)
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        K::word(self, index)
    }
}

macro_rules! number {
    ($($number:ty),*) => {$(
        /// The number's little-endian bytes.
        impl Key for $number {
            const FIXED_LEN: Option<usize> = Some(size_of::<$number>());

            #[inline(always)]
            fn byte_len(&self) -> usize {
                size_of::<$number>()
            }

            #[inline(always)]
            fn word(&self, index: usize) -> u64 {
                (self >> (64 * index)) as u64
            }
        }
    )*};
}

number!(u32, u64, u128);

impl<const N: usize> Key for [u8; N] {
    const FIXED_LEN: Option<usize> = Some(N);

    #[inline(always)]
    fn byte_len(&self) -> usize {
        N
    }

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        let start = 8 * index;
        let mut word = [0; 8];
        if start + 8 <= N {
            word.copy_from_slice(&self[start..start + 8]);
        } else {
            word[..N % 8].copy_from_slice(&self[start..]);
        }
        u64::from_le_bytes(word)
    }
}

impl Key for [u8] {
    #[inline]
    fn byte_len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn word(&self, index: usize) -> u64 {
        let rest = &self[8 * index..];
        if let Some(word) = rest.first_chunk() {
            return u64::from_le_bytes(*word);
        }
        rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
}

macro_rules! bytes_of {
    ($($owner:ty),*) => {$(
        /// The bytes of the contents.
        impl Key for $owner {
            #[inline]
            fn byte_len(&self) -> usize {
                <[u8] as Key>::byte_len(self.as_ref())
            }

            #[inline]
            fn word(&self, index: usize) -> u64 {
                <[u8] as Key>::word(self.as_ref(), index)
            }
        }
    )*};
}

bytes_of!(Vec<u8>, Box<[u8]>, str, String);

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Returns the bytes that are hashed.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl Key for $name {
            const FIXED_LEN: Option<usize> = Some($bytes);

            #[inline(always)]
            fn byte_len(&self) -> usize {
                $bytes
            }

            #[inline(always)]
            fn word(&self, index: usize) -> u64 {
                self.0.word(index)
            }
        }
    };
}

wire! {
    /// An IPv4 five-tuple (104 bits): source, destination, source port, destination port, protocol,
    /// in network order.
    FiveTupleV4, 13
}

impl FiveTupleV4 {
    /// Makes the key of the flow from `source` to `destination`, each an address and a port.
    pub fn new(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), protocol: u8) -> FiveTupleV4 {
        let mut bytes = [0; 13];
        bytes[..4].copy_from_slice(&source.0.octets());
        bytes[4..8].copy_from_slice(&destination.0.octets());
        bytes[8..10].copy_from_slice(&source.1.to_be_bytes());
        bytes[10..12].copy_from_slice(&destination.1.to_be_bytes());
        bytes[12] = protocol;
        FiveTupleV4(bytes)
    }
}

wire! {
    /// An IPv6 five-tuple (296 bits): source, destination, source port, destination port, protocol,
    /// in network order.
    FiveTupleV6, 37
}

impl FiveTupleV6 {
    /// Makes the key of the flow from `source` to `destination`, each an address and a port.
    pub fn new(source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16), protocol: u8) -> FiveTupleV6 {
        let mut bytes = [0; 37];
        bytes[..16].copy_from_slice(&source.0.octets());
        bytes[16..32].copy_from_slice(&destination.0.octets());
        bytes[32..34].copy_from_slice(&source.1.to_be_bytes());
        bytes[34..36].copy_from_slice(&destination.1.to_be_bytes());
        bytes[36] = protocol;
        FiveTupleV6(bytes)
    }
}

wire! {
    /// A MAC address (48 bits), in network order.
    MacAddress, 6
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> MacAddress {
        MacAddress(bytes)
    }
}

wire! {
    /// The match of an OpenFlow rule: 356 bits; the high four bits of the last byte are unused.
    OpenFlowMatch, 45
}

impl OpenFlowMatch {
    /// Makes the match with these bits. `None` if a bit after the 356th is set.
    pub fn new(bytes: [u8; 45]) -> Option<OpenFlowMatch> {
        (bytes[44] & 0xf0 == 0).then_some(OpenFlowMatch(bytes))
    }
}

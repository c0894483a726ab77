//! Serialized samples: CDR with the encapsulation header that DDS puts before it.
//!
//! # Source
//! OMG DDS-XTypes 1.3, section 7.4 (XCDR versions 1 and 2 of final types); DDSI-RTPS 2.5, section
//! 10.2 (header). XCDR1 aligns eight-byte numbers to eight bytes, XCDR2 to four. This module writes
//! XCDR1, little-endian, and reads both versions in both byte orders.

/// Length of the header in bytes.
pub const HEADER: usize = 4;

/// A sample that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before the value.
    #[error("the sample is too short")]
    Short,
    /// An encoding of non-final types, or an unknown one.
    #[error("the sample is encoded as {0:#06x}, which its type is not")]
    Encoding(u16),
}

/// Encodings of an appendable type in version 2, big-endian and little-endian.
const DELIMITED: u16 = 8;
const DELIMITED_LITTLE: u16 = 9;

/// The encoding of a sample that has at least a header.
#[inline]
fn encoding(cdr: &[u8]) -> u16 {
    u16::from_be_bytes([cdr[0], cdr[1]])
}

/// Decodes values in order.
#[derive(Debug, Clone, Copy)]
pub struct Decoder<'a> {
    body: &'a [u8],
    at: usize,
    big_endian: bool,
    align_max: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder that begins after the header.
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn new(cdr: &'a [u8]) -> Result<Self, Malformed> {
        match Self::of_any(cdr)? {
            decoder if encoding(cdr) < DELIMITED => Ok(decoder),
            _ => Err(Malformed::Encoding(encoding(cdr))),
        }
    }

    /// A decoder that also accepts samples of appendable types, which have their length before them
    /// in version 2.
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub(crate) fn of_any(cdr: &'a [u8]) -> Result<Self, Malformed> {
        let (_, body) = cdr.split_at_checked(HEADER).ok_or(Malformed::Short)?;
        let (big_endian, align_max) = match encoding(cdr) {
            0 => (true, 8),
            1 => (false, 8),
            6 | DELIMITED => (true, 4),
            7 | DELIMITED_LITTLE => (false, 4),
            other => return Err(Malformed::Encoding(other)),
        };
        Ok(Self { body, at: 0, big_endian, align_max })
    }

    /// True if the sample has version 2.
    #[inline]
    pub(crate) fn is_version_2(&self) -> bool {
        self.align_max == 4
    }

    /// Skips `count` bytes, of which the first is aligned.
    #[inline]
    pub(crate) fn skip(&mut self, count: usize, align: usize) -> Result<(), Malformed> {
        self.bytes(count, align).map(|_| ())
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    fn bytes(&mut self, count: usize, align: usize) -> Result<&'a [u8], Malformed> {
        let start = self.at.next_multiple_of(align.min(self.align_max));
        let end = start.checked_add(count).ok_or(Malformed::Short)?;
        let bytes = self.body.get(start..end).ok_or(Malformed::Short)?;
        self.at = end;
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut bytes: [u8; N] = self.bytes(N, N)?.try_into().map_err(|_| Malformed::Short)?;
        if self.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    /// `long`
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_le_bytes)
    }

    /// `long long`
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// `unsigned long long`
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// `sequence<octet>`
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn octets(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.array().map(u32::from_le_bytes)?;
        self.bytes(length as usize, 1)
    }
}

/// Encodes values in order.
#[derive(Debug)]
pub struct Encoder<'a>(&'a mut Vec<u8>);

impl<'a> Encoder<'a> {
    /// Clears `buffer`, keeps its capacity, and writes the header.
    pub fn new(buffer: &'a mut Vec<u8>) -> Self {
        buffer.clear();
        buffer.extend_from_slice(&[0, 1, 0, 0]);
        Self(buffer)
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let body = self.0.len() - HEADER;
        self.0.resize(HEADER + body.next_multiple_of(N), 0);
        self.0.extend_from_slice(&bytes);
    }

    /// `long`
    pub fn i32(&mut self, value: i32) {
        self.put(value.to_le_bytes());
    }

    /// `long long`
    pub fn i64(&mut self, value: i64) {
        self.put(value.to_le_bytes());
    }

    /// `unsigned long long`
    pub fn u64(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }

    /// `sequence<octet>`, cut at `u32::MAX` octets.
    pub fn octets(&mut self, octets: &[u8]) {
        let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        self.put(length.to_le_bytes());
        self.0.extend_from_slice(&octets[..length as usize]);
    }

    /// Pads the sample to a multiple of four bytes, and writes the number of padding bytes into the
    /// header.
    pub fn finish(self) {
        let body = self.0.len() - HEADER;
        let padding = body.next_multiple_of(4) - body;
        self.0.resize(HEADER + body + padding, 0);
        self.0[3] = padding as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `long` 1, `long long` 2, `sequence<octet>` [7, 8, 9], in the four encodings.
    const SAMPLES: [&[u8]; 4] = [
        &[0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7, 8, 9, 0],
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9, 0],
        &[0, 7, 0, 1, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7, 8, 9, 0],
        &[0, 6, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 7, 8, 9, 0],
    ];

    fn read(cdr: &[u8]) -> Result<(i32, i64, Vec<u8>), Malformed> {
        let mut decoder = Decoder::new(cdr)?;
        Ok((decoder.i32()?, decoder.i64()?, decoder.octets()?.to_vec()))
    }

    #[test]
    fn both_versions_are_read_in_both_byte_orders() {
        for sample in SAMPLES {
            assert_eq!(read(sample), Ok((1, 2, vec![7, 8, 9])), "{sample:?}");
        }
    }

    #[test]
    fn the_encoder_writes_xcdr_version_1_little_endian() {
        let mut buffer = vec![9; 100];
        let mut encoder = Encoder::new(&mut buffer);
        encoder.i32(1);
        encoder.i64(2);
        encoder.octets(&[7, 8, 9]);
        encoder.finish();
        assert_eq!(buffer, SAMPLES[0]);
    }

    #[test]
    fn truncated_samples_are_rejected_as_too_short() {
        for sample in SAMPLES {
            for length in 0..sample.len() - 1 {
                assert_eq!(
                    read(&sample[..length]),
                    Err(Malformed::Short),
                    "{length} of {sample:?}"
                );
            }
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        for encoding in (0..=255).filter(|e| ![0, 1, 6, 7].contains(e)) {
            let cdr = [0, encoding, 0, 0, 1, 0, 0, 0];
            assert_eq!(read(&cdr), Err(Malformed::Encoding(u16::from(encoding))));
        }
    }

    #[test]
    fn a_sequence_length_beyond_the_sample_is_refused() {
        let cdr = [0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        let mut decoder = Decoder::new(&cdr).unwrap();
        assert_eq!(decoder.octets(), Err(Malformed::Short));
    }
}

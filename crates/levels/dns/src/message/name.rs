//! Names of queries, and their hashes.
//!
//! A name is hashed label by label from the root: one pass gives the hashes of all its suffixes, so
//! that the search for the closest encloser does not hash again. The hash needs no secret, because
//! the names in the table are the operator's and queries do not insert any.

/// Size of the longest name, bytes, including the root label.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Number of labels of the deepest name, without the root: each label takes at least two bytes.
pub(crate) const LABELS_MAX: usize = 127;

/// Buffer for the name of a query, in lower case and hashed.
#[derive(Debug)]
pub(crate) struct AskedName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
    /// Offset of each label, first label first.
    starts: [u8; LABELS_MAX],
    /// `hashes[i]` is the hash of the suffix that begins with label `i`.
    hashes: [u64; LABELS_MAX + 1],
    labels: usize,
}

/// Error of [`AskedName::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    /// The message ends inside the name.
    Short,
    /// The name is longer than 255 bytes.
    Long,
    /// A label is not plain: it is a pointer, or of a type that RFC 6891 withdrew.
    Label,
}

const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;

impl AskedName {
    pub(crate) fn new() -> AskedName {
        AskedName {
            bytes: [0; NAME_BYTES_MAX],
            length: 0,
            starts: [0; LABELS_MAX],
            hashes: [0; LABELS_MAX + 1],
            labels: 0,
        }
    }

    /// Reads the name at offset `at` of `message`. Returns the offset after it.
    #[inline]
    pub(crate) fn read(&mut self, message: &[u8], at: usize) -> Result<usize, NameError> {
        let mut end = at;
        let mut labels = 0;
        loop {
            let length = *message.get(end).ok_or(NameError::Short)?;
            if length == 0 {
                end += 1;
                break;
            }
            if length > 63 {
                return Err(NameError::Label);
            }
            // A label takes at least two bytes, so a name within this bound has at most LABELS_MAX
            // labels.
            if end - at + usize::from(length) + 2 > NAME_BYTES_MAX {
                return Err(NameError::Long);
            }
            self.starts[labels] = (end - at) as u8;
            labels += 1;
            end += usize::from(length) + 1;
        }
        let name = message.get(at..end).ok_or(NameError::Short)?;
        self.length = name.len();
        self.labels = labels;
        let bytes = &mut self.bytes[..name.len()];
        bytes.copy_from_slice(name);
        // Length bytes are below `A` and do not change.
        bytes.make_ascii_lowercase();
        self.hash_suffixes();
        Ok(end)
    }

    #[inline]
    fn hash_suffixes(&mut self) {
        let mut hash = ROOT;
        self.hashes[self.labels] = hash;
        let mut end = self.length.saturating_sub(1);
        for label in (0..self.labels).rev() {
            let start = usize::from(self.starts[label]);
            hash = step(hash, &self.bytes[start..end]);
            self.hashes[label] = hash;
            end = start;
        }
    }

    /// Number of labels, without the root.
    pub(crate) fn labels(&self) -> usize {
        self.labels
    }

    /// Size in bytes, including the root label.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the suffix that begins with label `label`, in lower case, and its hash.
    #[inline]
    pub(crate) fn suffix(&self, label: usize) -> (&[u8], u64) {
        let start =
            if label < self.labels { usize::from(self.starts[label]) } else { self.length - 1 };
        (&self.bytes[start..self.length], self.hashes[label])
    }

    /// Returns the hash of the whole name.
    pub(crate) fn hash(&self) -> u64 {
        self.hashes[0]
    }
}

/// Extends a suffix's hash by one more label in front (with its length byte).
#[inline]
fn step(hash: u64, label: &[u8]) -> u64 {
    let mut hash = hash;
    let mut chunks = label.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("a chunk of eight"));
        hash = mix(hash ^ word);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

#[inline]
fn mix(word: u64) -> u64 {
    let product = u128::from(word) * 0xa076_1d64_78bd_642f_u128;
    (product as u64) ^ ((product >> 64) as u64) ^ 0xe703_7ed1_a0b4_28db
}

/// Returns the hash of a whole name in lower case, equal to [`AskedName::hash`].
pub(crate) fn hash_of(name: &[u8]) -> u64 {
    let mut asked = AskedName::new();
    match asked.read(name, 0) {
        Ok(_) => asked.hash(),
        // Names of zones are valid, because `domain` made them.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Vec<u8> {
        domain::base::Name::vec_from_str(text).unwrap().into_octets()
    }

    #[test]
    fn a_suffix_hash_equals_the_hash_of_that_name() {
        let mut asked = AskedName::new();
        let long = wire("A-label-of-More-than-8.www.Example.COM");
        assert_eq!(asked.read(&long, 0), Ok(long.len()));
        assert_eq!(asked.labels(), 4);
        for (label, name) in
            ["a-label-of-more-than-8.www.example.com", "www.example.com", "example.com", "com", "."]
                .into_iter()
                .enumerate()
        {
            let (bytes, hash) = asked.suffix(label);
            assert_eq!(bytes, wire(name));
            assert_eq!(hash, hash_of(&wire(name)), "{name}");
        }
    }

    #[test]
    fn invalid_names_are_reported_with_their_error() {
        let mut asked = AskedName::new();
        assert_eq!(asked.read(&[], 0), Err(NameError::Short));
        assert_eq!(asked.read(&[3, b'w', b'w'], 0), Err(NameError::Short));
        assert_eq!(asked.read(&[1, b'w'], 0), Err(NameError::Short));
        assert_eq!(asked.read(&[0xc0, 12], 0), Err(NameError::Label));
        assert_eq!(asked.read(&[0x41, 1, 0], 0), Err(NameError::Label));
        let mut long = Vec::new();
        (0..4).for_each(|_| long.extend([&[63][..], &[b'a'; 63]].concat()));
        long.push(0);
        assert_eq!(asked.read(&long, 0), Err(NameError::Long));
        long.truncate(192);
        long.extend([61].into_iter().chain([b'b'; 61]).chain([0]));
        assert_eq!(long.len(), 255);
        assert_eq!(asked.read(&long, 0), Ok(255));
    }

    #[test]
    fn the_deepest_name_is_read() {
        let mut asked = AskedName::new();
        let mut deep: Vec<u8> = [1, b'x'].repeat(127);
        deep.push(0);
        assert_eq!(asked.read(&deep, 0), Ok(255));
        assert_eq!(asked.labels(), LABELS_MAX);
        let mut deeper: Vec<u8> = [1, b'x'].repeat(128);
        deeper.push(0);
        assert_eq!(asked.read(&deeper, 0), Err(NameError::Long));
    }
}

//! Encoding of an entry in the file: created, modified, lease (0: none), 8 bytes each,
//! little-endian; then the value.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::{Entry, Key, LeaseId, Revision};

const NUMBERS_BYTES: usize = 24;

/// Encodes an entry.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let mut row = Vec::with_capacity(NUMBERS_BYTES + entry.value.len());
    let lease = entry.lease.map_or(0, |lease| lease.0);
    for number in [entry.created.0, entry.modified.0, lease] {
        row.extend_from_slice(&number.to_le_bytes());
    }
    row.extend_from_slice(&entry.value);
    row
}

/// Decodes an entry. `None` if there are too few bytes, or the key is invalid.
pub(super) fn decode(key: &str, row: &[u8]) -> Option<Entry> {
    let (numbers, value) = row.split_at_checked(NUMBERS_BYTES)?;
    let number = |at: usize| {
        let bytes = numbers[at * 8..][..8].try_into().expect("8 bytes were taken");
        u64::from_le_bytes(bytes)
    };
    Some(Entry {
        key: Key::new(key).ok()?,
        value: value.into(),
        created: Revision(number(0)),
        modified: Revision(number(1)),
        lease: Some(LeaseId(number(2))).filter(|lease| lease.0 != 0),
    })
}

/// Returns the entry's contribution to the file's digest.
pub(super) fn digest(entry: &Entry) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(entry.key.as_str().as_bytes());
    hasher.write_u8(0);
    for number in [entry.created.0, entry.modified.0, entry.lease.map_or(0, |lease| lease.0)] {
        hasher.write_u64(number);
    }
    hasher.write(&entry.value);
    hasher.finish()
}

/// Returns the entry's contribution to the size limit, bytes.
pub(super) fn size_bytes(entry: &Entry) -> u64 {
    (entry.key.as_str().len() + NUMBERS_BYTES + entry.value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for lease in [None, Some(LeaseId(7))] {
            for value in [&b""[..], b"v", &[0xff; 1000]] {
                let entry = Entry {
                    key: Key::new("pools/web").unwrap(),
                    value: value.into(),
                    created: Revision(3),
                    modified: Revision(u64::MAX),
                    lease,
                };
                assert_eq!(decode("pools/web", &encode(&entry)), Some(entry));
            }
        }
        assert_eq!(decode("pools/web", &[0; 23]), None);
        assert_eq!(decode("", &[0; 24]), None);
    }

    #[test]
    fn the_digest_is_of_every_part() {
        let entry = decode("a/b", &[0; 25]).unwrap();
        let mut seen = vec![digest(&entry)];
        seen.push(digest(&decode("a/c", &[0; 25]).unwrap()));
        for byte in 0..25 {
            let mut row = [0; 25];
            row[byte] = 1;
            seen.push(digest(&decode("a/b", &row).unwrap()));
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}

//! TSIG: reads the signature of a query, and writes the record that rejects its key.
//!
//! # Source
//! RFC 8945, sections 4.2, 5.2.1 and 5.3.2.

use super::code::{ANY, HEADER, TSIG};

/// TSIG error: the server does not know the key.
const BADKEY: u16 = 17;
/// Size of the time and fudge fields.
const TIME_BYTES: usize = 8;

/// Offsets of a TSIG record's fields in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The key's name.
    owner: (u16, u16),
    /// The algorithm's name, the time and the fudge, which follow each other.
    head: (u16, u16),
    /// The original message identifier.
    original_id: u16,
}

impl Signature {
    /// Reads the TSIG record at the end of a message. `None`: it is malformed.
    #[cold]
    pub(crate) fn read(
        message: &[u8],
        question_end: usize,
        owner_at: usize,
        body_at: usize,
    ) -> Option<Signature> {
        // Type, class, TTL and length are between the name and the data.
        let owner_end = body_at.checked_sub(10)?;
        let owner = message.get(owner_at..owner_end)?;
        // A response has the question at the same offset as the query, so a pointer into it stays
        // valid.
        let mut pointer_at = 0;
        while let Some(length @ 1..=63) = owner.get(pointer_at) {
            pointer_at += usize::from(*length) + 1;
        }
        if let Some([high @ 0xc0..=0xff, low]) = owner.get(pointer_at..) {
            let target = usize::from(u16::from_be_bytes([high & 0x3f, *low]));
            if !(HEADER..question_end).contains(&target) {
                return None;
            }
        }
        let body = message.get(body_at..)?;
        let mut name_end = 0;
        loop {
            match *body.get(name_end)? {
                0 => break name_end += 1,
                length @ 1..=63 => name_end += usize::from(length) + 1,
                _ => return None,
            }
        }
        let number =
            |at: usize| Some(usize::from(u16::from_be_bytes(*body.get(at..)?.first_chunk()?)));
        let head_end = name_end + TIME_BYTES;
        let id_at = head_end + 2 + number(head_end)?;
        let end = id_at + 6 + number(id_at + 4)?;
        let place = |at: usize| u16::try_from(at).ok();
        (end == body.len() && name_end <= 255).then_some(())?;
        Some(Signature {
            owner: (place(owner_at)?, place(owner_end)?),
            head: (place(body_at)?, place(body_at + head_end)?),
            original_id: place(body_at + id_at)?,
        })
    }

    /// Writes the record that rejects the key of `query` to the start of `out`, without a MAC.
    /// Returns its size, or `None` if it does not fit.
    #[cold]
    pub(crate) fn write_unknown_key(&self, query: &[u8], out: &mut [u8]) -> Option<usize> {
        let part = |(start, end): (u16, u16)| query.get(usize::from(start)..usize::from(end));
        let (owner, head) = (part(self.owner)?, part(self.head)?);
        let original_id = part((self.original_id, self.original_id + 2))?;
        // The lengths of the MAC and of the other data are 0.
        let length = (head.len() + 8) as u16;
        let parts: [&[u8]; 9] = [
            owner,
            &TSIG.to_be_bytes(),
            &ANY.to_be_bytes(),
            &[0; 4],
            &length.to_be_bytes(),
            head,
            &[0; 2],
            original_id,
            &[(BADKEY >> 8) as u8, BADKEY as u8, 0, 0],
        ];
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut room = out.get_mut(..bytes)?;
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
        Some(bytes)
    }
}

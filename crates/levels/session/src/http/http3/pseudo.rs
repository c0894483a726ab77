//! The pseudo-fields of an encoded head (RFC 9114, section 4.3).
//!
//! `h3` accepts repeated and late pseudo-fields, and those of responses. So the lines of an encoded
//! head (RFC 9204, section 4.5) are looked through before `h3` decodes it.
//!
//! # Deviations
//! A pseudo-field is accepted by an index of the static table, in which all are. Known encoders
//! refer to it.

use h3::error::Code;

/// A head that `h3` could not decode either: a fault of the connection (RFC 9204, section 2.2).
const UNDECODABLE: Code = Code::QPACK_DECOMPRESSION_FAILED;

/// The pseudo-fields of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PseudoFields {
    authority: bool,
    method: bool,
    path: bool,
    scheme: bool,
}

impl PseudoFields {
    /// Those of an encoded head, each at most once and in front of the other fields.
    ///
    /// # Errors
    /// H3_MESSAGE_ERROR, or QPACK_DECOMPRESSION_FAILED.
    pub(super) fn of(block: &[u8]) -> Result<PseudoFields, Code> {
        let mut found = PseudoFields::default();
        let mut is_late = false;
        let (_, rest) = integer(block, 8)?;
        let (_, mut rest) = integer(rest, 7)?;
        while let Some(&first) = rest.first() {
            let name;
            (name, rest) = line(first, rest)?;
            let Name::Static(index) = name else {
                is_late = true;
                continue;
            };
            let place = match index {
                0 => &mut found.authority,
                1 => &mut found.path,
                15..=21 => &mut found.method,
                22 | 23 => &mut found.scheme,
                // `:status`
                24..=28 | 63..=71 => return Err(Code::H3_MESSAGE_ERROR),
                _ => {
                    is_late = true;
                    continue;
                }
            };
            if is_late || std::mem::replace(place, true) {
                return Err(Code::H3_MESSAGE_ERROR);
            }
        }
        Ok(found)
    }

    /// Whether a request has those that it needs, and no other.
    pub(super) fn fit(self, is_connect: bool) -> bool {
        match is_connect {
            true => self.method && self.authority && !self.path && !self.scheme,
            false => self.method && self.path && self.scheme,
        }
    }

    /// Whether there is none, as in trailers.
    pub(super) fn are_none(self) -> bool {
        self == PseudoFields::default()
    }
}

/// The name of a field.
enum Name {
    /// It has this index in the static table.
    Static(u64),
    Literal,
}

/// Reads a line that begins with the byte `first`.
fn line(first: u8, rest: &[u8]) -> Result<(Name, &[u8]), Code> {
    match first {
        0b1100_0000.. => {
            let (index, rest) = integer(rest, 6)?;
            Ok((Name::Static(index), rest))
        }
        // The dynamic table, which is empty.
        0b1000_0000.. => Err(UNDECODABLE),
        0b0101_0000..=0b0101_1111 | 0b0111_0000..=0b0111_1111 => {
            let (index, rest) = integer(rest, 4)?;
            let (_, rest) = string(rest, 7)?;
            Ok((Name::Static(index), rest))
        }
        0b0010_0000..=0b0011_1111 => {
            let (name, rest) = string(rest, 3)?;
            let is_pseudo = match first & 0b1000 {
                0 => name.first() == Some(&b':'),
                // The code of a colon (RFC 7541, appendix B).
                _ => name.first().is_some_and(|byte| byte >> 1 == 0b101_1100),
            };
            if name.is_empty() || is_pseudo {
                return Err(Code::H3_MESSAGE_ERROR);
            }
            let (_, rest) = string(rest, 7)?;
            Ok((Name::Literal, rest))
        }
        _ => Err(UNDECODABLE),
    }
}

/// An integer with a prefix of this many bits (RFC 7541, section 5.1), and what follows it.
fn integer(bytes: &[u8], bits: u32) -> Result<(u64, &[u8]), Code> {
    let (first, mut rest) = bytes.split_first().ok_or(UNDECODABLE)?;
    let most = (1 << bits) - 1;
    let mut value = u64::from(*first) & most;
    if value < most {
        return Ok((value, rest));
    }
    // No length or index needs more bytes.
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first().ok_or(UNDECODABLE)?;
        value += u64::from(byte & 0x7f) << shift;
        rest = after;
        if byte & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err(UNDECODABLE)
}

/// Splits off a string literal with a length prefix of this many bits (RFC 7541, section 5.2).
fn string(bytes: &[u8], bits: u32) -> Result<(&[u8], &[u8]), Code> {
    let (length, rest) = integer(bytes, bits)?;
    usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)).ok_or(UNDECODABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `:method GET`, `:scheme https`, `:path /` and `:authority a`.
    const WHOLE: [u8; 6] = [0xd1, 0xd7, 0xc1, 0x50, 0x01, b'a'];

    fn of(lines: &[&[u8]]) -> Result<PseudoFields, Code> {
        PseudoFields::of(&[&[0, 0], lines.concat().as_slice()].concat())
    }

    #[test]
    fn each_pseudo_field_is_accepted_once_and_before_other_fields() {
        let fields = of(&[&WHOLE]).expect("a request");
        assert!(fields.fit(false) && !fields.fit(true) && !fields.are_none());
        assert!(of(&[&[0xd1], &[0x50, 1, b'a']]).expect("CONNECT").fit(true));
        assert!(of(&[&[0xdd]]).expect("trailers").are_none());
        // `accept: */*`, a literal name, a value with a known name.
        let others: [&[u8]; 3] = [&[0xdd], &[0x21, b'x', 1, b'y'], &[0x5f, 0x1d, 1, b'z']];
        for other in others {
            assert!(of(&[&WHOLE, other]).expect("a request").fit(false));
            assert_eq!(of(&[&[0xd1, 0xd7], other, &[0xc1]]), Err(Code::H3_MESSAGE_ERROR));
        }
        for repeated in [0xd1, 0xd4, 0xd7, 0xd6, 0xc1, 0xc0] {
            assert_eq!(of(&[&WHOLE, &[repeated]]), Err(Code::H3_MESSAGE_ERROR), "{repeated:x}");
        }
    }

    #[test]
    fn others_and_malformed_lines_are_refused() {
        let malformed: [&[u8]; 6] = [
            // `:status 200`, by the table's two ranges.
            &[0xd9],
            &[0xff, 0],
            // `:path` and `:x` as literal names, and an empty one.
            &[0x25, b':', b'p', b'a', b't', b'h', 1, b'/'],
            &[0x22, b':', b'x', 0],
            &[0x20, 0],
            // A colon by its Huffman code.
            &[0x29, 0xb9, 0],
        ];
        for line in malformed {
            assert_eq!(of(&[&WHOLE, line]), Err(Code::H3_MESSAGE_ERROR), "{line:x?}");
        }
        let undecodable: [&[u8]; 4] = [
            // The dynamic table.
            &[0x80],
            &[0x40, 1, b'x'],
            &[0x10],
            // A value that is cut short.
            &[0x51, 4, b'/'],
        ];
        for line in undecodable {
            assert_eq!(of(&[&WHOLE, line]), Err(UNDECODABLE), "{line:x?}");
        }
        assert_eq!(PseudoFields::of(&[]), Err(UNDECODABLE));
        assert!(of(&[&[0xd1, 0xd7]]).is_ok_and(|fields| !fields.fit(false)));
    }
}

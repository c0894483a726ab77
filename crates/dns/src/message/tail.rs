//! The records of a response, made before anybody asks for them.
//!
//! What follows the question is the same in every response to one name, so it is kept as bytes: with
//! pointers to the question's name, whose place (byte 12) and length are known. A tail for names of different
//! lengths (a name that does not exist, one below a cut) keeps the places of its pointers, to be moved.

use super::code::{CLASS_CHAOS, CLASS_IN, CNAME, HEADER, MX, NS, PTR, SOA};

/// Where a record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    at: u16,
    section: Section,
    /// Whether leaving it out makes the response truncated.
    required: bool,
}

/// A part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// Records, ready to be copied behind a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    bytes: Box<[u8]>,
    ends: Box<[End]>,
    counts: [u16; 3],
    /// Where there are pointers to the base, if the question's name is not always the same.
    pointers: Box<[u16]>,
    base_len: u16,
    pub(crate) authoritative: bool,
    pub(crate) rcode: u16,
}

/// What was written of a tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) counts: [u16; 3],
    pub(crate) truncated: bool,
}

impl Tail {
    /// Writes as many whole records as there is room for to the start of `out`, behind a question whose name has
    /// `name_len` bytes.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], name_len: usize) -> Written {
        let mut written =
            Written { bytes: self.bytes.len(), counts: self.counts, truncated: false };
        if self.bytes.len() > out.len() {
            written = self.cut(out.len());
        }
        out[..written.bytes].copy_from_slice(&self.bytes[..written.bytes]);
        if !self.pointers.is_empty() {
            let pointer = 0xc000 | (HEADER + name_len - usize::from(self.base_len)) as u16;
            for at in
                self.pointers.iter().map(|at| usize::from(*at)).filter(|at| *at < written.bytes)
            {
                out[at..at + 2].copy_from_slice(&pointer.to_be_bytes());
            }
        }
        written
    }

    #[cold]
    fn cut(&self, room: usize) -> Written {
        let mut written = Written::default();
        for end in &self.ends {
            if usize::from(end.at) > room {
                written.truncated |= end.required;
                // What is left out is left out together with all behind it, so that no record of a section
                // stands behind a gap.
                continue;
            }
            written.bytes = usize::from(end.at);
            written.counts[end.section as usize] += 1;
        }
        written
    }

    /// Bytes of all records.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Makes a [`Tail`].
pub(crate) struct TailWriter {
    bytes: Vec<u8>,
    ends: Vec<End>,
    counts: [u16; 3],
    pointers: Vec<u16>,
    base: Base,
}

enum Base {
    /// The question's name is known: names that the message has already are pointed to.
    Known { name_len: usize, names: Vec<(Vec<u8>, u16)> },
    /// The question's name ends with this one.
    Below(Vec<u8>),
    /// The question's name is any, and the owner.
    Owner,
}

/// Stands for the question's name where that is not known.
pub(crate) const QUESTION: &[u8] = b"\xffquestion";

impl TailWriter {
    fn new(base: Base) -> TailWriter {
        TailWriter {
            bytes: Vec::new(),
            ends: Vec::new(),
            counts: [0; 3],
            pointers: Vec::new(),
            base,
        }
    }

    /// Behind the question of this name.
    pub(crate) fn known(name: &[u8]) -> TailWriter {
        let names =
            suffixes(name).map(|(at, name)| (name.to_vec(), (HEADER + at) as u16)).collect();
        TailWriter::new(Base::Known { name_len: name.len(), names })
    }

    /// Behind questions of names that end with `base`.
    pub(crate) fn below(base: &[u8]) -> TailWriter {
        TailWriter::new(Base::Below(base.to_vec()))
    }

    /// Behind questions of any name, which own the records of [`QUESTION`].
    pub(crate) fn any() -> TailWriter {
        TailWriter::new(Base::Owner)
    }

    /// Adds a record; `required`: without it the response is truncated.
    pub(crate) fn record(
        &mut self,
        section: Section,
        owner: &[u8],
        rtype: u16,
        ttl: u32,
        body: &[u8],
        required: bool,
    ) {
        self.name(owner);
        self.bytes.extend(rtype.to_be_bytes());
        self.bytes.extend(CLASS_IN.to_be_bytes());
        self.bytes.extend(ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.body(rtype, body);
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        self.ends.push(End { at: self.bytes.len().min(u16::MAX.into()) as u16, section, required });
        self.counts[section as usize] += 1;
    }

    /// RFC 3597, 4: only names of RFC 1035's types may be shortened.
    fn body(&mut self, rtype: u16, body: &[u8]) {
        let plain = match rtype {
            NS | CNAME | PTR | SOA => 0,
            MX => 2,
            _ => return self.bytes.extend(body),
        };
        let names = if rtype == SOA { 2 } else { 1 };
        self.bytes.extend(&body[..plain]);
        let mut rest = &body[plain..];
        for _ in 0..names {
            let length = name_len(rest);
            self.name(&rest[..length]);
            rest = &rest[length..];
        }
        self.bytes.extend(rest);
    }

    fn name(&mut self, name: &[u8]) {
        let here = self.bytes.len();
        match &mut self.base {
            Base::Known { name_len, names } => {
                let offset = HEADER + *name_len + 4 + here;
                for (at, suffix) in suffixes(name) {
                    if let Some((_, place)) = names.iter().find(|(known, _)| *known == suffix) {
                        self.bytes.extend(&name[..at]);
                        self.bytes.extend((0xc000 | place).to_be_bytes());
                        return;
                    }
                    if offset + at < 0x4000 {
                        names.push((suffix.to_vec(), (offset + at) as u16));
                    }
                }
                self.bytes.extend(name);
            }
            Base::Below(base) if name == base.as_slice() => {
                self.pointers.push(here as u16);
                self.bytes.extend([0xc0, HEADER as u8]);
            }
            Base::Owner if name == QUESTION => self.bytes.extend([0xc0, HEADER as u8]),
            _ => self.bytes.extend(name),
        }
    }

    /// The one record of a name of class CHAOS.
    pub(crate) fn chaos(rtype: u16, body: &[u8]) -> Tail {
        let mut writer = TailWriter::any();
        writer.record(Section::Answer, QUESTION, rtype, 0, body, true);
        // Behind the pointer and the type.
        writer.bytes[4..6].copy_from_slice(&CLASS_CHAOS.to_be_bytes());
        writer.end(true, 0)
    }

    /// Where in the message a name has been written, if it has.
    pub(crate) fn place_of(&self, name: &[u8]) -> Option<u16> {
        match &self.base {
            Base::Known { names, .. } => {
                names.iter().find(|(known, _)| known == name).map(|(_, place)| *place)
            }
            _ => None,
        }
    }

    pub(crate) fn end(self, authoritative: bool, rcode: u16) -> Tail {
        let base_len = match &self.base {
            Base::Below(base) => base.len() as u16,
            _ => 0,
        };
        Tail {
            bytes: self.bytes.into(),
            ends: self.ends.into(),
            counts: self.counts,
            pointers: self.pointers.into(),
            base_len,
            authoritative,
            rcode,
        }
    }
}

/// A name's suffixes but the root, longest first, with where they begin.
pub(crate) fn suffixes(name: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = usize::from(*name.get(at)?);
        if length == 0 {
            return None;
        }
        let start = at;
        at += length + 1;
        Some((start, &name[start..]))
    })
}

/// Bytes of the uncompressed name at the start of `bytes`.
pub(crate) fn name_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
        at += usize::from(*length) + 1;
    }
    (at + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Vec<u8> {
        domain::base::Name::vec_from_str(text).unwrap().into_octets()
    }

    #[test]
    fn a_truncated_tail_ends_with_a_whole_record() {
        let name = wire("www.example.com");
        let mut writer = TailWriter::known(&name);
        for byte in 0..10 {
            writer.record(Section::Answer, &name, 1, 60, &[192, 0, 2, byte], true);
        }
        writer.record(Section::Additional, &wire("a.example.com"), 1, 60, &[192, 0, 2, 99], false);
        let tail = writer.end(true, 0);
        assert_eq!(tail.len(), 10 * 16 + 18);
        for (room, records, truncated) in [
            (178, 11, false),
            (177, 10, false),
            (160, 10, false),
            (159, 9, true),
            (15, 0, true),
            (0, 0, true),
        ] {
            let mut out = vec![0; room];
            let written = tail.write(&mut out, name.len());
            assert_eq!(written.counts.iter().sum::<u16>(), records, "{room}");
            assert_eq!(
                (written.bytes, written.truncated),
                (usize::from(records.min(10)) * 16 + if records > 10 { 18 } else { 0 }, truncated),
                "{room}"
            );
        }
    }

    #[test]
    fn pointers_follow_the_length_of_the_question() {
        let origin = wire("example.com");
        let mut writer = TailWriter::below(&origin);
        writer.record(Section::Authority, &origin, NS, 60, &wire("ns.example.com"), true);
        let tail = writer.end(false, 0);
        for name in ["x.example.com", "a.longer.one.example.com"] {
            let length = wire(name).len();
            let mut out = vec![0; 100];
            tail.write(&mut out, length);
            let pointer = u16::from_be_bytes([out[0], out[1]]);
            assert_eq!(usize::from(pointer & 0x3fff), HEADER + length - origin.len());
        }
    }
}

//! The records of a response, prepared before a query arrives.
//!
//! The bytes after the question are the same in every response to one name. They are stored with
//! compression pointers to the question's name, which begins at byte 12 and has a known length. A
//! tail that is used for names of different lengths (a name that does not exist, a name below a
//! cut) stores the offsets of its pointers, which are adjusted when it is written.

use super::code::{CLASS_CHAOS, CLASS_IN, CNAME, HEADER, HTTPS, MX, NS, PTR, SOA, SRV, SVCB};

/// Size of a question after its name: type and class.
const QUESTION_REST: usize = 4;
/// A compression pointer has 14 bits (RFC 1035, 4.1.4).
const POINTER_MAX: usize = 0x3fff;
/// Compression pointer to the question's name.
pub(crate) const QUESTION_POINTER: u16 = 0xc000 | HEADER as u16;

/// Returns a compression pointer to byte `at` of a message. `None`: the offset does not fit.
#[inline]
pub(crate) fn pointer_to(at: usize) -> Option<u16> {
    (at <= POINTER_MAX).then_some(0xc000 | at as u16)
}

/// Location of a name in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Offset from the start of the question's name.
    Question(u16),
    /// Offset from the start of the tail.
    Tail(u16),
}

impl Place {
    /// Returns a compression pointer to it, if the question's name has `name_len` bytes.
    #[inline]
    pub(crate) fn pointer(self, name_len: usize) -> Option<u16> {
        pointer_to(match self {
            Place::Question(at) => HEADER + usize::from(at),
            Place::Tail(at) => HEADER + name_len + QUESTION_REST + usize::from(at),
        })
    }
}

/// A name of the zone that records of an answer point to. Its records go into the additional
/// section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Index of the name's entry.
    pub(crate) entry: usize,
    /// Location of the name in the answer.
    pub(crate) place: Place,
    /// Types of the additional records.
    pub(crate) types: &'static [u16],
}

/// End of a record, or of a set of records that is never split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    at: u16,
    /// Number of records since the previous end.
    count: u16,
    section: Section,
    /// Whether the response is truncated (TC) if they are omitted.
    required: bool,
}

/// A section of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// Records that are ready to be copied after a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    bytes: Box<[u8]>,
    ends: Box<[End]>,
    counts: [u16; 3],
    /// Offsets of pointers to the base name, if the length of the question's name varies.
    pointers: Box<[u16]>,
    base_len: u16,
    /// Names with additional records, which are appended if the tail fits.
    pub(crate) targets: Box<[Target]>,
    pub(crate) authoritative: bool,
    pub(crate) rcode: u16,
}

/// Size and record counts of a written tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    pub(crate) counts: [u16; 3],
    pub(crate) truncated: bool,
}

impl Tail {
    /// Writes as many whole records as fit to the start of `out`, after a question with a name of
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
                // Everything after the first omitted record is omitted, too, so that no section has
                // a gap.
                continue;
            }
            written.bytes = usize::from(end.at);
            written.counts[end.section as usize] += end.count;
        }
        written
    }

    /// Returns the records of the answer section, and their number.
    #[inline]
    pub(crate) fn answer(&self) -> (&[u8], u16) {
        let count = self.counts[Section::Answer as usize];
        let last = usize::from(count).checked_sub(1).and_then(|last| self.ends.get(last));
        (last.map_or(&[], |end| &self.bytes[..usize::from(end.at)]), count)
    }

    /// Size of all records, bytes.
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
    /// Names that a compression pointer can refer to.
    names: Vec<(Vec<u8>, Place)>,
    targets: Vec<Target>,
    base: Base,
}

enum Base {
    /// The question's name has `name_len` bytes and is known: pointers replace names that the
    /// message already contains.
    Known { name_len: usize },
    /// The question's name ends with this name.
    Below(Vec<u8>),
    /// The question's name is arbitrary and owns the records.
    Owner,
}

/// Stands for the question's name where that is unknown.
pub(crate) const QUESTION: &[u8] = b"\xffquestion";

impl TailWriter {
    fn new(base: Base, names: Vec<(Vec<u8>, Place)>) -> TailWriter {
        TailWriter {
            bytes: Vec::new(),
            ends: Vec::new(),
            counts: [0; 3],
            pointers: Vec::new(),
            names,
            targets: Vec::new(),
            base,
        }
    }

    /// For the question of this name.
    pub(crate) fn known(name: &[u8]) -> TailWriter {
        let names =
            suffixes(name).map(|(at, name)| (name.to_vec(), Place::Question(at as u16))).collect();
        TailWriter::new(Base::Known { name_len: name.len() }, names)
    }

    /// For questions of names that end with `base`.
    pub(crate) fn below(base: &[u8]) -> TailWriter {
        TailWriter::new(Base::Below(base.to_vec()), Vec::new())
    }

    /// For questions of any name. The question's name owns the records of [`QUESTION`].
    pub(crate) fn any() -> TailWriter {
        TailWriter::new(Base::Owner, vec![(QUESTION.to_vec(), Place::Question(0))])
    }

    /// Adds a record. If a `required` record does not fit, the response is truncated (TC).
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
        let at = self.bytes.len().min(u16::MAX.into()) as u16;
        self.ends.push(End { at, count: 1, section, required });
        self.counts[section as usize] += 1;
    }

    /// Adds all records of a name and type to the additional section. They are written together or
    /// omitted together.
    pub(crate) fn additional_set(
        &mut self,
        owner: &[u8],
        (rtype, ttl): (u16, u32),
        bodies: &[Vec<u8>],
        required: bool,
    ) {
        let before = self.ends.len();
        for body in bodies {
            self.record(Section::Additional, owner, rtype, ttl, body, required);
        }
        if let Some(last) = self.ends[before..].last().copied() {
            self.ends.truncate(before);
            self.ends.push(End { count: bodies.len() as u16, ..last });
        }
    }

    /// Writes record data. Only names in types of RFC 1035 may be compressed (RFC 3597, 4).
    fn body(&mut self, rtype: u16, body: &[u8]) {
        let (plain, names) = match rtype {
            SOA => (0, 2),
            NS | CNAME | PTR => (0, 1),
            _ => target_at(rtype).map_or((body.len(), 0), |at| (at, 1)),
        };
        let (plain, mut rest) = body.split_at_checked(plain).unwrap_or((body, &[]));
        self.bytes.extend(plain);
        for _ in 0..names {
            let (name, behind) = rest.split_at(name_len(rest));
            match rtype {
                SRV | SVCB | HTTPS => self.whole_name(name),
                _ => self.name(name),
            }
            rest = behind;
        }
        self.bytes.extend(rest);
    }

    fn name(&mut self, name: &[u8]) {
        let pointer = match &self.base {
            Base::Known { name_len } => suffixes(name).find_map(|(at, suffix)| {
                let (_, place) = self.names.iter().find(|(known, _)| *known == suffix)?;
                Some((at, place.pointer(*name_len)?))
            }),
            Base::Below(base) if name == base.as_slice() => {
                self.pointers.push(self.bytes.len() as u16);
                Some((0, QUESTION_POINTER))
            }
            Base::Owner if name == QUESTION => Some((0, QUESTION_POINTER)),
            _ => None,
        };
        let Some((end, pointer)) = pointer else { return self.whole_name(name) };
        self.remember(name, end);
        self.bytes.extend(&name[..end]);
        self.bytes.extend(pointer.to_be_bytes());
    }

    fn whole_name(&mut self, name: &[u8]) {
        self.remember(name, name.len());
        self.bytes.extend(name);
    }

    /// Records the offsets of `name`, which is written next, and of its suffixes that begin before
    /// `end`.
    fn remember(&mut self, name: &[u8], end: usize) {
        let here = self.bytes.len();
        for (at, suffix) in suffixes(name).take_while(|(at, _)| *at < end) {
            let is_known = self.names.iter().any(|(known, _)| known == suffix);
            if here + at <= POINTER_MAX && !is_known {
                self.names.push((suffix.to_vec(), Place::Tail((here + at) as u16)));
            }
        }
    }

    /// The only record of a name of class CHAOS.
    pub(crate) fn chaos(rtype: u16, body: &[u8]) -> Tail {
        let mut writer = TailWriter::any();
        writer.record(Section::Answer, QUESTION, rtype, 0, body, true);
        // Overwrites the class, which follows the pointer and the type.
        writer.bytes[4..6].copy_from_slice(&CLASS_CHAOS.to_be_bytes());
        writer.end(true, 0)
    }

    /// Returns the location of a name in the message, ignoring case.
    pub(crate) fn place_of(&self, name: &[u8]) -> Option<Place> {
        self.names
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, place)| *place)
    }

    /// Adds a name that records point to.
    pub(crate) fn target(&mut self, target: Target) {
        if self.targets.iter().all(|known| known.entry != target.entry) {
            self.targets.push(target);
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
            targets: self.targets.into(),
            authoritative,
            rcode,
        }
    }
}

/// Returns the offset of the target name in the record data, for types with additional addresses.
pub(crate) fn target_at(rtype: u16) -> Option<usize> {
    match rtype {
        NS => Some(0),
        MX | SVCB | HTTPS => Some(2),
        SRV => Some(6),
        _ => None,
    }
}

/// Returns a name's suffixes except the root, longest first, with their offsets.
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

/// Returns the size of the uncompressed name at the start of `bytes`.
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
    fn an_additional_set_is_written_whole_or_not_at_all() {
        let name = wire("www.example.com");
        let mut writer = TailWriter::known(&name);
        writer.record(Section::Answer, &name, MX, 60, b"\0\x0a\0", true);
        let [one, two] = [vec![192, 0, 2, 1], vec![192, 0, 2, 2]];
        writer.additional_set(&name, (1, 60), &[one.clone(), two], false);
        writer.additional_set(&name, (1, 60), &[one], true);
        let tail = writer.end(true, 0);
        assert_eq!(tail.answer(), (&tail.bytes[..15], 1));
        for (room, additional, truncated) in
            [(63, 3, false), (62, 2, true), (47, 2, true), (46, 0, true), (15, 0, true)]
        {
            let written = tail.write(&mut vec![0; room], name.len());
            assert_eq!((written.counts, written.truncated), ([1, 0, additional], truncated));
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

//! Reads a query: header, question and, if present, the OPT and TSIG records.

use super::code::{ANY, CLASS_IN, HEADER, OPT, QR, TSIG};
use super::edns::Edns;
use super::name::AskedName;
use super::tsig::Signature;

/// Maximum number of authority and additional records. An IXFR query has one; OPT and TSIG are two
/// more.
const RECORDS_MAX: usize = 8;

/// A well-formed query with one question. The [`AskedName`] passed to [`read`] has its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// Offset after the question.
    pub(crate) question_end: usize,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) edns: Option<Edns>,
    pub(crate) signature: Option<Signature>,
}

/// Result of reading a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// A query to answer.
    Query(Query),
    /// A query without a question that asks for a cookie (RFC 7873, 5.4).
    CookieOnly(Edns),
    /// The opcode is not QUERY.
    NotImplemented,
    /// The query is malformed. Contains the offset after the question, if that is readable.
    Malformed(Option<usize>),
    /// Shorter than a header.
    TooShort,
    /// The QR bit is set.
    Response,
}

#[inline]
fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?))
}

/// Reads a message.
#[inline]
pub(crate) fn read(message: &[u8], name: &mut AskedName) -> Read {
    let Some(header) = message.first_chunk::<HEADER>() else { return Read::TooShort };
    if header[2] & QR != 0 {
        return Read::Response;
    }
    if header[2] & 0x78 != 0 {
        return Read::NotImplemented;
    }
    let count = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (questions, records) = (count(4), [count(6), count(8), count(10)]);
    if questions > 1 {
        // RFC 9619: at most one question.
        return Read::Malformed(None);
    }
    if questions == 0 {
        return match additional(message, HEADER, records) {
            Some((Some(edns), _)) if edns.cookie.is_some() => Read::CookieOnly(edns),
            _ => Read::Malformed(None),
        };
    }
    let Ok(name_end) = name.read(message, HEADER) else { return Read::Malformed(None) };
    let (Some(rtype), Some(class)) = (u16_at(message, name_end), u16_at(message, name_end + 2))
    else {
        return Read::Malformed(None);
    };
    let question_end = name_end + 4;
    match additional(message, question_end, records) {
        Some((edns, signature)) => {
            Read::Query(Query { question_end, rtype, class, edns, signature })
        }
        None => Read::Malformed(Some(question_end)),
    }
}

/// Walks over all records to the end of the message. Returns the OPT and TSIG records.
#[inline]
fn additional(
    message: &[u8],
    mut at: usize,
    [answers, authorities, additionals]: [usize; 3],
) -> Option<(Option<Edns>, Option<Signature>)> {
    let question_end = at;
    if answers > 0 || authorities + additionals > RECORDS_MAX {
        return None;
    }
    let (mut edns, mut signature) = (None, None);
    for place in 0..authorities + additionals {
        let root = message.get(at) == Some(&0);
        let owner_at = at;
        at = skip_name(message, at)?;
        let (rtype, class) = (u16_at(message, at)?, u16_at(message, at + 2)?);
        let ttl = u32::from(u16_at(message, at + 4)?) << 16 | u32::from(u16_at(message, at + 6)?);
        let length = usize::from(u16_at(message, at + 8)?);
        at += 10;
        let body = message.get(at..at + length)?;
        at += length;
        match rtype {
            // One OPT record, at the root, in the additional section (RFC 6891, 6.1.1).
            OPT if place < authorities || !root || edns.is_some() => return None,
            OPT => edns = Some(Edns::read(class, ttl, body)?),
            // RFC 8945, 5.1: TSIG is the last additional record.
            TSIG if place + 1 < authorities + additionals || additionals == 0 => return None,
            TSIG if class != ANY || ttl != 0 => return None,
            TSIG => {
                let body_at = at - length;
                signature = Some(Signature::read(message, question_end, owner_at, body_at)?);
            }
            _ => {}
        }
    }
    (at == message.len()).then_some((edns, signature))
}

/// Skips a name without following compression pointers.
#[inline]
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += usize::from(length) + 1,
            0xc0.. => return (at + 1 < message.len()).then_some(at + 2),
            _ => return None,
        }
    }
}

impl Query {
    /// Whether the class is IN.
    pub(crate) fn is_internet(&self) -> bool {
        self.class == CLASS_IN
    }
}

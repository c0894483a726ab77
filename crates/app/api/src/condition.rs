//! Reads the tags in `If-Match` and `If-None-Match`.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, header};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The state of a resource as an entity tag.
///
/// # Source
/// RFC 9110, section 8.8.3: a strong tag. It covers the writable state of the resource; counters in
/// the same document change without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ETag(pub(crate) String);

impl ETag {
    /// The tag of a writable state.
    pub(crate) fn of(state: &impl Serialize) -> ETag {
        let state = serde_json::to_vec(state).expect("wire types have string keys");
        let digest = Sha256::digest(state);
        let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        ETag(format!("\"{hex}\""))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `If-None-Match` lists this tag. An unreadable header lists nothing, so that the
    /// document is sent.
    pub(crate) fn is_listed_weakly(&self, headers: &HeaderMap) -> bool {
        let read = Condition::read(headers, &header::IF_NONE_MATCH);
        read.is_ok_and(|condition| condition.is_some_and(|listed| listed.lists_weakly(self)))
    }
}

/// `*`, or a list of tags.
///
/// # Source
/// RFC 9110, sections 13.1.1 and 13.1.2: `"*" / #entity-tag`; 8.8.3:
/// `entity-tag = [ "W/" ] DQUOTE *etagc DQUOTE`; 5.6.1: empty list elements are ignored, so an
/// empty list is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Any state.
    Any,
    /// One of these tags, each as it was sent.
    OneOf(Vec<Tag>),
}

/// One tag of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    is_weak: bool,
    /// The tag with its quotes.
    opaque: Vec<u8>,
}

/// The grammar as a regular expression that all dialects of JSON Schema support. As in the grammar,
/// the list may be empty.
pub(crate) const PATTERN: &str = r#"^(\*|((W/)?"[!#-~]*"([ \t]*,[ \t]*(W/)?"[!#-~]*")*)?)$"#;

/// An error in a header. Its text follows the header's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Something that is not a tag.
    NoTag,
    /// `*` in a list of tags, or twice.
    AnyAmongTags,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::NoTag => "has something that is not an entity tag",
            Malformed::AnyAmongTags => "has * together with something else",
        })
    }
}

impl Condition {
    /// Reads all lines of a header; `None` if there is none.
    pub(crate) fn read(
        headers: &HeaderMap,
        name: &HeaderName,
    ) -> Result<Option<Condition>, Malformed> {
        let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        // RFC 9110, section 5.3: several lines form one list.
        read(&lines.join(&b", "[..])).map(Some)
    }

    /// Whether the list has the strong tag of a state. A weak tag never counts.
    pub(crate) fn lists(&self, tag: &ETag) -> bool {
        self.holds(tag, |listed| !listed.is_weak)
    }

    /// Whether the list has the tag, weak or strong.
    pub(crate) fn lists_weakly(&self, tag: &ETag) -> bool {
        self.holds(tag, |_| true)
    }

    fn holds(&self, tag: &ETag, counts: impl Fn(&Tag) -> bool) -> bool {
        match self {
            Condition::Any => true,
            Condition::OneOf(tags) => {
                tags.iter().any(|listed| counts(listed) && listed.opaque == tag.as_str().as_bytes())
            }
        }
    }
}

fn read(value: &[u8]) -> Result<Condition, Malformed> {
    let (mut rest, mut tags, mut any) = (value, Vec::new(), 0);
    loop {
        // Skips commas between elements and around empty ones.
        let begin = rest.iter().position(|byte| !b" \t,".contains(byte));
        let Some(begin) = begin else { break };
        rest = &rest[begin..];
        rest = match rest.strip_prefix(b"*") {
            Some(after) => {
                any += 1;
                after
            }
            None => {
                let (tag, after) = tag(rest).ok_or(Malformed::NoTag)?;
                tags.push(tag);
                after
            }
        };
        let next = rest.iter().find(|byte| !b" \t".contains(byte));
        if next.is_some_and(|next| *next != b',') {
            return Err(Malformed::NoTag);
        }
    }
    match (any, tags.is_empty()) {
        (0, _) => Ok(Condition::OneOf(tags)),
        (1, true) => Ok(Condition::Any),
        _ => Err(Malformed::AnyAmongTags),
    }
}

/// The tag at the start of a text, and the rest.
fn tag(text: &[u8]) -> Option<(Tag, &[u8])> {
    let (is_weak, quoted) = match text.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let inner = quoted.strip_prefix(b"\"")?;
    // etagc: no control character, no space, no quote.
    let end = inner.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
    let after = inner[end..].strip_prefix(b"\"")?;
    let opaque = quoted[..end + 2].to_vec();
    Some((Tag { is_weak, opaque }, after))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    fn read_lines(lines: &[&[u8]]) -> Result<Option<Condition>, Malformed> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::IF_MATCH, HeaderValue::from_bytes(line).unwrap());
        }
        Condition::read(&headers, &header::IF_MATCH)
    }

    #[test]
    fn etag_lists_match_strongly_and_weakly_by_rfc_9110() {
        let tag = ETag("\"a\"".into());
        for (text, strong, weak) in [
            ("\"a\"", true, true),
            ("\"b\", \"a\"", true, true),
            ("\"b\",\"a\"", true, true),
            (", \"a\" ,,", true, true),
            ("\"b,\", \"a\"", true, true),
            ("\"b,\\\"", false, false),
            ("W/\"a\"", false, true),
            ("W/\"a\", \"a\"", true, true),
            ("*", true, true),
            (" * ", true, true),
            ("\"b\"", false, false),
            ("\"\"", false, false),
            ("", false, false),
        ] {
            let condition = read_lines(&[text.as_bytes()]).unwrap().unwrap();
            assert_eq!(condition.lists(&tag), strong, "{text}");
            assert_eq!(condition.lists_weakly(&tag), weak, "{text}");
        }
        assert_eq!(read_lines(&[]), Ok(None), "no condition");
        let two = read_lines(&[b"\"b\"", b"\"a\""]).unwrap().unwrap();
        assert!(two.lists(&tag), "two lines are one list");
        assert!(read_lines(&[b"\"\xe9\""]).is_ok(), "obs-text");
    }

    #[test]
    fn a_malformed_etag_list_is_an_error_instead_of_a_mismatch() {
        use Malformed::{AnyAmongTags, NoTag};
        let rows: [(&[&[u8]], Malformed); 11] = [
            (&[b"garbage"], NoTag),
            (&[b"a"], NoTag),
            (&[b"\"a"], NoTag),
            (&[b"a\""], NoTag),
            (&[b"w/\"a\""], NoTag),
            (&[b"W/ \"a\""], NoTag),
            (&[b"\"a\" \"b\""], NoTag),
            (&[b"\"a b\""], NoTag),
            (&[b"\"a\", *"], AnyAmongTags),
            (&[b"*, *"], AnyAmongTags),
            (&[b"*", b"\"a\""], AnyAmongTags),
        ];
        for (lines, wrong) in rows {
            assert_eq!(read_lines(lines), Err(wrong), "{lines:?}");
        }
    }

    #[test]
    fn a_different_state_has_a_different_etag() {
        assert_eq!(ETag::of(&(1, "a")), ETag::of(&(1, "a")));
        assert_ne!(ETag::of(&(1, "a")), ETag::of(&(2, "a")));
    }
}

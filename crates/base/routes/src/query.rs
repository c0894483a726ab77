//! The query of a target: names and values, percent-encoded, with `+` for a space.

use std::borrow::Cow;

/// Names and values of a query, still encoded. A part without `=` has an empty value.
pub(crate) fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').filter(|part| !part.is_empty()).map(|part| {
        let equals = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
        (&part[..equals], part.get(equals + 1..).unwrap_or_default())
    })
}

/// The decoded form. No allocation if nothing is encoded. A `%` without two digits stands for
/// itself.
pub(crate) fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, hex(after)) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

fn hex(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| (*text.get(at)? as char).to_digit(16);
    Some((digit(0)? * 16 + digit(1)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let read = |query: &str| -> Vec<(String, String)> {
            let text = |bytes| String::from_utf8_lossy(&decoded(bytes)).into_owned();
            pairs(query.as_bytes()).map(|(name, value)| (text(name), text(value))).collect()
        };
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(read("a=1&b&&c=x=y&"), [pair("a", "1"), pair("b", ""), pair("c", "x=y")]);
        assert_eq!(
            read("%61=b+c%2Bd&e=%&f=%4"),
            [pair("a", "b c+d"), pair("e", "%"), pair("f", "%4")]
        );
        assert_eq!(read(""), []);
    }
}

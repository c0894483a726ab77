//! Splits an IDL text into tokens.

use super::IdlError;

/// A token, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) text: &'t str,
    pub(super) line: usize,
}

/// The tokens of `text`, without comments and preprocessor lines. Included texts are read in
/// addition to this one.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, IdlError> {
    let (mut rest, mut line, mut tokens) = (text, 1, Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\n' => {
                line += 1;
                1
            }
            _ if first.is_whitespace() => first.len_utf8(),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end =
                    rest[2..].find("*/").ok_or_else(|| wrong(line, "a comment has no end"))?;
                let length = end + 4;
                line += rest[..length].matches('\n').count();
                length
            }
            _ => {
                let length = word(rest, first, line)?;
                tokens.push(Token { text: &rest[..length], line });
                line += rest[..length].matches('\n').count();
                length
            }
        };
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// The length of the token at the beginning of `rest`.
fn word(rest: &str, first: char, line: usize) -> Result<usize, IdlError> {
    if first.is_alphanumeric() || first == '_' {
        let end = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.');
        return Ok(rest.find(end).unwrap_or(rest.len()));
    }
    if rest.starts_with("::") {
        return Ok(2);
    }
    if first != '"' {
        return Ok(first.len_utf8());
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => return Ok(at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err(wrong(line, "a string has no end"))
}

pub(super) fn wrong(line: usize, what: impl Into<String>) -> IdlError {
    IdlError::Text { line, what: what.into() }
}

//! Splits a zone file into entries and words.
//!
//! # Source
//! RFC 1035, section 5.1. As in BIND, the final newline is optional, and a carriage return counts
//! as a space.

use super::error::Wrong;

/// Maximum size of an entry, bytes. A record has at most 65,535 bytes, each written as `\DDD`.
pub(super) const ENTRY_BYTES_MAX: usize = 1 << 20;

/// A word of an entry, as written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    /// The text with its escapes, without the surrounding quotation marks.
    pub(super) text: &'t str,
    pub(super) quoted: bool,
    /// No space precedes the word. `alpn="h2"` is two words, the second one joined.
    pub(super) joined: bool,
}

/// A record or a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'t> {
    /// Line of the first word, from 1.
    pub(super) line: usize,
    /// A space precedes the first word: the owner is that of the previous record.
    pub(super) indented: bool,
    /// Words; never empty.
    pub(super) words: Vec<Word<'t>>,
}

/// Iterates over the entries of a text.
pub(super) struct Entries<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    /// Bytes of words in the current entry.
    bytes: usize,
}

impl<'t> Entries<'t> {
    /// `line` is the number of the first line.
    pub(super) fn new(text: &'t str, line: usize) -> Entries<'t> {
        Entries { text, at: 0, line, bytes: 0 }
    }

    /// Returns the next entry; `None` at the end of the text.
    ///
    /// # Errors
    /// The fault, with its line.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry<'t>>, (usize, Wrong)> {
        let mut entry = Entry { line: self.line, indented: false, words: Vec::new() };
        // Lines of open parentheses.
        let mut open = Vec::new();
        let mut space = false;
        self.bytes = 0;
        while let Some(byte) = self.text.as_bytes().get(self.at).copied() {
            match byte {
                b'\n' => {
                    (self.at, self.line, space) = (self.at + 1, self.line + 1, !open.is_empty());
                    match (entry.words.is_empty(), open.is_empty()) {
                        (false, true) => return Ok(Some(entry)),
                        (true, true) => entry.line = self.line,
                        _ => {}
                    }
                }
                b' ' | b'\t' | b'\r' => (self.at, space) = (self.at + 1, true),
                b';' => self.at = self.find(|byte| byte == b'\n'),
                b'(' => {
                    self.grow(1, &open)?;
                    open.push(self.line);
                    (self.at, space) = (self.at + 1, space || !entry.words.is_empty());
                }
                b')' => {
                    open.pop().ok_or((self.line, Wrong::Unopened))?;
                    (self.at, space) = (self.at + 1, true);
                }
                _ => {
                    if entry.words.is_empty() {
                        (entry.line, entry.indented) = (self.line, space);
                    }
                    let word = self.word(byte, !space)?;
                    self.grow(word.text.len() + 1, &open)?;
                    entry.words.push(word);
                    space = false;
                }
            }
        }
        match open.first() {
            Some(line) => Err((*line, Wrong::Unclosed)),
            None => Ok((!entry.words.is_empty()).then_some(entry)),
        }
    }

    /// Returns the offset of the next byte that satisfies `stops`, or of the end of the text.
    fn find(&self, stops: impl Fn(u8) -> bool) -> usize {
        let rest = &self.text.as_bytes()[self.at..];
        self.at + rest.iter().position(|byte| stops(*byte)).unwrap_or(rest.len())
    }

    /// Limits the memory of an entry.
    fn grow(&mut self, bytes: usize, open: &[usize]) -> Result<(), (usize, Wrong)> {
        self.bytes += bytes;
        match self.bytes {
            0..=ENTRY_BYTES_MAX => Ok(()),
            _ => Err((open.first().copied().unwrap_or(self.line), Wrong::LongEntry)),
        }
    }

    fn word(&mut self, first: u8, joined: bool) -> Result<Word<'t>, (usize, Wrong)> {
        let quoted = first == b'"';
        let opened = self.line;
        let start = self.at + usize::from(quoted);
        self.at = start;
        loop {
            self.at = self.find(|byte| match byte {
                b'\\' | b'\n' | b'"' => true,
                b' ' | b'\t' | b'\r' | b';' | b'(' | b')' => !quoted,
                _ => false,
            });
            let end = self.at;
            match self.text.as_bytes().get(end) {
                None if quoted => return Err((opened, Wrong::Quote)),
                // RFC 1035 permits a quoted text to continue on the next line.
                Some(b'\n') if quoted => self.line += 1,
                Some(b'\\') => {
                    // Skips the escaped byte, which has no special meaning.
                    self.line += usize::from(self.text.as_bytes().get(end + 1) == Some(&b'\n'));
                    self.at = (end + 2).min(self.text.len());
                    continue;
                }
                _ => {
                    self.at += usize::from(quoted);
                    return Ok(Word { text: &self.text[start..end], quoted, joined });
                }
            }
            self.at += 1;
        }
    }
}

impl Word<'_> {
    /// Returns the word with the escapes that `domain` reads: characters other than printable ASCII
    /// become `\DDD`.
    pub(super) fn ascii(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        let mut chars = self.text.chars();
        while let Some(char) = chars.next() {
            let (escaped, char) = match char {
                '\\' => (true, chars.next()),
                char => (false, Some(char)),
            };
            match char {
                Some(' '..='~') => {
                    text.extend(escaped.then_some('\\'));
                    text.extend(char);
                }
                Some(char) => {
                    let mut bytes = [0; 4];
                    let bytes = char.encode_utf8(&mut bytes).bytes();
                    text.extend(bytes.map(|byte| format!("\\{byte:03}")));
                }
                None => text.push('\\'),
            }
        }
        text
    }

    /// Returns the bytes that the word denotes. `None`: an escape is invalid.
    pub(super) fn octets(&self) -> Option<Vec<u8>> {
        let mut octets = Vec::with_capacity(self.text.len());
        let mut rest = self.text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (b'\\', [digit, ..]) if digit.is_ascii_digit() => {
                    let (digits, after) = after.split_first_chunk::<3>()?;
                    octets.push(std::str::from_utf8(digits).ok()?.parse().ok()?);
                    rest = after;
                }
                (b'\\', [escaped, after @ ..]) => {
                    octets.push(*escaped);
                    rest = after;
                }
                (b'\\', []) => return None,
                (byte, _) => octets.push(*byte),
            }
        }
        Some(octets)
    }

    /// Returns the word as written in the file.
    pub(super) fn written(&self) -> String {
        if self.quoted { format!("\"{}\"", self.text) } else { self.text.to_owned() }
    }
}

/// Joins words as written in the file, with a space between those that are not joined.
pub(super) fn joined<'t>(words: &[Word<'t>], written: impl Fn(&Word<'t>) -> String) -> String {
    let mut text = String::new();
    for word in words {
        if !word.joined {
            text.push(' ');
        }
        text.push_str(&written(word));
    }
    text
}

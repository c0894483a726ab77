//! A line of the access log: text, a JSON object, or the combined format.
//!
//! Clients choose methods, paths and header values. Every byte that could end a line, control a
//! terminal or close a quote is escaped, so that no client can forge a line or a field.

mod combined;
mod fields;
mod time;

use std::fmt::{self, Write as _};
use std::time::Duration;

pub use combined::Combined;
pub use fields::{LogField, LogFields};
pub use time::Rfc3339;

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// `key=value` pairs.
    Text,
    /// A JSON object.
    Json,
    /// Requests as in the combined format of nginx and Apache. It has no other lines.
    Combined,
}

/// The form of lines, and the fields that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFormat {
    /// Their form.
    pub form: LineForm,
    /// Fields of lines that have keys.
    pub fields: LogFields,
}

impl LineFormat {
    /// Text with the usual fields.
    pub const TEXT: LineFormat = LineFormat::usual(LineForm::Text);
    /// JSON with the usual fields.
    pub const JSON: LineFormat = LineFormat::usual(LineForm::Json);

    /// This form, with the usual fields.
    pub const fn usual(form: LineForm) -> LineFormat {
        LineFormat { form, fields: LogFields::USUAL }
    }
}

impl Default for LineFormat {
    fn default() -> LineFormat {
        LineFormat::TEXT
    }
}

/// A line under construction. It allocates only if `out` has to grow.
pub struct LogLine<'a> {
    format: LineFormat,
    since_1970: Duration,
    out: &'a mut Vec<u8>,
}

impl<'a> LogLine<'a> {
    /// Begins a line about a `kind` of event at `since_1970` (UTC), after the content of `out`.
    pub fn begin(
        format: LineFormat,
        kind: &str,
        since_1970: Duration,
        out: &'a mut Vec<u8>,
    ) -> LogLine<'a> {
        let mut line = LogLine { format, since_1970, out };
        if format.form == LineForm::Json {
            line.out.push(b'{');
        }
        line.word(LogField::Time, Rfc3339(since_1970));
        line.word(LogField::Kind, kind);
        line
    }

    /// Whether the line is in the combined format: [`Self::combined`] writes it, and fields have no
    /// place in it.
    pub fn is_combined(&self) -> bool {
        self.format.form == LineForm::Combined
    }

    /// The whole content of a line in the combined format.
    pub fn combined(&mut self, content: &Combined<'_>) {
        content.write(self.since_1970, self.out);
    }

    /// A field with a value that no client chooses: an address, a fixed word.
    pub fn word(&mut self, key: LogField, value: impl fmt::Display) {
        if !self.key(key) {
            return;
        }
        let quote = self.format.form == LineForm::Json;
        if quote {
            self.out.push(b'"');
        }
        // Writing to a vector does not fail.
        let _ = write!(Plain(self.out), "{value}");
        if quote {
            self.out.push(b'"');
        }
    }

    /// A field with a value of any bytes.
    pub fn text(&mut self, key: LogField, value: &[u8]) {
        if !self.key(key) {
            return;
        }
        self.out.push(b'"');
        for chunk in value.utf8_chunks() {
            for character in chunk.valid().chars() {
                self.character(character);
            }
            for byte in chunk.invalid() {
                self.invalid(*byte);
            }
        }
        self.out.push(b'"');
    }

    /// A field with a number.
    pub fn number(&mut self, key: LogField, value: u64) {
        if !self.key(key) {
            return;
        }
        let _ = write!(Plain(self.out), "{value}");
    }

    /// A field with a boolean.
    pub fn flag(&mut self, key: LogField, value: bool) {
        if !self.key(key) {
            return;
        }
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A field with a time in seconds, with microseconds.
    pub fn seconds(&mut self, key: LogField, value: Duration) {
        if !self.key(key) {
            return;
        }
        let _ = write!(Plain(self.out), "{}.{:06}", value.as_secs(), value.subsec_micros());
    }

    /// A field without a value.
    pub fn none(&mut self, key: LogField) {
        if !self.key(key) {
            return;
        }
        let none: &[u8] = if self.format.form == LineForm::Json { b"null" } else { b"-" };
        self.out.extend_from_slice(none);
    }

    /// A field with a text, or without a value.
    pub fn optional(&mut self, key: LogField, value: Option<&[u8]>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.none(key),
        }
    }

    /// Ends the line.
    pub fn end(self) {
        let end: &[u8] = if self.format.form == LineForm::Json { b"}\n" } else { b"\n" };
        self.out.extend_from_slice(end);
    }

    /// Begins a field; false if the line does not have it.
    fn key(&mut self, key: LogField) -> bool {
        if !self.format.fields.has(key) {
            return false;
        }
        let name = key.name().as_bytes();
        match self.format.form {
            LineForm::Text => {
                if self.out.last().is_some_and(|last| *last != b'\n') {
                    self.out.push(b' ');
                }
                self.out.extend_from_slice(name);
                self.out.push(b'=');
            }
            LineForm::Json => {
                if self.out.last() != Some(&b'{') {
                    self.out.push(b',');
                }
                self.out.push(b'"');
                self.out.extend_from_slice(name);
                self.out.extend_from_slice(b"\":");
            }
            LineForm::Combined => return false,
        }
        true
    }

    fn character(&mut self, character: char) {
        match character {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', character as u8]),
            // C0, DEL and C1: terminals interpret them.
            _ if character.is_control() => {
                let code = u32::from(character);
                let _ = match self.format.form {
                    LineForm::Json => write!(Plain(self.out), "\\u{code:04x}"),
                    _ => write!(Plain(self.out), "\\x{code:02x}"),
                };
            }
            // Some readers end a line at the first two; the others (bidirectional controls) change
            // the order in which terminals and browsers show the rest of the line.
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(Plain(self.out), "\\u{:04x}", u32::from(character));
            }
            _ => {
                let mut utf8 = [0; 4];
                self.out.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
            }
        }
    }

    /// A byte that is not valid UTF-8. JSON cannot contain it.
    fn invalid(&mut self, byte: u8) {
        match self.format.form {
            LineForm::Json => self.out.extend_from_slice("\u{fffd}".as_bytes()),
            _ => {
                let _ = write!(Plain(self.out), "\\x{byte:02x}");
            }
        }
    }
}

/// Appends text to the bytes of a vector.
struct Plain<'a>(&'a mut Vec<u8>);

impl fmt::Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LineFormat, fill: impl FnOnce(&mut LogLine<'_>)) -> String {
        let mut out = Vec::new();
        let mut line = LogLine::begin(format, "request", Duration::from_millis(1_500), &mut out);
        fill(&mut line);
        line.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_is_pairs_or_an_object() {
        let fill = |line: &mut LogLine<'_>| {
            line.word(LogField::Client, "192.0.2.1:80");
            line.text(LogField::Path, b"/a");
            line.number(LogField::Status, 200);
            line.seconds(LogField::Seconds, Duration::from_micros(1_000_250));
            line.none(LogField::Backend);
        };
        assert_eq!(
            line(LineFormat::TEXT, fill),
            "time=1970-01-01T00:00:01.500Z kind=request client=192.0.2.1:80 path=\"/a\" status=200 seconds=1.000250 backend=-\n"
        );
        assert_eq!(
            line(LineFormat::JSON, fill),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"kind\":\"request\",\"client\":\"192.0.2.1:80\",\"path\":\"/a\",\"status\":200,\"seconds\":1.000250,\"backend\":null}\n"
        );
    }

    #[test]
    fn no_value_ends_its_line_or_its_quotes() {
        let text = |format, value: &[u8]| {
            let line = line(format, |line| line.text(LogField::Path, value));
            line.split_once("path").unwrap().1.trim_end_matches('}').to_owned()
        };
        let cases: [(&[u8], &str, &str); 6] = [
            (b"a\"b\\", r#""a\"b\\""#, r#""a\"b\\""#),
            (b"\r\n\t\0", r#""\x0d\x0a\x09\x00""#, r#""\u000d\u000a\u0009\u0000""#),
            (b"\x1b[31m\x7f", r#""\x1b[31m\x7f""#, r#""\u001b[31m\u007f""#),
            (
                "\u{85}\u{2028}\u{e9}".as_bytes(),
                "\"\\x85\\u2028\u{e9}\"",
                "\"\\u0085\\u2028\u{e9}\"",
            ),
            (
                "\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}".as_bytes(),
                "\"\\u202a\\u202e\\u2066\\u2069\u{200f}\"",
                "\"\\u202a\\u202e\\u2066\\u2069\u{200f}\"",
            ),
            (b"\xff\xc3", r#""\xff\xc3""#, "\"\u{fffd}\u{fffd}\""),
        ];
        for (value, plain, json) in cases {
            assert_eq!(text(LineFormat::TEXT, value).trim_end(), format!("={plain}"));
            let object = text(LineFormat::JSON, value);
            assert_eq!(object.trim_end().trim_end_matches('}'), format!("\":{json}"));
        }
    }

    #[test]
    fn a_line_has_the_chosen_fields() {
        let fields = [LogField::Status, LogField::Path].into_iter().collect();
        let fill = |line: &mut LogLine<'_>| {
            line.text(LogField::Path, b"/a");
            line.word(LogField::Host, "a");
            line.number(LogField::Status, 200);
            line.none(LogField::Reason);
        };
        let shown = |form| line(LineFormat { form, fields }, fill);
        assert_eq!(shown(LineForm::Text), "path=\"/a\" status=200\n");
        assert_eq!(shown(LineForm::Json), "{\"path\":\"/a\",\"status\":200}\n");
        assert_eq!(shown(LineForm::Combined), "\n");
    }

    #[test]
    fn fields_are_found_by_their_names() {
        for field in LogField::ALL {
            assert_eq!(LogField::named(field.name()), Some(*field));
        }
        assert_eq!(LogField::named("paths"), None);
        assert!(LogFields::USUAL.has(LogField::Reason) && !LogFields::USUAL.has(LogField::Route));
    }
}

//! A line of the access log, as text or as a JSON object.
//!
//! Clients choose methods, paths and header values. Every byte that could end a line, control a
//! terminal or close a quote is escaped, so that no client can forge a line or a field.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineFormat {
    /// `key=value` pairs.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// A line under construction. It allocates only if `out` has to grow.
pub struct LogLine<'a> {
    format: LineFormat,
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
        let mut line = LogLine { format, out };
        if format == LineFormat::Json {
            line.out.push(b'{');
        }
        line.word("time", format_args!("{}", Rfc3339(since_1970)));
        line.word("kind", kind);
        line
    }

    /// A field with a value that no client chooses: an address, a fixed word.
    pub fn word(&mut self, key: &str, value: impl fmt::Display) {
        self.key(key);
        let quote = self.format == LineFormat::Json;
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
    pub fn text(&mut self, key: &str, value: &[u8]) {
        self.key(key);
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
    pub fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        let _ = write!(Plain(self.out), "{value}");
    }

    /// A field with a boolean.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// A field with a time in seconds, with microseconds.
    pub fn seconds(&mut self, key: &str, value: Duration) {
        self.key(key);
        let _ = write!(Plain(self.out), "{}.{:06}", value.as_secs(), value.subsec_micros());
    }

    /// A field without a value.
    pub fn none(&mut self, key: &str) {
        self.key(key);
        self.out.extend_from_slice(match self.format {
            LineFormat::Text => b"-",
            LineFormat::Json => b"null",
        });
    }

    /// A field with a text, or without a value.
    pub fn optional(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.none(key),
        }
    }

    /// Ends the line.
    pub fn end(self) {
        let end: &[u8] = match self.format {
            LineFormat::Text => b"\n",
            LineFormat::Json => b"}\n",
        };
        self.out.extend_from_slice(end);
    }

    fn key(&mut self, key: &str) {
        match self.format {
            LineFormat::Text => {
                if self.out.last().is_some_and(|last| *last != b'\n') {
                    self.out.push(b' ');
                }
                self.out.extend_from_slice(key.as_bytes());
                self.out.push(b'=');
            }
            LineFormat::Json => {
                if self.out.last() != Some(&b'{') {
                    self.out.push(b',');
                }
                self.out.push(b'"');
                self.out.extend_from_slice(key.as_bytes());
                self.out.extend_from_slice(b"\":");
            }
        }
    }

    fn character(&mut self, character: char) {
        match character {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', character as u8]),
            // C0, DEL and C1: terminals interpret them.
            _ if character.is_control() => {
                let code = u32::from(character);
                let _ = match self.format {
                    LineFormat::Text => write!(Plain(self.out), "\\x{code:02x}"),
                    LineFormat::Json => write!(Plain(self.out), "\\u{code:04x}"),
                };
            }
            // Some readers end a line here.
            '\u{2028}' | '\u{2029}' => {
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
        match self.format {
            LineFormat::Text => {
                let _ = write!(Plain(self.out), "\\x{byte:02x}");
            }
            LineFormat::Json => self.out.extend_from_slice("\u{fffd}".as_bytes()),
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

/// A time since 1970 in the form of RFC 3339, in UTC with milliseconds.
struct Rfc3339(Duration);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.as_secs() / 86_400, self.0.as_secs() % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let milliseconds = self.0.subsec_millis();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z"
        )
    }
}

/// Year, month and day of a number of days since 1970-01-01.
///
/// # Source
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`, for
/// non-negative days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months count from March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
            line.word("client", "192.0.2.1:80");
            line.text("path", b"/a");
            line.number("status", 200);
            line.seconds("seconds", Duration::from_micros(1_000_250));
            line.none("backend");
        };
        assert_eq!(
            line(LineFormat::Text, fill),
            "time=1970-01-01T00:00:01.500Z kind=request client=192.0.2.1:80 path=\"/a\" status=200 seconds=1.000250 backend=-\n"
        );
        assert_eq!(
            line(LineFormat::Json, fill),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"kind\":\"request\",\"client\":\"192.0.2.1:80\",\"path\":\"/a\",\"status\":200,\"seconds\":1.000250,\"backend\":null}\n"
        );
    }

    #[test]
    fn no_value_ends_its_line_or_its_quotes() {
        let text = |format, value: &[u8]| {
            let line = line(format, |line| line.text("path", value));
            line.split_once("path").unwrap().1.trim_end_matches('}').to_owned()
        };
        let cases: [(&[u8], &str, &str); 5] = [
            (b"a\"b\\", r#""a\"b\\""#, r#""a\"b\\""#),
            (b"\r\n\t\0", r#""\x0d\x0a\x09\x00""#, r#""\u000d\u000a\u0009\u0000""#),
            (b"\x1b[31m\x7f", r#""\x1b[31m\x7f""#, r#""\u001b[31m\u007f""#),
            (
                "\u{85}\u{2028}\u{e9}".as_bytes(),
                "\"\\x85\\u2028\u{e9}\"",
                "\"\\u0085\\u2028\u{e9}\"",
            ),
            (b"\xff\xc3", r#""\xff\xc3""#, "\"\u{fffd}\u{fffd}\""),
        ];
        for (value, plain, json) in cases {
            assert_eq!(text(LineFormat::Text, value).trim_end(), format!("={plain}"));
            let object = text(LineFormat::Json, value);
            assert_eq!(object.trim_end().trim_end_matches('}'), format!("\":{json}"));
        }
    }

    #[test]
    fn times_are_as_the_calendar_has_them() {
        let time = |seconds| Rfc3339(Duration::from_secs(seconds)).to_string();
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(seconds), expected);
        }
    }
}

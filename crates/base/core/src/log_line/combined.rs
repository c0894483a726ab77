//! A line in the combined format, which analysers of the logs of nginx and Apache read.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use super::Plain;
use super::time::civil;

/// The content of a line. `None`: unknown.
pub struct Combined<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The request's method.
    pub method: Option<&'a [u8]>,
    /// The request's target.
    pub path: Option<&'a [u8]>,
    /// The request's version: `HTTP/1.1`.
    pub protocol: Option<&'a [u8]>,
    /// The status that the client received; 0 if none.
    pub status: u16,
    /// Bytes to the client.
    pub bytes: u64,
    /// The header `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The header `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
}

impl Combined<'_> {
    /// Appends the line, without its end.
    pub(super) fn write(&self, since_1970: Duration, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        let _ =
            write!(Plain(out), "{} - - [{}] \"", self.client.to_canonical(), ClfTime(since_1970));
        let words = [self.method, self.path, self.protocol];
        let mut has_word = false;
        for word in words.into_iter().flatten() {
            if has_word {
                out.push(b' ');
            }
            has_word = true;
            escape(word, out);
        }
        if !has_word {
            out.push(b'-');
        }
        let _ = write!(Plain(out), "\" {:03} {} \"", self.status, self.bytes);
        escape(self.referer.unwrap_or(b"-"), out);
        out.extend_from_slice(b"\" \"");
        escape(self.user_agent.unwrap_or(b"-"), out);
        out.push(b'"');
    }
}

/// Appends a value as nginx escapes it: quotes, backslashes and all bytes but printable ASCII as
/// `\xXX`.
fn escape(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                let _ = write!(Plain(out), "\\x{byte:02X}");
            }
            _ => out.push(byte),
        }
    }
}

/// A time since 1970 in the form of the common log format, in UTC.
struct ClfTime(Duration);

impl std::fmt::Display for ClfTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (days, second) = (self.0.as_secs() / 86_400, self.0.as_secs() % 86_400);
        let (year, month, day) = civil(days);
        let month = MONTHS[(month as usize + 11) % 12];
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(combined: &Combined<'_>) -> String {
        let mut out = Vec::new();
        combined.write(Duration::from_secs(951_782_400), &mut out);
        String::from_utf8(out).unwrap()
    }

    const EMPTY: Combined<'_> = Combined {
        client: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        method: None,
        path: None,
        protocol: None,
        status: 0,
        bytes: 0,
        referer: None,
        user_agent: None,
    };

    #[test]
    fn a_line_is_as_nginx_writes_it() {
        let served = Combined {
            method: Some(b"GET"),
            path: Some(b"/a?b=c"),
            protocol: Some(b"HTTP/1.1"),
            status: 200,
            bytes: 17,
            referer: Some(b"https://a.example/"),
            user_agent: Some(b"probe/1.0"),
            ..EMPTY
        };
        assert_eq!(
            line(&served),
            r#"192.0.2.1 - - [29/Feb/2000:00:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 17 "https://a.example/" "probe/1.0""#
        );
        assert_eq!(line(&EMPTY), r#"192.0.2.1 - - [29/Feb/2000:00:00:00 +0000] "-" 000 0 "-" "-""#);
    }

    #[test]
    fn no_value_ends_its_line_or_its_quotes() {
        let agent = b"a\" 200 \\\r\n\t\x1b\x7f\xff\xe2\x80\xa8";
        let forged = line(&Combined { user_agent: Some(agent), ..EMPTY });
        let escaped = r#""a\x22 200 \x5C\x0D\x0A\x09\x1B\x7F\xFF\xE2\x80\xA8""#;
        assert!(forged.ends_with(escaped), "{forged}");
        let forged = line(&Combined { path: Some(b"/\" 200\n"), ..EMPTY });
        assert!(forged.contains(r#"] "/\x22 200\x0A" 000"#), "{forged}");
    }
}

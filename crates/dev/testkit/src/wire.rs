use std::io::{self, Read};

/// How reading a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Closed before the message's first byte.
    Closed,
    /// Closed within the message.
    Truncated,
    /// Reset by the peer.
    Reset,
    /// Nothing came for longer than the reader waits.
    TimedOut,
    /// Not HTTP/1.x, and why.
    Malformed(String),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => WireError::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => WireError::Reset,
            _ => WireError::Malformed(error.to_string()),
        }
    }
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// After this many bytes.
    Length(u64),
    /// After the chunk of size zero.
    Chunked,
    /// When the connection closes.
    ToClose,
}

/// A start line and headers as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Request line or status line, without its CRLF.
    pub start: String,
    /// In order, names as they came, values without the blanks around them.
    pub headers: Vec<(String, String)>,
    /// Every byte up to and with the empty line.
    pub raw: Vec<u8>,
}

impl Head {
    fn parse(raw: &[u8]) -> Result<Head, WireError> {
        let text = String::from_utf8_lossy(raw);
        let mut lines = text.trim_end_matches(['\r', '\n']).lines();
        let start = lines.next().unwrap_or_default().to_owned();
        if !start.contains("HTTP/1.") {
            return Err(WireError::Malformed(format!("start line {start:?}")));
        }
        let mut headers = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return Err(WireError::Malformed(format!("header line {line:?}")));
            };
            headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Ok(Head { start, headers, raw: raw.to_vec() })
    }

    /// The first word of a request line.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The second word of a request line.
    pub fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The status of a status line; 0 if there is none.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// Every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Whether one of a header's comma-separated values is `token`.
    pub fn says(&self, name: &str, token: &str) -> bool {
        let values = self.all(name);
        values.iter().flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case(token))
    }

    fn stated_framing(&self) -> Option<Framing> {
        if self.header("transfer-encoding").is_some() {
            return Some(Framing::Chunked);
        }
        self.header("content-length").and_then(|v| v.parse().ok()).map(Framing::Length)
    }

    /// Where the body of a request with this head ends.
    pub fn request_framing(&self) -> Framing {
        self.stated_framing().unwrap_or(Framing::Empty)
    }

    /// Where the body of a response with this head ends, if `method` asked for it.
    pub fn response_framing(&self, method: &str) -> Framing {
        match self.status() {
            100..=199 | 204 | 304 => Framing::Empty,
            _ if method == "HEAD" => Framing::Empty,
            _ => self.stated_framing().unwrap_or(Framing::ToClose),
        }
    }
}

/// Header-like lines after a chunked body.
pub(crate) type Trailers = Vec<(String, String)>;

/// Reads messages off a byte stream and can keep what it read.
pub(crate) struct Reader<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
    lines: Lines,
    /// Every byte consumed while it is `Some`.
    pub(crate) kept: Option<Vec<u8>>,
}

/// The accepted line endings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// CRLF; another LF is an error.
    Strict,
    /// Any LF, as many servers read it: what a proxy lets through is then seen to be two things.
    Lenient,
}

const PIECE_BYTES: usize = 64 << 10;
const HEAD_BYTES_MAX: usize = 1 << 20;

impl<R: Read> Reader<R> {
    pub(crate) fn new(inner: R, lines: Lines) -> Reader<R> {
        Reader { inner, buffer: Vec::new(), start: 0, lines, kept: None }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn fill(&mut self) -> Result<usize, WireError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + PIECE_BYTES, 0);
        let outcome = loop {
            match self.inner.read(&mut self.buffer[filled..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(filled + *outcome.as_ref().unwrap_or(&0));
        Ok(outcome?)
    }

    fn more(&mut self) -> Result<(), WireError> {
        match self.fill()? {
            0 => Err(WireError::Truncated),
            _ => Ok(()),
        }
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(&self.buffer[self.start..self.start + bytes]);
        }
        self.start += bytes;
    }

    /// Reads a line with its end.
    fn line(&mut self) -> Result<Vec<u8>, WireError> {
        let mut searched = 0;
        loop {
            let unread = self.unread();
            if let Some(at) = unread[searched..].iter().position(|byte| *byte == b'\n') {
                let line = unread[..=searched + at].to_vec();
                self.consume(line.len());
                if self.lines == Lines::Strict && !line.ends_with(b"\r\n") {
                    return Err(WireError::Malformed(format!(
                        "bare LF ends {}",
                        line.escape_ascii()
                    )));
                }
                return Ok(line);
            }
            searched = unread.len();
            if searched > HEAD_BYTES_MAX {
                return Err(WireError::Malformed(format!("no LF in {searched} bytes")));
            }
            self.more()?;
        }
    }

    /// The next message's head.
    pub(crate) fn head(&mut self) -> Result<Head, WireError> {
        if self.unread().is_empty() && self.fill()? == 0 {
            return Err(WireError::Closed);
        }
        let mut raw = Vec::new();
        loop {
            let line = self.line()?;
            raw.extend_from_slice(&line);
            if line == b"\r\n" || line == b"\n" {
                return Head::parse(&raw);
            }
        }
    }

    /// Up to `max` bytes of whatever comes; empty at the end.
    pub(crate) fn some(&mut self, max: usize) -> Result<Vec<u8>, WireError> {
        if self.unread().is_empty() {
            self.fill()?;
        }
        let bytes = self.unread()[..self.unread().len().min(max)].to_vec();
        self.consume(bytes.len());
        Ok(bytes)
    }

    /// Reads a body piece by piece into `sink`; returns its trailers.
    pub(crate) fn body(
        &mut self,
        framing: Framing,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<Trailers, WireError> {
        match framing {
            Framing::Empty => Ok(Trailers::new()),
            Framing::Length(bytes) => self.exactly(bytes, sink).map(|()| Trailers::new()),
            Framing::Chunked => self.chunked(sink),
            Framing::ToClose => loop {
                let piece = self.some(PIECE_BYTES)?;
                if piece.is_empty() {
                    return Ok(Trailers::new());
                }
                sink(&piece);
            },
        }
    }

    fn exactly(&mut self, mut bytes: u64, sink: &mut dyn FnMut(&[u8])) -> Result<(), WireError> {
        while bytes > 0 {
            let piece = self.some(bytes.min(PIECE_BYTES as u64) as usize)?;
            if piece.is_empty() {
                return Err(WireError::Truncated);
            }
            sink(&piece);
            bytes -= piece.len() as u64;
        }
        Ok(())
    }

    fn chunked(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<Trailers, WireError> {
        loop {
            let line = self.line()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = line.trim_end().split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16)
                .map_err(|_| WireError::Malformed(format!("chunk line {line:?}")))?;
            if size == 0 {
                return self.trailers();
            }
            self.exactly(size, sink)?;
            if !matches!(&self.line()?[..], b"\r\n" | b"\n") {
                return Err(WireError::Malformed("no CRLF after a chunk".to_owned()));
            }
        }
    }

    fn trailers(&mut self) -> Result<Trailers, WireError> {
        let mut trailers = Trailers::new();
        loop {
            let line = self.line()?;
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().split_once(':') {
                Some((name, value)) => trailers.push((name.to_owned(), value.trim().to_owned())),
                None if line.trim_end().is_empty() => return Ok(trailers),
                None => return Err(WireError::Malformed(format!("trailer line {line:?}"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_response_and_the_one_behind_it_are_read() {
        let wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nA: b\r\n\r\n\
                     HTTP/1.1 204 No Content\r\n\r\n";
        let mut reader = Reader::new(&wire[..], Lines::Strict);
        let head = reader.head().expect("well-formed");
        assert_eq!((head.status(), head.response_framing("GET")), (200, Framing::Chunked));
        let mut body = Vec::new();
        let trailers = reader.body(Framing::Chunked, &mut |b| body.extend_from_slice(b));
        assert_eq!(trailers, Ok(vec![("A".to_owned(), "b".to_owned())]));
        assert_eq!(body, b"abcd");
        assert_eq!(reader.head().expect("well-formed").response_framing("GET"), Framing::Empty);
        assert_eq!(reader.head(), Err(WireError::Closed));
    }

    #[test]
    fn a_body_that_ends_early_is_truncated() {
        for (framing, wire) in [(Framing::Length(5), "1234"), (Framing::Chunked, "4\r\n1234\r\n")] {
            assert_eq!(
                Reader::new(wire.as_bytes(), Lines::Strict).body(framing, &mut |_| {}),
                Err(WireError::Truncated)
            );
        }
    }

    #[test]
    fn a_bare_line_feed_ends_a_line_for_lenient_readers_only() {
        let wire = b"GET / HTTP/1.1\nA: b\n\nrest";
        let lenient = Reader::new(&wire[..], Lines::Lenient).head().expect("lenient");
        assert_eq!((lenient.method(), lenient.header("a")), ("GET", Some("b")));
        let strict = Reader::new(&wire[..], Lines::Strict).head();
        assert!(matches!(strict, Err(WireError::Malformed(_))), "{strict:?}");
    }
}

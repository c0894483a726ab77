//! Common parts of request and response heads: finding their end, reading header fields.

use equipoise_core::delegation::{DELEGATED_FIELD, OriginField, ROOM_FIELD};
use equipoise_health::CHECK_FIELD;

use super::mirror::MIRRORED_FIELD;
use super::origin::tells_origin;

/// A head that does not keep to RFC 9112's line syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadLine;

/// Finds the end of a head as its bytes arrive, looking at each byte once.
///
/// Lines end with CR LF and nothing else: a lone LF and a line that begins with white space
/// (obsolete folding) are refused, because the next proxy may read them otherwise (RFC 9112,
/// sections 2.2 and 5.2; the RFC would allow a recipient to accept a lone LF). A lone CR and NUL
/// are left to `httparse`, which refuses them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScanner {
    /// Where the line being read begins.
    line: usize,
    /// Up to where it was looked at.
    seen: usize,
}

impl HeadScanner {
    /// The length of the head with its empty line, or `None` if `bytes` does not hold it whole yet.
    /// `bytes` starts where it started in earlier calls.
    pub(crate) fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadLine> {
        for at in memchr::memchr_iter(b'\n', &bytes[self.seen..]) {
            let newline = self.seen + at;
            let line = &bytes[self.line..newline];
            let [text @ .., b'\r'] = line else { return Err(BadLine) };
            match text.first() {
                None => return Ok(Some(newline + 1)),
                Some(b' ' | b'\t') => return Err(BadLine),
                Some(_) => self.line = newline + 1,
            }
        }
        self.seen = bytes.len();
        Ok(None)
    }
}

/// A name of at most 16 bytes in lower case, padded with spaces. Names are compared as integers,
/// because each field of each message is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShortName(u128);

/// The bit that tells letters of lower case from those of upper case, in each byte.
const CASE: u128 = u128::from_ne_bytes([0x20; 16]);

impl ShortName {
    /// `None`: it is longer, or has a control character, which no name has.
    fn of(name: &str) -> Option<ShortName> {
        let mut bytes = [b' '; 16];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let name = u128::from_le_bytes(bytes);
        let has_control = (name | name >> 1) & CASE != CASE;
        (!has_control).then_some(ShortName(name | CASE))
    }

    /// A name of letters, digits and hyphens: no other character of a name becomes one of them.
    const fn known(name: &str) -> ShortName {
        let (name, mut bytes, mut at) = (name.as_bytes(), [b' '; 16], 0);
        while at < name.len() {
            bytes[at] = name[at] | 0x20;
            at += 1;
        }
        ShortName(u128::from_le_bytes(bytes))
    }

    /// Whether it has an underscore, or may tell where a request came from (`X-...`, `Forwarded`).
    fn may_be_special(self) -> bool {
        const ONES: u128 = u128::from_ne_bytes([1; 16]);
        let differs = self.0 ^ (ONES * (b'_' | 0x20) as u128);
        let has_underscore = differs.wrapping_sub(ONES) & !differs & (ONES << 7) != 0;
        has_underscore || matches!(self.0 as u8, b'x' | b'f')
    }
}

/// The header fields that the proxy itself reads or drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// It asks after this node itself ([`equipoise_health::CHECK_FIELD`]).
    Check,
    Connection,
    ContentLength,
    ContentType,
    /// A marker of the dispatch level.
    Delegated,
    Expect,
    Forwarded,
    GrpcTimeout,
    Host,
    /// Settings of an upgrade to HTTP/2 (RFC 7540, section 3.2.1).
    Http2Settings,
    /// `Keep-Alive`, `Proxy-Connection`: about one connection only.
    HopByHop,
    /// Another `X-Forwarded-*`.
    OtherOrigin,
    /// The mark of a copy ([`super::mirror`]).
    Mirrored,
    /// A peer's room, or a question after it.
    Room,
    /// `Strict-Transport-Security` (RFC 6797).
    StrictTransport,
    Te,
    TransferEncoding,
    /// An unknown name with an underscore.
    Underscored,
    Upgrade,
    Via,
    XForwardedFor,
    XForwardedHost,
    XForwardedProto,
    XRealIp,
    Other,
}

impl Field {
    /// Reads a field's name.
    pub(crate) fn of(name: &str) -> Field {
        match ShortName::of(name) {
            Some(short) => Field::of_short(name, short),
            None => Field::of_long(name),
        }
    }

    fn of_short(name: &str, short: ShortName) -> Field {
        use ShortName as Short;
        let candidates: &[(Short, Field)] = match name.len() {
            2 => const { &[(Short::known("te"), Field::Te)] },
            3 => const { &[(Short::known("via"), Field::Via)] },
            4 => const { &[(Short::known("host"), Field::Host)] },
            6 => const { &[(Short::known("expect"), Field::Expect)] },
            7 => const { &[(Short::known("upgrade"), Field::Upgrade)] },
            9 => {
                const {
                    &[
                        (Short::known("forwarded"), Field::Forwarded),
                        (Short::known("x-real-ip"), Field::XRealIp),
                    ]
                }
            }
            10 => {
                const {
                    &[
                        (Short::known("connection"), Field::Connection),
                        (Short::known("keep-alive"), Field::HopByHop),
                    ]
                }
            }
            12 => {
                const {
                    &[
                        (Short::known("content-type"), Field::ContentType),
                        (Short::known("grpc-timeout"), Field::GrpcTimeout),
                    ]
                }
            }
            14 => {
                const {
                    &[
                        (Short::known("content-length"), Field::ContentLength),
                        (Short::known("http2-settings"), Field::Http2Settings),
                        (Short::known(ROOM_FIELD), Field::Room),
                    ]
                }
            }
            15 => {
                const {
                    &[
                        (Short::known("x-forwarded-for"), Field::XForwardedFor),
                        (Short::known(CHECK_FIELD), Field::Check),
                    ]
                }
            }
            16 => {
                const {
                    &[
                        (Short::known("proxy-connection"), Field::HopByHop),
                        (Short::known("x-forwarded-host"), Field::XForwardedHost),
                    ]
                }
            }
            _ => &[],
        };
        if let Some((_, field)) = candidates.iter().find(|(known, _)| *known == short) {
            return *field;
        }
        match short.may_be_special() {
            true => Field::not_listed(name),
            false => Field::Other,
        }
    }

    fn of_long(name: &str) -> Field {
        let candidates: &[(&str, Field)] = match name.len() {
            17 => &[
                ("transfer-encoding", Field::TransferEncoding),
                ("x-forwarded-proto", Field::XForwardedProto),
            ],
            18 => &[(MIRRORED_FIELD, Field::Mirrored)],
            19 => &[(DELEGATED_FIELD, Field::Delegated)],
            25 => &[("strict-transport-security", Field::StrictTransport)],
            _ => &[],
        };
        candidates
            .iter()
            .find(|(known, _)| name.eq_ignore_ascii_case(known))
            .map_or_else(|| Field::not_listed(name), |(_, field)| *field)
    }

    fn not_listed(name: &str) -> Field {
        if name.as_bytes().contains(&b'_') {
            Field::Underscored
        } else if tells_origin(name) {
            Field::OtherOrigin
        } else {
            Field::Other
        }
    }

    /// The origin field, if this is one.
    pub(crate) fn origin(self) -> Option<OriginField> {
        match self {
            Field::Forwarded => Some(OriginField::Forwarded),
            Field::XForwardedFor => Some(OriginField::For),
            Field::XForwardedHost => Some(OriginField::Host),
            Field::XForwardedProto => Some(OriginField::Proto),
            _ => None,
        }
    }

    /// True if a `Connection` header may name it to have it dropped. Dropping another field would
    /// change the meaning or the origin of the message; fields of the connection are kept or
    /// dropped whether named or not.
    pub(crate) fn may_be_nominated(self) -> bool {
        matches!(self, Field::Other | Field::StrictTransport | Field::Underscored)
    }
}

/// The origin fields of a head, as it goes over the wire.
pub(crate) fn origin_lines(head: &[u8]) -> impl Iterator<Item = (OriginField, &[u8])> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.take_while(|line| *line != b"\r");
    fields.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let field = Field::of(std::str::from_utf8(&line[..colon]).ok()?);
        Some((field.origin()?, line[colon + 1..].trim_ascii()))
    })
}

/// Content of the `Connection` headers of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
    /// It names other fields, which are then dropped.
    pub(crate) nominates: bool,
}

impl Connection {
    /// Whether another message may follow: HTTP/1.0 has to ask for that (RFC 9112, section 9.3).
    pub(crate) fn stays_open(&self, http10: bool) -> bool {
        !self.close && (self.keep_alive || !http10)
    }

    /// Reads one `Connection` header's value.
    pub(crate) fn read(&mut self, value: &[u8]) {
        for token in tokens(value) {
            if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if token.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.nominates = true;
            }
        }
    }
}

/// The tokens of a comma-separated list.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(|t| t.trim_ascii()).filter(|t| !t.is_empty())
}

/// Whether a `Connection` header among `headers` names `name`.
pub(crate) fn is_nominated(name: &str, headers: &[httparse::Header<'_>]) -> bool {
    headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("connection"))
        .flat_map(|header| tokens(header.value))
        .any(|token| token.eq_ignore_ascii_case(name.as_bytes()))
}

/// Reads a `Content-Length` value: digits only, as RFC 9110 section 8.6 writes it.
pub(crate) fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    value
        .iter()
        .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// How long a message's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes.
    Length(u64),
    /// Chunks, the last one empty.
    Chunked,
    /// Until the connection closes; responses only.
    UntilClose,
}

impl Framing {
    pub(crate) const EMPTY: Framing = Framing::Length(0);

    /// Whether the length is stated and exceeds `max`.
    pub(crate) fn exceeds(self, max: Option<u64>) -> bool {
        matches!((self, max), (Framing::Length(length), Some(max)) if length > max)
    }
}

/// Reads the header fields that say how long the body is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    length: Option<u64>,
    coded: Option<Coding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

/// Error of a body's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLength {
    /// Contradictory, repeated or unreadable.
    Ambiguous,
    /// A transfer coding that we do not speak.
    UnknownCoding,
}

impl Lengths {
    /// Reads a `Content-Length`; a second one is refused even when it says the same.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), BadLength> {
        let length = content_length(value).ok_or(BadLength::Ambiguous)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(BadLength::Ambiguous),
        }
    }

    /// Reads a `Transfer-Encoding`; a second one is refused.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), BadLength> {
        let chunked = value.eq_ignore_ascii_case(b"chunked");
        let coding = if chunked { Coding::Chunked } else { Coding::Other };
        match self.coded.replace(coding) {
            None => Ok(()),
            Some(_) => Err(BadLength::Ambiguous),
        }
    }

    /// Whether a `Content-Length` was there.
    pub(crate) fn is_stated(self) -> bool {
        self.length.is_some()
    }

    /// The framing that the fields state, if any.
    pub(crate) fn framing(self, http10: bool) -> Result<Option<Framing>, BadLength> {
        match (self.length, self.coded) {
            (Some(_), Some(_)) => Err(BadLength::Ambiguous),
            (None, Some(_)) if http10 => Err(BadLength::Ambiguous),
            (None, Some(Coding::Other)) => Err(BadLength::UnknownCoding),
            (None, Some(Coding::Chunked)) => Ok(Some(Framing::Chunked)),
            (Some(length), None) => Ok(Some(Framing::Length(length))),
            (None, None) => Ok(None),
        }
    }
}

/// Copies the header lines of a message, in runs, leaving some out.
///
/// A field line that is kept is kept to the letter, so that runs of lines can be copied at once.
pub(crate) struct LineCopier<'a> {
    head: &'a [u8],
    run: Option<usize>,
}

impl<'a> LineCopier<'a> {
    /// `head` is the whole head, its empty line included.
    pub(crate) fn new(head: &'a [u8]) -> Self {
        LineCopier { head, run: None }
    }

    /// Keeps or leaves out the line of `header`, which comes after those already seen.
    pub(crate) fn line(&mut self, header: &httparse::Header<'_>, keep: bool, out: &mut Vec<u8>) {
        if keep == self.run.is_some() {
            return;
        }
        let start = header.name.as_ptr() as usize - self.head.as_ptr() as usize;
        match self.run.take() {
            Some(from) => out.extend_from_slice(&self.head[from..start]),
            None => self.run = Some(start),
        }
    }

    /// Copies the rest of the last run, without the empty line.
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        if let Some(from) = self.run {
            out.extend_from_slice(&self.head[from..self.head.len() - 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(bytes: &[u8]) -> Result<Option<usize>, BadLine> {
        HeadScanner::default().find_end(bytes)
    }

    #[test]
    fn known_field_names_match_exactly_and_case_insensitively() {
        let known = [
            ("te", Field::Te),
            ("via", Field::Via),
            ("host", Field::Host),
            ("expect", Field::Expect),
            ("upgrade", Field::Upgrade),
            ("forwarded", Field::Forwarded),
            ("x-real-ip", Field::XRealIp),
            ("connection", Field::Connection),
            ("keep-alive", Field::HopByHop),
            ("content-type", Field::ContentType),
            ("grpc-timeout", Field::GrpcTimeout),
            ("content-length", Field::ContentLength),
            ("http2-settings", Field::Http2Settings),
            (ROOM_FIELD, Field::Room),
            ("x-forwarded-for", Field::XForwardedFor),
            (CHECK_FIELD, Field::Check),
            ("proxy-connection", Field::HopByHop),
            ("x-forwarded-host", Field::XForwardedHost),
            ("transfer-encoding", Field::TransferEncoding),
            ("x-forwarded-proto", Field::XForwardedProto),
            (MIRRORED_FIELD, Field::Mirrored),
            (DELEGATED_FIELD, Field::Delegated),
            ("strict-transport-security", Field::StrictTransport),
        ];
        for (name, field) in known {
            for at in 0..name.len() {
                let mut mixed = name.to_lowercase().into_bytes();
                mixed[at].make_ascii_uppercase();
                let mixed = String::from_utf8(mixed).unwrap();
                assert_eq!(Field::of(&mixed), field, "{mixed}");
                // Every other character in its place makes another name.
                for other in 0..=0x7f_u8 {
                    let mut changed = name.to_lowercase().into_bytes();
                    if other.eq_ignore_ascii_case(&changed[at]) {
                        continue;
                    }
                    changed[at] = other;
                    let changed = String::from_utf8(changed).unwrap();
                    let listed = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(&changed));
                    let wanted = listed.map_or_else(|| Field::not_listed(&changed), |it| it.1);
                    assert_eq!(Field::of(&changed), wanted, "{changed:?}");
                }
            }
            assert_ne!(Field::of(&format!("{name} ")), field);
            assert_ne!(Field::of(&name[..name.len() - 1]), field);
        }
    }

    #[test]
    fn unlisted_field_names_are_classified_by_underscore_and_origin() {
        for (name, field) in [
            ("", Field::Other),
            ("server", Field::Other),
            ("x-frame-options", Field::Other),
            ("x_real_ip", Field::Underscored),
            ("my_field", Field::Underscored),
            ("_", Field::Underscored),
            ("a-very-long-name_of-a-field", Field::Underscored),
            ("x-forwarded-by", Field::OtherOrigin),
            ("X.Real.Ip", Field::OtherOrigin),
            ("X-Forwarded-Something-Else", Field::OtherOrigin),
        ] {
            assert_eq!(Field::of(name), field, "{name}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_at_any_read_boundary() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        for cut in 0..=head.len() {
            let mut scanner = HeadScanner::default();
            let first = scanner.find_end(&head[..cut]).unwrap();
            assert_eq!(first.is_some(), cut >= 27, "cut at {cut}");
            if first.is_none() {
                assert_eq!(scanner.find_end(head), Ok(Some(27)), "cut at {cut}");
            }
        }
    }

    #[test]
    fn lone_line_feeds_and_folded_lines_are_refused() {
        assert_eq!(scan(b"GET / HTTP/1.1\nHost: a\r\n\r\n"), Err(BadLine));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nHost: a\n\r\n"), Err(BadLine));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nHost: a\r\n\n"), Err(BadLine));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"), Err(BadLine));
        assert_eq!(scan(b"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n"), Err(BadLine));
        assert_eq!(scan(b"\n"), Err(BadLine));
    }

    #[test]
    fn content_length_accepts_only_digits_within_u64() {
        assert_eq!(content_length(b"0"), Some(0));
        assert_eq!(content_length(b"007"), Some(7));
        assert_eq!(content_length(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "+1", "-1", "1 2", "3, 3", "0x10", "18446744073709551616", "1;", "\u{661}"]
        {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn removed_header_lines_leave_the_other_lines_unchanged() {
        let head = b"X / HTTP/1.1\r\nA: 1\r\nB:2\r\nC:  3 \r\nD: 4\r\n\r\n";
        for mask in 0..16u32 {
            let mut headers = [httparse::EMPTY_HEADER; 8];
            let mut request = httparse::Request::new(&mut headers);
            request.parse(head).unwrap();
            let mut out = Vec::new();
            let mut copier = LineCopier::new(head);
            let mut wanted = String::new();
            let lines = ["A: 1\r\n", "B:2\r\n", "C:  3 \r\n", "D: 4\r\n"];
            for (i, header) in request.headers.iter().enumerate() {
                let keep = mask & (1 << i) != 0;
                copier.line(header, keep, &mut out);
                if keep {
                    wanted += lines[i];
                }
            }
            copier.finish(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}

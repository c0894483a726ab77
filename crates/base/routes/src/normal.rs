//! The one form of a host and of a path.
//!
//! A condition is compared with this form, and the backend gets the same path. A client therefore
//! cannot avoid a route with another spelling of the same path, and a backend cannot read another
//! path than the one that was matched.

use std::borrow::Cow;

/// A path that readers understand in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path can be read in several ways")]
pub struct AmbiguousPath;

/// The normal form of a path without its query.
///
/// - Percent-encoded letters, digits, `-`, `.`, `_` and `~` are decoded; other encodings get
///   capital letters (RFC 3986, section 6.2.2).
/// - Segments `.` and `..` are resolved (RFC 3986, section 5.2.4). `..` of the root is the root.
/// - Empty segments are removed: `//` is `/`.
///
/// `*` is its own normal form. No allocation if the path has its normal form already.
///
/// # Errors
/// The path does not begin with `/`; it has a backslash, an encoded slash or backslash, an encoded
/// control character, `#`, a `%` without two hexadecimal digits, or a segment such as `..;x`.
pub fn path(path: &[u8]) -> Result<Cow<'_, [u8]>, AmbiguousPath> {
    if is_normal(path) || path == b"*" {
        return Ok(Cow::Borrowed(path));
    }
    let rest = path.strip_prefix(b"/").ok_or(AmbiguousPath)?;
    let mut normal = Vec::with_capacity(path.len());
    let mut is_directory = false;
    for segment in rest.split(|byte| *byte == b'/') {
        let start = normal.len();
        normal.push(b'/');
        decode(segment, &mut normal)?;
        let read = &normal[start + 1..];
        is_directory = matches!(read, b"" | b"." | b"..");
        match read {
            b"" | b"." => normal.truncate(start),
            b".." => {
                normal.truncate(start);
                let parent = normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                normal.truncate(parent);
            }
            _ if read.starts_with(b".;") || read.starts_with(b"..;") => return Err(AmbiguousPath),
            _ => {}
        }
    }
    if is_directory || normal.is_empty() {
        normal.push(b'/');
    }
    Ok(Cow::Owned(normal))
}

/// Whether nothing about the path needs a second look.
fn is_normal(path: &[u8]) -> bool {
    let [b'/', rest @ ..] = path else { return false };
    let mut begins_segment = true;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'%' | b'\\' | b'#' | 0..=0x1f | 0x7f => return false,
            b'/' if begins_segment => return false,
            b'.' if begins_segment && may_be_dots(&rest[at..]) => return false,
            _ => {}
        }
        begins_segment = *byte == b'/';
    }
    true
}

/// Whether a segment that begins so may be `.`, `..` or one of them with parameters.
fn may_be_dots(segment: &[u8]) -> bool {
    let after = segment.strip_prefix(b"..").or_else(|| segment.strip_prefix(b"."));
    matches!(after.and_then(<[u8]>::first), None | Some(b'/' | b';'))
}

/// Appends a segment in its normal form.
fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), AmbiguousPath> {
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || (*bytes.next()? as char).to_digit(16);
                let (high, low) = digit().zip(digit()).ok_or(AmbiguousPath)?;
                match (high * 16 + low) as u8 {
                    b'/' | b'\\' | 0..=0x1f | 0x7f => return Err(AmbiguousPath),
                    plain if is_unreserved(plain) => out.push(plain),
                    other => {
                        let hex = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
                        out.extend_from_slice(&[b'%', hex(other >> 4), hex(other & 15)]);
                    }
                }
            }
            b'\\' | b'#' | 0..=0x1f | 0x7f => return Err(AmbiguousPath),
            byte => out.push(byte),
        }
    }
    Ok(())
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The longest host name that conditions are compared with: that of DNS, with a dot at its end.
pub(crate) const HOST_BYTES_MAX: usize = 254;

/// The normal form of the value of `Host`: in lower case, without port and without a dot at the
/// end. `None` if no name is so long.
pub fn host<'b>(host: &[u8], room: &'b mut [u8; HOST_BYTES_MAX]) -> Option<&'b [u8]> {
    let name = without_port(host);
    let name = name.strip_suffix(b".").unwrap_or(name);
    let normal = room.get_mut(..name.len())?;
    normal.copy_from_slice(name);
    normal.make_ascii_lowercase();
    Some(normal)
}

/// The host of an authority. The colons of an IPv6 address stand within brackets.
pub fn without_port(authority: &[u8]) -> &[u8] {
    let end = match authority.first() {
        Some(b'[') => authority.iter().position(|byte| *byte == b']').map(|at| at + 1),
        _ => authority.iter().position(|byte| *byte == b':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> Option<String> {
        path(text.as_bytes()).ok().map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (spelling, form) in [
            ("/", "/"),
            ("/admin", "/admin"),
            ("//admin", "/admin"),
            ("///admin//x", "/admin/x"),
            ("/admin/", "/admin/"),
            ("/admin//", "/admin/"),
            ("/./admin", "/admin"),
            ("/admin/.", "/admin/"),
            ("/x/../admin", "/admin"),
            ("/x/..//admin", "/admin"),
            ("/x/y/../../admin", "/admin"),
            ("/../admin", "/admin"),
            ("/../../../admin", "/admin"),
            ("/x/%2e%2e/admin", "/admin"),
            ("/x/%2E./admin", "/admin"),
            ("/x/.%2e/admin", "/admin"),
            ("/%2e/admin", "/admin"),
            ("/%61dmin", "/admin"),
            ("/%61%64%6D%69%6e", "/admin"),
            ("/a%7eb%2dc", "/a~b-c"),
            ("/a%20b", "/a%20b"),
            ("/a%3ab", "/a%3Ab"),
            ("/%252e%252e/admin", "/%252e%252e/admin"),
            ("/x/..", "/"),
            ("/x/y/..", "/x/"),
            ("/..", "/"),
            ("/.", "/"),
            ("//", "/"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/..x", "/..x"),
            ("/x;y=1", "/x;y=1"),
            ("/Admin", "/Admin"),
            ("*", "*"),
        ] {
            assert_eq!(normal(spelling).as_deref(), Some(form), "{spelling}");
            assert_eq!(normal(form).as_deref(), Some(form), "the form of a form");
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for path in [
            "",
            "admin",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/..\\admin",
            "/a%00",
            "/a%0ab",
            "/a%7f",
            "/a#b",
            "/a%",
            "/a%2",
            "/a%zz",
            "/x/..;/admin",
            "/x/.;a/admin",
            "/x/%2e.;/a",
        ] {
            assert_eq!(normal(path), None, "{path}");
        }
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        for text in ["/", "/a/b.c", "/a/.b", "/a/b/", "/.well-known/acme", "/a..b", "/a/..b"] {
            assert!(matches!(path(text.as_bytes()), Ok(Cow::Borrowed(_))), "{text}");
        }
    }

    #[test]
    fn a_host_is_normalized_without_port_capitals_or_trailing_dot() {
        for (value, name) in [
            ("a.example", "a.example"),
            ("A.Example", "a.example"),
            ("a.example:8080", "a.example"),
            ("a.example.", "a.example"),
            ("A.EXAMPLE.:443", "a.example"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("", ""),
            (":80", ""),
        ] {
            let mut room = [0; HOST_BYTES_MAX];
            assert_eq!(host(value.as_bytes(), &mut room), Some(name.as_bytes()), "{value}");
        }
        assert_eq!(host(&[b'a'; 255], &mut [0; HOST_BYTES_MAX]), None);
    }
}

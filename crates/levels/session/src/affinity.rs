//! Affinity of clients to backends: by a hash of the request, or by a cookie that names a backend.

use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_core::hash;

/// The part of a request that is hashed to pick a pool or a backend. Requests without it are hashed
/// by the client's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    #[default]
    Source,
    /// The value of this header field.
    Header(Arc<str>),
    /// The value of this cookie.
    Cookie(Arc<str>),
    /// The value of this parameter of the query, as it was sent.
    Query(Arc<str>),
}

impl HashBy {
    /// The hash of a request, if it has this part. `head` is as it goes to a backend.
    pub(crate) fn hash(&self, head: &[u8]) -> Option<u64> {
        self.hash_in(|name| fields(head, name), || query(head))
    }

    /// As [`Self::hash`], from the values of the fields of a name, and the query.
    pub(crate) fn hash_in<'n, 'h, Values: Iterator<Item = &'h [u8]>>(
        &'n self,
        fields: impl FnOnce(&'n str) -> Values,
        query: impl FnOnce() -> &'h [u8],
    ) -> Option<u64> {
        let value = match self {
            HashBy::Source => None,
            HashBy::Header(name) => fields(name).next(),
            HashBy::Cookie(name) => fields("cookie").find_map(|cookies| cookie_in(cookies, name)),
            HashBy::Query(name) => parameter_in(query(), name),
        };
        value.map(hash::key_hash)
    }
}

/// A cookie that brings the further requests of a client to the same backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyCookie {
    /// Its name.
    pub name: Arc<str>,
    /// Its attributes, each with `; ` before it.
    pub attributes: Arc<str>,
    /// The seed of its values. Without knowing it, a client cannot infer an address from a value.
    pub seed: u64,
}

impl StickyCookie {
    /// The value in a request, if it has one of this form.
    pub(crate) fn value(&self, head: &[u8]) -> Option<u64> {
        let value = std::str::from_utf8(cookie(head, &self.name)?).ok()?;
        let has_form = value.len() == 16 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(value, 16).ok().filter(|_| has_form)
    }

    /// The value that names a backend.
    pub(crate) fn names(&self, backend: SocketAddr) -> u64 {
        hash::cookie_hash(backend, self.seed)
    }

    /// Writes the line that gives a client this value.
    pub(crate) fn write(&self, value: u64, is_https: bool, out: &mut Vec<u8>) {
        let secure = if is_https { "; Secure" } else { "" };
        let (name, attributes) = (&self.name, &self.attributes);
        let line = format!("Set-Cookie: {name}={value:016x}{attributes}{secure}\r\n");
        out.extend_from_slice(line.as_bytes());
    }
}

/// The values of the fields of this name.
pub(crate) fn fields<'h>(head: &'h [u8], name: &str) -> impl Iterator<Item = &'h [u8]> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(move |line| {
        let (begin, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        begin.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    })
}

/// The value of the first cookie of this name.
fn cookie<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    fields(head, "cookie").find_map(|cookies| cookie_in(cookies, name))
}

/// The value of the first cookie of this name in the value of a `Cookie` field.
fn cookie_in<'c>(cookies: &'c [u8], name: &str) -> Option<&'c [u8]> {
    let mut cookies = cookies.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    cookies.find_map(|cookie| cookie.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The value of the first parameter of this name.
pub(crate) fn parameter<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    parameter_in(query(head), name)
}

/// The query of a request, without its `?`; empty without one.
fn query(head: &[u8]) -> &[u8] {
    let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let at = target.iter().position(|byte| *byte == b'?');
    at.map_or(&[], |at| &target[at + 1..])
}

/// The value of the first parameter of this name in a query.
fn parameter_in<'q>(query: &'q [u8], name: &str) -> Option<&'q [u8]> {
    let mut parameters = query.split(|byte| *byte == b'&');
    parameters.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET /a?id=7&user=x%20y&user=z HTTP/1.1\r\nHost: a\r\nX-User:  one \r\n\
                          Cookie: a=b; stay=0123456789abcdef\r\nX-User: two\r\nCookie: c=d;e=\r\n\r\n";

    #[test]
    fn each_part_is_found_by_its_whole_name() {
        let found = |by: HashBy| by.hash(HEAD);
        let same = |value: &[u8]| Some(hash::key_hash(value));
        assert_eq!(found(HashBy::Source), None);
        assert_eq!(found(HashBy::Header("x-user".into())), same(b"one"));
        assert_eq!(found(HashBy::Header("x-use".into())), None);
        assert_eq!(found(HashBy::Cookie("a".into())), same(b"b"));
        assert_eq!(found(HashBy::Cookie("c".into())), same(b"d"));
        assert_eq!(found(HashBy::Cookie("e".into())), same(b""));
        assert_eq!(found(HashBy::Cookie("sta".into())), None);
        assert_eq!(found(HashBy::Query("user".into())), same(b"x%20y"));
        assert_eq!(found(HashBy::Query("id".into())), same(b"7"));
        assert_eq!(found(HashBy::Query("use".into())), None);
        assert_eq!(HashBy::Query("a".into()).hash(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn a_cookie_has_a_value_of_sixteen_digits() {
        let cookie =
            |name: &str| StickyCookie { name: name.into(), attributes: "; Path=/".into(), seed: 1 };
        assert_eq!(cookie("stay").value(HEAD), Some(0x0123_4567_89ab_cdef));
        assert_eq!(cookie("a").value(HEAD), None);
        assert_eq!(
            cookie("stay").value(b"GET / HTTP/1.1\r\nCookie: stay=+123456789abcde\r\n"),
            None
        );
        let backend = "10.0.0.1:80".parse().expect("an address");
        assert_ne!(
            cookie("a").names(backend),
            StickyCookie { seed: 2, ..cookie("a") }.names(backend)
        );
        let mut line = Vec::new();
        cookie("stay").write(0xab, true, &mut line);
        assert_eq!(line, b"Set-Cookie: stay=00000000000000ab; Path=/; Secure\r\n");
    }
}

//! Conditions of routes: those that meet two sets of them.

use std::net::IpAddr;

use toml::Value;

use crate::model::Options;

/// The requests that meet two sets of conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meet {
    /// Those with these conditions.
    Both(Options),
    /// None.
    Never,
    /// They cannot be stated by conditions of one route.
    Unknown,
}

/// Characters with a meaning in a regular expression outside of brackets.
const SPECIAL: &str = r"\.+*?()|[]{}^$";

/// A text as a part of a regular expression outside of brackets.
pub(crate) fn escaped(text: &str) -> String {
    let one = |it: char| if SPECIAL.contains(it) { format!("\\{it}") } else { it.to_string() };
    text.chars().map(one).collect()
}

/// The expression of the paths that begin with a text.
pub(crate) fn begins_with(text: &str) -> String {
    format!("^{}", escaped(text))
}

/// The text of an expression of [`begins_with`]; `None` for others.
pub(crate) fn beginning(expression: &str) -> Option<String> {
    let text: String = expression.strip_prefix('^')?.replace('\\', "");
    (begins_with(&text) == expression).then_some(text)
}

/// The conditions on the path.
pub(crate) const PATHS: [&str; 3] = ["path", "path-prefix", "path-regex"];

/// The requests that meet both.
pub(crate) fn meet(one: &Options, other: &Options) -> Meet {
    let mut all = one.clone();
    for (key, intersect) in [
        ("host", hosts as fn(&str, &str) -> Option<String>),
        ("method", |a, b| (a == b).then(|| a.to_string())),
        ("source", sources),
    ] {
        let (Some(mine), Some(theirs)) = (texts(one, key), texts(other, key)) else { continue };
        let pairs = mine.iter().flat_map(|a| theirs.iter().filter_map(move |b| intersect(a, b)));
        let mut kept: Vec<String> = pairs.collect();
        kept.sort();
        kept.dedup();
        if kept.is_empty() {
            return Meet::Never;
        }
        all.remove(key);
        kept.into_iter().for_each(|it| all.push(key, it));
    }
    let paths = |options: &Options| {
        let all = PATHS.iter().filter_map(|key| Some((*key, texts(options, key)?)));
        all.flat_map(|(key, all)| all.into_iter().map(move |it| (key, it))).collect::<Vec<_>>()
    };
    let (mine, theirs) = (paths(one), paths(other));
    if !mine.is_empty() && !theirs.is_empty() && mine != theirs {
        let mut kept = Vec::new();
        for a in &mine {
            for b in &theirs {
                match path(a, b) {
                    Some(Some(it)) if !kept.contains(&it) => kept.push(it),
                    Some(_) => {}
                    None => return Meet::Unknown,
                }
            }
        }
        if kept.is_empty() {
            return Meet::Never;
        }
        PATHS.iter().for_each(|key| all.remove(key));
        kept.into_iter().for_each(|(key, it)| all.push(key, it));
    }
    for key in ["header", "query"] {
        for it in texts(other, key).unwrap_or_default() {
            all.push(key, it);
        }
    }
    let mut rest = other.clone();
    if !mine.is_empty() {
        PATHS.iter().for_each(|key| rest.remove(key));
    }
    all.fill(&rest);
    Meet::Both(all)
}

fn texts(options: &Options, key: &str) -> Option<Vec<String>> {
    let all = match options.get(key)? {
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    };
    Some(all.iter().filter_map(|it| it.as_str().map(str::to_string)).collect())
}

/// Hosts of both patterns.
fn hosts(a: &str, b: &str) -> Option<String> {
    let below =
        |host: &str, wild: &str| wild.strip_prefix('*').is_some_and(|end| host.ends_with(end));
    if a == b || below(a, b) { Some(a.to_string()) } else { below(b, a).then(|| b.to_string()) }
}

/// An address with the length of its prefix.
pub(crate) fn prefix(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { bits } else { length.parse().ok()? };
    (length <= bits).then_some((address, length))
}

/// The narrower of two prefixes of which one has the other.
fn sources(a: &str, b: &str) -> Option<String> {
    let ((at, a_length), (bt, b_length)) = (prefix(a)?, prefix(b)?);
    let bits = |it: IpAddr| match it {
        IpAddr::V4(it) => (u128::from(it.to_bits()) << 96, true),
        IpAddr::V6(it) => (it.to_bits(), false),
    };
    let ((x, x_is_v4), (y, y_is_v4)) = (bits(at), bits(bt));
    let length = a_length.min(b_length);
    let is_equal = length == 0 || (x ^ y) >> (128 - length) == 0;
    (x_is_v4 == y_is_v4 && is_equal).then(|| if a_length >= b_length { a } else { b }.to_string())
}

type Path = (&'static str, String);

/// Paths of both: `None` if that is not known, `Some(None)` if there are none.
fn path(a: &Path, b: &Path) -> Option<Option<Path>> {
    let below = |path: &str, prefix: &str| {
        let rest = path.strip_prefix(prefix.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match ((a.0, &a.1), (b.0, &b.1)) {
        _ if a == b => Some(Some(a.clone())),
        (("path", _), ("path", _)) => Some(None),
        (("path", exact), ("path-prefix", prefix)) | (("path-prefix", prefix), ("path", exact)) => {
            Some(below(exact, prefix).then(|| ("path", exact.clone())))
        }
        (("path", exact), (_, pattern)) | ((_, pattern), ("path", exact)) => {
            let is_met = regex::Regex::new(pattern).ok()?.is_match(exact);
            Some(is_met.then(|| ("path", exact.clone())))
        }
        (("path-prefix", x), ("path-prefix", y)) => {
            Some(if below(x, y) { Some(a.clone()) } else { below(y, x).then(|| b.clone()) })
        }
        (("path-prefix", prefix), (_, pattern)) | ((_, pattern), ("path-prefix", prefix)) => {
            let text = beginning(pattern)?;
            let narrower = if prefix.starts_with(&text) {
                Some(("path-prefix", prefix.clone()))
            } else {
                below(&text, prefix).then(|| ("path-regex", pattern.clone()))
            };
            Some(narrower)
        }
        ((_, x), (_, y)) => {
            let (x, y) = (beginning(x)?, beginning(y)?);
            Some(if x.starts_with(&y) {
                Some(a.clone())
            } else {
                y.starts_with(&x).then(|| b.clone())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(all: &[(&'static str, &str)]) -> Options {
        let mut options = Options::default();
        all.iter().for_each(|(key, value)| options.push(key, *value));
        options
    }

    #[test]
    fn the_intersection_of_conditions_has_the_narrower_values() {
        let both =
            |a: &[(&'static str, &str)], b: &[(&'static str, &str)]| meet(&options(a), &options(b));
        let is = |all: &[(&'static str, &str)]| Meet::Both(options(all));
        assert_eq!(
            both(&[("host", "*.a.org")], &[("host", "x.a.org"), ("host", "b.org")]),
            is(&[("host", "x.a.org")])
        );
        assert_eq!(both(&[("host", "a.org")], &[("host", "b.org")]), Meet::Never);
        assert_eq!(
            both(&[("source", "10.0.0.0/8")], &[("source", "10.1.0.0/16")]),
            is(&[("source", "10.1.0.0/16")])
        );
        assert_eq!(both(&[("source", "10.0.0.0/8")], &[("source", "::/0")]), Meet::Never);
        assert_eq!(
            both(&[("path-prefix", "/a")], &[("path-prefix", "/a/b")]),
            is(&[("path-prefix", "/a/b")])
        );
        assert_eq!(both(&[("path-prefix", "/a")], &[("path-prefix", "/ab")]), Meet::Never);
        assert_eq!(
            both(&[("path", "/x.php")], &[("path-regex", "php$")]),
            is(&[("path", "/x.php")])
        );
        assert_eq!(both(&[("path-prefix", "/a")], &[("path-regex", "php$")]), Meet::Unknown);
        let paths = |a: &'static str, x, b: &'static str, y| {
            assert_eq!(both(&[(a, x)], &[(b, y)]), both(&[(b, y)], &[(a, x)]), "{x} {y}");
            both(&[(a, x)], &[(b, y)])
        };
        let begin = "path-regex";
        assert_eq!(paths(begin, "^/a", begin, "^/ab/"), is(&[(begin, "^/ab/")]));
        assert_eq!(paths(begin, "^/a/", begin, "^/ab/"), Meet::Never);
        assert_eq!(paths(begin, "^/a/", begin, "b$"), Meet::Unknown);
        assert_eq!(paths(begin, "^/a/", "path-prefix", "/a"), is(&[(begin, "^/a/")]));
        assert_eq!(paths(begin, "^/a", "path-prefix", "/ab"), is(&[("path-prefix", "/ab")]));
        assert_eq!(paths(begin, "^/ab", "path-prefix", "/a"), Meet::Never);
        assert_eq!(
            both(&[("header", "A: b")], &[("header", "C: d")]),
            is(&[("header", "A: b"), ("header", "C: d")])
        );
        assert_eq!(
            both(&[("method", "GET")], &[("host", "a.org")]),
            is(&[("method", "GET"), ("host", "a.org")])
        );
    }

    #[test]
    fn a_path_prefix_converts_to_a_regex_and_back() {
        for (text, expression) in [("/api/", "^/api/"), ("/my-app/v1.0", r"^/my-app/v1\.0")] {
            assert_eq!(begins_with(text), expression);
            assert_eq!(beginning(expression).as_deref(), Some(text));
        }
        for other in ["/a", "^/a$", "^/(a|b)", r"^/\d", "(?i)^/a", "^/a.b", r"^/a\-b"] {
            assert_eq!(beginning(other), None, "{other}");
        }
    }
}

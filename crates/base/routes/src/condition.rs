//! Conditions of a route, and how each is written.

use std::net::IpAddr;
use std::str::FromStr;

use equipoise_basics::AddressRange;
use regex::bytes::{Regex, RegexBuilder};

use crate::{normal, query};

/// The conditions of a route. All kinds that are stated have to be met; within hosts, paths,
/// methods and sources one of several, within headers and query every one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Of the request's host.
    pub hosts: Vec<HostCondition>,
    /// Of the path in its normal form.
    pub paths: Vec<PathCondition>,
    /// Methods, in capital letters.
    pub methods: Vec<String>,
    /// Of header fields.
    pub headers: Vec<FieldCondition>,
    /// Of parameters of the query.
    pub query: Vec<FieldCondition>,
    /// Prefixes of the client's address.
    pub sources: Vec<Source>,
}

/// Error of a condition's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(String);

fn wrong<T>(text: impl Into<String>) -> Result<T, ConditionError> {
    Err(ConditionError(text.into()))
}

/// A host or, as `*.example.com`, all hosts below a domain, of any number of labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostCondition {
    /// The host itself, in its normal form.
    Exact(Box<str>),
    /// Every host with at least one label before this domain.
    Below(Box<str>),
}

impl FromStr for HostCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (name, is_wildcard) = text.strip_prefix("*.").map_or((text, false), |it| (it, true));
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        let is_name = name.len() <= 253 && name.split('.').all(is_label);
        let is_ipv6 = || {
            let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            inner.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
        };
        if !(is_name || !is_wildcard && is_ipv6()) {
            return wrong("no host name, wildcard or address");
        }
        let name = name.to_ascii_lowercase().into();
        Ok(if is_wildcard { HostCondition::Below(name) } else { HostCondition::Exact(name) })
    }
}

impl HostCondition {
    /// Whether it is met by a host in its normal form.
    pub(crate) fn fits(&self, host: &[u8]) -> bool {
        match self {
            HostCondition::Exact(name) => host == name.as_bytes(),
            HostCondition::Below(domain) => host
                .strip_suffix(domain.as_bytes())
                .is_some_and(|labels| labels.len() > 1 && labels.ends_with(b".")),
        }
    }
}

/// A condition of the path. The path is in its normal form and has no query.
#[derive(Clone, Debug, PartialEq)]
pub enum PathCondition {
    /// The whole path.
    Exact(Box<str>),
    /// The path itself and all below it: `/a` is met by `/a`, `/a/` and `/a/b`, not by `/ab`.
    /// Without a slash at its end; the root is empty.
    Prefix(Box<str>),
    /// A regular expression that matches somewhere in the path.
    Regex(Expression),
}

impl PathCondition {
    /// A path that has to be met exactly.
    ///
    /// # Errors
    /// The text is no path, or not in its normal form.
    pub fn exact(text: &str) -> Result<PathCondition, ConditionError> {
        Ok(PathCondition::Exact(normal_path(text)?.into()))
    }

    /// A prefix of whole segments.
    ///
    /// # Errors
    /// As [`Self::exact`].
    pub fn prefix(text: &str) -> Result<PathCondition, ConditionError> {
        let path = normal_path(text)?;
        Ok(PathCondition::Prefix(path.strip_suffix('/').unwrap_or(path).into()))
    }

    pub(crate) fn fits(&self, path: &[u8]) -> bool {
        match self {
            PathCondition::Exact(text) => path == text.as_bytes(),
            PathCondition::Prefix(text) => is_below(path, text.as_bytes()),
            PathCondition::Regex(pattern) => path != b"*" && pattern.is_match(path),
        }
    }
}

/// Whether the path is the prefix or below it.
pub(crate) fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| match rest.first() {
        None => !path.is_empty(),
        Some(byte) => *byte == b'/',
    })
}

fn normal_path(text: &str) -> Result<&str, ConditionError> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('?') || text == "*" {
        return wrong("no path of visible characters without a query");
    }
    match normal::path(text.as_bytes()) {
        Ok(normal) if *normal == *text.as_bytes() => Ok(text),
        Ok(normal) => wrong(format!(
            "another spelling of \"{}\", which requests are compared in",
            String::from_utf8_lossy(&normal)
        )),
        Err(_) => wrong("no path that every reader understands alike"),
    }
}

/// A regular expression. It matches somewhere in a text; `^` and `$` are its begin and end.
#[derive(Clone, Debug)]
pub struct Expression(Regex);

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// Memory that a compiled expression may take, bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl FromStr for Expression {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let compiled = RegexBuilder::new(text).unicode(false).size_limit(PATTERN_BYTES_MAX).build();
        compiled.map(Expression).map_err(|error| {
            // The last line of the library's error has the reason; the others show the place.
            let text = error.to_string();
            ConditionError(text.lines().last().unwrap_or("no regular expression").into())
        })
    }
}

impl Expression {
    /// The text of the expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it matches somewhere in `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }

    /// Checks that a replacement refers to groups that the expression has.
    ///
    /// # Errors
    /// It names another group. `$1x` means the group `1x`; `${1}x` is the first group and an `x`.
    pub fn accepts(&self, replacement: &str) -> Result<(), ConditionError> {
        for part in replacement.replace("$$", "").split('$').skip(1) {
            let (name, _) = match part.strip_prefix('{') {
                Some(rest) => rest.split_once('}').unwrap_or(("", "")),
                None => {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len()))
                }
            };
            let is_number = name.parse().is_ok_and(|at: usize| at < self.0.captures_len());
            if !is_number && !self.0.capture_names().flatten().any(|known| known == name) {
                return wrong(format!(
                    "`${name}` is no group of the expression; accepted: ${{1}} to ${{{}}}, and names of groups",
                    self.0.captures_len() - 1
                ));
            }
        }
        Ok(())
    }

    /// Replaces the first match. `$1` and `${name}` in `replacement` are the groups of the
    /// expression. `None` without a match.
    pub fn replace(&self, text: &[u8], replacement: &str) -> Option<Vec<u8>> {
        match self.0.replace(text, replacement.as_bytes()) {
            std::borrow::Cow::Borrowed(_) => None,
            std::borrow::Cow::Owned(replaced) => Some(replaced),
        }
    }
}

/// A condition of a header field or of a parameter of the query. If a name occurs repeatedly, one
/// of its values has to meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldCondition {
    /// Of a header in lower case.
    pub name: Box<str>,
    /// Of its value.
    pub value: ValueCondition,
}

/// A condition of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueCondition {
    /// Any value.
    Present,
    /// Exactly this one.
    Equals(Box<str>),
    /// A regular expression that matches somewhere in it.
    Regex(Expression),
}

impl ValueCondition {
    fn read(text: Option<&str>) -> Result<ValueCondition, ConditionError> {
        Ok(match text {
            None => ValueCondition::Present,
            Some(text) => match text.strip_prefix('~') {
                Some(expression) => ValueCondition::Regex(expression.parse()?),
                None => ValueCondition::Equals(text.into()),
            },
        })
    }

    pub(crate) fn fits(&self, value: &[u8]) -> bool {
        match self {
            ValueCondition::Present => true,
            ValueCondition::Equals(text) => value == text.as_bytes(),
            ValueCondition::Regex(pattern) => pattern.is_match(value),
        }
    }
}

impl FieldCondition {
    /// Reads `NAME`, `NAME: VALUE` or `NAME: ~REGEX`.
    ///
    /// # Errors
    /// The name is none of a header, or the expression is wrong.
    pub fn header(text: &str) -> Result<FieldCondition, ConditionError> {
        let (name, value) = text.split_once(':').map_or((text, None), |(n, v)| (n, Some(v.trim())));
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) {
            return wrong("no name of a header before the colon");
        }
        let value = ValueCondition::read(value)?;
        Ok(FieldCondition { name: name.to_ascii_lowercase().into(), value })
    }

    /// Reads `NAME`, `NAME=VALUE` or `NAME=~REGEX`, not encoded.
    ///
    /// # Errors
    /// There is no name, or the expression is wrong.
    pub fn query(text: &str) -> Result<FieldCondition, ConditionError> {
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        if name.is_empty() {
            return wrong("no name of a parameter before `=`");
        }
        Ok(FieldCondition { name: name.into(), value: ValueCondition::read(value)? })
    }

    /// Whether a query meets it.
    pub(crate) fn fits_query(&self, query: &[u8]) -> bool {
        query::pairs(query).any(|(name, value)| {
            *query::decoded(name) == *self.name.as_bytes()
                && self.value.fits(&query::decoded(value))
        })
    }
}

/// A prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source(AddressRange);

impl Source {
    /// The prefix of this many bits.
    pub fn new(address: IpAddr, length: u8) -> Source {
        Source(AddressRange::new(address, length))
    }

    /// Whether the address is in it.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    pub(crate) fn covers(&self, other: &Source) -> bool {
        self.0.covers(&other.0)
    }
}

//! Answers of two proxies, and their differences.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Headers that are not compared: those of one connection, those that name the proxy, and those
/// that differ between two answers of one proxy.
pub const IGNORED_HEADERS: [&str; 19] = [
    "age",
    "alt-svc",
    "connection",
    "content-length",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "proxy-connection",
    "proxy-status",
    "server",
    "server-timing",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-request-id",
];
/// Facts of a page that a proxy may have written itself: every proxy has its own pages for
/// redirects and errors.
const OF_PAGES: [&str; 3] = ["body", "header cache-control", "header content-type"];
/// The fact that comes first: if it differs, the others say nothing.
const RESULT: &str = "result";
/// Most characters of a value that is shown.
const SHOWN_MAX: usize = 60;

/// An answer of a proxy, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyAnswer {
    /// For people: `200, 512 bytes`.
    pub shown: String,
    facts: BTreeMap<String, String>,
}

impl ProxyAnswer {
    /// An HTTP response.
    pub fn http<'a>(
        status: u16,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        body: &[u8],
    ) -> ProxyAnswer {
        let mut facts: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers.filter(|(name, _)| !IGNORED_HEADERS.contains(name)) {
            let value = String::from_utf8_lossy(value);
            if name == "set-cookie" {
                let cookie = value.split('=').next().unwrap_or_default().trim();
                facts.insert(format!("cookie {cookie}"), "set".to_string());
                continue;
            }
            let all = facts.entry(format!("header {name}")).or_default();
            let is_first = all.is_empty();
            all.push_str(&if is_first { value } else { format!(", {value}").into() });
        }
        facts.insert(RESULT.to_string(), status.to_string());
        facts.insert("body".to_string(), digest(body));
        ProxyAnswer { shown: format!("{status}, {} bytes", body.len()), facts }
    }

    /// The first bytes of a server, and the end of its connection.
    pub fn greeting(bytes: &[u8], is_closed: bool) -> ProxyAnswer {
        let state = if is_closed { "closed" } else { "open" };
        let facts = [(RESULT, state.to_string()), ("greeting", digest(bytes))];
        let facts = facts.map(|(what, value)| (what.to_string(), value)).into();
        ProxyAnswer { shown: format!("{state}, {} bytes", bytes.len()), facts }
    }

    /// A TLS handshake that succeeded.
    pub fn handshake() -> ProxyAnswer {
        let facts = BTreeMap::from([(RESULT.to_string(), "TLS".to_string())]);
        ProxyAnswer { shown: "TLS".to_string(), facts }
    }

    /// No answer. The reasons of two proxies are not compared, since their texts differ.
    pub fn none(why: &str) -> ProxyAnswer {
        let facts = BTreeMap::from([(RESULT.to_string(), "no answer".to_string())]);
        ProxyAnswer { shown: format!("no answer: {why}"), facts }
    }

    /// The same from a server with this certificate, in DER.
    #[must_use]
    pub fn with_certificate(mut self, der: &[u8]) -> ProxyAnswer {
        self.facts.insert("certificate".to_string(), digest(der));
        self
    }

    fn fact(&self, what: &str) -> &str {
        self.facts.get(what).map_or("absent", String::as_str)
    }
}

/// Length and hash, which is the same within one process.
fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes, hash {:08x}", bytes.len(), hasher.finish() >> 32)
}

/// How alike the answers of two proxies are, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// The new proxy answers otherwise.
    Differs,
    /// The old proxy gives several answers, and the new one gives none of them.
    Varies,
    /// The same.
    Same,
}

/// A fact in which answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The fact: `result`, `body`, `header NAME`, `cookie NAME`, `certificate`, `greeting`.
    pub what: String,
    /// Its values in answers of the old proxy.
    pub old: String,
    /// Its values in answers of the new proxy.
    pub new: String,
    /// Its weight.
    pub likeness: Likeness,
}

/// The answers of two proxies to one question, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The worst of the differences.
    pub likeness: Likeness,
    /// The facts that differ, the worst first. One that is [`Likeness::Same`] is a remark.
    pub differences: Vec<Difference>,
}

/// Compares the answers to one question, which may have been asked several times.
///
/// A fact is the same if some answer of each proxy has the same value: balancing, and pages that
/// are made for each request, make the answers of one proxy differ.
pub fn compare(old: &[ProxyAnswer], new: &[ProxyAnswer]) -> Comparison {
    let mut differences: Vec<_> = difference(RESULT, old, new).into_iter().collect();
    if differences.is_empty() {
        let facts: BTreeSet<_> = old.iter().chain(new).flat_map(|it| it.facts.keys()).collect();
        differences.extend(facts.into_iter().filter_map(|what| difference(what, old, new)));
    }
    differences.sort_by_key(|it| it.likeness);
    let likeness = differences.first().map_or(Likeness::Same, |it| it.likeness);
    Comparison { likeness, differences }
}

fn difference(what: &str, old: &[ProxyAnswer], new: &[ProxyAnswer]) -> Option<Difference> {
    let values = |answers: &[ProxyAnswer]| -> BTreeSet<String> {
        answers.iter().map(|it| it.fact(what).to_string()).collect()
    };
    let (theirs, ours) = (values(old), values(new));
    if !theirs.is_disjoint(&ours) {
        return None;
    }
    let likeness = match theirs.len() {
        _ if OF_PAGES.contains(&what) && old.iter().all(is_page) => Likeness::Same,
        1 => Likeness::Differs,
        _ => Likeness::Varies,
    };
    let shown = |values: BTreeSet<String>| {
        values.iter().map(|it| short(it)).collect::<Vec<_>>().join(" or ")
    };
    Some(Difference { what: what.to_string(), old: shown(theirs), new: shown(ours), likeness })
}

/// True if the status is that of a redirect or an error.
fn is_page(answer: &ProxyAnswer) -> bool {
    answer.fact(RESULT).parse::<u16>().is_ok_and(|status| status >= 300)
}

fn short(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_string(),
    }
}

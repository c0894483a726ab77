//! Conditions: access lists (`acl`) and `if`/`unless`.

use std::collections::BTreeMap;

use super::words::Line;
use crate::conditions::{Meet, begins_with, escaped, meet};
use crate::model::Options;

/// A test of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    /// Options of a route of which one has to be met, with their values: `path`, `path-prefix`,
    /// `path-regex`; or one of `host`, `method` and `source`.
    Any(Vec<(&'static str, String)>),
    /// A `header` or a `query` of a route.
    All(&'static str, String),
    /// The connection uses TLS.
    Tls,
    /// True for every request.
    Always,
    /// Names in a ClientHello.
    Sni(Vec<String>),
    /// The password of a user.
    Password,
    /// A counter of the client exceeds this number.
    Counter {
        /// `http_req_rate`, `conn_rate` or `conn_cur`.
        name: String,
        /// The number of the `track-sc` that counts; `None`: that of the client in `table`.
        track: Option<String>,
        table: String,
        above: u64,
    },
    /// No equivalent.
    Unknown(String),
}

/// A test that is met, or is not met.
pub(super) type Literal = (bool, Vec<Test>);

/// Tests of which each has to be met.
pub(super) type Conjunction = Vec<Literal>;

/// The access lists of a section: each is met if one of its tests is.
#[derive(Clone, Debug, Default)]
pub(super) struct Acls(BTreeMap<String, Vec<Test>>);

impl Acls {
    /// Reads `acl NAME CRITERION ...`.
    pub(super) fn read(&mut self, line: &Line) {
        let tests = test(line.from(2));
        merge(self.0.entry(line.word(1).to_string()).or_default(), tests);
    }

    /// The alternatives of a condition: the words after `if` or `unless`.
    pub(super) fn condition(&self, words: &[String]) -> Vec<Conjunction> {
        let Some(kind) = words.first() else { return vec![Vec::new()] };
        let mut all = vec![Vec::new()];
        let mut words = words[1..].iter().peekable();
        while let Some(word) = words.next() {
            if word == "or" || word == "||" {
                all.push(Vec::new());
                continue;
            }
            let is_not = word.starts_with('!');
            let name = word.trim_start_matches('!');
            let tests = if name == "{" {
                let inner: Vec<String> =
                    words.by_ref().take_while(|it| *it != "}").cloned().collect();
                test(&inner)
            } else {
                self.0.get(name).cloned().unwrap_or_else(|| predefined(name))
            };
            if let Some(last) = all.last_mut() {
                last.push((!is_not, tests));
            }
        }
        if kind == "unless" {
            // The opposite of `a b or c` is `!a !c or !b !c`.
            let opposite = |(is_met, tests): Literal| (!is_met, tests);
            let parts = all.into_iter().map(|it| it.into_iter().map(opposite).collect::<Vec<_>>());
            return parts.fold(vec![Vec::new()], |so_far, part| {
                so_far
                    .iter()
                    .flat_map(|one: &Conjunction| {
                        part.iter().map(move |it| [one.clone(), vec![it.clone()]].concat())
                    })
                    .collect()
            });
        }
        all
    }
}

/// Splits the words of a rule into those before its condition and the condition.
pub(super) fn split(words: &[String]) -> (&[String], &[String]) {
    let at = words.iter().position(|it| it == "if" || it == "unless").unwrap_or(words.len());
    words.split_at(at)
}

/// Access lists that HAProxy defines itself.
fn predefined(name: &str) -> Vec<Test> {
    match name {
        "TRUE" | "HTTP" => vec![Test::Always],
        "LOCALHOST" => vec![Test::Any(vec![
            ("source", "127.0.0.0/8".to_string()),
            ("source", "::1".to_string()),
        ])],
        "METH_GET" => {
            vec![Test::Any(vec![("method", "GET".to_string()), ("method", "HEAD".to_string())])]
        }
        _ => match name.strip_prefix("METH_") {
            Some(method) => vec![Test::Any(vec![("method", method.to_string())])],
            None => vec![Test::Unknown(name.to_string())],
        },
    }
}

/// Adds tests, of which one has to be met, to others.
fn merge(all: &mut Vec<Test>, tests: Vec<Test>) {
    for test in tests {
        let kind = |it: &Test| match it {
            Test::Any(values) => {
                values.first().map(|(key, _)| if key.starts_with("path") { "path" } else { key })
            }
            _ => None,
        };
        match (all.iter_mut().find(|it| kind(it).is_some() && kind(it) == kind(&test)), test) {
            (Some(Test::Any(old)), Test::Any(new)) => old.extend(new),
            (_, test) => all.push(test),
        }
    }
}

/// A criterion with its flags and values.
fn test(words: &[String]) -> Vec<Test> {
    let unknown = || vec![Test::Unknown(words.join(" "))];
    let Some(criterion) = words.first() else { return unknown() };
    let (mut is_any_case, mut method) = (false, None);
    let mut rest = &words[1..];
    while let Some(flag) = rest.first() {
        rest = match flag.as_str() {
            "-i" => {
                is_any_case = true;
                &rest[1..]
            }
            "-m" if rest.len() > 1 => {
                method = Some(rest[1].clone());
                &rest[2..]
            }
            "--" => {
                rest = &rest[1..];
                break;
            }
            "-n" => &rest[1..],
            flag if flag.starts_with('-') && flag.len() == 2 => return unknown(),
            _ => break,
        };
    }
    let (criterion, converters) = criterion.split_once(',').unwrap_or((criterion, ""));
    for converter in converters.split(',').filter(|it| !it.is_empty()) {
        match converter {
            "lower" => is_any_case = true,
            // `field(1,:)`: without the port.
            "field(1" | ":)" | "host_only" | "url_dec" => {}
            _ => return unknown(),
        }
    }
    let (name, argument) =
        criterion.strip_suffix(')').and_then(|it| it.split_once('(')).unwrap_or((criterion, ""));
    let (name, suffix) = suffix(name);
    let how = method.as_deref().unwrap_or(suffix);
    let values = rest;
    let pattern = Pattern { how, is_any_case, values };
    match name {
        "path" if argument.is_empty() => pattern.path(),
        // A URL has the query, which path conditions do not see.
        "url" if how == "beg" && values.iter().all(|it| !it.contains('?')) => pattern.path(),
        "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => pattern.host(),
        "req.fhdr" if !argument.is_empty() => pattern.header(argument),
        "hdr" | "req.hdr" if !argument.is_empty() => pattern.elements(argument),
        "cook" | "req.cook" if !argument.is_empty() => pattern.cookie(argument),
        "urlp" | "url_param" if !argument.is_empty() => pattern.query(argument),
        "src" if how == "str" || how == "ip" => {
            let sources = values.iter().map(|it| Some(("source", source(it)?)));
            sources.collect::<Option<Vec<_>>>().map_or_else(unknown, |all| vec![Test::Any(all)])
        }
        "method" => vec![Test::Any(values.iter().map(|it| ("method", it.clone())).collect())],
        "ssl_fc" => vec![Test::Tls],
        "always_true" => vec![Test::Always],
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => pattern.sni(),
        "http_auth" | "http_auth_group" => vec![Test::Password],
        _ => counter(name, argument, values).unwrap_or_else(unknown),
    }
}

/// `path_beg` is `path` with `-m beg`.
fn suffix(name: &str) -> (&str, &str) {
    let known = ["beg", "end", "reg", "sub", "dir", "dom"];
    name.rsplit_once('_').filter(|(_, it)| known.contains(it)).unwrap_or((name, "str"))
}

/// `sc_http_req_rate(0) gt 20`, `sc0_conn_cur gt 5`, `src_conn_rate gt 9`.
fn counter(name: &str, argument: &str, values: &[String]) -> Option<Vec<Test>> {
    let of_source = name.strip_prefix("src_").map(|it| (it, None, argument));
    let numbered = || {
        let (number, name) = name.strip_prefix("sc")?.split_once('_')?;
        let (first, table) = argument.split_once(',').unwrap_or((argument, ""));
        let number = if number.is_empty() { first } else { number };
        Some((name, Some(number.to_string()), table))
    };
    let (short, track, table) = of_source.or_else(numbered)?;
    let is_known = ["http_req_rate", "conn_rate", "conn_cur"].contains(&short);
    let [how, number] = values else { return None };
    let number: u64 = number.parse().ok()?;
    let above = match how.as_str() {
        "gt" => number,
        "ge" => number.checked_sub(1)?,
        _ => return None,
    };
    let (name, table) = (short.to_string(), table.trim().to_string());
    is_known.then(|| vec![Test::Counter { name, track, table, above }])
}

/// An address or prefix, with its length in bits.
fn source(text: &str) -> Option<String> {
    if let Some((address, mask)) = text.split_once('/')
        && let Ok(mask) = mask.parse::<std::net::Ipv4Addr>()
    {
        let bits = mask.to_bits();
        return (bits.leading_ones() == bits.count_ones())
            .then(|| format!("{address}/{}", bits.count_ones()));
    }
    crate::conditions::prefix(text).is_some().then(|| text.to_string())
}

/// The way in which a value is compared.
struct Pattern<'a> {
    how: &'a str,
    is_any_case: bool,
    values: &'a [String],
}

impl Pattern<'_> {
    fn unknown(&self, of: &str) -> Vec<Test> {
        vec![Test::Unknown(format!("{of} -m {} {}", self.how, self.values.join(" ")))]
    }

    /// A regular expression for one of the values in a text; `None` for other comparisons.
    fn regex(&self) -> Option<String> {
        let case = if self.is_any_case { "(?i)" } else { "" };
        if self.how == "reg" {
            let all = self.values.join("|");
            let all = if self.values.len() == 1 { all } else { format!("(?:{all})") };
            return regex::Regex::new(&all).is_ok().then(|| format!("{case}{all}"));
        }
        let all: Vec<_> = self.values.iter().map(|it| escaped(it)).collect();
        let all = if all.len() == 1 { all[0].clone() } else { format!("(?:{})", all.join("|")) };
        match self.how {
            "str" => Some(format!("{case}^{all}$")),
            "beg" => Some(format!("{case}^{all}")),
            "end" => Some(format!("{case}{all}$")),
            "sub" => Some(format!("{case}{all}")),
            "dir" => Some(format!("{case}(?:^|/){all}(?:/|$)")),
            "dom" => Some(format!("{case}(?:^|[./?:]){all}(?:[./?:]|$)")),
            _ => None,
        }
    }

    fn path(&self) -> Vec<Test> {
        let is_plain = |it: &String| {
            it.starts_with('/')
                && !it.contains(['?', '#', '%', '*'])
                && !it.contains("//")
                && !it.contains("/.")
        };
        let case = if self.is_any_case { "(?i)" } else { "" };
        let all: Vec<_> = match self.how {
            "str" if !self.is_any_case && self.values.iter().all(is_plain) => {
                self.values.iter().map(|it| ("path", it.clone())).collect()
            }
            "beg" if self.values.iter().any(|it| it == "/") => return vec![Test::Always],
            "beg" => {
                let expression = |it: &String| format!("{case}{}", begins_with(it));
                self.values.iter().map(|it| ("path-regex", expression(it))).collect()
            }
            _ => Vec::new(),
        };
        if !all.is_empty() {
            return vec![Test::Any(all)];
        }
        self.regex()
            .map_or_else(|| self.unknown("path"), |it| vec![Test::Any(vec![("path-regex", it)])])
    }

    fn host(&self) -> Vec<Test> {
        let is_plain =
            |it: &String| it.contains('.') && !it.starts_with('.') && !it.contains([':', '*']);
        match self.how {
            "str" if self.values.iter().all(is_plain) => {
                vec![Test::Any(self.values.iter().map(|it| ("host", it.to_lowercase())).collect())]
            }
            "end" if self.values.iter().all(|it| it.starts_with('.') && it.len() > 2) => {
                vec![Test::Any(
                    self.values
                        .iter()
                        .map(|it| ("host", format!("*{}", it.to_lowercase())))
                        .collect(),
                )]
            }
            _ => self.header("Host"),
        }
    }

    /// A header of which HAProxy compares each element between commas.
    fn elements(&self, name: &str) -> Vec<Test> {
        let single =
            ["user-agent", "referer", "cookie", "content-type", "upgrade", "authorization"];
        let is_single = single.contains(&name.to_lowercase().as_str());
        if is_single || !["str", "beg", "end"].contains(&self.how) || self.values.is_empty() {
            return self.header(name);
        }
        let case = if self.is_any_case { "(?i)" } else { "" };
        let all: Vec<_> = self.values.iter().map(|it| escaped(it)).collect();
        let begin = if self.how == "end" { "" } else { r"(?:^|,)\s*" };
        let end = if self.how == "beg" { "" } else { r"\s*(?:,|$)" };
        vec![Test::All("header", format!("{name}: ~{case}{begin}(?:{}){end}", all.join("|")))]
    }

    fn header(&self, name: &str) -> Vec<Test> {
        if self.how == "found" || self.values.is_empty() {
            return vec![Test::All("header", name.to_string())];
        }
        if self.how == "str"
            && !self.is_any_case
            && self.values.len() == 1
            && !self.values[0].starts_with('~')
        {
            return vec![Test::All("header", format!("{name}: {}", self.values[0]))];
        }
        self.regex().map_or_else(
            || self.unknown(name),
            |it| vec![Test::All("header", format!("{name}: ~{it}"))],
        )
    }

    fn cookie(&self, name: &str) -> Vec<Test> {
        let name = escaped(name);
        let value = match self.how {
            "found" => String::new(),
            "str" if self.values.len() == 1 => format!("{}(?:;|$)", escaped(&self.values[0])),
            _ if self.values.is_empty() => String::new(),
            "beg" if self.values.len() == 1 => escaped(&self.values[0]),
            _ => return self.unknown("cookie"),
        };
        vec![Test::All("header", format!("Cookie: ~(?:^|; ?){name}={value}"))]
    }

    fn query(&self, name: &str) -> Vec<Test> {
        if self.how == "found" || self.values.is_empty() {
            return vec![Test::All("query", name.to_string())];
        }
        if self.how == "str"
            && !self.is_any_case
            && self.values.len() == 1
            && !self.values[0].starts_with('~')
        {
            return vec![Test::All("query", format!("{name}={}", self.values[0]))];
        }
        self.regex().map_or_else(
            || self.unknown(name),
            |it| vec![Test::All("query", format!("{name}=~{it}"))],
        )
    }

    fn sni(&self) -> Vec<Test> {
        match self.how {
            "str" => vec![Test::Sni(self.values.iter().map(|it| it.to_lowercase()).collect())],
            "end" if self.values.iter().all(|it| it.starts_with('.')) => {
                vec![Test::Sni(
                    self.values.iter().map(|it| format!("*{}", it.to_lowercase())).collect(),
                )]
            }
            _ => self.unknown("req.ssl_sni"),
        }
    }
}

/// Conditions of a route, and what is not expressed by them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Matched {
    pub(super) options: Options,
    /// Tests that may not be met: requests that meet one take the route of these options before.
    pub(super) except: Vec<Options>,
}

/// The routes of a condition: one for each alternative. `is_tls`: the front door has TLS.
///
/// # Errors
/// The text of a test that cannot be expressed.
pub(super) fn matched(condition: &[Conjunction], is_tls: bool) -> Result<Vec<Matched>, String> {
    let mut all = Vec::new();
    for conjunction in condition {
        all.extend(alternatives(conjunction, is_tls)?);
    }
    Ok(all)
}

fn alternatives(conjunction: &Conjunction, is_tls: bool) -> Result<Vec<Matched>, String> {
    let mut all = vec![Matched::default()];
    for (is_met, tests) in conjunction {
        if !is_met {
            continue;
        }
        let mut next = Vec::new();
        for test in tests {
            for one in &all {
                if let Some(options) = with(&one.options, test, is_tls)? {
                    next.push(Matched { options, except: Vec::new() });
                }
            }
        }
        all = next;
    }
    for (_, tests) in conjunction.iter().filter(|(is_met, _)| !is_met) {
        for test in tests {
            match test {
                Test::Always => return Ok(Vec::new()),
                Test::Tls if is_tls => return Ok(Vec::new()),
                Test::Tls => continue,
                _ => {}
            }
            for one in &mut all {
                if let Some(options) = with(&one.options, test, is_tls)? {
                    one.except.push(options);
                }
            }
        }
    }
    Ok(all)
}

/// The options with one more test; `None` if no request meets both.
fn with(options: &Options, test: &Test, is_tls: bool) -> Result<Option<Options>, String> {
    let mut options = options.clone();
    match test {
        Test::Always => {}
        Test::Tls if is_tls => {}
        Test::Tls => return Ok(None),
        Test::All(key, value) => options.push(key, value.clone()),
        Test::Any(values) => {
            let mut these = Options::default();
            whole_segments(values).into_iter().for_each(|(key, value)| these.push(key, value));
            match meet(&options, &these) {
                Meet::Both(both) => options = both,
                Meet::Never => return Ok(None),
                Meet::Unknown => {
                    return Err("two conditions on the path of one request".to_string());
                }
            }
        }
        Test::Sni(names) => {
            for name in names {
                options.push("host", name.clone());
            }
        }
        Test::Password => return Err("passwords (http_auth)".to_string()),
        Test::Counter { name, .. } => return Err(format!("the counter {name}")),
        Test::Unknown(text) => return Err(format!("the condition {text:?}")),
    }
    Ok(Some(options))
}

/// A path together with all below it (`path /api` and `path_beg /api/`) is a prefix.
fn whole_segments(values: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let has = |key: &str, value: String| values.iter().any(|it| it.0 == key && it.1 == value);
    let below = |path: &str| begins_with(&format!("{path}/"));
    let one = |(key, value): &(&'static str, String)| {
        let is_below = |it: &String| has("path", it.clone()) && below(it) == *value;
        match *key {
            "path" if has("path-regex", below(value)) => Some(("path-prefix", value.clone())),
            "path-regex" if values.iter().any(|(_, path)| is_below(path)) => None,
            key => Some((key, value.clone())),
        }
    };
    values.iter().filter_map(one).collect()
}

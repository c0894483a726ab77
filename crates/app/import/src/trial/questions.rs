//! The questions for a front door, from its routes.
//!
//! Each route is asked with its first host and an example of each of its paths, and with each other
//! host and the first path. Then come the root of every host, and a host that no route names. All
//! questions are safe to repeat.

use std::fmt;

use toml::{Table, Value};

use super::{example, tables, text_of, texts};
use crate::conditions::beginning;

/// Most questions for a front door.
const QUESTIONS_MAX: usize = 60;
/// The host of questions for a front door that names none.
const ANY_HOST: &str = "localhost";
/// A host that no route names.
const OTHER_HOST: &str = "other-host.invalid";
/// Headers that frame a message or end a connection; an example of them may break it.
const NOT_ASKED: [&str; 6] =
    ["connection", "content-length", "expect", "te", "transfer-encoding", "upgrade"];

/// A question for both proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialQuestion {
    /// A request.
    Http(HttpQuestion),
    /// The bytes that a server sends first.
    Greeting,
    /// The certificate of a server with this name, behind a front door that does not end TLS.
    Handshake(String),
}

/// A request without a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpQuestion {
    /// `GET` or `HEAD`.
    pub method: &'static str,
    /// The host, without a port.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
}

impl fmt::Display for TrialQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrialQuestion::Http(HttpQuestion { method, host, target, headers }) => {
                write!(f, "{method} {host}{target}")?;
                headers.iter().try_for_each(|(name, value)| write!(f, " {name}: {value}"))
            }
            TrialQuestion::Greeting => f.write_str("connection"),
            TrialQuestion::Handshake(name) => write!(f, "TLS with {name}"),
        }
    }
}

/// The questions for a front door, at least one. Routes for which there are none are noted in
/// `left_out`.
pub(super) fn of(
    door: &Table,
    names: &dyn Fn(&str) -> Vec<String>,
    left_out: &mut Vec<String>,
) -> Vec<TrialQuestion> {
    if text_of(door, "protocol") != Some("http") {
        return of_tcp(door);
    }
    let name = text_of(door, "name").unwrap_or_default();
    let own = certified(door, names);
    let first = own.first().map_or(ANY_HOST, String::as_str).to_string();
    // The first one is for every address of the front door.
    let (mut all, mut hosts) = (vec![root(&first)], own);
    for (number, route) in tables(door, "route").enumerate() {
        match of_route(route, &first) {
            Ok(asked) => all.extend(asked),
            Err(why) => left_out.push(format!("front door {name}, route {}: {why}", number + 1)),
        }
        hosts.extend(texts(route, "host").into_iter().map(host));
    }
    if tables(door, "route").any(|it| it.contains_key("host")) {
        hosts.push(OTHER_HOST.to_string());
    }
    all.extend(hosts.iter().map(|host| root(host)));
    let mut asked: Vec<TrialQuestion> = Vec::new();
    for question in all.into_iter().map(TrialQuestion::Http) {
        if !asked.contains(&question) {
            asked.push(question);
        }
    }
    if asked.len() > QUESTIONS_MAX {
        let more = asked.len() - QUESTIONS_MAX;
        left_out.push(format!("front door {name}: {more} requests beyond {QUESTIONS_MAX}"));
        asked.truncate(QUESTIONS_MAX);
    }
    asked
}

fn root(host: &str) -> HttpQuestion {
    let (host, target) = (host.to_string(), "/".to_string());
    HttpQuestion { method: "GET", host, target, headers: Vec::new() }
}

/// The server names of a front door for TCP; without one, the greeting.
fn of_tcp(door: &Table) -> Vec<TrialQuestion> {
    let mut names: Vec<String> = Vec::new();
    for name in tables(door, "sni").flat_map(|it| texts(it, "names")).map(host) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return vec![TrialQuestion::Greeting];
    }
    names.truncate(QUESTIONS_MAX - 1);
    names.push(OTHER_HOST.to_string());
    names.into_iter().map(TrialQuestion::Handshake).collect()
}

/// The names of the front door's own certificates.
fn certified(door: &Table, names: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let tls = door.get("tls").and_then(Value::as_table);
    let all = tls.and_then(|it| it.get("certificates")).and_then(Value::as_array);
    let chain = |it: &Value| match it {
        Value::Table(one) => text_of(one, "chain").map(str::to_string),
        one => one.as_str().map(str::to_string),
    };
    let chains = all.into_iter().flatten().filter_map(chain);
    chains.flat_map(|it| names(&it)).map(|it| host(&it)).collect()
}

/// The questions for a route, or the reason why there are none.
fn of_route(route: &Table, any_host: &str) -> Result<Vec<HttpQuestion>, String> {
    let methods = texts(route, "method");
    let method = ["GET", "HEAD"].into_iter().find(|it| methods.is_empty() || methods.contains(it));
    let method = method.ok_or_else(|| format!("{} may change something", methods.join(", ")))?;
    let mut hosts: Vec<_> = texts(route, "host").into_iter().map(host).collect();
    let mut headers = Vec::new();
    for condition in texts(route, "header") {
        let (name, value) = field(condition, ": ")?;
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts = vec![value],
            it if NOT_ASKED.contains(&it) => return Err(format!("it needs the header {name}")),
            _ => headers.push((name, value)),
        }
    }
    let query = texts(route, "query").into_iter().map(|it| field(it, "="));
    let query: Result<Vec<_>, _> =
        query.map(|it| it.map(|(name, value)| format!("{name}={}", encoded(&value)))).collect();
    let query = query?.join("&");
    if hosts.is_empty() {
        hosts.push(any_host.to_string());
    }
    let paths = paths(route)?;
    let first_host = paths.iter().map(|path| (&hosts[0], path));
    let first_path = hosts[1..].iter().map(|host| (host, &paths[0]));
    let question = |(host, path): (&String, &String)| HttpQuestion {
        method,
        host: host.clone(),
        target: match query.as_str() {
            "" => encoded(path),
            query => format!("{}?{query}", encoded(path)),
        },
        headers: headers.clone(),
    };
    Ok(first_host.chain(first_path).map(question).collect())
}

/// An example of each path of a route; for a prefix and for the begin of a path, several.
fn paths(route: &Table) -> Result<Vec<String>, String> {
    let mut paths: Vec<String> = texts(route, "path").into_iter().map(str::to_string).collect();
    for prefix in texts(route, "path-prefix") {
        paths.extend([prefix.to_string(), format!("{}/try", prefix.trim_end_matches('/'))]);
    }
    for expression in texts(route, "path-regex") {
        match beginning(expression) {
            Some(text) if text.starts_with('/') => paths.extend(about(&text)),
            _ => paths.push(example::path(expression).ok_or_else(|| unexemplified(expression))?),
        }
    }
    if paths.is_empty() {
        paths.push("/".to_string());
    }
    Ok(paths)
}

/// Two paths that begin with a text, and the text without its last slash, which programs treat in
/// different ways.
fn about(text: &str) -> Vec<String> {
    let without = text.strip_suffix('/').filter(|it| !it.is_empty()).map(str::to_string);
    [text.to_string(), format!("{text}try")].into_iter().chain(without).collect()
}

/// A host for a condition, which may be a wildcard.
fn host(condition: &str) -> String {
    condition.strip_prefix('*').map_or_else(|| condition.to_string(), |end| format!("www{end}"))
}

/// Name and value for a condition of a header or parameter.
fn field(condition: &str, between: &str) -> Result<(String, String), String> {
    let (name, value) = condition.split_once(between).unwrap_or((condition, "1"));
    let value = match value.strip_prefix('~') {
        Some(expression) => example::of(expression).ok_or_else(|| unexemplified(expression))?,
        None => value.to_string(),
    };
    Ok((name.to_string(), value))
}

fn unexemplified(expression: &str) -> String {
    format!("no text was found that the expression {expression:?} matches")
}

/// A path or value as a target may have it.
fn encoded(text: &str) -> String {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>`{}|\\^&+".contains(&byte);
    let one = |byte: u8| match fits(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

//! Actions of `http-request` and `http-response` rules.

use super::words::Line;
use crate::model::{Options, Route};
use crate::report::Report;

/// The effect of a rule.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// The request is answered, or its route changes it.
    Route(Box<Route>),
    /// A header that `forwarded` of the front door sends.
    Forwarded(&'static str),
    /// Browsers use https only.
    Hsts(Options),
    /// http is redirected to https.
    ToHttps,
    /// Passwords are asked for.
    Password,
    /// Nothing to translate; the result is in the report.
    Nothing,
}

/// The result of rules about the log.
const LOGGED: &str = "all lines of the access log have the fields in access-fields of [log]";

/// The action of a rule of requests: its words before the condition.
pub(super) fn request(line: &Line, words: &[String], report: &mut Report) -> Action {
    let number = line.number;
    let Some(action) = words.first() else { return Action::Nothing };
    let mut route = Route::default();
    match action.as_str() {
        "redirect" => return redirect(number, &words[1..], report),
        "deny" | "tarpit" | "reject" | "silent-drop" => {
            let status = value(words, "deny_status").or_else(|| value(words, "status"));
            let default = if action == "tarpit" { 500 } else { 403 };
            route.answer.set("status", status.and_then(|it| it.parse().ok()).unwrap_or(default));
            if action != "deny" {
                report.changes(number, "the request is answered at once");
            }
        }
        "return" => answer(number, words, &mut route, report),
        "auth" => return Action::Password,
        "set-header" | "add-header" | "del-header" => return header(number, words, true, report),
        "replace-path" | "replace-pathq" | "replace-uri" => {
            let (pattern, to) =
                (words.get(1).map_or("", String::as_str), words.get(2).map_or("", String::as_str));
            let (Some(to), true) = (template(to), regex::Regex::new(pattern).is_ok()) else {
                report.lost(number, "a route's rewrite has { regex = ..., to = ... }");
                return Action::Nothing;
            };
            // HAProxy replaces the whole path.
            let begin = if pattern.starts_with('^') { "" } else { "^.*?" };
            let end =
                if pattern.ends_with('$') || pattern.ends_with(".*)") || pattern.ends_with(".*") {
                    ""
                } else {
                    ".*$"
                };
            route.rewrite.set("regex", format!("{begin}{pattern}{end}")).set("to", to);
        }
        "set-path" => {
            let to = words.get(1).map_or("", String::as_str);
            if let Some(before) = to.strip_suffix("%[path]").filter(|it| !it.contains('%')) {
                route.rewrite.set("regex", "^").set("to", before);
            } else if to.contains('%') {
                report.lost(number, "a route's rewrite has { regex = ..., to = ... }");
                return Action::Nothing;
            } else {
                route.rewrite.set("regex", "^.*$").set("to", to);
            }
        }
        "track-sc0" | "track-sc1" | "track-sc2" => {
            if words.get(1).is_some_and(|it| it != "src") {
                report.lost(number, "[[session.limit]] counts by source or by header");
            } else {
                report.carried(number);
            }
            return Action::Nothing;
        }
        "capture" | "set-log-level" | "wait-for-body" | "normalize-uri" | "disable-l7-retry" => {
            let how = match action.as_str() {
                "disable-l7-retry" => "only idempotent requests are tried again",
                "wait-for-body" => "a body is sent to the backend as it arrives",
                "normalize-uri" => "conditions compare normal forms of paths; see docs/routing.md",
                _ => LOGGED,
            };
            report.changes(number, how);
            return Action::Nothing;
        }
        "set-nice" | "wait-for-handshake" => return Action::Nothing,
        action => {
            report.lost(number, format!("a route has no {action}"));
            return Action::Nothing;
        }
    }
    report.carried(number);
    Action::Route(Box::new(route))
}

/// The action of a rule of responses.
pub(super) fn response(line: &Line, words: &[String], report: &mut Report) -> Action {
    let number = line.number;
    match words.first().map_or("", String::as_str) {
        "set-header" | "add-header" | "del-header" => header(number, words, false, report),
        "capture" | "set-log-level" => {
            report.changes(number, LOGGED);
            Action::Nothing
        }
        "set-nice" => Action::Nothing,
        action => {
            report
                .lost(number, format!("response-headers has set, add and remove, and no {action}"));
            Action::Nothing
        }
    }
}

/// The word after `key`.
fn value<'a>(words: &'a [String], key: &str) -> Option<&'a str> {
    let at = words.iter().position(|it| it == key)?;
    words.get(at + 1).map(String::as_str)
}

fn redirect(number: usize, words: &[String], report: &mut Report) -> Action {
    let mut route = Route::default();
    let status: i64 = value(words, "code").and_then(|it| it.parse().ok()).unwrap_or(302);
    let has = |word: &str| words.iter().any(|it| it == word);
    let query = if has("drop-query") { "" } else { "{query}" };
    let to = if let Some(place) = value(words, "location") {
        let known = [
            ("%[capture.req.uri]", "{path}{query}"),
            ("%[url]", "{path}{query}"),
            ("%[pathq]", "{path}{query}"),
        ];
        let more = [
            ("%[path]", "{path}"),
            ("%[req.hdr(Host)]", "{host}"),
            ("%[hdr(host)]", "{host}"),
            ("%[req.hdr(host)]", "{host}"),
        ];
        known.iter().chain(&more).fold(place.to_string(), |text, (from, to)| text.replace(from, to))
    } else if let Some(prefix) = value(words, "prefix") {
        format!("{}{{path}}{query}", prefix.trim_end_matches('/'))
    } else if let Some(scheme) = value(words, "scheme") {
        if scheme == "https" && !has("drop-query") {
            report.carried(number);
            if ![301, 308].contains(&status) && has("code") {
                report.changes(number, "redirect = \"https\" answers 301 and 308");
            }
            return Action::ToHttps;
        }
        format!("{scheme}://{{host}}{{path}}{query}")
    } else {
        report.lost(number, "a route's redirect has { to = ..., status = ... }");
        return Action::Nothing;
    };
    if to.contains("%[") {
        report.lost(number, "a redirect has {scheme}, {host}, {path} and {query}");
        return Action::Nothing;
    }
    route.redirect.set("to", to).set("status", status);
    if let Some(cookie) = value(words, "set-cookie") {
        route.response.push("add", format!("Set-Cookie: {cookie}; path=/;"));
    }
    for word in ["clear-cookie", "append-slash", "ignore-empty"] {
        if has(word) {
            report.lost(number, format!("a redirect has no {word}"));
        }
    }
    report.carried(number);
    Action::Route(Box::new(route))
}

fn answer(number: usize, words: &[String], route: &mut Route, report: &mut Report) {
    let status = value(words, "status").and_then(|it| it.parse().ok()).unwrap_or(200_i64);
    route.answer.set("status", status);
    for key in ["string", "lf-string"] {
        if let Some(text) = value(words, key) {
            if key == "lf-string" && text.contains("%[") {
                report.changes(number, "the body has no variables");
            }
            route.answer.set("body", text);
        }
    }
    for key in ["file", "lf-file", "errorfile"] {
        if let Some(file) = value(words, key) {
            route.answer.set("file", file);
            if key == "errorfile" {
                report.changes(number, "cut the head from the file");
            }
        }
    }
    if let Some(kind) = value(words, "content-type") {
        route.answer.set("content-type", kind);
    }
    for header in words.windows(3).filter(|it| it[0] == "hdr") {
        route.response.push("set", format!("{}: {}", header[1], header[2]));
    }
}

/// Headers that the proxy writes itself.
const OWN: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "forwarded",
];

fn header(number: usize, words: &[String], is_request: bool, report: &mut Report) -> Action {
    let (action, name) = (words[0].as_str(), words.get(1).map_or("", String::as_str));
    let text = words.get(2).map_or("", String::as_str);
    let lower = name.to_lowercase();
    let mut route = Route::default();
    report.carried(number);
    if is_request {
        let known = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip"];
        if let Some(known) = known.into_iter().find(|it| *it == lower) {
            // The front door drops those of clients, and writes its own.
            return if action == "del-header" { Action::Nothing } else { Action::Forwarded(known) };
        }
        if lower == "host" && action != "del-header" && !text.contains("%[") {
            route.rewrite.set("host", text);
            return Action::Route(Box::new(route));
        }
        if lower.starts_with("x-forwarded-") {
            report.changes(
                number,
                "X-Forwarded-Proto and X-Forwarded-Host have the origin of a request",
            );
            return Action::Nothing;
        }
        if text.contains("[ssl_c_s_dn") {
            report.changes(
                number,
                "the header is X-Forwarded-Client-Subject, with the whole subject",
            );
            return Action::Nothing;
        }
    }
    if lower == "strict-transport-security" && !is_request && action != "del-header" {
        return hsts(text).map_or(Action::Nothing, Action::Hsts);
    }
    if OWN.contains(&lower.as_str()) || lower == "host" {
        report.changes(number, format!("the proxy writes {name} itself"));
        return Action::Nothing;
    }
    if is_request && text == "%[src]" {
        report.changes(number, "the header is X-Forwarded-For");
        return Action::Forwarded("x-forwarded-for");
    }
    if text.contains("%[") {
        report.lost(number, "headers have no variables; X-Forwarded-*, X-Real-IP and traceparent have the common ones");
        return Action::Nothing;
    }
    let change = if is_request { &mut route.request } else { &mut route.response };
    match action {
        "set-header" => change.push("set", format!("{name}: {text}")),
        "add-header" => change.push("add", format!("{name}: {text}")),
        _ => change.push("remove", name),
    }
    Action::Route(Box::new(route))
}

/// `max-age=31536000; includeSubDomains; preload`.
pub(crate) fn hsts(text: &str) -> Option<Options> {
    let mut hsts = Options::default();
    for part in text.split(';').map(str::trim) {
        match part.split_once('=').map_or((part, ""), |(key, value)| (key, value)) {
            ("max-age", seconds) => {
                let seconds: u64 = seconds.trim_matches('"').parse().ok()?;
                hsts.set(
                    "max-age",
                    crate::model::duration(seconds.min(3650 * 86_400).checked_mul(1000)?),
                );
            }
            (key, _) if key.eq_ignore_ascii_case("includesubdomains") => {
                hsts.set("subdomains", true);
            }
            ("preload", _) => {
                hsts.set("preload", true);
            }
            _ => {}
        }
    }
    hsts.has("max-age").then_some(hsts)
}

/// `\1` of HAProxy as `${1}`; `None` if it has variables.
fn template(text: &str) -> Option<String> {
    if text.contains("%[") {
        return None;
    }
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        match (it, rest.peek()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                out.push_str(&format!("${{{digit}}}"));
                rest.next();
            }
            ('$', _) => out.push_str("$$"),
            _ => out.push(it),
        }
    }
    Some(out)
}

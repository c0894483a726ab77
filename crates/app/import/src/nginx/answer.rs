//! `return`, `rewrite` and `if`: answers, redirects and rewritten paths.

use super::innermost;
use super::location::{Building, SERVED};
use super::syntax::Directive;
use crate::model::{Options, Route};

impl Building<'_> {
    /// `return`, in the block `inner` of a location.
    pub(super) fn returns(&mut self, one: &Directive, inner: &[Directive], route: &mut Route) {
        let (status, text) = match one.arg(0).parse::<i64>() {
            Ok(status) => (status, one.arg(1)),
            Err(_) => (302, one.arg(0)),
        };
        if [301, 302, 303, 307, 308].contains(&status) {
            if let Some(to) = place(text) {
                let to = self.located(inner, to);
                route.redirect.set("to", to).set("status", status);
            } else {
                self.report.lost(one.number, "a redirect has {scheme}, {host}, {path} and {query}");
            }
            return;
        }
        if status == 444 {
            self.report
                .changes(one.number, "the request is answered 403; nginx closes the connection");
            route.answer.set("status", 403);
            return;
        }
        route.answer.set("status", status);
        if !text.is_empty() {
            if text.contains('$') {
                self.report.changes(one.number, "the body has no variables");
            }
            route.answer.set("body", text);
            let scopes: [&[Directive]; 3] = [inner, &self.server.block, self.block];
            if let Some(kind) = innermost(&scopes, "default_type").first() {
                route.answer.set("content-type", kind.arg(0));
            }
        }
    }

    /// `rewrite` of a server.
    pub(super) fn rewrite(&mut self, one: &Directive, hosts: &Options) {
        let mut conditions = hosts.clone();
        conditions.push("path-regex", one.arg(0));
        let mut route = Route::of(&conditions);
        self.rewrite_in(one, &[], &mut route);
        self.headers(&[], &mut route);
        if route.redirect.is_empty() {
            self.report.changes(
                one.number,
                "the rewritten path takes no further location: a request takes one route",
            );
        }
        self.door.routes.push(route);
    }

    /// `rewrite`, in the block `inner` of a location.
    pub(super) fn rewrite_in(&mut self, one: &Directive, inner: &[Directive], route: &mut Route) {
        let (pattern, to) = (one.arg(0), one.arg(1));
        let Some(to) = groups(to).filter(|_| regex::Regex::new(pattern).is_ok()) else {
            self.report.lost(one.number, "a route's rewrite has { regex = ..., to = ... }");
            return;
        };
        // nginx replaces the whole path.
        let begin = if pattern.starts_with('^') { "" } else { "^.*?" };
        let end = if pattern.ends_with('$') || pattern.ends_with(".*)") || pattern.ends_with(".*") {
            ""
        } else {
            ".*$"
        };
        let full = format!("{begin}{pattern}{end}");
        let is_redirect = ["redirect", "permanent"].contains(&one.arg(2)) || to.starts_with("http");
        let status = if one.arg(2) == "permanent" { 301 } else { 302 };
        if one.arg(2) == "last" || one.args.len() == 2 && !is_redirect {
            self.report.changes(
                one.number,
                "the rewritten path takes no further location, also none that refuses it",
            );
        }
        if is_redirect {
            if to.contains("${") {
                let (origin, path) = split(&to);
                if !path.starts_with('/') && !has_slash(pattern) {
                    self.report.lost(one.number, "a redirect's path begins with `/`");
                    return;
                }
                let place = self.located(inner, format!("{origin}{{path}}{{query}}"));
                route.rewrite.set("regex", full).set("to", path);
                route.redirect.set("to", place).set("status", status);
            } else {
                let to = self.located(inner, format!("{}{{query}}", to.trim_end_matches('?')));
                route.redirect.set("to", to).set("status", status);
            }
            let paths = route.options.get("path-regex").and_then(toml::Value::as_array);
            if !paths.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(pattern))) {
                self.report.changes(one.number, "the redirect is for the whole location");
            }
        } else {
            route.rewrite.set("regex", full).set("to", to.trim_end_matches('?'));
        }
    }

    /// `if` with an answer: a route of its own.
    pub(super) fn condition(&mut self, one: &Directive, inner: &[Directive], conditions: &Options) {
        let text = one.args.join(" ");
        let text = text.strip_prefix('(').unwrap_or(&text);
        let text = text.strip_suffix(')').unwrap_or(text).trim();
        let words: Vec<&str> = text.splitn(3, ' ').collect();
        let returns = one.block.iter().find(|it| it.name == "return");
        let mut conditions = conditions.clone();
        let is_tls = self.door.tls.is_some();
        let is_known = match words[..] {
            ["$scheme", "=", scheme] if (scheme == "https") != is_tls => return,
            ["$scheme", "!=", scheme] if (scheme == "https") == is_tls => return,
            ["$scheme", "=" | "!=", _] => true,
            ["$host" | "$http_host", "=", host] if host.contains('.') => {
                let is_free = !conditions.has("host");
                let is_same =
                    conditions.get("host").is_some_and(|it| it.to_string().contains(host));
                if is_same {
                    conditions.set("host", toml::Value::Array(vec![host.into()]));
                } else if is_free {
                    conditions.push("host", host);
                }
                is_free || is_same
            }
            ["$request_method", "=", method] => {
                conditions.push("method", method);
                true
            }
            ["$request_method", "~", methods] => {
                let all = methods.trim_matches(['^', '$', '(', ')']);
                all.split('|').for_each(|it| conditions.push("method", it));
                true
            }
            [variable, how @ ("=" | "~" | "~*"), value] if variable.starts_with("$http_") => {
                let header = variable.trim_start_matches("$http_").replace('_', "-");
                let value = match how {
                    "=" => format!("{header}: {value}"),
                    "~" => format!("{header}: ~{value}"),
                    _ => format!("{header}: ~(?i){value}"),
                };
                conditions.push("header", value);
                true
            }
            [variable, "=", value] if variable.starts_with("$arg_") => {
                conditions
                    .push("query", format!("{}={value}", variable.trim_start_matches("$arg_")));
                true
            }
            _ => false,
        };
        let (true, Some(returns)) = (is_known, returns) else {
            let refuses = returns.is_some_and(|it| it.arg(0).starts_with(['4', '5']));
            let served = if refuses { format!(": {SERVED}") } else { String::new() };
            let nearest = "a route has conditions on host, path, method, headers, query and source";
            self.report.lost(one.number, format!("{nearest}{served}"));
            return;
        };
        let mut route = Route::of(&conditions);
        self.returns(returns, inner, &mut route);
        self.headers(&[inner], &mut route);
        self.door.routes.push(route);
    }
}

/// `$request_uri` and others in a place of a redirect; `None` if it has other variables.
fn place(text: &str) -> Option<String> {
    let known = [
        ("$request_uri", "{path}{query}"),
        ("$uri$is_args$args", "{path}{query}"),
        ("$uri", "{path}"),
        ("$scheme", "{scheme}"),
        ("$http_host", "{host}"),
        ("$host", "{host}"),
        ("$server_name", "{host}"),
        ("$is_args$args", "{query}"),
    ];
    let to = known.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
    (!to.contains('$') && !to.is_empty()).then_some(to)
}

/// The origin and the path of a place with groups. `https://h${1}`: the group has the path.
fn split(to: &str) -> (String, &str) {
    let Some((scheme, rest)) = to.split_once("://") else { return (String::new(), to) };
    let (host, path) = rest.split_at(rest.find(['/', '$']).unwrap_or(rest.len()));
    (format!("{scheme}://{host}"), path)
}

/// True for a pattern of which the first group begins with the path's slash.
fn has_slash(pattern: &str) -> bool {
    ["^(/", "^(.*)", "(.*)", "(/"].iter().any(|it| pattern.starts_with(it))
}

/// `$1` as `${1}`; `None` if there are other variables.
fn groups(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        if it != '$' {
            out.push(it);
            continue;
        }
        let digit = rest.next().filter(char::is_ascii_digit)?;
        out.push_str(&format!("${{{digit}}}"));
    }
    Some(out)
}

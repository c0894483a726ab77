//! `proxy_pass` and `grpc_pass` with what goes to backends: pool, path, headers, retries.

use super::http::backend_tls;
use super::location::Building;
use super::syntax::{Directive, milliseconds};
use super::{innermost, target};
use crate::conditions::begins_with;
use crate::model::{Options, Route, duration};
use crate::report::Report;

impl Building<'_> {
    /// `proxy_pass` and `grpc_pass`: the pool, the path and the headers. `path`: the location's.
    pub(super) fn pass(
        &mut self,
        pass: &Directive,
        scopes: &[&[Directive]],
        route: &mut Route,
        path: Option<&str>,
    ) {
        let (scheme, host, uri) = parts(pass.arg(0));
        if let Some(variable) = host.strip_prefix('$') {
            self.split(pass, variable, route);
        } else if host.contains('$') {
            self.report.lost(pass.number, "a pool is named; a route for each value");
            route.answer.set("status", 503);
            return;
        } else {
            let pool = target(
                self.config,
                host,
                if scheme == "https" || scheme == "grpcs" { 443 } else { 80 },
            );
            route.options.set("pool", pool);
        }
        let pools: Vec<String> = std::iter::once(&route.options)
            .chain(&route.pools)
            .filter_map(|it| it.text("pool").map(str::to_string))
            .collect();
        let time =
            |name: &str| innermost(scopes, name).first().and_then(|it| milliseconds(it.arg(0)));
        for pool in self.config.pools.iter_mut().filter(|it| pools.contains(&it.name)) {
            if scheme == "https" || scheme == "grpcs" {
                pool.tls = Some(backend_tls(scopes));
            }
            if pass.name == "grpc_pass" {
                pool.options.set("upstream", "http2");
            }
            if let Some(time) = time("proxy_connect_timeout") {
                pool.options.set("connect-timeout", duration(time.clamp(10, 600_000)));
            }
            retries(pool, scopes, self.report);
        }
        if let (Some(path), Some(uri)) = (path, uri) {
            if uri.contains('$') {
                self.report.changes(pass.number, "the path of the request stays");
            } else {
                replace_path(route, path, uri);
            }
        }
        let mut has_host = pass.name == "grpc_pass";
        for line in innermost(scopes, "proxy_set_header") {
            has_host |= line.arg(0).eq_ignore_ascii_case("host");
            self.set_header(line, route);
        }
        if !has_host {
            self.report.changes(
                pass.number,
                "backends receive the client's Host; nginx sends the name in proxy_pass",
            );
        }
    }

    pub(super) fn set_header(&mut self, line: &Directive, route: &mut Route) {
        let (header, value) = (line.arg(0), line.arg(1));
        let lower = header.to_lowercase();
        let known = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip"];
        if let Some(known) = known.into_iter().find(|it| *it == lower) {
            if !value.is_empty() {
                self.forwarded.push(known);
            }
        } else if ["upgrade", "connection", "te", "content-length", "transfer-encoding"]
            .contains(&lower.as_str())
        {
            // The proxy writes them itself, for WebSocket too.
        } else if lower == "host" {
            if !value.contains('$') {
                route.rewrite.set("host", value);
            }
        } else if value.is_empty() {
            route.request.push("remove", header);
        } else if value.contains('$') {
            self.report.lost(line.number, "headers have no variables; X-Forwarded-*, X-Real-IP and traceparent have the common ones");
        } else if lower.starts_with("x-forwarded-") {
            self.report.changes(
                line.number,
                "X-Forwarded-Proto and X-Forwarded-Host have the origin of a request",
            );
        } else {
            route.request.push("set", format!("{header}: {value}"));
        }
    }

    /// Pools by weight (`split_clients`).
    pub(super) fn split(&mut self, pass: &Directive, variable: &str, route: &mut Route) {
        let is_split = |it: &&Directive| {
            it.name == "split_clients" && it.arg(1).strip_prefix('$') == Some(variable)
        };
        let Some(split) = self.block.iter().find(is_split) else {
            self.report.lost(pass.number, "a pool is named; a route for each value");
            route.answer.set("status", 503);
            return;
        };
        // In hundredths of a per cent, so that weights are whole numbers.
        let share = |text: &str| {
            text.strip_suffix('%')?.parse::<f64>().ok().map(|it| (it * 100.0).round() as i64)
        };
        let sum: i64 = split.block.iter().filter_map(|it| share(&it.name)).sum();
        for entry in &split.block {
            let pool = target(self.config, entry.arg(0), 80);
            let mut one = Options::default();
            one.set("pool", pool)
                .set("weight", share(&entry.name).unwrap_or((10_000 - sum).max(0)));
            route.pools.push(one);
        }
        if split.arg(0).contains("remote_addr") {
            route.options.set("sticky", "source");
        } else if let Some(cookie) = split.arg(0).strip_prefix("$cookie_") {
            route.options.set("sticky", format!("cookie:{cookie}"));
        } else if !split.arg(0).contains("request_id") {
            self.report.changes(split.number, "the pool is random for each request");
        }
    }
}

pub(super) fn retries(pool: &mut crate::model::Pool, scopes: &[&[Directive]], report: &mut Report) {
    if let Some(line) = innermost(scopes, "proxy_next_upstream").first() {
        let mut statuses = Vec::new();
        for word in &line.args {
            match word.as_str() {
                "off" => {
                    pool.options.set("retries", 0);
                }
                "error" => {
                    pool.options.push("retry-on", "connect");
                    pool.options.push("retry-on", "reset");
                }
                "timeout" | "invalid_header" => {
                    report.changes(
                        line.number,
                        "time-outs of a response are not retried: the backend may be at work on it",
                    );
                }
                "non_idempotent" => {
                    report.changes(line.number, "only idempotent requests are tried again")
                }
                word => match word.strip_prefix("http_").filter(|it| it.parse::<u16>().is_ok()) {
                    Some(status) => statuses.push(status.to_string()),
                    None => {
                        report.lost(line.number, format!("{word} is no failure that is retried"))
                    }
                },
            }
        }
        statuses.into_iter().for_each(|it| pool.options.push("retry-on", it));
    }
    if let Some(tries) = innermost(scopes, "proxy_next_upstream_tries")
        .first()
        .and_then(|it| it.arg(0).parse::<i64>().ok())
    {
        pool.options.set("retries", if tries == 0 { 10 } else { (tries - 1).clamp(0, 10) });
    }
}

/// Scheme, host and URI of the argument of `proxy_pass`.
pub(super) fn parts(text: &str) -> (&str, &str, Option<&str>) {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    if rest.starts_with("unix:") {
        return (scheme, rest, None);
    }
    match rest.find('/') {
        Some(at) => (scheme, &rest[..at], Some(&rest[at..])),
        None => (scheme, rest, None),
    }
}

/// The location's path is replaced by the URI of `proxy_pass`.
pub(super) fn replace_path(route: &mut Route, path: &str, uri: &str) {
    if path == uri {
        return;
    }
    if route.options.has("path") {
        route.rewrite.set("regex", "^.*$").set("to", uri);
    } else if route.options.has("path-prefix") && uri.ends_with('/') {
        let prefix = uri.trim_end_matches('/');
        route.rewrite.set("prefix", if prefix.is_empty() { "/" } else { prefix });
    } else {
        route.rewrite.set("regex", begins_with(path)).set("to", uri);
    }
}

//! Servers and their locations: routes.

use super::pass::parts;
use super::syntax::{Directive, milliseconds, size};
use super::{innermost, target};
use crate::conditions::begins_with;
use crate::model::{Config, Door, Options, Route, duration, rate};
use crate::report::Report;

pub(super) struct Building<'a> {
    pub(super) block: &'a [Directive],
    pub(super) server: &'a Directive,
    /// Around the location that is translated, the innermost first.
    pub(super) enclosing: Vec<&'a [Directive]>,
    pub(super) config: &'a mut Config,
    pub(super) report: &'a mut Report,
    pub(super) forwarded: &'a mut Vec<&'static str>,
    pub(super) door: &'a mut Door,
}

impl<'a> Building<'a> {
    /// A location's blocks, from the innermost to that of `http`.
    fn scopes(&self, inner: &'a [Directive]) -> Vec<&'a [Directive]> {
        [self.locations(inner), vec![&self.server.block, self.block]].concat()
    }

    /// The block of a location, and those of locations around it.
    fn locations(&self, inner: &'a [Directive]) -> Vec<&'a [Directive]> {
        [&[inner], &self.enclosing[..]].concat()
    }

    /// Adds the routes of a server. Its names are the conditions `hosts`.
    pub(super) fn routes(&mut self, hosts: &Options) {
        let server = self.server;
        for one in server.block.iter().filter(|it| it.name == "if") {
            self.condition(one, &[], hosts);
        }
        let mut is_answered = false;
        for one in &server.block {
            match one.name.as_str() {
                "return" => {
                    let mut route = Route::of(hosts);
                    self.returns(one, &[], &mut route);
                    self.headers(&[], &mut route);
                    self.door.routes.push(route);
                    is_answered = true;
                }
                "rewrite" => self.rewrite(one, hosts),
                _ => {}
            }
        }
        for one in asking(&[&server.block, self.block]) {
            self.door.without_passwords(one.number, self.report);
        }
        if is_answered {
            return;
        }
        self.slashes(hosts);
        let mut has_root = false;
        for location in ordered(&server.block) {
            self.regular_expressions(location, &server.block);
            has_root |= location.args == ["/"];
            self.location(location, hosts);
        }
        if !has_root {
            // nginx serves files there.
            let mut route = Route::of(hosts);
            let is_proxy = innermost(&[&server.block], "proxy_pass").first().copied();
            match is_proxy {
                Some(pass) => self.pass(pass, &[&server.block, self.block], &mut route, None),
                None => {
                    route.answer.set("status", 404);
                }
            }
            self.headers(&[], &mut route);
            self.door.routes.push(route);
        }
    }

    /// Reports regular expressions that nginx compares before a plain prefix within one of `^~`.
    fn regular_expressions(&mut self, location: &Directive, block: &[Directive]) {
        let has_some = block.iter().any(|it| it.name == "location" && it.arg(0).starts_with('~'));
        if has_some && is_within(location, block) {
            let how = "its requests skip the regular expressions, which nginx compares before it";
            self.report.changes(location.number, how);
        }
    }

    /// `location`: one route, or one for allowed clients and one for others.
    fn location(&mut self, location: &'a Directive, hosts: &Options) {
        let inner: &'a [Directive] = &location.block;
        if location.arg(0).starts_with('@') {
            self.report.lost(location.number, "routes are not named");
            return;
        }
        let mut conditions = hosts.clone();
        let path = self.path(location, &mut conditions);
        if inner.iter().any(|it| it.name == "internal") {
            let mut none = Route::of(&conditions);
            none.answer.set("status", 404);
            self.headers(&[inner], &mut none);
            self.door.routes.push(none);
            return;
        }
        for nested in ordered(inner) {
            let how = "of the outer location it inherits passwords, `allow`, `deny` and options of the proxy, but not its headers, bandwidth and size of a body";
            self.report.changes(nested.number, how);
            self.enclosing.insert(0, inner);
            self.location(nested, hosts);
            self.enclosing.remove(0);
        }
        for one in inner.iter().filter(|it| it.name == "if") {
            self.condition(one, inner, &conditions);
        }
        let mut route = Route::of(&conditions);
        for one in inner {
            match one.name.as_str() {
                "return" => self.returns(one, inner, &mut route),
                "rewrite" => self.rewrite_in(one, inner, &mut route),
                _ => {}
            }
        }
        for one in asking(&self.locations(inner)) {
            self.report.lost(one.number, "equipoise asks for no passwords: the route answers 403 until the application asks for them");
            route.answer.set("status", 403);
        }
        let scopes = self.scopes(inner);
        if !route.is_terminal() {
            match inner.iter().find(|it| it.name == "proxy_pass" || it.name == "grpc_pass") {
                Some(pass) => self.pass(pass, &scopes, &mut route, Some(&path)),
                None => {
                    let is_closed = rules(&scopes)
                        .first()
                        .is_some_and(|it| *it == ("deny".to_string(), "all".to_string()));
                    if !is_closed
                        && !inner.iter().any(|it| {
                            it.name == "root" || it.name == "alias" || it.name.ends_with("_pass")
                        })
                    {
                        self.report.lost(
                            location.number,
                            "equipoise serves no files: keep a web server for them, as a backend",
                        );
                    }
                    route.answer.set("status", if is_closed { 403 } else { 404 });
                }
            }
        }
        self.options(inner, &mut route);
        self.headers(&[inner], &mut route);
        self.allow(inner, route);
    }

    /// Sets the condition of a location. Returns its path.
    fn path(&self, location: &Directive, conditions: &mut Options) -> String {
        let (how, path) = match location.arg(0) {
            how @ ("=" | "^~" | "~" | "~*") => (how, location.arg(1)),
            path => ("", path),
        };
        match how {
            "=" => conditions.push("path", path),
            "~" => conditions.push("path-regex", path),
            "~*" => conditions.push("path-regex", format!("(?i){path}")),
            _ if path == "/" => {}
            // The path without the slash takes an earlier route.
            _ => match path.strip_suffix('/').filter(|it| self.has_exact(it, conditions)) {
                Some(prefix) => conditions.push("path-prefix", prefix),
                None => conditions.push("path-regex", begins_with(path)),
            },
        }
        path.to_string()
    }

    /// Adds the route as `allow`, `deny` and `limit_except` permit: the first that fits decides.
    fn allow(&mut self, inner: &'a [Directive], mut route: Route) {
        let refused = self.refused(inner, &route);
        if let Some(limit) = inner.iter().find(|it| it.name == "limit_except") {
            let denies = limit.block.iter().any(|it| it.name == "deny" && it.arg(0) == "all");
            let passwords = asking(&[&limit.block]);
            for one in &passwords {
                self.report.lost(one.number, "equipoise asks for no passwords: the other methods are answered 403 until the application asks for them");
            }
            let is_known = !passwords.is_empty() || denies && limit.block.len() == 1;
            if !is_known {
                self.report.lost(limit.number, format!("methods of a route: {SERVED}"));
            } else {
                limit.args.iter().for_each(|it| route.options.push("method", it.clone()));
                if limit.has("GET") && !limit.has("HEAD") {
                    route.options.push("method", "HEAD");
                }
                self.report.carried(limit.number);
                self.within(inner, route);
                self.door.routes.push(refused);
                return;
            }
        }
        self.within(inner, route);
    }

    /// `allow` and `deny` of the innermost block that has some.
    fn within(&mut self, inner: &'a [Directive], route: Route) {
        let scopes = self.scopes(inner);
        let refused = self.refused(inner, &route);
        for (name, prefix) in rules(&scopes) {
            let mut one = if name == "allow" { route.clone() } else { refused.clone() };
            match prefix.as_str() {
                "all" => {
                    self.door.routes.push(one);
                    return;
                }
                "unix:" => continue,
                prefix => one.options.push("source", prefix),
            }
            // Neighbours of one kind are one route, with its limits.
            let mut like = one.clone();
            like.options.remove("source");
            if let Some(last) = self.door.routes.last_mut() {
                let mut other = last.clone();
                other.options.remove("source");
                if other == like && last.options.has("source") {
                    last.options.push("source", prefix);
                    continue;
                }
            }
            self.door.routes.push(one);
        }
        self.door.routes.push(route);
    }

    /// The refusal of the requests of a route.
    fn refused(&mut self, inner: &[Directive], route: &Route) -> Route {
        let mut refused = Route::of(&route.options);
        refused.options.remove("pool");
        refused.answer.set("status", 403);
        self.headers(&[inner], &mut refused);
        refused
    }

    /// Options of a location that a route has, too.
    fn options(&mut self, inner: &'a [Directive], route: &mut Route) {
        let scopes = self.scopes(inner);
        let read = ["proxy_read_timeout", "grpc_read_timeout"]
            .iter()
            .find_map(|it| innermost(&scopes, it).first().copied());
        if let Some(time) = read.and_then(|it| milliseconds(it.arg(0))) {
            route.options.set("response-timeout", duration(time.clamp(10, 86_400_000)));
            let upgrades = innermost(&scopes, "proxy_set_header")
                .iter()
                .any(|it| it.arg(0).eq_ignore_ascii_case("upgrade"));
            if upgrades {
                route.options.set("tunnel-timeout", duration(time.clamp(100, 86_400_000)));
            }
        }
        for one in inner {
            match one.name.as_str() {
                "client_max_body_size" => {
                    let largest = || Some("1024TiB".to_string());
                    if let Some(size) = size(one.arg(0))
                        .and_then(|it| if it.starts_with('0') { largest() } else { Some(it) })
                    {
                        route.options.set("body-max", size);
                    }
                }
                "limit_rate" => {
                    if let Some(size) = size(one.arg(0)) {
                        route.options.set("bandwidth", format!("{}/s", size.replace("iB", "B")));
                        self.report.changes(one.number, "KB and MB are 1000 and 1000000 bytes");
                    }
                }
                "mirror" if one.arg(0) != "off" => self.mirror(one, route),
                _ => {}
            }
        }
        for one in innermost(&scopes, "limit_req") {
            if let Some(limit) = self.limit(one) {
                route.limits.push(limit);
            }
        }
        for one in innermost(&scopes, "limit_conn") {
            if let Ok(number) = one.arg(1).parse::<i64>() {
                let mut limit = Options::default();
                limit.set("concurrency", number.max(1));
                route.limits.push(limit);
                self.report
                    .changes(one.number, "the limit is of requests in flight of a client address");
            }
        }
    }

    /// `limit_req`, with its zone.
    fn limit(&mut self, one: &Directive) -> Option<Options> {
        let zone = one.value("zone")?;
        let is_zone = |it: &&Directive| {
            it.name == "limit_req_zone"
                && it.value("zone").and_then(|it| it.split(':').next()) == Some(zone)
        };
        let Some(declared) = self.block.iter().find(is_zone) else {
            self.report.lost(one.number, format!("the zone {zone} is not declared in http"));
            return None;
        };
        let mut limit = Options::default();
        match declared.arg(0) {
            "$binary_remote_addr" | "$remote_addr" => {}
            "$server_name" | "$host" => {
                limit.set("by", "route");
            }
            key => match key.strip_prefix("$http_") {
                Some(header) => {
                    limit.set("by", format!("header:{}", header.replace('_', "-")));
                }
                None => {
                    self.report.lost(
                        one.number,
                        "a limit counts by source, by header or all of the route",
                    );
                    return None;
                }
            },
        }
        let (count, unit) = declared.value("rate")?.split_once("r/")?;
        limit.set("rate", rate(count.parse().ok()?, if unit == "m" { 60 } else { 1 })?);
        let burst: i64 = one.value("burst").and_then(|it| it.parse().ok()).unwrap_or(0);
        limit.set("burst", burst.saturating_add(1).clamp(1, 1_000_000));
        if burst > 0 && !one.has("nodelay") {
            self.report
                .changes(one.number, "requests within `burst` are not delayed (nginx's nodelay)");
        }
        self.report.carried(declared.number);
        Some(limit)
    }

    fn mirror(&mut self, one: &Directive, route: &mut Route) {
        let inside = self.server.block.iter().find(|it| {
            it.name == "location" && it.args.last().is_some_and(|path| path == one.arg(0))
        });
        let pass = inside.and_then(|it| it.block.iter().find(|it| it.name == "proxy_pass"));
        let Some(pass) = pass else {
            self.report.lost(
                one.number,
                "mirror = { pool = ... } of a route; the location of the copies has no proxy_pass",
            );
            return;
        };
        let (_, host, _) = parts(pass.arg(0));
        let host = host.split('$').next().unwrap_or_default().to_string();
        let pool = target(self.config, &host, 80);
        route.mirror.set("pool", pool);
    }
}

/// Directives that ask for a password, or for a decision of another program.
const PASSWORDS: [&str; 5] =
    ["auth_basic", "auth_request", "auth_jwt", "secure_link", "access_by_lua_block"];

/// The directives of [`PASSWORDS`] that hold in the innermost of these blocks.
fn asking<'a>(scopes: &[&'a [Directive]]) -> Vec<&'a Directive> {
    let stated = PASSWORDS.iter().filter_map(|name| innermost(scopes, name).first().copied());
    stated.filter(|it| it.arg(0) != "off").collect()
}

/// The text of a refusal that is lost.
pub(super) const SERVED: &str = "requests that nginx refuses are served";

/// `allow` and `deny` of the innermost block that has some: name and prefix.
fn rules(scopes: &[&[Directive]]) -> Vec<(String, String)> {
    let of = |scope: &&[Directive]| {
        let all = scope.iter().filter(|it| it.name == "allow" || it.name == "deny");
        all.map(|it| (it.name.clone(), it.arg(0).to_string())).collect::<Vec<_>>()
    };
    scopes.iter().map(of).find(|it| !it.is_empty()).unwrap_or_default()
}

/// Locations in the order in which nginx tries them: exact ones, prefixes that regular expressions
/// do not overrule, regular expressions, and the longest prefix.
fn ordered(block: &[Directive]) -> Vec<&Directive> {
    let mut all: Vec<_> = block.iter().filter(|it| it.name == "location").collect();
    let rank = |it: &&Directive| match it.arg(0) {
        "=" => (0, 0),
        "^~" => (1, usize::MAX - it.arg(1).len()),
        "~" | "~*" => (2, 0),
        path => (if is_within(it, block) { 1 } else { 3 }, usize::MAX - path.len()),
    };
    all.sort_by_key(rank);
    all
}

/// True for a plain prefix that begins with one of `^~`, and so comes before it.
fn is_within(location: &Directive, block: &[Directive]) -> bool {
    let is_outer = |it: &Directive| {
        it.name == "location" && it.arg(0) == "^~" && location.arg(0).starts_with(it.arg(1))
    };
    location.args.len() == 1 && block.iter().any(is_outer)
}

//! `frontend` and `listen`: front doors with their routes.

use super::action::{self, Action};
use super::bind::{Bind, binds};
use super::condition::{Matched, Test, matched, split};
use super::proxy::Proxy;
use super::words::Line;
use crate::model::{Door, NO_PASSWORDS, Options, Route, name};
use crate::report::Report;

/// The front doors of a proxy: one for each socket. `all` are the proxies of the file.
pub(super) fn doors(proxy: &Proxy, all: &[Proxy], report: &mut Report) -> Vec<Door> {
    let sockets: Vec<Bind> = proxy.binds.iter().flat_map(|line| binds(line, report)).collect();
    let has_several = sockets.len() > 1;
    let one = |socket: &Bind, report: &mut Report| {
        let mut door = Door { name: name(&proxy.name), ..Door::default() };
        if has_several {
            door.name = name(&format!("{}-{}", proxy.name, socket.port));
        }
        let mut building =
            Building { proxy, all, door, is_tls: socket.is_tls, forwarded: Vec::new(), report };
        building.build(socket);
        building.door
    };
    sockets.iter().map(|socket| one(socket, report)).collect()
}

/// Changes of requests and responses that meet a condition.
struct Changes {
    condition: Matched,
    route: Route,
    number: usize,
}

pub(super) struct Building<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) all: &'a [Proxy],
    pub(super) door: Door,
    pub(super) is_tls: bool,
    forwarded: Vec<&'static str>,
    pub(super) report: &'a mut Report,
}

impl Building<'_> {
    fn build(&mut self, socket: &Bind) {
        let proxy = self.proxy;
        socket.apply(&mut self.door, proxy.is_tcp, self.report);
        self.door.options.set("protocol", if proxy.is_tcp { "tcp" } else { "http" });
        let default = self.default_pool();
        if let Some(pool) = &default {
            self.door.options.set("pool", name(pool));
        }
        self.limits_and_times();
        for line in &proxy.tcp_rules {
            self.tcp_rule(line);
        }
        if proxy.is_tcp {
            for line in &proxy.switches {
                self.sni(line);
            }
        } else {
            self.http(default.as_deref());
        }
        if self.door.options.has("accept-proxy") && !self.door.options.has("trusted") {
            self.door.options.push("trusted", "0.0.0.0/0");
            self.door.options.push("trusted", "::/0");
            self.report.changes(
                socket.number,
                "trusted has the proxies in front; it has every address now: narrow it",
            );
        }
    }

    fn default_pool(&mut self) -> Option<String> {
        if let Some(line) = &self.proxy.default_backend {
            self.report.carried(line.number);
            return Some(line.word(1).to_string());
        }
        self.proxy.has_back.then(|| self.proxy.name.clone())
    }

    fn limits_and_times(&mut self) {
        let proxy = self.proxy;
        if let Some(line) = &proxy.maxconn
            && let Ok(number) = line.word(1).parse::<i64>()
        {
            self.report.changes(line.number, "connections-max counts for each data-plane thread");
            self.door.options.set("connections-max", number.clamp(1, 10_000_000));
        }
        if let Some(time) = proxy.time("client", 100, 86_400_000, self.report) {
            self.door.options.set("idle-timeout", time);
        }
        if proxy.is_tcp {
            // Both directions of a connection have the front door's time.
            let _ = proxy.time("server", 100, 86_400_000, self.report);
            return;
        }
        if let Some(time) = proxy.time("http-request", 100, 3_600_000, self.report) {
            self.door.options.set("header-timeout", time);
        }
        if let Some(time) = proxy.time("tunnel", 100, 86_400_000, self.report) {
            self.door.options.set("tunnel-timeout", time);
        }
        if proxy.access_log {
            self.door.options.set("access-log", 1.0);
        }
    }

    /// Rules, routes and headers of HTTP.
    fn http(&mut self, default: Option<&str>) {
        let mut common = Route::default();
        let mut changes = Vec::new();
        if let Some(line) = &self.proxy.monitor {
            let mut route = Route::default();
            route.options.set("path", line.word(1));
            route.answer.set("body", "alive\n");
            self.door.routes.push(route);
            self.report.carried(line.number);
        }
        if self.proxy.forwards {
            self.forwarded.push("x-forwarded-for");
        }
        for line in &self.proxy.request_rules {
            self.rule(line, true, &mut common, &mut changes);
        }
        for line in &self.proxy.response_rules {
            self.rule(line, false, &mut common, &mut changes);
        }
        for line in &self.proxy.switches {
            self.switch(line, &changes);
        }
        for one in &changes {
            if changes.len() > 1 {
                self.report.changes(
                    one.number,
                    "a request that meets several such conditions takes one route",
                );
            }
            let default = default.map(|pool| self.of_pool(pool)).unwrap_or_default();
            let route = joined(&one.condition.options, &[&one.route, &default]);
            self.push(&one.condition, route);
        }
        let last = match default {
            Some(pool) => self.of_pool(pool),
            None => {
                let mut none = Route::default();
                none.answer.set("status", 503);
                none
            }
        };
        let is_redirected = self.door.options.has("redirect");
        if !is_redirected && (last != Route::default() || common != Route::default()) {
            self.door.routes.push(last);
        }
        for route in &mut self.door.routes {
            let is_own = !route.redirect.is_empty() || !route.answer.is_empty();
            add(&mut route.response, &common.response);
            if !is_own {
                add(&mut route.request, &common.request);
                route.rewrite.fill(&common.rewrite);
            }
        }
        if let [only] = &self.door.routes[..]
            && *only == Route::default()
        {
            self.door.routes.clear();
        }
        let default_headers = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        self.forwarded.sort_unstable();
        self.forwarded.dedup();
        if !default_headers.iter().all(|it| self.forwarded.contains(it))
            || self.forwarded.len() != 3
        {
            let all = self.forwarded.iter().map(|it| toml::Value::from(*it)).collect::<Vec<_>>();
            self.door.options.set("forwarded", toml::Value::Array(all));
        }
    }

    /// A rule with its condition.
    fn rule(
        &mut self,
        line: &Line,
        is_request: bool,
        common: &mut Route,
        changes: &mut Vec<Changes>,
    ) {
        let words = if line.word(0) == "redirect" { line.from(0) } else { line.from(1) };
        let (words, condition) = split(words);
        let conjunctions = self.proxy.acls.condition(condition);
        let number = line.number;
        let is_refusal = ["deny", "reject"].contains(&words.first().map_or("", String::as_str));
        if is_request && is_refusal {
            let status = words.windows(2).find(|it| it[0].ends_with("status"));
            let is_plain = status.is_none_or(|it| it[1] == "403");
            let mut tests = conjunctions.iter().flatten().flat_map(|(_, it)| it);
            let has_counter = tests.any(|it| matches!(it, Test::Counter { .. }));
            if (is_plain || has_counter) && self.refuses(number, &conjunctions) {
                self.report.carried(number);
                return;
            }
        }
        let action = if is_request {
            action::request(line, words, self.report)
        } else {
            action::response(line, words, self.report)
        };
        let all = match matched(&conjunctions, self.is_tls) {
            Ok(all) => all,
            Err(_) if matches!(action, Action::Password) => vec![Matched::default()],
            Err(why) => {
                if !matches!(action, Action::Nothing) {
                    let served =
                        if is_refusal { "; requests that HAProxy refuses are served" } else { "" };
                    self.report
                        .lost(number, format!("a route has no such condition: {why}{served}"));
                }
                return;
            }
        };
        self.act(number, action, all, common, changes);
    }

    /// Translates the action of a rule. `all`: the requests that meet its condition.
    fn act(
        &mut self,
        number: usize,
        action: Action,
        all: Vec<Matched>,
        common: &mut Route,
        changes: &mut Vec<Changes>,
    ) {
        let is_always = all.iter().any(|it| *it == Matched::default());
        match action {
            Action::Nothing => {}
            Action::Password => {
                self.door.keep_to_this_machine();
                self.report.lost(number, NO_PASSWORDS);
            }
            Action::Forwarded(header) if is_always => self.forwarded.push(header),
            Action::Forwarded(header) => {
                if !all.is_empty() {
                    self.forwarded.push(header);
                }
            }
            Action::Hsts(hsts) => {
                if self.is_tls && !all.is_empty() {
                    self.door.hsts = Some(hsts);
                }
            }
            Action::ToHttps if is_always && !self.is_tls => {
                self.door.options.set("redirect", "https");
            }
            Action::ToHttps => {
                // With TLS, `all` has no request that is to be redirected.
                let all = if self.is_tls { Vec::new() } else { all };
                for condition in &all {
                    let mut route = Route::default();
                    route.redirect.set("to", "https://{host}{path}{query}").set("status", 301);
                    self.push(condition, route);
                }
            }
            Action::Route(route) if !route.is_terminal() && is_always => {
                add(&mut common.request, &route.request);
                add(&mut common.response, &route.response);
                if !common.rewrite.is_empty() && !route.rewrite.is_empty() {
                    self.report.lost(number, "a route has one rewrite");
                }
                common.rewrite.fill(&route.rewrite);
            }
            Action::Route(route) => {
                for condition in all {
                    if route.is_terminal() {
                        self.push(&condition, joined(&condition.options, &[&route]));
                    } else {
                        changes.push(Changes { condition, route: (*route).clone(), number });
                    }
                }
            }
        }
    }

    /// Adds a route, after routes for the requests that its condition excepts.
    fn push(&mut self, condition: &Matched, mut route: Route) {
        for except in &condition.except {
            let mut past = Route { options: except.clone(), ..Route::default() };
            if let Some(pool) = self.door.options.get("pool") {
                past.options.set("pool", pool.clone());
            }
            self.door.routes.push(past);
        }
        if route.options.is_empty() {
            route.options = condition.options.clone();
        }
        self.door.routes.push(route);
    }

    /// `use_backend`, with the changes of requests that meet another condition, too.
    fn switch(&mut self, line: &Line, changes: &[Changes]) {
        let (target, condition) = split(line.from(1));
        let pool = target.first().map_or("", String::as_str);
        if pool.contains("%[") {
            self.report.lost(line.number, "a pool is named; a route for each value");
            return;
        }
        let all = match matched(&self.proxy.acls.condition(condition), self.is_tls) {
            Ok(all) => all,
            Err(why) => {
                self.report.lost(line.number, format!("a route has no such condition: {why}"));
                return;
            }
        };
        self.report.carried(line.number);
        let of_pool = self.of_pool(pool);
        for condition in all {
            let mut route = joined(&condition.options, &[&of_pool]);
            route.options.set("pool", name(pool));
            for one in changes {
                match both(&condition.options, &one.condition.options) {
                    Some(options) => {
                        let mut with = joined(&options, &[&one.route, &of_pool]);
                        with.options.set("pool", name(pool));
                        self.push(&Matched { options, except: Vec::new() }, with);
                    }
                    None => self.report.changes(
                        one.number,
                        format!(
                            "not for requests that also meet line {}: a request takes one route",
                            line.number
                        ),
                    ),
                }
            }
            self.push(&condition, route);
        }
    }

    /// The changes of a backend: its rules without a condition.
    fn of_pool(&mut self, pool: &str) -> Route {
        let Some(backend) = self.all.iter().find(|it| it.has_back && it.name == pool) else {
            return Route::default();
        };
        if backend.has_front {
            return Route::default();
        }
        let mut common = Route::default();
        for (line, is_request) in backend
            .request_rules
            .iter()
            .map(|it| (it, true))
            .chain(backend.response_rules.iter().map(|it| (it, false)))
        {
            let words = if line.word(0) == "redirect" { line.from(0) } else { line.from(1) };
            let (words, condition) = split(words);
            let action = if is_request {
                action::request(line, words, self.report)
            } else {
                action::response(line, words, self.report)
            };
            let is_always = matched(&backend.acls.condition(condition), self.is_tls)
                .is_ok_and(|it| it == [Matched::default()]);
            match action {
                Action::Route(route) if is_always && !route.is_terminal() => {
                    add(&mut common.request, &route.request);
                    add(&mut common.response, &route.response);
                    common.rewrite.fill(&route.rewrite);
                }
                Action::Forwarded(header) => self.forwarded.push(header),
                Action::Nothing => {}
                Action::Route(_) | Action::Hsts(_) | Action::ToHttps | Action::Password => {
                    self.report.lost(
                        line.number,
                        "routes belong to front doors: put the rule into a route to this pool",
                    );
                }
            }
        }
        if backend.forwards && !self.forwarded.contains(&"x-forwarded-for") {
            self.forwarded.push("x-forwarded-for");
        }
        common
    }
}

/// A route with the changes of several; the first rewrite is kept.
fn joined(options: &Options, parts: &[&Route]) -> Route {
    let mut route = Route { options: options.clone(), ..Route::default() };
    for part in parts {
        add(&mut route.request, &part.request);
        add(&mut route.response, &part.response);
        route.rewrite.fill(&part.rewrite);
        route.redirect.fill(&part.redirect);
        route.answer.fill(&part.answer);
    }
    route
}

/// Adds lists of headers.
fn add(to: &mut Options, from: &Options) {
    for key in ["set", "add", "remove"] {
        let Some(toml::Value::Array(all)) = from.get(key) else { continue };
        all.iter().for_each(|it| to.push(key, it.clone()));
    }
}

/// The conditions of both; `None` if a request cannot meet both, or they cannot be combined.
fn both(one: &Options, other: &Options) -> Option<Options> {
    let single = ["host", "method", "source"];
    let paths = ["path", "path-prefix", "path-regex"];
    let has_path = |it: &Options| paths.iter().any(|key| it.has(key));
    if single.iter().any(|key| one.has(key) && other.has(key)) || has_path(one) && has_path(other) {
        return None;
    }
    let mut options = one.clone();
    for key in ["header", "query"] {
        if let (Some(_), Some(toml::Value::Array(all))) = (one.get(key), other.get(key)) {
            all.iter().for_each(|it| options.push(key, it.clone()));
        }
    }
    options.fill(other);
    Some(options)
}

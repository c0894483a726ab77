//! `frontend` and `listen`: front doors with their routes.

use super::action::{self, Action};
use super::bind::{Bind, binds};
use super::condition::{Acls, Conjunction, Matched, Test, matched, split};
use super::proxy::Proxy;
use super::rules::{Rule, SERVED, routes};
use super::words::Line;
use crate::conditions::{Meet, PATHS, meet};
use crate::model::{Config, Door, Options, Route, name};
use crate::report::Report;

/// Adds the front doors of a proxy: one for each socket. `all` are the proxies of the file.
pub(super) fn add_doors(proxy: &Proxy, all: &[Proxy], config: &mut Config, report: &mut Report) {
    let sockets: Vec<Bind> = proxy.binds.iter().flat_map(|line| binds(line, report)).collect();
    let has_several = sockets.len() > 1;
    for socket in &sockets {
        let mut door = Door { name: name(&proxy.name), ..Door::default() };
        if has_several {
            door.name = name(&format!("{}-{}", proxy.name, socket.port));
        }
        let mut building = Building {
            proxy,
            all,
            door,
            is_tls: socket.is_tls,
            forwarded: Vec::new(),
            paths: Vec::new(),
            report,
        };
        building.build(socket);
        let mut door = building.door;
        door.listen_lines = vec![socket.number];
        config.doors.push(door);
    }
}

/// Changes of requests and responses that meet a condition.
struct Changes {
    condition: Matched,
    route: Route,
    number: usize,
}

/// The rules of a front door or of a backend.
#[derive(Default)]
struct Rules {
    /// Changes of all requests, and of their responses by servers.
    common: Route,
    /// Changes of the proxy's own answers.
    own_responses: Options,
    changes: Vec<Changes>,
    /// Rules that answer.
    answers: Vec<Rule>,
}

/// The section that a rule is in.
struct Place<'a> {
    acls: &'a Acls,
    is_backend: bool,
}

pub(super) struct Building<'a> {
    pub(super) proxy: &'a Proxy,
    pub(super) all: &'a [Proxy],
    pub(super) door: Door,
    pub(super) is_tls: bool,
    forwarded: Vec<&'static str>,
    /// The rules so far that change the path: line number, and the requests that meet it.
    paths: Vec<(usize, Vec<Matched>)>,
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
        if proxy.is_logged() {
            self.door.options.set("access-log", 1.0);
        }
        if proxy.is_tcp {
            // Both directions have one time: `tunnel`, if it is set.
            let _ = proxy.time("server", 100, 86_400_000, self.report);
            if let Some(time) = proxy.time("tunnel", 100, 86_400_000, self.report) {
                self.door.options.set("idle-timeout", time);
            }
            return;
        }
        if let Some(time) = proxy.time("http-request", 100, 3_600_000, self.report) {
            self.door.options.set("header-timeout", time);
        }
        if let Some(time) = proxy.time("tunnel", 100, 86_400_000, self.report) {
            self.door.options.set("tunnel-timeout", time);
        }
    }

    /// Rules, routes and headers of HTTP.
    fn http(&mut self, default: Option<&str>) {
        let mut own = Rules::default();
        if let Some(line) = &self.proxy.monitor {
            let mut route = Route::default();
            route.answer.set("body", "alive\n");
            let mut condition = Matched::default();
            condition.options.push("path", line.word(1));
            own.answers.push(Rule { number: line.number, condition, route, is_refusal: false });
            self.report.carried(line.number);
        }
        if self.proxy.forwards {
            self.forwarded.push("x-forwarded-for");
        }
        let place = Place { acls: &self.proxy.acls, is_backend: false };
        let proxy = self.proxy;
        for line in &proxy.request_rules {
            self.rule(line, true, &place, &mut own);
        }
        for line in &proxy.response_rules {
            self.rule(line, false, &place, &mut own);
        }
        let Rules { common, own_responses, changes, answers: mut all } = own;
        for line in &proxy.switches {
            self.switch(line, &changes, &mut all);
        }
        if changes.len() > 1 {
            for one in &changes {
                self.report.changes(
                    one.number,
                    "a request that meets several such conditions takes one route",
                );
            }
        }
        let last = match default {
            Some(pool) => {
                let of_pool = self.of_pool(pool);
                self.target(&Matched::default(), pool, &of_pool, &changes, &mut all);
                of_pool.common
            }
            None => {
                let mut none = Route::default();
                none.answer.set("status", 503);
                none
            }
        };
        self.door.routes = routes(all, &last, self.report);
        for route in &mut self.door.routes {
            if route.is_terminal() {
                add(&mut route.response, &own_responses);
            } else {
                add(&mut route.response, &common.response);
                add(&mut route.request, &common.request);
                route.rewrite.fill(&common.rewrite);
            }
        }
        if let [only] = &self.door.routes[..] {
            let to = only.redirect.text("to");
            let is_plain = only.options.is_empty() && only.response.is_empty();
            if to == Some(TO_HTTPS) && is_plain && !self.is_tls {
                self.door.options.set("redirect", "https");
                self.door.routes.clear();
            }
        }
        if self.door.routes.last().is_some_and(|it| *it == Route::default()) {
            self.door.routes.pop();
        }
        self.forward();
    }

    /// `forwarded` of the front door, unless it is the default.
    fn forward(&mut self) {
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
    fn rule(&mut self, line: &Line, is_request: bool, place: &Place<'_>, out: &mut Rules) {
        let words = if line.word(0) == "redirect" { line.from(0) } else { line.from(1) };
        let (words, condition) = split(words);
        let conjunctions = place.acls.condition(condition);
        let number = line.number;
        let action = words.first().map_or("", String::as_str);
        let is_refusal = ["deny", "reject", "tarpit", "silent-drop", "auth"].contains(&action);
        if is_request && ["deny", "reject"].contains(&action) && !place.is_backend {
            let status = words.windows(2).find(|it| it[0].ends_with("status"));
            let is_plain = status.is_none_or(|it| it[1] == "403");
            let mut tests = conjunctions.iter().flatten().flat_map(|(_, it)| it);
            let has_counter = tests.any(|it| matches!(it, Test::Counter { .. }));
            // A front door's lists and limits come before its routes.
            let is_first = out.answers.iter().all(|it| it.is_refusal);
            if (is_plain && is_first || has_counter) && self.refuses(number, &conjunctions) {
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
                let answers = match &action {
                    Action::Route(route) => route.is_terminal(),
                    Action::ToHttps => true,
                    _ => is_refusal,
                };
                if answers && has_password(&conjunctions) {
                    self.door.without_passwords(number, self.report);
                } else if !matches!(action, Action::Nothing) {
                    let served = if is_refusal { format!("; {SERVED}") } else { String::new() };
                    self.report
                        .lost(number, format!("a route has no such condition: {why}{served}"));
                }
                return;
            }
        };
        if is_request {
            self.compare_path(number, &all, is_refusal);
            if CHANGE_PATH.contains(&words.first().map_or("", String::as_str)) {
                self.paths.push((number, all.clone()));
            }
        } else {
            self.own_answers(line, words, &action, &all, out);
        }
        self.act(number, action, all, out);
    }

    /// Reports a condition on a path that an earlier rule has changed. `all`: the requests that
    /// meet it.
    fn compare_path(&mut self, number: usize, all: &[Matched], is_refusal: bool) {
        let has_path = |it: &Options| PATHS.iter().any(|key| it.has(key));
        let is_compared = |it: &&Matched| has_path(&it.options) || it.except.iter().any(has_path);
        let other = |it: &Matched| {
            let mut options = it.options.clone();
            PATHS.iter().for_each(|key| options.remove(key));
            options
        };
        let compared: Vec<_> = all.iter().filter(is_compared).map(other).collect();
        let meets = |it: &Matched| {
            compared.iter().any(|condition| meet(condition, &other(it)) != Meet::Never)
        };
        let Some((line, _)) = self.paths.iter().find(|(_, all)| all.iter().any(meets)) else {
            return;
        };
        let how = format!(
            "HAProxy compares the path that line {line} has written; a route compares the client's"
        );
        if is_refusal {
            self.report.lost(number, format!("{how}: {SERVED}"));
        } else {
            self.report.changes(number, how);
        }
    }

    /// Notes the effect of a rule of responses on answers of the proxy itself. Those have the
    /// headers of `http-after-response` alone.
    fn own_answers(
        &mut self,
        line: &Line,
        words: &[String],
        action: &Action,
        all: &[Matched],
        out: &mut Rules,
    ) {
        let is_after = line.word(0) == "http-after-response";
        match action {
            Action::Route(route) if is_after && all.contains(&Matched::default()) => {
                add(&mut out.own_responses, &route.response);
            }
            Action::Route(_) if is_after => self.report.changes(
                line.number,
                "redirects and answers of equipoise's own do not have the header",
            ),
            Action::Hsts(_) if !is_after => self.report.changes(
                line.number,
                "redirects and errors of equipoise's own have the header, too; HAProxy's do not",
            ),
            Action::Route(_) if !is_after && words[0] != "del-header" => self.report.changes(
                line.number,
                "errors of equipoise's own, such as 503, have the header, too; HAProxy's do not",
            ),
            _ => {}
        }
    }

    /// Translates the action of a rule. `all`: the requests that meet its condition.
    fn act(&mut self, number: usize, action: Action, all: Vec<Matched>, out: &mut Rules) {
        let is_always = all.iter().any(|it| *it == Matched::default());
        match action {
            Action::Nothing => {}
            Action::Password => {
                self.door.without_passwords(number, self.report);
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
            Action::ToHttps => {
                // With TLS, `all` has no request that is to be redirected.
                let all = if self.is_tls { Vec::new() } else { all };
                let mut route = Route::default();
                route.redirect.set("to", TO_HTTPS).set("status", 301);
                out.answers.extend(all.into_iter().map(|condition| Rule {
                    number,
                    condition,
                    route: route.clone(),
                    is_refusal: false,
                }));
            }
            Action::Route(route) if !route.is_terminal() && is_always => {
                add(&mut out.common.request, &route.request);
                add(&mut out.common.response, &route.response);
                if !out.common.rewrite.is_empty() && !route.rewrite.is_empty() {
                    self.report.lost(number, "a route has one rewrite");
                }
                out.common.rewrite.fill(&route.rewrite);
            }
            Action::Route(route) if route.is_terminal() => {
                let status = route.answer.get("status").and_then(toml::Value::as_integer);
                let is_refusal = status.is_some_and(|it| it >= 400);
                out.answers.extend(all.into_iter().map(|condition| Rule {
                    number,
                    condition,
                    route: (*route).clone(),
                    is_refusal,
                }));
            }
            Action::Route(route) => out.changes.extend(all.into_iter().map(|condition| Changes {
                condition,
                route: (*route).clone(),
                number,
            })),
        }
    }

    /// `use_backend`.
    fn switch(&mut self, line: &Line, changes: &[Changes], out: &mut Vec<Rule>) {
        let (target, condition) = split(line.from(1));
        let pool = target.first().map_or("", String::as_str);
        if pool.contains("%[") {
            self.report.lost(line.number, "a pool is named; a route for each value");
            return;
        }
        let conjunctions = self.proxy.acls.condition(condition);
        let all = match matched(&conjunctions, self.is_tls) {
            Ok(all) => all,
            Err(why) => {
                self.report.lost(line.number, format!("a route has no such condition: {why}"));
                // Requests without a password may have another backend.
                if has_password(&conjunctions) {
                    self.door.without_passwords(line.number, self.report);
                }
                return;
            }
        };
        self.report.carried(line.number);
        self.compare_path(line.number, &all, false);
        let of_pool = self.of_pool(pool);
        for condition in all {
            self.target(&condition, pool, &of_pool, changes, out);
            let mut route = joined(&[&of_pool.common]);
            route.options.set("pool", name(pool));
            let number = line.number;
            out.push(Rule { number, condition, route, is_refusal: false });
        }
    }

    /// The rules of requests that a condition leads to a pool: those of its backend, and the
    /// changes of requests that meet another condition, too.
    fn target(
        &mut self,
        condition: &Matched,
        pool: &str,
        of_pool: &Rules,
        changes: &[Changes],
        out: &mut Vec<Rule>,
    ) {
        let narrowed = |other: &Matched| {
            let Meet::Both(options) = meet(&condition.options, &other.options) else {
                return Err(meet(&condition.options, &other.options) == Meet::Never);
            };
            let except = condition.except.iter().map(|it| meet(it, &other.options));
            let except = except.chain(other.except.iter().map(|it| meet(it, &condition.options)));
            let mut all = Vec::new();
            for it in except {
                match it {
                    Meet::Both(options) => all.push(options),
                    Meet::Never => {}
                    Meet::Unknown => return Err(false),
                }
            }
            Ok(Matched { options, except: all })
        };
        for rule in &of_pool.answers {
            match narrowed(&rule.condition) {
                Ok(condition) => {
                    let mut rule = Rule { condition, ..rule.clone() };
                    add(&mut rule.route.response, &of_pool.own_responses);
                    out.push(rule);
                }
                Err(true) => {}
                Err(false) => {
                    let served =
                        if rule.is_refusal { format!(": {SERVED}") } else { String::new() };
                    self.report
                        .lost(rule.number, format!("write it as a route to this pool{served}"));
                }
            }
        }
        for one in changes.iter().chain(&of_pool.changes) {
            match narrowed(&one.condition) {
                Ok(condition) => {
                    let mut route = joined(&[&one.route, &of_pool.common]);
                    route.options.set("pool", name(pool));
                    out.push(Rule { number: one.number, condition, route, is_refusal: false });
                }
                Err(true) => {}
                Err(false) => self.report.changes(
                    one.number,
                    "not for requests that another line leads to a pool: a request takes one route",
                ),
            }
        }
    }

    /// The rules of a backend.
    fn of_pool(&mut self, pool: &str) -> Rules {
        let mut out = Rules::default();
        let found = self.all.iter().find(|it| it.has_back && it.name == pool);
        let Some(backend) = found.filter(|it| it.name != self.proxy.name || !it.has_front) else {
            return out;
        };
        let place = Place { acls: &backend.acls, is_backend: true };
        let before = self.paths.len();
        for line in &backend.request_rules {
            self.rule(line, true, &place, &mut out);
        }
        for line in &backend.response_rules {
            self.rule(line, false, &place, &mut out);
        }
        self.paths.truncate(before);
        if backend.forwards && !self.forwarded.contains(&"x-forwarded-for") {
            self.forwarded.push("x-forwarded-for");
        }
        out
    }
}

fn has_password(conjunctions: &[Conjunction]) -> bool {
    let mut tests = conjunctions.iter().flatten().flat_map(|(_, it)| it);
    tests.any(|it| matches!(it, Test::Password))
}

/// Actions that change the path which later conditions compare.
const CHANGE_PATH: [&str; 6] =
    ["replace-path", "replace-pathq", "replace-uri", "set-path", "set-pathq", "set-uri"];

/// The place of a redirect from http to https.
const TO_HTTPS: &str = "https://{host}{path}{query}";

/// A route with the changes of several; the first rewrite is kept.
fn joined(parts: &[&Route]) -> Route {
    let mut route = Route::default();
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

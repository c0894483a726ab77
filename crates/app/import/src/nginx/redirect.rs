//! Parts of the answers of nginx that no directive of a location states: headers by status, and
//! redirects of its own.

use super::innermost;
use super::location::Building;
use super::syntax::Directive;
use crate::model::{Options, Route};

/// Statuses with which `add_header` sends a header without `always`.
const WITH_HEADERS: [i64; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// Directives that make nginx redirect `/a` to `/a/` for a `location /a/`.
const PASSES: [&str; 6] =
    ["proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"];

impl Building<'_> {
    /// Adds the headers of responses to a route, after its action: nginx sends some by the status.
    /// `inner`: the location.
    pub(super) fn headers(&mut self, inner: &[&[Directive]], route: &mut Route) {
        let scopes = [inner, &[self.server.block.as_slice(), self.block]].concat();
        for line in innermost(&scopes, "add_header") {
            self.add_header(line, route);
        }
        if !route.is_terminal() {
            for line in innermost(&scopes, "proxy_hide_header") {
                route.response.push("remove", line.arg(0));
            }
        }
    }

    fn add_header(&mut self, line: &Directive, route: &mut Route) {
        let (header, value, is_always) = (line.arg(0), line.arg(1), line.arg(2) == "always");
        let status = route.answer.get("status").and_then(toml::Value::as_integer);
        if header.eq_ignore_ascii_case("strict-transport-security") {
            if self.door.tls.is_some() {
                self.door.hsts = crate::haproxy::hsts(value);
                if !is_always {
                    let how = "all responses of the front door have the header, errors, too";
                    self.report.changes(line.number, how);
                }
            }
        } else if status.is_some_and(|it| !is_always && !WITH_HEADERS.contains(&it)) {
            // nginx sends this answer without it.
        } else if value.contains('$') {
            self.report.lost(line.number, "response-headers have no variables");
        } else {
            if !is_always && !route.is_terminal() {
                let how = "errors have the header, too; nginx sends it with them if the line has `always`";
                self.report.changes(line.number, how);
            }
            route.response.push("add", format!("{header}: {value}"));
        }
    }

    /// The place of a redirect, with the origin that nginx writes before a path. `{path}` has one
    /// even with `absolute_redirect off`: a place without an origin has to begin with `/`.
    pub(super) fn located(&self, inner: &[Directive], to: String) -> String {
        let is_relative = self.is_off(inner, "absolute_redirect") && !to.starts_with("{path}");
        if is_relative || !(to.starts_with('/') || to.starts_with("{path}")) {
            return to;
        }
        let listen = self.door.options.text("listen");
        let port = listen.and_then(|it| it.rsplit_once(':')).map_or("", |it| it.1);
        let usual = if self.door.tls.is_some() { "443" } else { "80" };
        let port = if port == usual || port.is_empty() || self.is_off(inner, "port_in_redirect") {
            String::new()
        } else {
            format!(":{port}")
        };
        format!("{{scheme}}://{{host}}{port}{to}")
    }

    fn is_off(&self, inner: &[Directive], name: &str) -> bool {
        let scopes = [inner, &self.server.block, self.block];
        innermost(&scopes, name).first().is_some_and(|it| it.arg(0) == "off")
    }

    /// True if a route takes all requests of a path of these hosts.
    pub(super) fn has_exact(&self, path: &str, hosts: &Options) -> bool {
        let takes = |route: &&Route| {
            let has_path = route.options.get("path").and_then(toml::Value::as_array);
            has_path.is_some_and(|all| all.iter().any(|it| it.as_str() == Some(path)))
                && ["host", "header"].iter().all(|it| route.options.get(it) == hosts.get(it))
                && ["method", "query", "source"].iter().all(|it| !route.options.has(it))
        };
        is_written(path) && self.door.routes.iter().any(|it| takes(&it))
    }

    /// Adds the redirects from `/a` to `/a/`, where no location has the path `/a`.
    pub(super) fn slashes(&mut self, hosts: &Options) {
        let mut all = Vec::new();
        let server = self.server;
        plain(&server.block, &mut all);
        let is_stated = |path: &str| all.iter().any(|it| it.0 == path);
        let mut routes: Vec<Route> = Vec::new();
        for (path, block) in &all {
            let Some(path) = path.strip_suffix('/') else { continue };
            if !is_written(path) || is_stated(path) {
                continue;
            }
            let mut route = Route::of(hosts);
            if block.iter().any(|it| it.name == "internal") {
                route.answer.set("status", 404);
            } else if block.iter().any(|it| PASSES.contains(&it.name.as_str())) {
                let to = match self.is_off(block, "absolute_redirect") {
                    true => format!("{path}/{{query}}"),
                    false => self.located(block, "{path}/{query}".to_string()),
                };
                route.redirect.set("to", to).set("status", 301);
            } else {
                continue;
            }
            self.headers(&[block], &mut route);
            let like = |it: &&mut Route| {
                (&it.redirect, &it.answer, &it.response)
                    == (&route.redirect, &route.answer, &route.response)
            };
            match routes.iter_mut().find(like) {
                Some(route) => route.options.push("path", path),
                None => {
                    route.options.push("path", path);
                    routes.push(route);
                }
            }
        }
        self.door.routes.extend(routes);
    }
}

/// The locations of a block and those within them that have no regular expression: path and block.
fn plain<'a>(block: &'a [Directive], all: &mut Vec<(&'a str, &'a [Directive])>) {
    for one in block.iter().filter(|it| it.name == "location") {
        match one.arg(0) {
            "~" | "~*" => {}
            "=" | "^~" => all.push((one.arg(1), &one.block)),
            path => all.push((path, &one.block)),
        }
        plain(&one.block, all);
    }
}

/// True for a path that a route can have as it is.
fn is_written(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|it| it.is_ascii_graphic() && !b"?#%\\".contains(&it))
        && !path.contains("//")
        && !path.contains("/.")
}

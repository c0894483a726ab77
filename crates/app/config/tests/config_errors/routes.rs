//! Messages about routes of http front doors.

use crate::common::said_among;

/// The messages about a front door with these routes, which begin at line 7.
fn said(routes: &str) -> String {
    let text = format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}, {{ name = 'q', backends = ['10.0.0.2:80'] }}]\n\
         [[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\nname = 'd'\n{routes}\n"
    );
    said_among(&[("/page.html", "text")], &text)
}

#[track_caller]
fn assert_said(routes: &str, expected: &[&str]) {
    let said = said(routes);
    for part in expected {
        assert!(said.contains(part), "{routes}\nsaid: {said}\nwithout: {part}");
    }
}

#[test]
fn routes_of_every_kind_are_accepted() {
    let fine = r#"
        route = [
          { host = ["a.example", "*.b.example", "[2001:db8::1]"], path-prefix = "/x", pool = "q" },
          { path = "/y", method = "GET", header = ["X-A", "X-B: c", "X-C: ~^d"], query = ["a", "b=c"] },
          { path-regex = "^/z/[0-9]+$", source = "192.0.2.0/24", pools = [{ pool = "p", weight = 9 }, { pool = "q" }], sticky = "header:X-User" },
          { path-prefix = "/old", rewrite = { prefix = "/new" }, redirect = { to = "https://{host}{path}{query}", status = 301 } },
          { path-prefix = "/down", answer = { status = 503, file = "/page.html", content-type = "text/html" } },
          { path-prefix = "/limited", body-max = "1MB", limit = [{ rate = "5/s", concurrency = 9 }, { by = "route", concurrency = 50 }, { by = "header:X-Key", rate = "9/m", burst = 2 }] },
          { path = "/", response-headers = { set = "X-Frame-Options: DENY", remove = "Server" }, retry-on = ["connect", "502-504", "grpc-unavailable"] },
        ]"#;
    assert_eq!(said(fine), "");
}

#[test]
fn conditions_that_no_request_meets_are_refused() {
    for (condition, wrong) in [
        ("host = 'a.example:80'", "route[#1].host: "),
        ("host = 'a..example'", "is not a host"),
        ("path = 'x'", "is not a path"),
        ("path = '/a?b'", "is not a path"),
        ("path = '/a/../b'", "is not a path"),
        ("path-prefix = '//a'", "is not a prefix of paths"),
        ("path-prefix = '/%41'", "is not a prefix of paths"),
        ("path-regex = '('", "is not a regular expression"),
        ("method = 'get'", "is not a method"),
        ("header = ': x'", "is not a condition of a header"),
        ("header = 'A: ~('", "is not a condition of a header"),
        ("query = '=x'", "is not a condition of a parameter"),
        ("source = '192.0.2.0/33'", "is not a prefix"),
    ] {
        assert_said(&format!("route = [{{ {condition} }}]"), &[wrong, "accepted: "]);
    }
}

#[test]
fn a_route_that_never_gets_a_request_is_named() {
    let routes = "[[session.route]]\npath-prefix = '/a'\n[[session.route]]\nname = 'deep'\npath = '/a/b'\nmethod = 'GET'\n";
    assert_said(
        routes,
        &[
            "f:9:1: warning: ",
            "route \"deep\" never gets a request: route \"1\", on line 7, takes all of its requests",
        ],
    );
    assert_said("route = [{}, { host = 'a.example' }]", &["route \"2\" never gets a request"]);
    let fine = "route = [{ path = '/a', method = 'GET' }, { path = '/a' }, { path-prefix = '/a', pool = 'q' }, {}]";
    assert_eq!(said(fine), "");
}

#[test]
fn actions_that_contradict_or_lead_nowhere_are_refused() {
    for (route, wrong) in [
        ("pool = 'r'", "no pool is named \"r\""),
        ("pools = [{ pool = 'r' }]", "no pool is named \"r\""),
        ("pools = [{ pool = 'p', weight = 0 }]", "no pool has a weight"),
        ("pool = 'p', answer = {}", "stated beside `pool`"),
        ("redirect = { to = '/x' }, answer = {}", "stated beside `redirect`"),
        ("sticky = 'source'", "stated, but the route has one pool"),
        ("sticky = 'cookie:'", "is not what requests of one pool share"),
        ("redirect = { to = 'x' }", "is not a place to redirect to"),
        ("redirect = { to = '//evil.example' }", "is not a place to redirect to"),
        ("redirect = { to = '/{user}' }", "is not a place to redirect to"),
        ("redirect = { to = '/x', status = 304 }", "304 is no redirect"),
        ("answer = { body = 'x', file = '/page.html' }", "stated beside `body`"),
        ("answer = { file = '/none.html' }", "\"/none.html\" cannot be read"),
        ("rewrite = { regex = 'x' }", "stated without `to`"),
        ("rewrite = { to = '/x' }", "stated without `regex`"),
        ("rewrite = { prefix = '/', regex = 'x', to = '/y' }", "stated beside `prefix`"),
        ("rewrite = { regex = '/(a)', to = '/$1x' }", "`$1x` is no group of the expression"),
        ("rewrite = { regex = '/(a)', to = '/${2}' }", "`$2` is no group of the expression"),
        ("request-headers = { set = 'Host: x' }", "is not a header"),
        ("request-headers = { set = 'X-A' }", "is not a header"),
        ("request-headers = { remove = 'Content-Length' }", "is not a header"),
        ("response-headers = { add = \"X-A: b\\r\\nX-C: d\" }", "is not a header"),
        ("limit = [{ by = 'source' }]", "accepted: `rate` or `concurrency`, or both"),
        ("limit = [{ by = 'front-door', rate = '5/s' }]", "'front-door' is not a way to count"),
        ("limit = [{ concurrency = 5, burst = 5 }]", "burst: stated, but there is no `rate`"),
        ("limit = [{ connections = 5 }]", "connections"),
        (
            "limit = [{ by = 'header:a', concurrency = 5 }]",
            "concurrency: stated, but the limit is by a header",
        ),
        (
            "limit = [{ by = 'route', rate = '5/s', ipv6-prefix = 48 }]",
            "ipv6-prefix: stated, but the limit is not by",
        ),
        ("limit = [{ rate = '5/s', shared = true }]", "accepted: by = \"route\""),
        ("body-max = '0B'", "body-max"),
        ("bandwidth = '10MB'", "is not a bandwidth"),
        ("bandwidth = '10B/s'", "is not a bandwidth"),
        ("retry-on = '600'", "is not a failure to retry after"),
        ("retry-on = 'grpc-not-found'", "accepted: \"connect\", \"reset\", \"grpc-cancelled\""),
    ] {
        assert_said(&format!("route = [{{ {route} }}]"), &[wrong]);
    }
    let twice = "route = [{ name = 'a', path = '/' }, { name = 'a' }]";
    assert_said(twice, &["\"a\" is the name of another route"]);
    let both = "redirect = 'https'\nroute = [{}]";
    assert_said(both, &["stated, but `redirect` of the front door sends all"]);
}

#[test]
fn routes_are_for_http_and_pages_have_to_be_there() {
    let tcp = "pool = [{ name = 'p', backends = ['10.0.0.1:80'] }]\n\
               [[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'tcp'\npool = 'p'\nroute = [{ path = '/' }]\n";
    let said = said_among(&[], tcp);
    assert!(said.contains("this front door does not speak HTTP"), "{said}");
    assert_said("error-pages = '/none'", &["\"/none/400.html\" cannot be read"]);
}

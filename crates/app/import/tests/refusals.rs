//! Refusals of the old proxy hold in the translation: requests are judged by the translated front
//! door as equipoise judges them, and compared with the answer of the old proxy.

use std::net::IpAddr;

use equipoise_import::{Peer, Verdict, import};
use toml::{Table, Value};

/// A request: the client's address, the host, the path, and a header.
struct Asked<'a>(&'a str, &'a str, &'a str, Option<(&'a str, &'a str)>);

fn all(table: &Table, key: &str) -> Vec<String> {
    match table.get(key) {
        None => Vec::new(),
        Some(Value::Array(all)) => {
            all.iter().filter_map(|it| it.as_str().map(str::to_string)).collect()
        }
        Some(one) => one.as_str().map(str::to_string).into_iter().collect(),
    }
}

/// The length of the prefix, if it has the address.
fn has(prefix: &str, address: IpAddr) -> Option<u32> {
    let (network, length) = prefix.split_once('/').unwrap_or((prefix, "32"));
    let (IpAddr::V4(network), IpAddr::V4(address)) = (network.parse().ok()?, address) else {
        return None;
    };
    let length: u32 = length.parse().ok()?;
    let is_in = length == 0 || (network.to_bits() ^ address.to_bits()) >> (32 - length) == 0;
    is_in.then_some(length)
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).expect("a valid expression").is_match(text)
}

fn meets(route: &Table, Asked(from, host, path, header): &Asked<'_>) -> bool {
    let from = from.parse().expect("an address");
    let hosts = all(route, "host");
    let is_host =
        |it: &String| it == host || it.strip_prefix('*').is_some_and(|end| host.ends_with(end));
    let paths = [all(route, "path"), all(route, "path-prefix"), all(route, "path-regex")];
    let is_path = paths[0].iter().any(|it| it == path)
        || paths[1].iter().any(|it| {
            path.strip_prefix(it.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        || paths[2].iter().any(|it| matches(it, path));
    let sources = all(route, "source");
    let methods = all(route, "method");
    (hosts.is_empty() || hosts.iter().any(is_host))
        && (paths.iter().all(Vec::is_empty) || is_path)
        && (sources.is_empty() || sources.iter().any(|it| has(it, from).is_some()))
        && (methods.is_empty() || methods.iter().any(|it| it == "GET"))
        && all(route, "header").iter().all(|it| {
            let (name, value) = it.split_once(": ").unwrap_or((it, ""));
            let sent = if name.eq_ignore_ascii_case("host") {
                Some(*host)
            } else {
                header.filter(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1)
            };
            sent.is_some_and(|sent| match value.strip_prefix('~') {
                Some(pattern) => matches(pattern, sent),
                None => value.is_empty() || value == sent,
            })
        })
}

/// The answer of the first front door: a status, or the name of the pool.
fn answer(text: &str, asked: &Asked<'_>) -> String {
    let table: Table = text.parse().expect("TOML");
    let door = table["session"][0].as_table().expect("a front door");
    let from = asked.0.parse().expect("an address");
    let longest = |key: &str| all(door, key).iter().filter_map(|it| has(it, from)).max();
    let (allow, deny) = (longest("allow"), longest("deny"));
    if deny > allow || allow.is_none() && !all(door, "allow").is_empty() {
        return "403".to_string();
    }
    let routes = door.get("route").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = routes.iter().filter_map(Value::as_table).find(|it| meets(it, asked));
    let status = |route: &Table| {
        ["answer", "redirect"]
            .iter()
            .find_map(|key| Some(route.get(*key)?.get("status")?.to_string()))
    };
    let pool = |table: &Table| table.get("pool").and_then(|it| it.as_str()).map(str::to_string);
    let of_route = found.and_then(|route| status(route).or_else(|| pool(route)));
    of_route.or_else(|| pool(door)).expect("a pool")
}

fn check(peer: Peer, text: &str, cases: &[(Asked<'_>, &str)]) {
    let done = import(peer, text).expect("translated");
    for (asked, expected) in cases {
        let given = answer(&done.text, asked);
        assert_eq!(given, *expected, "{:?} {} {}\n{}", asked.0, asked.1, asked.2, done.text);
    }
}

fn haproxy(rules: &str, cases: &[(Asked<'_>, &str)]) {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n{rules}\n default_backend web\n\
         backend web\n server a 10.0.0.1:80\nbackend shop\n server b 10.0.0.2:80\n"
    );
    check(Peer::Haproxy, &text, cases);
}

fn lost(peer: Peer, text: &str, line: &str) {
    let done = import(peer, text).expect("translated");
    let found = done.report.lines().find(|it| it.text.contains(line)).expect("the line");
    let is_said = matches!(&found.verdict, Verdict::Lost(why) if why.contains("are served"));
    assert!(is_said, "{found:?}");
}

const A: &str = "192.0.2.7";
const LAN: &str = "10.1.2.3";

#[test]
fn requests_exempt_from_a_deny_rule_still_meet_later_rules() {
    let rules = " acl lan src 10.0.0.0/8\n acl shop hdr(host) -i shop.org\n acl www hdr(host) -i www.org\n \
                 http-request deny if { path_beg /admin } !lan\n http-request deny unless shop or www\n \
                 http-request deny if { path_beg /.git }\n http-request deny if { path_end .bak }\n use_backend shop if shop";
    haproxy(
        rules,
        &[
            (Asked(A, "shop.org", "/.git/config", None), "403"),
            (Asked(A, "www.org", "/x.bak", None), "403"),
            (Asked(LAN, "other.org", "/admin", None), "403"),
            (Asked(A, "shop.org", "/admin", None), "403"),
            (Asked(LAN, "shop.org", "/admin", None), "shop"),
            (Asked(A, "shop.org", "/", None), "shop"),
            (Asked(A, "www.org", "/", None), "web"),
        ],
    );
    let keys = " http-request deny unless { hdr(X-Key) secret }\n http-request deny if { path_beg /internal/ }";
    let with = Some(("X-Key", "secret"));
    haproxy(
        keys,
        &[
            (Asked(A, "a.org", "/internal/x", with), "403"),
            (Asked(A, "a.org", "/x", with), "web"),
            (Asked(A, "a.org", "/x", None), "403"),
        ],
    );
    let both = " http-request deny unless { hdr(X-A) 1 } { path_beg /ok/ }";
    haproxy(
        both,
        &[
            (Asked(A, "a.org", "/ok/x", Some(("X-A", "1"))), "web"),
            (Asked(A, "a.org", "/no", Some(("X-A", "1"))), "403"),
            (Asked(A, "a.org", "/ok/x", None), "403"),
        ],
    );
    let switches = " acl shop hdr(host) -i shop.org\n acl api path_beg /api/\n use_backend shop if shop !api\n use_backend web if api";
    haproxy(
        switches,
        &[
            (Asked(A, "shop.org", "/api/x", None), "web"),
            (Asked(A, "shop.org", "/x", None), "shop"),
        ],
    );
}

#[test]
fn source_rules_are_not_merged_into_wider_rules() {
    haproxy(
        " http-request deny if !{ src 10.0.0.0/8 }\n http-request deny if !{ src 10.1.0.0/16 }",
        &[
            (Asked("10.2.0.1", "a.org", "/", None), "403"),
            (Asked(LAN, "a.org", "/", None), "web"),
            (Asked(A, "a.org", "/", None), "403"),
        ],
    );
    haproxy(
        " http-request deny if { src 10.0.0.0/255.0.0.0 }\n http-request deny if !{ src 10.1.0.0/16 }",
        &[(Asked(LAN, "a.org", "/", None), "403"), (Asked(A, "a.org", "/", None), "403")],
    );
}

#[test]
fn translated_conditions_match_like_haproxy_or_are_reported_as_lost() {
    haproxy(
        " http-request deny if { hdr_dom(host) -i intern.org }\n http-request deny if { hdr(x-role) -i guest }",
        &[
            (Asked(A, "a.intern.org", "/", None), "403"),
            (Asked(A, "a.org", "/", Some(("x-role", "admin, Guest"))), "403"),
            (Asked(A, "a.org", "/", Some(("x-role", "guests"))), "web"),
        ],
    );
    let text = "defaults\n mode http\nfrontend web\n bind :80\n http-request deny if { url_sub union }\n default_backend web\nbackend web\n server a 10.0.0.1:80\n";
    lost(Peer::Haproxy, text, "url_sub");
}

#[test]
fn backend_and_connection_denials_are_translated_or_reported_as_lost() {
    let text = "defaults one\n mode http\ndefaults two\n mode tcp\nfrontend web from one\n bind :80\n default_backend web\n\
                backend web from one\n http-request deny if { path_beg /admin/ } !{ src 10.0.0.0/8 }\n server a 10.0.0.1:80\n";
    check(
        Peer::Haproxy,
        text,
        &[
            (Asked(A, "a.org", "/admin/x", None), "403"),
            (Asked(LAN, "a.org", "/admin/x", None), "web"),
            (Asked(A, "a.org", "/", None), "web"),
        ],
    );
    let tcp = "defaults\n mode tcp\nfrontend ssh\n bind :22\n tcp-request connection accept if { src 10.0.0.0/8 }\n \
               tcp-request connection reject\n default_backend ssh\nbackend ssh\n server a 10.0.0.1:22\n";
    check(
        Peer::Haproxy,
        tcp,
        &[(Asked(A, "", "", None), "403"), (Asked(LAN, "", "", None), "ssh")],
    );
    let inner = "defaults\n mode tcp\nfrontend f\n bind :22\n default_backend b\nbackend b\n tcp-request content reject if { src 10.0.0.0/8 }\n server a 10.0.0.1:22\n";
    lost(Peer::Haproxy, inner, "tcp-request content reject");
    let unused = "defaults\n mode http\nfrontend f\n bind :80\n use_backend b_%[path]\n default_backend b\nbackend b\n server a 10.0.0.1:22\nbackend b_x\n http-request deny if { path / }\n server a 10.0.0.1:22\n";
    lost(Peer::Haproxy, unused, "http-request deny");
}

#[test]
fn the_first_matching_nginx_access_rule_decides() {
    let site = |inner: &str| {
        format!(
            "server {{ listen 80; location / {{ {inner} proxy_pass http://web; }} }} upstream web {{ server 10.0.0.1; }}"
        )
    };
    let order = site("deny 10.1.2.3; allow 10.0.0.0/8; deny all;");
    check(
        Peer::Nginx,
        &order,
        &[
            (Asked(LAN, "a.org", "/", None), "403"),
            (Asked("10.9.9.9", "a.org", "/", None), "web"),
            (Asked(A, "a.org", "/", None), "403"),
        ],
    );
    check(
        Peer::Nginx,
        &site("deny all; allow 10.0.0.0/8;"),
        &[(Asked(LAN, "a.org", "/", None), "403")],
    );
    let outer = "http { allow 10.0.0.0/8; deny all; upstream web { server 10.0.0.1; } \
                 server { listen 80; server_name a.org; location / { proxy_pass http://web; } } \
                 server { listen 80; server_name b.org; location / { allow all; proxy_pass http://web; } } }";
    check(
        Peer::Nginx,
        outer,
        &[
            (Asked(A, "a.org", "/", None), "403"),
            (Asked(LAN, "a.org", "/", None), "web"),
            (Asked(A, "b.org", "/", None), "web"),
        ],
    );
    let stream = "stream { server { listen 22; deny 10.0.0.0/8; allow 10.1.0.0/16; deny all; proxy_pass 10.0.0.1:22; } }";
    let done = import(Peer::Nginx, stream).expect("translated");
    let asked = Asked(LAN, "", "", None);
    assert_eq!(answer(&done.text, &asked), "403", "{}", done.text);
}

#[test]
fn locations_that_nginx_denies_stay_denied() {
    let text = "server { listen 80; location /internal/ { internal; proxy_pass http://10.0.0.1; } \
                location ~ /\\.git { deny all; } location /in/ { auth_request /auth; proxy_pass http://10.0.0.1; } \
                location /ro/ { limit_except POST { deny all; } proxy_pass http://10.0.0.1; } \
                location /o/ { proxy_pass http://10.0.0.1; location /o/p/ { deny all; } } \
                location / { proxy_pass http://10.0.0.1; } }";
    check(
        Peer::Nginx,
        text,
        &[
            (Asked(A, "a.org", "/internal/x", None), "404"),
            (Asked(A, "a.org", "/x/.git/config", None), "403"),
            (Asked(A, "a.org", "/in/x", None), "403"),
            (Asked(A, "a.org", "/ro/x", None), "403"),
            (Asked(A, "a.org", "/o/p/x", None), "403"),
            (Asked(A, "a.org", "/o/x", None), "10.0.0.1"),
        ],
    );
    let names = "server { listen 443 ssl; server_name a.org; ssl_certificate /a; ssl_client_certificate /ca; ssl_verify_client on; return 200; } \
                 server { listen 443 ssl; server_name b.org; ssl_certificate /b; ssl_client_certificate /ca; ssl_verify_client optional; return 200; }";
    let done = import(Peer::Nginx, names).expect("translated");
    assert!(!done.text.contains("required = false"), "{}", done.text);
    let unknown = "server { listen 80; if ($bad) { return 403; } location / { proxy_pass http://10.0.0.1; } }";
    lost(Peer::Nginx, unknown, "if ($bad)");
    let agent = "server { listen 80; if ($http_user_agent ~* (sqlmap|nikto)) { return 403; } location / { proxy_pass http://10.0.0.1; } }";
    check(
        Peer::Nginx,
        agent,
        &[
            (Asked(A, "a.org", "/", Some(("user-agent", "x SQLMAP"))), "403"),
            (Asked(A, "a.org", "/", Some(("user-agent", "curl"))), "10.0.0.1"),
        ],
    );
}

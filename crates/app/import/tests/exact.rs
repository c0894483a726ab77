//! Conditions of paths and headers of responses mean the same in a translation, or the report names
//! the difference.

use equipoise_import::{Import, Peer, Verdict, import};

fn haproxy(rules: &str) -> Import {
    let text = format!(
        "defaults\n mode http\nfrontend web\n bind :80\n{rules}\n default_backend web\n\
         backend web\n server a 10.0.0.1:80\nbackend shop\n http-response set-header X-Shop 1\n \
         http-request deny if {{ path_beg /shop/private/ }}\n server b 10.0.0.2:80\n"
    );
    import(Peer::Haproxy, &text).expect("translated")
}

fn nginx(server: &str) -> Import {
    let text = format!("server {{ {server} }} upstream web {{ server 10.0.0.1; }}");
    import(Peer::Nginx, &text).expect("translated")
}

/// The options of routes without their headings.
fn routes(done: &Import) -> Vec<String> {
    let all = done.text.split("[[session.route]]\n").skip(1);
    all.map(|it| it.split("\n\n").next().unwrap_or_default().trim().to_string()).collect()
}

fn verdict(done: &Import, line: &str) -> Verdict {
    let found = done.report.lines().find(|it| it.text.contains(line));
    found.expect("the line").verdict.clone()
}

#[test]
fn the_beginning_of_a_path_is_an_expression() {
    for (condition, options) in [
        ("path_beg /api/", "path-regex = \"^/api/\""),
        ("path_beg /api", "path-regex = \"^/api\""),
        ("path_beg /a/ /b", "path-regex = [\"^/a/\", \"^/b\"]"),
        ("path_beg -i /my-app/v1.0/", r"path-regex = '(?i)^/my-app/v1\.0/'"),
        ("path -m beg /.git", r"path-regex = '^/\.git'"),
        ("path /api/", "path = \"/api/\""),
    ] {
        let done = haproxy(&format!(" use_backend web if {{ {condition} }}"));
        assert_eq!(routes(&done)[0], format!("{options}\npool = \"web\""), "{condition}");
    }
    let always = haproxy(" use_backend web if { path_beg / }");
    assert!(routes(&always).iter().all(|it| !it.contains("path")), "{}", always.text);
}

#[test]
fn a_path_together_with_all_below_it_is_a_prefix() {
    let rules = " acl api path /api /x\n acl api path_beg /api/ /y/\n use_backend web if api";
    assert_eq!(
        routes(&haproxy(rules))[0],
        "path-prefix = \"/api\"\npath = \"/x\"\npath-regex = \"^/y/\"\npool = \"web\""
    );
}

#[test]
fn two_beginnings_of_paths_meet_in_the_longer_one() {
    let done = haproxy(" use_backend shop if { path_beg /shop/ }");
    assert_eq!(
        routes(&done)[0],
        "path-regex = \"^/shop/private/\"\nanswer = { status = 403 }",
        "{}",
        done.text
    );
}

#[test]
fn a_condition_after_a_changed_path_is_named() {
    let rules = |host: &str| {
        format!(
            " http-request replace-path /v1/(.*) /\\1 if {{ hdr(host) a.example.org }}\n \
             http-request deny if {{ path_beg /admin/ }} {{ hdr(host) {host} }}\n \
             use_backend shop if {{ path_beg /shop/ }} {{ hdr(host) {host} }}\n \
             use_backend shop if {{ hdr(X-Shop) -m found }}"
        )
    };
    let done = haproxy(&rules("a.example.org"));
    let how = "HAProxy compares the path that line 5 has written; a route compares the client's";
    let refusal = format!("{how}: requests that HAProxy refuses are served");
    assert_eq!(verdict(&done, "deny if { path_beg /admin/"), Verdict::Lost(refusal));
    assert_eq!(verdict(&done, "use_backend shop if { path_beg"), Verdict::Changes(how.to_string()));
    assert_eq!(verdict(&done, "use_backend shop if { hdr(X-Shop)"), Verdict::Carried);
    let done = haproxy(&rules("b.example.org"));
    assert_eq!(verdict(&done, "deny if { path_beg /admin/"), Verdict::Carried);
    assert_eq!(verdict(&done, "use_backend shop if { path_beg"), Verdict::Carried);
}

#[test]
fn changes_of_the_path_in_a_backend_are_its_own() {
    let text = "defaults\n mode http\nfrontend web\n bind :80\n use_backend a if { path_beg /a/ }\n \
                use_backend b if { path_beg /b/ }\nbackend a\n http-request set-path /x\n \
                http-request deny if { path /x/y }\n server a 10.0.0.1:80\nbackend b\n \
                http-request deny if { path /b/y }\n server b 10.0.0.2:80\n";
    let done = import(Peer::Haproxy, text).expect("translated");
    assert!(matches!(verdict(&done, "deny if { path /x/y"), Verdict::Lost(_)), "{}", done.text);
    for line in ["use_backend b", "deny if { path /b/y"] {
        assert_eq!(verdict(&done, line), Verdict::Carried, "{}", done.text);
    }
}

#[test]
fn the_longest_prefix_decides_which_regular_expressions_overrule() {
    let pass = "proxy_pass http://web;";
    let locations = format!(
        "location ^~ /a/ {{ return 401; }} \n location /a/b/ {{ return 402; }}\n location /c/ {{ {pass} }} \
         location ^~ /a/b/c/ {{ return 405; }} location / {{ {pass} }}"
    );
    let order = |done: &Import| {
        let status = |it: &String| it.split("status = ").nth(1).map(|it| it[..3].to_string());
        routes(done).iter().filter_map(status).filter(|it| it != "301").collect::<Vec<_>>()
    };
    let done = nginx(&format!("listen 80; {locations}"));
    assert_eq!(order(&done), ["405", "402", "401"], "{}", done.text);
    let done = nginx(&format!("listen 80;\n location ~ php$ {{ return 406; }}\n {locations}"));
    assert_eq!(order(&done), ["405", "402", "401", "406"], "{}", done.text);
    let how = "its requests skip the regular expressions, which nginx compares before it";
    assert_eq!(verdict(&done, "location /a/b/ {"), Verdict::Changes(how.to_string()));
}

#[test]
fn a_location_that_proxies_also_redirects_to_its_slash() {
    let pass = "proxy_pass http://web/v1/;";
    let done = nginx(&format!(
        "listen 80; location /a/ {{ {pass} }} location /b/ {{ {pass} add_header X-B 1; }} \
         location /c/ {{ {pass} }} location /d/ {{ return 403; }} location / {{ proxy_pass http://web; }}"
    ));
    let to = "redirect = { to = \"{scheme}://{host}{path}/{query}\", status = 301 }";
    let rewrite = "pool = \"web\"\nrewrite = { prefix = \"/v1\" }";
    let header = "response-headers = { add = \"X-B: 1\" }";
    assert_eq!(
        routes(&done),
        [
            format!("path = [\"/a\", \"/c\"]\n{to}"),
            format!("path = \"/b\"\n{to}\n{header}"),
            format!("path-prefix = \"/a\"\n{rewrite}"),
            format!("path-prefix = \"/b\"\n{rewrite}\n{header}"),
            format!("path-prefix = \"/c\"\n{rewrite}"),
            "path-regex = \"^/d/\"\nanswer = { status = 403 }".to_string(),
        ]
    );
}

#[test]
fn a_location_for_the_path_without_slash_stays() {
    let done = nginx(
        "listen 80; location /a/ { proxy_pass http://web; } location /a { proxy_pass http://web/b; } \
         location = /c { return 204; } location /c/ { proxy_pass http://web; }",
    );
    assert_eq!(
        routes(&done),
        [
            "path = \"/c\"\nanswer = { status = 204 }",
            "path-regex = \"^/a/\"\npool = \"web\"",
            "path-prefix = \"/c\"\npool = \"web\"",
            "path-regex = \"^/a\"\npool = \"web\"\nrewrite = { regex = \"^/a\", to = \"/b\" }",
            "answer = { status = 404 }",
        ]
    );
}

#[test]
fn redirects_of_nginx_have_its_origin() {
    for (options, to) in [
        ("listen 80;", "{scheme}://{host}/b"),
        ("listen 8080;", "{scheme}://{host}:8080/b"),
        ("listen 8080; port_in_redirect off;", "{scheme}://{host}/b"),
        ("listen 443 ssl;", "{scheme}://{host}/b"),
        ("listen 8080; absolute_redirect off;", "/b"),
    ] {
        let done = nginx(&format!("{options} location = /a {{ return 302 /b; }}"));
        let expected = format!("redirect = {{ to = \"{to}\", status = 302 }}");
        assert!(routes(&done)[0].contains(&expected), "{options}: {}", done.text);
    }
}

#[test]
fn redirects_of_rewrites_have_their_host_and_the_groups() {
    for (rewrite, replaced, to) in [
        ("^(.*)$ https://w.example$1 permanent", "${1}", "https://w.example{path}{query}"),
        ("^/(.*)$ https://w.example/$1 permanent", "/${1}", "https://w.example{path}{query}"),
        ("^/a/(.*)$ /b/$1 redirect", "/b/${1}", "{scheme}://{host}:8080{path}{query}"),
    ] {
        for options in ["listen 8080;", "listen 8080; absolute_redirect off;"] {
            let done = nginx(&format!("{options} rewrite {rewrite};"));
            for part in [format!("to = \"{replaced}\""), format!("to = \"{to}\"")] {
                assert!(done.text.contains(&part), "{rewrite}: {part}: {}", done.text);
            }
        }
    }
    let lost = nginx("listen 80;\n rewrite ^/a/(.*)$ https://w.example$1 permanent;");
    assert!(matches!(verdict(&lost, "w.example"), Verdict::Lost(_)), "{}", lost.text);
    let whole =
        nginx("listen 8080; absolute_redirect off; location /a { return 301 $request_uri; }");
    assert!(whole.text.contains("to = \"{scheme}://{host}:8080{path}{query}\""), "{}", whole.text);
}

#[test]
fn conditions_of_nginx_have_the_directives_of_their_location() {
    let done = nginx(
        "listen 8080; location /a { port_in_redirect off; add_header X-A 1 always; \
         if ($arg_b = c) { return 302 /b; } return 404; }",
    );
    let first = &routes(&done)[0];
    for part in ["to = \"{scheme}://{host}/b\"", "X-A: 1"] {
        assert!(first.contains(part), "{}", done.text);
    }
}

#[test]
fn headers_of_servers_responses_are_not_in_redirects_and_refusals() {
    let rules = " http-request deny if { path /no }\n http-response set-header X-A 1\n \
                 http-response del-header Server\n use_backend shop if { path /shop }";
    let done = haproxy(rules);
    assert_eq!(
        routes(&done),
        [
            "path = \"/no\"\nanswer = { status = 403 }",
            "path = \"/shop\"\npool = \"shop\"\nresponse-headers = { set = [\"X-Shop: 1\", \"X-A: 1\"], remove = \"Server\" }",
            "response-headers = { set = \"X-A: 1\", remove = \"Server\" }",
        ]
    );
    for line in ["set-header X-A", "set-header X-Shop"] {
        let is_named = matches!(verdict(&done, line), Verdict::Changes(why) if why.contains("503"));
        assert!(is_named, "{line}: {}", done.text);
    }
    assert_eq!(verdict(&done, "del-header"), Verdict::Carried);
}

#[test]
fn headers_of_all_responses_are_in_redirects_and_refusals() {
    let rules = " http-request deny if { path /no }\n http-after-response set-header X-A 1";
    let done = haproxy(rules);
    let header = "response-headers = { set = \"X-A: 1\" }";
    assert_eq!(
        routes(&done),
        [format!("path = \"/no\"\nanswer = {{ status = 403 }}\n{header}"), header.to_string(),]
    );
    assert_eq!(verdict(&done, "http-after-response"), Verdict::Carried);
}

#[test]
fn headers_of_nginx_depend_on_the_status_unless_they_are_always_sent() {
    let server = "listen 80; location = /a { add_header X-A 1; add_header X-B 2 always; return 404; } \
                  location = /c { add_header X-C 1; return 302 /; } \
                  location = /d { add_header X-D 1; add_header X-E 1 always; deny all; proxy_pass http://web; } \
                  location / { add_header X-F 1; add_header X-G 1 always; proxy_pass http://web; }";
    let done = nginx(server);
    let has = ["X-A: 1", "X-B: 2", "X-C: 1", "X-D: 1", "X-E: 1", "X-F: 1", "X-G: 1"]
        .map(|it| done.text.contains(it));
    assert_eq!(has, [false, true, true, false, true, true, true], "{}", done.text);
    assert!(matches!(
        verdict(
            &nginx("listen 80; location / {\n proxy_pass http://web;\n add_header X-F 1;\n }"),
            "X-F"
        ),
        Verdict::Changes(_)
    ));
    assert_eq!(
        verdict(
            &nginx(
                "listen 80; location / {\n proxy_pass http://web;\n add_header X-F 1 always;\n }"
            ),
            "X-F"
        ),
        Verdict::Carried
    );
}

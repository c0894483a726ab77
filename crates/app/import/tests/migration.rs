//! The configurations of lab/migration, translated. `lab/migration/run.py --imported` runs the
//! translations beside the programs themselves.

use std::path::{Path, PathBuf};

use equipoise_import::{ImportError, Peer, Verdict, import};

/// The name of each folder, and the peer's file in it.
fn files() -> Vec<(String, String)> {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../lab/migration");
    let folders = std::fs::read_dir(lab).expect("the lab is there").flatten().map(|it| it.path());
    let names = ["haproxy.cfg", "nginx.conf", "keepalived.conf", "ipvs.sh"];
    let file = |folder: &PathBuf| names.iter().map(|it| folder.join(it)).find(|it| it.exists());
    let mut all: Vec<_> = folders
        .filter_map(|folder| {
            let name = folder.file_name()?.to_string_lossy().into_owned();
            Some((name, std::fs::read_to_string(file(&folder)?).ok()?))
        })
        .collect();
    all.sort();
    assert!(all.len() >= 38, "{}", all.len());
    all
}

#[test]
fn each_file_is_recognised_and_every_deviation_has_a_reason() {
    for (name, text) in files() {
        let peer = Peer::of(&text).expect(&name);
        assert!(name.contains(&peer.name().to_lowercase()), "{name}: {peer:?}");
        let done = match import(peer, &text) {
            Ok(done) => done,
            Err(ImportError::Empty { .. }) if name == "36-keepalived-fwmark" => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        for line in done.report.lines() {
            if let Verdict::Changes(why) | Verdict::Lost(why) = &line.verdict {
                assert!(!why.is_empty(), "{name}: {line:?}");
                assert!(
                    done.text.contains(&format!("# line {}: ", line.number)),
                    "{name}: {line:?}"
                );
            }
        }
    }
}

#[test]
fn only_unsupported_directives_are_lost_in_translation() {
    let lost = |name: &str| {
        let (_, text) = files().into_iter().find(|it| it.0 == name).expect("it is there");
        let done = import(Peer::of(&text).expect("known"), &text).expect("translated");
        let lines = done.report.lines().filter(|it| matches!(it.verdict, Verdict::Lost(_)));
        lines.map(|it| it.text.clone()).collect::<Vec<_>>()
    };
    let nothing: [&str; 0] = [];
    for whole in [
        "01-haproxy-tls-site",
        "02-haproxy-paths-canary",
        "04-haproxy-rate-limit",
        "08-nginx-site",
        "10-nginx-limits",
    ] {
        assert_eq!(lost(whole), nothing, "{whole}");
    }
    assert_eq!(lost("11-keepalived-virtual-server"), ["vrrp_instance VI_1 {"]);
    assert_eq!(
        lost("24-haproxy-basic-auth"),
        [
            "user ann insecure-password secret",
            "http-request auth realm Staff if !{ http_auth(staff) }"
        ]
    );
    assert_eq!(lost("33-nginx-cache").len(), 5);
}

/// A refusal that cannot be expressed may not let clients in.
#[test]
fn a_front_door_with_password_checks_listens_on_loopback() {
    let (_, text) =
        files().into_iter().find(|it| it.0 == "24-haproxy-basic-auth").expect("it is there");
    let done = import(Peer::Haproxy, &text).expect("translated");
    assert!(done.text.contains("listen = \"127.0.0.1:80\""), "{}", done.text);
    let nginx =
        "server { listen 80; auth_basic staff; location / { proxy_pass http://10.0.0.1; } }";
    let done = import(Peer::Nginx, nginx).expect("translated");
    assert!(done.text.contains("listen = \"127.0.0.1:80\""), "{}", done.text);
}

/// Whatever a rule does with the requests without a password, they do not reach the backends.
#[test]
fn every_haproxy_password_rule_restricts_the_front_door_to_loopback() {
    for rule in [
        "http-request return status 401 unless { http_auth(staff) }",
        "http-request redirect location /login unless { http_auth(staff) }",
        "use_backend login unless { http_auth(staff) }",
    ] {
        let text = format!(
            "frontend web\n mode http\n bind 10.0.0.1:80\n bind 10.0.0.2:80\n {rule}\n default_backend app\n\
             backend app\n mode http\n server a 10.0.0.3:80\n\
             backend login\n mode http\n server b 10.0.0.4:80\n"
        );
        let done = import(Peer::Haproxy, &text).expect("translated");
        for listen in ["127.0.0.1:80", "127.0.0.2:80"] {
            assert!(done.text.contains(&format!("listen = \"{listen}\"")), "{rule}: {}", done.text);
        }
        assert_eq!(done.report.worst()[0].text, rule);
    }
}

/// Each front door has an address of its own, and each line its own front door's.
#[test]
fn front_doors_restricted_to_loopback_have_distinct_addresses() {
    let nginx = "http {\n auth_basic staff;\n server {\n listen 10.0.0.1:80;\n \
                 location / { proxy_pass http://10.0.0.3; }\n }\n server {\n listen 10.0.0.2:80;\n \
                 location / { proxy_pass http://10.0.0.4; }\n }\n}";
    let done = import(Peer::Nginx, nginx).expect("translated");
    for (line, listen, before) in [
        ("listen 10.0.0.1:80;", "127.0.0.1:80", "10.0.0.1:80"),
        ("listen 10.0.0.2:80;", "127.0.0.2:80", "10.0.0.2:80"),
    ] {
        assert!(done.text.contains(&format!("listen = \"{listen}\"")), "{}", done.text);
        let found = done.report.lines().find(|it| it.text == line).expect("the line");
        let Verdict::Changes(why) = &found.verdict else { panic!("{found:?}") };
        let said = format!("the front door listens on {listen} instead of {before}, ");
        assert!(why.starts_with(&said) && why.matches("instead of").count() == 1, "{why}");
    }
}

/// A front door that listens on loopback in the old file, wherever it is there, stays.
#[test]
fn a_front_door_without_password_checks_keeps_its_address() {
    let server = |listen: &str, options: &str| {
        format!(
            "server {{\n listen {listen};\n {options}\n \
             location / {{ proxy_pass http://10.0.0.3; }}\n }}\n"
        )
    };
    let closed = server("10.0.0.1:80", "auth_basic staff;");
    let own = server("127.0.0.1:80", "");
    for servers in [[&closed, &own], [&own, &closed]] {
        let done = import(Peer::Nginx, &servers.map(String::as_str).concat()).expect("translated");
        let config: toml::Table = done.text.parse().expect("TOML");
        let mut listens: Vec<_> = config["session"]
            .as_array()
            .expect("front doors")
            .iter()
            .map(|it| it["listen"].as_str().expect("an address").to_string())
            .collect();
        listens.sort();
        assert_eq!(listens, ["127.0.0.1:80", "127.0.0.2:80"]);
        let of = |line: &str| done.report.lines().find(|it| it.text == line).expect("the line");
        assert!(matches!(of("listen 10.0.0.1:80;").verdict, Verdict::Changes(_)));
        assert!(matches!(of("listen 127.0.0.1:80;").verdict, Verdict::Carried));
    }
}

/// Two addresses of one port are two front doors, each with the options of its own line.
#[test]
fn an_option_of_listen_applies_only_to_its_address() {
    let nginx = "server {\n listen 10.0.0.1:80;\n listen 10.0.0.2:80 proxy_protocol;\n \
                 listen 10.0.0.3:80 http2;\n location / { proxy_pass http://10.0.0.4; }\n}";
    let done = import(Peer::Nginx, nginx).expect("translated");
    let config: toml::Table = done.text.parse().expect("TOML");
    let has = |listen: &str, option: &str| {
        let doors = config["session"].as_array().expect("front doors");
        let door = doors.iter().find(|it| it["listen"].as_str() == Some(listen));
        door.expect("a front door").get(option).is_some()
    };
    let of = |option: &str| {
        ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(|listen| has(listen, option))
    };
    assert_eq!(of("accept-proxy"), [false, true, false]);
    assert_eq!(of("http2"), [false, false, true]);
}

/// nginx asks in an inner location what it asks in the outer one.
#[test]
fn nested_locations_inherit_the_access_restriction_of_the_outer_location() {
    let text = |options: &str, inner: &str| {
        format!(
            "server {{\n listen 80;\n location /admin/ {{\n {options} proxy_pass http://10.0.0.1;\n \
             location /admin/api/ {{ {inner} proxy_pass http://10.0.0.1; }}\n }}\n}}"
        )
    };
    let closed = |text: &str| {
        let done = import(Peer::Nginx, text).expect("translated");
        let config: toml::Table = done.text.parse().expect("TOML");
        let routes = config["session"][0]["route"].as_array().expect("routes").clone();
        let of = |path: &str| {
            let has =
                |it: &&toml::Value| it.get("redirect").is_none() && it.to_string().contains(path);
            let route = routes.iter().find(has).expect("a route");
            route.get("answer").is_some_and(|it| it["status"].as_integer() == Some(403))
        };
        (of("/admin/api"), of("/admin"))
    };
    assert_eq!(closed(&text("auth_basic staff;", "")), (true, true));
    assert!(!closed(&text("auth_basic staff;", "auth_basic off;")).0);
    assert!(closed(&text("", "auth_basic staff;")).0);
    assert_eq!(closed(&text("deny all;", "")), (true, true));

    // Methods beside GET need the password.
    let limited = "server {\n listen 80;\n location / {\n limit_except GET { auth_basic staff; }\n \
                   proxy_pass http://10.0.0.1;\n }\n}";
    let done = import(Peer::Nginx, limited).expect("translated");
    let config: toml::Table = done.text.parse().expect("TOML");
    let routes = config["session"][0]["route"].as_array().expect("routes");
    assert_eq!(routes[0]["method"].as_array().map(Vec::len), Some(2), "{}", done.text);
    assert_eq!(routes[1]["answer"]["status"].as_integer(), Some(403), "{}", done.text);
}

#[test]
fn unchecked_passwords_are_reported_first() {
    let (_, text) =
        files().into_iter().find(|it| it.0 == "24-haproxy-basic-auth").expect("it is there");
    let deny = text.replace("auth realm Staff if", "deny if");
    let nginx = "server {\n listen 80;\n auth_basic staff;\n gzip on;\n \
                 location / { proxy_pass http://10.0.0.1; }\n}";
    for (peer, text, asks, listens, changed) in [
        (Peer::Haproxy, text.as_str(), "http-request auth", "bind :80", 1),
        (Peer::Haproxy, deny.as_str(), "http-request deny", "bind :80", 1),
        // The other one is `proxy_pass`, for its header `Host`.
        (Peer::Nginx, nginx, "auth_basic staff;", "listen 80;", 2),
    ] {
        let done = import(peer, text).expect("translated");
        let worst = done.report.worst();
        assert!(worst[0].text.starts_with(asks), "{}", done.text);
        let Verdict::Lost(why) = &worst[0].verdict else { panic!("{:?}", worst[0]) };
        let begin = "PASSWORDS ARE NOT CHECKED: whoever reaches the front door is served";
        assert!(why.starts_with(begin) && why.contains("listens on 127.0.0.1 only"), "{why}");
        assert_eq!(worst[1].text, listens, "{}", done.text);
        let is_changed = matches!(&worst[1].verdict, Verdict::Changes(why) if why.contains("127.0.0.1:80 instead of 0.0.0.0:80"));
        assert!(is_changed, "{:?}", worst[1]);
        let count = format!(" {changed} change behaviour");
        assert!(done.report.summary().contains(&count), "{}", done.report.summary());
        let first = done.text.lines().nth(3).expect("a comment");
        assert!(first.contains("PASSWORDS ARE NOT CHECKED"), "{}", done.text);
    }
    let own = text.replace("bind :80", "bind 127.0.0.1:80");
    let done = import(Peer::Haproxy, &own).expect("translated");
    assert!(done.report.summary().contains(" 0 change behaviour"), "{}", done.report.summary());
}

#[test]
fn connections_to_servers_that_are_marked_down_are_closed() {
    let of = |a: &str, b: &str| {
        let text = format!(
            "listen db\n mode tcp\n bind :5432\n server a 10.0.0.1:5432 {a}\n server b 10.0.0.2:5432 {b}\n"
        );
        import(Peer::Haproxy, &text).expect("translated")
    };
    let closes = "check on-marked-down shutdown-sessions";
    for (a, b, is_closed, changed) in [
        (closes, closes, true, 0),
        (closes, "check", true, 1),
        ("check", closes, false, 1),
        ("check", "check", false, 0),
        // Without checks no server is marked down.
        ("on-marked-down shutdown-sessions", "", false, 0),
    ] {
        let done = of(a, b);
        let found = done.text.contains("close-connections = true");
        assert_eq!((found, done.report.worst().len()), (is_closed, changed), "{}", done.text);
    }
}

#[test]
fn a_sorry_server_becomes_a_backup() {
    let of = |more: &str, check: &str, sorry: &str| {
        let text = format!(
            "virtual_server 192.0.2.80 80 {{\n lb_kind NAT\n{more} sorry_server {sorry}\n \
             real_server 192.0.2.11 8080 {{\n{check} }}\n}}\n"
        );
        let done = import(Peer::Keepalived, &text).expect("translated");
        let line = done.report.lines().find(|it| it.text.starts_with("sorry_server"));
        (line.expect("the line").verdict.clone(), done.text)
    };
    let (verdict, text) = of("", "", "192.0.2.19");
    let backup = "{ address = \"192.0.2.19:80\", backup = true }";
    assert!(text.contains(backup), "{text}");
    assert_eq!(verdict, Verdict::Carried, "{text}");
    let (verdict, text) = of("", " TCP_CHECK { }\n", "192.0.2.19 8080");
    assert!(text.contains("{ address = \"192.0.2.19:8080\", backup = true }"), "{text}");
    assert!(matches!(&verdict, Verdict::Changes(why) if why.contains("checks are for")), "{text}");
    let (verdict, text) = of(" persistence_timeout 50\n", "", "192.0.2.19 8080");
    let stays = "a client that it has served stays with it while the client's flow lives";
    assert!(matches!(&verdict, Verdict::Changes(why) if why.starts_with(stays)), "{text}");
    let (verdict, text) = of("", "", "192.0.2.11 8080");
    assert!(matches!(verdict, Verdict::Lost(_)) && !text.contains("backup"), "{text}");
    // The packet level sends nothing to its own machine.
    let (verdict, text) = of("", "", "127.0.0.1 80");
    assert!(matches!(verdict, Verdict::Lost(_)) && !text.contains("backup"), "{text}");

    let two = |how: &str| {
        let vip = |host: u8| {
            format!(
                "virtual_server 192.0.2.{host} 80 {{\n lb_kind {how}\n sorry_server 192.0.2.19 8080\n \
                 real_server 192.0.2.{} 80 {{\n }}\n}}\n",
                host + 100
            )
        };
        import(Peer::Keepalived, &format!("{}{}", vip(1), vip(2))).expect("translated").text
    };
    // By nat its replies have to belong to one VIP.
    assert_eq!(two("NAT").matches("192.0.2.19:8080\", backup").count(), 1);
    // Without nat IPVS does not change the port.
    assert_eq!(two("DR").matches("192.0.2.19:80\", backup").count(), 2);
}

/// A line that has another effect here is named.
#[test]
fn log_and_limit_directives_are_translated_with_their_differences() {
    let of = |peer, text: &str, line: &str| {
        let done = import(peer, text).expect("translated");
        let found =
            done.report.lines().find(|it| it.text.contains(line)).expect("the line").clone();
        (done.text, found.verdict)
    };
    let haproxy = "global\n log 192.0.2.9 local0\n maxconn 500\n crt-base /etc/ssl\n hard-stop-after 9s\n nbthread 4\n \
                   frobnicate\nlisten web\n mode http\n log global\n bind :443 ssl crt a.pem\n server a 10.0.0.1:80 cookie a\n\
                   listen quiet\n mode http\n bind :81\n maxconn 7\n server a 10.0.0.1:80\n";
    let (text, log) = of(Peer::Haproxy, haproxy, "log 192.0.2.9");
    assert!(matches!(log, Verdict::Changes(_)), "{log:?}");
    for carried in [
        "access-log = \"syslog:192.0.2.9:514\"",
        "connections-max = 500",
        "connections-max = 7",
        "chain = \"/etc/ssl/a.pem\"",
        "grace = \"9s\"",
    ] {
        assert!(text.contains(carried), "{carried}: {text}");
    }
    assert_eq!(text.matches("access-log = 1.0").count(), 1, "{text}");
    let verdict = |line: &str| of(Peer::Haproxy, haproxy, line).1;
    assert!(matches!(verdict("maxconn 500"), Verdict::Changes(_)));
    assert!(matches!(verdict("server a 10.0.0.1:80 cookie"), Verdict::Changes(_)));
    assert_eq!(verdict("log global"), Verdict::Carried);
    assert_eq!(verdict("nbthread 4"), Verdict::NeedsNothing);
    assert!(matches!(verdict("frobnicate"), Verdict::Lost(_)));
    let nginx = "http { server { listen 80; proxy_redirect default; location / { proxy_pass http://10.0.0.1; } } }";
    assert!(matches!(of(Peer::Nginx, nginx, "proxy_redirect").1, Verdict::Changes(_)));
}

#[test]
fn lvs_persistence_becomes_a_source_address_key() {
    let of = |flags: &str| {
        let text = format!("-A -t 192.0.2.1:80 {flags}\n-a -t 192.0.2.1:80 -r 10.0.0.1:80\n");
        import(Peer::Ipvsadm, &text).expect("translated").text
    };
    let text = of("-s wlc -p 300");
    assert!(text.contains("key = \"source-address\""), "{text}");
    assert!(text.contains("new clients are not placed by wlc, and no time ends it"), "{text}");
    let text = of("-s rr -p 300 -M 255.255.0.0");
    assert!(text.contains("key = \"source-prefix\"\nkey-prefix = 16"), "{text}");
    for own in ["sed", "nq", "sh"] {
        let text = of(&format!("-s {own}"));
        assert!(
            text.contains(&format!("scheduler = \"{own}\"")) && !text.contains("key ="),
            "{text}"
        );
    }
}

#[test]
fn included_files_in_nginx_t_output_are_resolved() {
    let text = "# configuration file /etc/nginx/nginx.conf:\nevents {}\nhttp {\n  include /etc/nginx/mime.types;\n  \
                include /etc/nginx/sites-enabled/*;\n}\n# configuration file /etc/nginx/sites-enabled/shop:\n\
                server {\n  listen 80;\n  location / { proxy_pass http://10.0.0.1:8080; }\n}\n";
    let done = import(Peer::of(text).expect("nginx"), text).expect("translated");
    assert!(done.text.contains("address = \"10.0.0.1:8080\""), "{}", done.text);
    let alone = "http { include /etc/nginx/sites-enabled/*; server { return 404; } }";
    let done = import(Peer::Nginx, alone).expect("translated");
    assert!(done.text.contains("nginx -T"), "{}", done.text);
}

#[test]
fn ipv4_and_ipv6_listeners_of_a_port_become_one_front_door() {
    let text = "server { listen 80; listen [::]:80; location / { proxy_pass http://10.0.0.1; } }";
    let done = import(Peer::Nginx, text).expect("translated");
    assert!(done.text.contains("listen = \"*:80\""), "{}", done.text);
    assert_eq!(done.text.matches("[[session]]").count(), 1, "{}", done.text);
}

#[test]
fn a_syntax_error_is_reported_with_its_line() {
    let problem = |peer, text| import(peer, text).expect_err("wrong").to_string();
    assert_eq!(
        problem(Peer::Haproxy, "bind :80"),
        "line 1: \"bind\" stands before the first section"
    );
    assert_eq!(
        problem(Peer::Haproxy, "frontend a\n  bind \":80"),
        "line 2: a quotation mark is not closed"
    );
    assert_eq!(problem(Peer::Nginx, "http {\n server {\n"), "line 1: a block is not closed");
    assert_eq!(problem(Peer::Nginx, "http { listen 80 }"), "line 1: `;` is missing before `}`");
    assert_eq!(
        problem(Peer::Keepalived, "virtual_server 192.0.2.1 80 {"),
        "line 1: a block is not closed"
    );
    assert!(
        problem(Peer::Ipvsadm, "-a -t 192.0.2.1:80 -r 10.0.0.1").contains("line 1: no service")
    );
    assert_eq!(Peer::of("hello"), None);
}

/// No text makes a translation panic, and each result is TOML.
#[test]
fn truncated_and_shuffled_files_never_panic_or_yield_invalid_toml() {
    let peers = [Peer::Haproxy, Peer::Nginx, Peer::Keepalived, Peer::Ipvsadm];
    for (name, text) in files() {
        for end in (0..text.len()).filter(|at| text.is_char_boundary(*at)).step_by(7) {
            for peer in peers {
                if let Ok(done) = import(peer, &text[..end]) {
                    done.text
                        .parse::<toml::Table>()
                        .unwrap_or_else(|error| panic!("{name} to {end}: {error}\n{}", done.text));
                }
            }
        }
        // Each word in the place of another.
        let words: Vec<&str> = text.split_whitespace().collect();
        for at in 0..words.len() {
            let mut mixed = words.clone();
            mixed.swap(at, (at * 7 + 3) % words.len());
            for peer in peers {
                let lines = mixed.chunks(4).map(|it| it.join(" ")).collect::<Vec<_>>().join("\n");
                if let Ok(done) = import(peer, &lines) {
                    done.text.parse::<toml::Table>().unwrap_or_else(|error| {
                        panic!("{name} mixed {at}: {error}\n{}", done.text)
                    });
                }
            }
        }
    }
}

#[test]
fn the_page_lists_the_headers_that_a_trial_ignores() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/migration.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let all = equipoise_import::trial::IGNORED_HEADERS;
    let missing: Vec<_> = all.iter().filter(|it| !page.contains(&format!("`{it}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

use std::path::Path;

use super::*;

fn trial(text: &str) -> Trial {
    let names = |chain: &str| match chain {
        "/etc/site.pem" => vec!["www.example.org".to_string(), "*.example.org".to_string()],
        _ => Vec::new(),
    };
    Trial::of(text, &names).expect("it is TOML")
}

fn door(options: &str) -> String {
    format!(
        "[[session]]\nname = \"web\"\nlisten = \"0.0.0.0:80\"\nprotocol = \"http\"\npool = \"a\"\n{options}"
    )
}

fn questions(options: &str) -> Vec<String> {
    trial(&door(options)).doors[0].questions.iter().map(ToString::to_string).collect()
}

#[test]
fn every_route_is_tested_with_requests_that_meet_its_conditions() {
    for (route, asked) in [
        ("", vec![]),
        ("path = \"/login\"", vec!["GET localhost/login"]),
        ("path-prefix = \"/a\"", vec!["GET localhost/a", "GET localhost/a/try"]),
        ("path-prefix = \"/\"\nmethod = \"HEAD\"", vec!["HEAD localhost/", "HEAD localhost/try"]),
        ("path-regex = '^/a/'", vec!["GET localhost/a/", "GET localhost/a/try", "GET localhost/a"]),
        ("path-regex = '^/a'", vec!["GET localhost/a", "GET localhost/atry"]),
        ("path-regex = '\\.php$'", vec!["GET localhost/try.php"]),
        ("header = [\"X-Canary\", \"Lang: ~^de\"]", vec!["GET localhost/ X-Canary: 1 Lang: de"]),
        ("header = \"Host: ~^shop[.]\"", vec!["GET shop./"]),
        ("query = [\"v=2\", \"q\"]", vec!["GET localhost/?v=2&q=1"]),
        ("path = \"/a b?\"", vec!["GET localhost/a%20b%3F"]),
    ] {
        let expected: Vec<_> = ["GET localhost/"].into_iter().chain(asked).collect();
        assert_eq!(questions(&format!("[[session.route]]\n{route}\n")), expected, "{route}");
    }
}

#[test]
fn each_host_and_path_of_a_route_is_requested_once() {
    let route = "[[session.route]]\nhost = [\"a.org\", \"*.b.org\"]\npath = [\"/x\", \"/y\"]\n";
    assert_eq!(
        questions(route),
        [
            "GET localhost/",
            "GET a.org/x",
            "GET a.org/y",
            "GET www.b.org/x",
            "GET a.org/",
            "GET www.b.org/",
            "GET other-host.invalid/",
        ]
    );
}

#[test]
fn certificate_names_are_used_as_request_hosts() {
    let tls = "[session.tls]\ncertificates = [\"/etc/site.pem\", { chain = \"/etc/none.pem\" }]\n";
    assert_eq!(questions(tls), ["GET www.example.org/"]);
    assert!(trial(&door(tls)).doors[0].is_tls);
}

#[test]
fn routes_without_a_safe_example_request_are_left_out() {
    let routes = "[[session.route]]\nmethod = [\"POST\", \"PUT\"]\n\
                  [[session.route]]\nheader = \"Upgrade: websocket\"\n\
                  [[session.route]]\npath-regex = \"^[^/]\"\n";
    let trial = trial(&door(routes));
    assert_eq!(trial.doors[0].questions.len(), 1);
    assert_eq!(
        trial.left_out,
        [
            "front door web, route 1: POST, PUT may change something",
            "front door web, route 2: it needs the header Upgrade",
            "front door web, route 3: no text was found that the expression \"^[^/]\" matches",
        ]
    );
}

#[test]
fn the_number_of_questions_is_bounded() {
    let paths: Vec<_> = (0..100).map(|number| format!("\"/{number}\"")).collect();
    let trial = trial(&door(&format!("[[session.route]]\npath = [{}]\n", paths.join(", "))));
    assert_eq!(trial.doors[0].questions.len(), 60);
    assert_eq!(trial.left_out, ["front door web: 41 requests beyond 60"]);
}

#[test]
fn a_tcp_front_door_is_tested_by_greeting_or_tls_handshake() {
    let tcp =
        "[[session]]\nname = \"mail\"\nlisten = \"0.0.0.0:25\"\nprotocol = \"tcp\"\npool = \"a\"\n";
    assert_eq!(trial(tcp).doors[0].questions, [TrialQuestion::Greeting]);
    let sni = format!("{tcp}[[session.sni]]\nnames = [\"a.org\", \"*.b.org\"]\npool = \"b\"\n");
    let names = ["a.org", "www.b.org", "other-host.invalid"];
    let expected = names.map(|name| TrialQuestion::Handshake(name.to_string()));
    assert_eq!(trial(&sni).doors[0].questions, expected);
}

#[test]
fn untestable_front_doors_and_vips_are_reported_with_the_reason() {
    let session = |name: &str, more: &str| {
        format!("[[session]]\nname = \"{name}\"\nlisten = \"*:1\"\npool = \"a\"\n{more}\n")
    };
    let text = [
        session("dns", "protocol = \"udp\""),
        session("mtls", "protocol = \"http\"\ntls = { clients = { ca = \"/a.pem\" } }"),
        session("grpc", "protocol = \"http\"\nhttp2 = true"),
        session(
            "asks",
            "protocol = \"http\"\ntls = { clients = { ca = \"/a\", required = false } }",
        ),
        "[[packet]]\nvip = \"192.0.2.1:80/tcp\"\n".to_string(),
    ];
    let trial = trial(&text.concat());
    let names: Vec<_> = trial.doors.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["asks"]);
    assert_eq!(
        trial.left_out,
        [
            "front door dns: a datagram may change something",
            "front door mtls: its clients need certificates",
            "front door grpc: its clients use HTTP/2 without TLS",
            "VIP 192.0.2.1:80/tcp: the packets of clients reach one balancer",
        ]
    );
}

#[test]
fn the_old_proxy_is_contacted_at_a_locally_reachable_address() {
    for (listen, at) in [
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("*:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("10.0.0.1:8080", "10.0.0.1:8080"),
        ("[2001:db8::1]:80", "[2001:db8::1]:80"),
    ] {
        assert_eq!(reached(listen).map(|it| it.to_string()).as_deref(), Some(at), "{listen}");
    }
}

#[test]
fn the_trial_copy_has_only_tested_front_doors_on_other_addresses() {
    let pool = "[[pool]]\nname = \"a\"\nbackends = [\"10.0.0.1:80\"]\nhealth = { tcp = true }\n"
        .to_string();
    let web = |listen: &str| {
        format!(
            "[[session]]\nname = \"web\"\nlisten = {listen}\nprotocol = \"http\"\npool = \"a\"\n"
        )
    };
    let text = [
        pool.clone(),
        web("[\"0.0.0.0:80\", \"[::]:80\"]"),
        "[[session]]\nname = \"dns\"\nlisten = \"0.0.0.0:53\"\nprotocol = \"udp\"\npool = \"a\"\n"
            .to_string(),
        "[[packet]]\nvip = \"192.0.2.1:80/tcp\"\npool = \"a\"\n[flows]\nmax = 1\n".to_string(),
        "[log]\naccess-log = \"syslog:192.0.2.9:514\"\n[shutdown]\ngrace = \"1h\"\n".to_string(),
    ];
    let trial = trial(&text.concat());
    assert_eq!(trial.checked_pools(), ["a"]);
    assert_eq!(trial.doors.len(), 2);
    let listen = ["127.0.0.1:4001".parse().unwrap(), "[::1]:4002".parse().unwrap()];
    let copy: Table = trial.copy(&listen, Path::new("/run/try")).parse().unwrap();
    let expected = [
        pool,
        web("[\"127.0.0.1:4001\", \"[::1]:4002\"]"),
        "[api]\nsocket = \"/run/try/api.sock\"\nlisten = \"off\"\n".to_string(),
        "[controller]\nstate = \"/run/try/state\"\n[instance]\nthreads = 1\n".to_string(),
    ];
    assert_eq!(copy, expected.concat().parse::<Table>().unwrap());
}

fn http(status: u16, headers: &[(&str, &str)], body: &str) -> ProxyAnswer {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    ProxyAnswer::http(status, headers, body.as_bytes())
}

fn facts(compared: &Comparison) -> Vec<(&str, &str, &str)> {
    let all = compared.differences.iter();
    all.map(|it| (it.what.as_str(), it.old.as_str(), it.new.as_str())).collect()
}

#[test]
fn answers_differ_in_status_headers_names_of_cookies_and_body() {
    let one = |old, new| compare(&[old], &[new]);
    let old = [("location", "/a"), ("set-cookie", "A=1; Path=/"), ("x-a", "1"), ("x-a", "2")];
    let new = [("location", "/b"), ("set-cookie", "B=1"), ("x-a", "1")];
    let compared = one(http(200, &old, "a"), http(200, &new, "bb"));
    assert_eq!(compared.likeness, Likeness::Differs);
    let found = facts(&compared);
    assert_eq!(found[0].0, "body");
    assert!(found[0].1.starts_with("1 bytes, hash ") && found[0].2.starts_with("2 bytes"));
    assert_eq!(
        found[1..],
        [
            ("cookie A", "set", "absent"),
            ("cookie B", "absent", "set"),
            ("header location", "/a", "/b"),
            ("header x-a", "1, 2", "1"),
        ]
    );
    let compared = one(http(200, &old, "a"), http(404, &new, "b"));
    assert_eq!(facts(&compared), [("result", "200", "404")], "the status says enough");
    let compared = one(http(200, &[], ""), ProxyAnswer::none("reset"));
    assert_eq!(facts(&compared), [("result", "200", "no answer")]);
    assert_eq!(one(ProxyAnswer::none("a"), ProxyAnswer::none("b")).likeness, Likeness::Same);
}

#[test]
fn connection_and_time_dependent_headers_are_ignored() {
    let all: Vec<_> = IGNORED_HEADERS.iter().map(|name| (*name, "1")).collect();
    let compared = compare(&[http(200, &all, "a")], &[http(200, &[], "a")]);
    assert_eq!(compared, Comparison { likeness: Likeness::Same, differences: Vec::new() });
    let cookies = |value| http(200, &[("set-cookie", value)], "");
    assert_eq!(compare(&[cookies("A=1")], &[cookies("A=2; Secure")]).likeness, Likeness::Same);
}

#[test]
fn pages_of_redirects_and_errors_may_differ_between_proxies() {
    for status in [301, 404, 503] {
        let old =
            http(status, &[("content-type", "text/html"), ("cache-control", "no-cache")], "<p>");
        let compared = compare(&[old], &[http(status, &[], "")]);
        assert_eq!(compared.likeness, Likeness::Same, "{status}");
        assert_eq!(compared.differences.len(), 3, "they are remarks");
    }
    let compared = compare(&[http(301, &[("location", "/a")], "")], &[http(301, &[], "")]);
    assert_eq!(compared.likeness, Likeness::Differs, "the place is no page");
}

#[test]
fn answers_are_the_same_if_one_of_several_backends_agrees() {
    let likeness = |old: &[&str], new: &[&str]| {
        let all = |texts: &[&str]| texts.iter().map(|it| http(200, &[], it)).collect::<Vec<_>>();
        compare(&all(old), &all(new)).likeness
    };
    assert_eq!(likeness(&["a", "b"], &["b", "b"]), Likeness::Same);
    assert_eq!(likeness(&["a", "a"], &["b", "c"]), Likeness::Differs);
    assert_eq!(likeness(&["a", "b"], &["c", "d"]), Likeness::Varies);
}

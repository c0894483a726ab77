//! What is said about wrong configuration files: the whole text, for every kind of error and warning.

mod common;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use equipoise::config::{ConfigErrors, Loaded, Surroundings, load, parse};

fn read(text: &str) -> Result<Loaded, ConfigErrors> {
    let resolve = |host: &str| -> io::Result<Vec<SocketAddr>> {
        let address = |text: &str| text.parse().expect("an address");
        match host {
            "one.internal:80" => Ok(vec![address("10.1.0.1:80")]),
            "two.internal:80" => Ok(vec![address("10.2.0.1:80"), address("10.2.0.2:80")]),
            "empty.internal:80" => Ok(vec![]),
            _ => Err(io::Error::other("Name or service not known")),
        }
    };
    let read = |file: &Path| match file.to_str() {
        Some("/seed") => Ok("0123456789abcdef\n".to_string()),
        Some("/short") => Ok("0123456789\n".to_string()),
        Some("/token" | "/open") => Ok("0123456789abcdef0123456789abcdef\n".to_string()),
        _ => Err(io::Error::other("No such file or directory")),
    };
    let around = Surroundings {
        host_name: "h".into(),
        api_socket: "/run/s".into(),
        resolve: &resolve,
        read: &read,
        mode: &|file| Ok(if file == Path::new("/open") { 0o100644 } else { 0o100640 }),
    };
    parse(text, Path::new("f"), &around)
}

fn said(text: &str) -> String {
    common::config::said(read(text))
}

/// A pool `p` with more in it, behind an HTTP front door; what is added is line 8.
fn in_pool(more: &str) -> String {
    format!(
        "[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\n\
         [[pool]]\nname = 'p'\nbackends = ['10.0.0.1:80']\n{more}\n"
    )
}

/// A front door with more in it, after a pool `p`; what is added is line 5.
fn in_session(more: &str) -> String {
    format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n\
         [[session]]\nlisten = '0.0.0.0:80'\npool = 'p'\n{more}\n"
    )
}

/// The pool of [`in_pool`] with other backends.
fn with_backends(backends: &str) -> String {
    in_pool("").replace("'10.0.0.1:80'", backends)
}

/// A front door.
fn door(listen: &str, protocol: &str, pool: &str) -> String {
    format!("[[session]]\nlisten = '{listen}'\nprotocol = '{protocol}'\npool = '{pool}'\n")
}

fn assert_said<T: AsRef<str>>(cases: &[(T, &str)], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(said(&file(text.as_ref())), *expected, "{}", text.as_ref());
    }
}

const WEB: &str = "[[pool]]\nname = 'web'\nbackends = ['10.0.0.1:80']\n";

#[test]
fn wrong_values_say_what_is_accepted() {
    assert_said(
        &[
            (
                "health = { http = '/', interval = \"2x\" }",
                "f:8:35: pool.p.health.interval: \"2x\" is not a duration; accepted: a number and a unit (ms, s, m, h, d), 100ms to 1h",
            ),
            (
                "health.tcp = true\nhealth.interval = '2h'",
                "f:9:19: pool.p.health.interval: '2h' is too long; accepted: a number and a unit (ms, s, m, h, d), 100ms to 1h",
            ),
            (
                "connect-timeout = '1ms'",
                "f:8:19: pool.p.connect-timeout: '1ms' is too short; accepted: a number and a unit (ms, s, m, h, d), 10ms to 10m",
            ),
            (
                "connect-timeout = 5",
                "f:8:19: pool.p.connect-timeout: 5 has no unit: \"5s\" would be seconds; accepted: a number and a unit (ms, s, m, h, d), 10ms to 10m",
            ),
            (
                "slow-start = 2026-01-01",
                "f:8:14: pool.p.slow-start: 2026-01-01 is a date or time; accepted: a number and a unit (ms, s, m, h, d), 1s to 1h",
            ),
            (
                "retries = 11",
                "f:8:11: pool.p.retries: 11 is too large; accepted: a whole number, 0 to 10",
            ),
            (
                "retries = -1",
                "f:8:11: pool.p.retries: -1 is too small; accepted: a whole number, 0 to 10",
            ),
            (
                "retries = 'many'",
                "f:8:11: pool.p.retries: 'many' is a string; accepted: a whole number, 0 to 10",
            ),
            (
                "retries = [1]",
                "f:8:11: pool.p.retries: a list stands here; accepted: a whole number, 0 to 10",
            ),
            (
                "retries = 1.5",
                "f:8:11: pool.p.retries: 1.5 is a number with a fraction; accepted: a whole number, 0 to 10",
            ),
            (
                "retries = 99999999999999999999999999999999999999999",
                "f:8:11: pool.p.retries: 99999999999999999999999999999999999999999 is too large; accepted: a whole number, 0 to 10",
            ),
            (
                "multiplex-depth = 0",
                "f:8:19: pool.p.multiplex-depth: 0 is too small; accepted: a whole number, 1 to 1024",
            ),
            (
                "passive.panic-threshold = 1.1",
                "f:8:27: pool.p.passive.panic-threshold: 1.1 is not a share; accepted: a number from 0.0 to 1.0",
            ),
            (
                "passive.panic-threshold = nan",
                "f:8:27: pool.p.passive.panic-threshold: nan is not a share; accepted: a number from 0.0 to 1.0",
            ),
        ],
        in_pool,
    );
}

#[test]
fn wrong_words_flags_and_forms_say_what_is_accepted() {
    assert_said(
        &[
            (
                "upstream = 'multiplex'",
                "f:8:12: pool.p.upstream: 'multiplex' is none of them (did you mean \"multiplexed\"?); accepted: \"exclusive\" or \"multiplexed\"",
            ),
            (
                "send-proxy = 'binary'",
                "f:8:14: pool.p.send-proxy: 'binary' is none of them; accepted: \"v1\" or \"v2\"",
            ),
            (
                "health = { tcp = 1 }",
                "f:8:18: pool.p.health.tcp: 1 is a whole number; accepted: true or false",
            ),
            (
                "health = 'tcp'",
                "f:8:10: pool.p.health: 'tcp' is a string; accepted: a table, [pool.health]",
            ),
            (
                "health = { http = 'healthz' }",
                "f:8:19: pool.p.health.http: 'healthz' is not a path; accepted: a path that begins with `/`, without spaces or `#`, such as \"/healthz\"",
            ),
            (
                "health = { http = '/', status = 200 }",
                "f:8:33: pool.p.health.status: 200 is a whole number; accepted: a status or two with `-` between them, 100 to 599, such as \"200-299\"",
            ),
            (
                "health = { http = '/', host = 'a b' }",
                "f:8:31: pool.p.health.host: 'a b' is not a host; accepted: HOST or HOST:PORT, such as \"www.example.com\"",
            ),
        ],
        in_pool,
    );
}

#[test]
fn wrong_sizes_say_what_is_accepted() {
    assert_said(
        &[
            (
                "head-max = 32768",
                "f:6:12: session[0.0.0.0:80].head-max: 32768 has no unit: \"32768KiB\" would be kibibytes; accepted: a number and a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), 1KiB to 1MiB",
            ),
            (
                "head-max = '32k'",
                "f:6:12: session[0.0.0.0:80].head-max: '32k' is not a size; accepted: a number and a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), 1KiB to 1MiB",
            ),
            (
                "head-max = '2MiB'",
                "f:6:12: session[0.0.0.0:80].head-max: '2MiB' is too large; accepted: a number and a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), 1KiB to 1MiB",
            ),
            (
                "name = 'edge'\nhead-max = '1B'",
                "f:7:12: session.edge.head-max: '1B' is too small; accepted: a number and a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), 1KiB to 1MiB",
            ),
        ],
        |more| in_session(&format!("protocol = 'http'\n{more}")),
    );
}

#[test]
fn wrong_names_addresses_and_paths_say_what_is_accepted() {
    assert_said(
        &[
            (
                "[instance]\nname = 'my host'",
                "f:3:8: instance.name: 'my host' is not a name; accepted: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
            ),
            (
                "[api]\nsocket = 'api.sock'",
                "f:3:10: api.socket: 'api.sock' is not a path for a socket; accepted: an absolute path of at most 107 bytes, such as \"/run/equipoise/api.sock\"",
            ),
            (
                "[api]\nlisten = '9909'",
                "f:3:10: api.listen: '9909' is not an address to listen on; accepted: IP:PORT, such as \"127.0.0.1:9909\", or \"off\"",
            ),
            (
                "[api]\nlisten = '0.0.0.0:9909'",
                "f:3:10: api.listen: \"0.0.0.0:9909\" can be reached from other machines, and there is no token to ask for; accepted: a loopback address, any with an [[api.token]] (equipoise api-token FILE makes one), or, to let everybody there look and nobody change anything, any with allow-remote = true beside it",
            ),
            ("[api]\nlisten = '0.0.0.0:9909'\nallow-remote = true", ""),
            (
                "[log]\naccess-log = 'stdout'",
                "f:3:14: log.access-log: 'stdout' is not a place for the access log; accepted: \"stderr\" or a path with a `/` in it, such as \"/var/log/equipoise/access.log\"",
            ),
            (
                "[log]\nlevel = 'warning'",
                "f:3:9: log.level: 'warning' is none of them; accepted: \"error\", \"warn\", \"info\", \"debug\" or \"trace\"",
            ),
            (
                "[[pool]]\nname = 'a/b'",
                "f:2:1: warning: pool.a/b.backends: no backends, so clients of this pool are refused\n\
                 f:3:8: pool.a/b.name: 'a/b' is not a name; accepted: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
            ),
        ],
        |text| format!("session = []\n{text}"),
    );
    assert_eq!(
        said("session = [{ listen = ':80', protocol = 'tcp', pool = 'p' }]"),
        "f:1:23: session[:80].listen: ':80' is not an address to listen on; accepted: IP:PORT, such as \"0.0.0.0:80\" or \"[::]:80\"\n\
         f:1:55: session[:80].pool: no pool is named \"p\"; add a [[pool]] table"
    );
}

#[test]
fn unknown_tables_and_options_name_the_nearest_known_one() {
    assert_said(
        &[
            (
                "[[slice]]\nname = 'x'",
                "f:2:3: slice: unknown table in this version; known: instance, api, log, shutdown, load, controller, cluster, pool, session, dispatch, packet, flows, dns, nameserver",
            ),
            ("[pools]", "f:2:2: pools: unknown table in this version; did you mean `pool`?"),
            (
                "[instance]\nthread = 1",
                "f:3:1: instance.thread: unknown option in this version; did you mean `threads`?",
            ),
            (
                "[instance]\ncolour = 1",
                "f:3:1: instance.colour: unknown option in this version; known: name, threads",
            ),
        ],
        |text| format!("session = []\n{text}"),
    );
    assert_said(
        &[
            (
                "schedular = 'maglev'",
                "f:8:1: pool.p.schedular: unknown option in this version; did you mean `scheduler`?",
            ),
            (
                "connect_timeout = '1s'",
                "f:8:1: pool.p.connect_timeout: unknown option in this version; did you mean `connect-timeout`?",
            ),
            (
                "health = { http = '/', intervall = '1s' }",
                "f:8:24: pool.p.health.intervall: unknown option in this version; did you mean `interval`?",
            ),
        ],
        in_pool,
    );
}

#[test]
fn what_is_missing_is_named_where_its_table_begins() {
    let name = "accepted: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit";
    assert_eq!(
        said("[[session]]\n"),
        format!(
            "f:1:1: session[#1].listen: missing; accepted: IP:PORT, such as \"0.0.0.0:80\" or \"[::]:80\"\n\
             f:1:1: session[#1].protocol: missing; accepted: \"tcp\", \"udp\" or \"http\"\n\
             f:1:1: session[#1].pool: missing; {name}"
        )
    );
    // The front door may mean the pool whose name is missing: that is not a second error.
    let nameless = "[[pool]]\nbackends = ['10.0.0.1:80']\n";
    assert_eq!(
        said(&format!("{nameless}{}", door("[::]:80", "tcp", "p"))),
        format!("f:1:1: pool[#1].name: missing; {name}")
    );
    // Nor where the pool is written as one table.
    assert_eq!(
        said(&format!("[pool]\nname = 'p'\n{}", door("[::]:80", "tcp", "p"))),
        "f:1:1: pool: a table stands here; accepted: tables: [[pool]] above each"
    );
}

#[test]
fn backends_are_addresses_or_names_that_resolve() {
    assert_said(
        &[
            ("'one.internal:80'", ""),
            (
                "'10.0.0.1'",
                "f:7:13: pool.p.backends[10.0.0.1].address: '10.0.0.1' is not a backend's address; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
            ),
            (
                "{ address = '10.0.0.300:80' }",
                "f:7:25: pool.p.backends[10.0.0.300:80].address: '10.0.0.300:80' is not a backend's address; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
            ),
            (
                "80",
                "f:7:13: pool.p.backends[#1]: 80 is a whole number; accepted: a string (its `address`) or a table",
            ),
            (
                "{ weight = 2 }",
                "f:7:13: pool.p.backends[#1].address: missing; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"\n\
                 f:7:24: warning: pool.p.backends[#1].weight: has no effect: least-connection ignores weights; use weighted-least-connection",
            ),
            (
                "{ address = '10.0.0.1:80', weight = 1001 }",
                "f:7:49: pool.p.backends[10.0.0.1:80].weight: 1001 is too large; accepted: a whole number, 0 to 1000",
            ),
            (
                "'gone.internal:80'",
                "f:7:13: pool.p.backends[gone.internal:80].address: \"gone.internal\" cannot be resolved: Name or service not known; accepted: a name that this machine resolves while it loads the file (try: getent hosts gone.internal), or an IP address",
            ),
            (
                "'empty.internal:80'",
                "f:7:13: pool.p.backends[empty.internal:80].address: \"empty.internal\" cannot be resolved: it has no address; accepted: a name that this machine resolves while it loads the file (try: getent hosts empty.internal), or an IP address",
            ),
            (
                "'two.internal:80'",
                "f:7:13: warning: pool.p.backends[two.internal:80].address: \"two.internal\" has 2 addresses; only 10.2.0.1 is used: list each as a backend to use all",
            ),
            (
                "'one.internal:80', '10.1.0.1:80'",
                "f:7:32: pool.p.backends[10.1.0.1:80].address: backend `one.internal:80` has this address (10.1.0.1:80); accepted: each address once",
            ),
            (
                "{ address = '10.0.0.1:80', name = 'b' }, { address = '10.0.0.2:80', name = 'b' }",
                "f:7:88: pool.p.backends.b.name: \"b\" is in use, on line 7; accepted: one that is unique",
            ),
        ],
        with_backends,
    );
    let config = read(&with_backends("'one.internal:80'")).unwrap().config;
    let backend = &config.session.pools[0].backends[0];
    assert_eq!(&*backend.name, "one.internal:80");
    assert_eq!(backend.address.to_string(), "10.1.0.1:80");
}

#[test]
fn names_and_addresses_are_unique_and_exist() {
    let cases = [
        (
            format!("{WEB}{WEB}{}", door("0.0.0.0:80", "http", "web")),
            "f:5:8: pool.web.name: \"web\" is in use, on line 2; accepted: one that is unique",
        ),
        (
            format!("{WEB}{}", door("0.0.0.0:80", "http", "wbe")),
            "f:7:8: session[0.0.0.0:80].pool: no pool is named \"wbe\"; did you mean `web`?",
        ),
        (
            format!(
                "{WEB}{}{}",
                door("0.0.0.0:80", "http", "web"),
                door("0.0.0.0:80", "tcp", "web")
            ),
            "f:9:10: session[0.0.0.0:80].listen: \"0.0.0.0:80\" is in use, on line 5; accepted: a free address or port",
        ),
        (
            format!(
                "{WEB}{}{}",
                door("0.0.0.0:80", "tcp", "web"),
                door("0.0.0.0:80", "udp", "web")
            ),
            "",
        ),
        (
            format!(
                "{WEB}{}{}",
                door("127.0.0.1:0", "tcp", "web"),
                door("127.0.0.1:0", "tcp", "web")
            ),
            "",
        ),
        (
            format!("{WEB}{}", door("127.0.0.1:9909", "tcp", "web")),
            "f:5:10: session[127.0.0.1:9909].listen: \"127.0.0.1:9909\" is in use, by the default of api.listen; accepted: a free address or port",
        ),
        (format!("api.listen = 'off'\n{WEB}{}", door("127.0.0.1:9909", "tcp", "web")), ""),
        (
            format!(
                "{WEB}{}name = 'd'\n{}name = 'd'\n",
                door("0.0.0.0:1", "tcp", "web"),
                door("0.0.0.0:2", "tcp", "web")
            ),
            "f:13:8: session.d.name: \"d\" is in use, on line 8; accepted: one that is unique",
        ),
    ];
    assert_said(&cases, str::to_string);
}

#[test]
fn options_that_exclude_each_other_are_errors() {
    assert_said(
        &[
            (
                "health = {}",
                "f:8:10: pool.p.health: does not say what to check; accepted: tcp = true, or http = \"/PATH\"",
            ),
            (
                "health = { tcp = true, http = '/' }",
                "f:8:18: pool.p.health.tcp: true, with `http` beside it; accepted: one of the two (http opens a connection too)",
            ),
            (
                "health = { tcp = true, host = 'x' }",
                "f:8:31: pool.p.health.host: has no effect on a tcp check; accepted: with `http` beside it",
            ),
            (
                "passive = { ejection = '10m' }",
                "f:8:24: pool.p.passive.ejection: `ejection-max` (5m) is below `ejection` (10m); accepted: as long or longer",
            ),
        ],
        in_pool,
    );
    assert_eq!(
        said(&in_session("protocol = 'udp'\naccept-proxy = true")),
        "f:6:16: session[0.0.0.0:80].accept-proxy: true, but datagrams carry no PROXY protocol header; accepted with udp: false"
    );
    assert_eq!(
        said(&in_pool("health = { http = '/' }").replace("'http'", "'udp'")),
        "f:8:19: pool.p.health.http: every front door of this pool is udp, whose backends do not answer HTTP there; accepted: tcp = true where they accept TCP too, or no `health`"
    );
}

#[test]
fn options_without_effect_are_warnings() {
    assert_said(
        &[
            (
                "scheduler = 'round-robin'\nslow-start = '10s'",
                "f:9:14: warning: pool.p.slow-start: has no effect: round-robin ignores weights; use weighted-round-robin",
            ),
            (
                "multiplex-depth = 8",
                "f:8:19: warning: pool.p.multiplex-depth: has no effect: `upstream` is \"exclusive\"",
            ),
            (
                "health = { tcp = true, timeout = '3s' }",
                "f:8:34: warning: pool.p.health.timeout: `timeout` (3s) is longer than `interval` (2s), so a backend that hangs is checked less often",
            ),
        ],
        in_pool,
    );
    let tcp = in_pool("upstream = 'multiplexed'").replace("'http'", "'tcp'");
    let udp = in_pool("send-proxy = 'v1'").replace("'http'", "'udp'");
    let cases = [
        (
            "".to_string(),
            "f:1:1: warning: session: no front door, so nothing is served; add a [[session]], [[dispatch]], [[packet]] or [[dns]] table",
        ),
        (
            "session = []\n[[pool]]\nname = 'p'".to_string(),
            "f:2:1: warning: pool.p.backends: no backends, so clients of this pool are refused\n\
             f:2:1: warning: pool.p: no front door uses this pool",
        ),
        (
            with_backends("{ address = '10.0.0.1:80', weight = 0 }"),
            "f:7:12: warning: pool.p.backends: every backend has weight 0, so clients of this pool are refused",
        ),
        (
            with_backends("{ address = '10.0.0.1:80', weight = 2 }"),
            "f:7:49: warning: pool.p.backends[10.0.0.1:80].weight: has no effect: least-connection ignores weights; use weighted-least-connection",
        ),
        (
            tcp,
            "f:8:12: warning: pool.p.upstream: has no effect: no front door of this pool speaks HTTP",
        ),
        (
            udp,
            "f:8:14: warning: pool.p.send-proxy: has no effect: no front door of this pool is tcp",
        ),
        (
            in_session("protocol = 'tcp'\nbody-max = '1MB'"),
            "f:6:12: warning: session[0.0.0.0:80].body-max: has no effect: this front door does not speak HTTP",
        ),
    ];
    assert_said(&cases, str::to_string);
}

#[test]
fn syntax_errors_are_all_given_and_nothing_else() {
    assert_eq!(
        said("[instance]\nname = \nthreads = many\n[api\n[[pool]]\nretries = 99\nretries = 1\n"),
        "f:2:8: not TOML: no value after `=`\n\
         f:3:11: not TOML: string values must be quoted, expected literal string\n\
         f:4:5: not TOML: unclosed table, expected `]`\n\
         f:7:1: not TOML: duplicate key"
    );
}

#[test]
fn ten_errors_are_ten_lines_in_the_order_of_the_file() {
    let text = "\
[instance]
threads = 5000
[api]
listen = 'everywhere'
[log]
level = 'loud'
[shutdown]
grace = 30
[[pool]]
name = 'web'
scheduler = 'fair'
backends = ['10.0.0.1:80', { address = '10.0.0.2:80', weight = 5000 }]
health = { http = '/', interval = '2x' }
[[session]]
listen = '0.0.0.0:80'
protocol = 'https'
pool = 'wob'
[[slice]]
";
    let said = said(text);
    let line = |text: &str| text.split(':').nth(1).unwrap().parse::<usize>().unwrap();
    let lines: Vec<usize> = said.lines().map(line).collect();
    assert_eq!(lines, [2, 4, 6, 8, 11, 12, 13, 16, 17, 18], "{said}");
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let errors = load(Path::new("/nonexistent/edge.toml")).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "/nonexistent/edge.toml: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn a_file_with_every_common_table_loads() {
    let text = r#"
[instance]                      # optional
name = "edge-1"                 # default: the host name
threads = 0                     # data-plane threads; 0: one per core

[[pool]]
name = "web"
scheduler = "least-connection"
backends = ["10.0.0.11:8080", { address = "10.0.0.12:8080", weight = 2 }]
upstream = "exclusive"          # or "multiplexed"
health = { http = "/healthz", interval = "2s", rise = 2, fall = 3 }

[[session]]                     # one table per front door
listen = "0.0.0.0:80"
protocol = "http"               # tcp | udp | http
pool = "web"
"#;
    let config = read(text).unwrap().config;
    assert_eq!(&*config.instance.name, "edge-1");
    let pool = &config.session.pools[0];
    let backends: Vec<_> =
        pool.backends.iter().map(|b| (b.address.to_string(), b.weight.get())).collect();
    assert_eq!(backends, [("10.0.0.11:8080".to_string(), 1), ("10.0.0.12:8080".to_string(), 2)]);
    assert_eq!(&*config.session.front_doors[0].name, "http:0.0.0.0:80");
}

#[test]
fn tokens_say_what_is_missing_doubled_or_open_to_others() {
    let hash = "a".repeat(64);
    let token = |more: &str| format!("[[api.token]]\nname = 't'\nrole = 'read'\n{more}");
    let twice = |second: &str| {
        format!(
            "{}\n[[api.token]]\n{second}\nrole = 'admin'\nfile = '/token'",
            token("file = '/token'")
        )
    };
    let said = |text: &str| said(&format!("session = []\n{text}"));
    assert_eq!(said(&token("file = '/token'")), "");
    assert_eq!(said(&token(&format!("hash = 'sha256:{hash}'"))), "");
    let remote = format!("[api]\nlisten = '0.0.0.0:9909'\n{}", token("file = '/token'"));
    assert_eq!(said(&remote), "");
    for (text, expected) in [
        (
            token(""),
            "f:2:1: api.token.t.file: missing; accepted: `file`, a path to a file with the token in it, or `hash`, its digest (equipoise api-token FILE makes both)",
        ),
        (
            token("file = '/none'"),
            "f:5:8: api.token.t.file: \"/none\" cannot be read: No such file or directory; accepted: a file with the token in it",
        ),
        (
            token("file = '/short'"),
            "f:5:8: api.token.t.file: \"/short\" is not a token's file: it holds a token of 10 characters; accepted: 32 to 1024, at random (equipoise api-token FILE)",
        ),
        (
            token("file = '/open'"),
            "f:5:8: warning: api.token.t.file: \"/open\" has the mode 0644, so users besides its owner and group can get at the token; accepted: 0600 or 0640 (chmod o-rwx,g-w /open)",
        ),
        (
            token("hash = 'md5:1'"),
            "f:5:8: api.token.t.hash: 'md5:1' is not a token's digest; accepted: \"sha256:\" and 64 hexadecimal digits (equipoise api-token FILE prints it)",
        ),
        (
            token(&format!("file = '/token'\nhash = 'sha256:{hash}'")),
            "f:6:8: api.token.t.hash: `file` is given too; accepted: one of the two",
        ),
        (
            twice("name = 'u'"),
            "f:6:1: api.token.u: the same token as that of `t`; accepted: a token of its own, so that the audit log can tell them apart (equipoise api-token FILE makes one)",
        ),
    ] {
        assert_eq!(said(&text), expected, "{text}");
    }
    assert!(
        said(&twice("name = 't'")).contains("\"t\" is in use, on line 3"),
        "{}",
        said(&twice("name = 't'"))
    );
}

#[test]
fn links_have_a_speed_with_a_unit_and_are_there_once() {
    let accepted = "a whole number and a unit (Kbit/s, Mbit/s, Gbit/s, Tbit/s), 1Kbit/s to 100Tbit/s, such as \"2500Mbit/s\"";
    for (links, expected) in [
        (
            "[{ interface = 'eth0', speed = '2.5G' }]",
            format!("f:1:45: load.links[eth0].speed: '2.5G' is not a link's speed; accepted: {accepted}"),
        ),
        (
            "[{ interface = 'eth0', speed = 1000 }]",
            format!("f:1:45: load.links[eth0].speed: 1000 is a whole number; accepted: {accepted}"),
        ),
        (
            "[{ interface = 'eth0', speed = '1Gbit/s' }, { interface = 'eth0', speed = '2Gbit/s' }]",
            "f:1:72: load.links[eth0].interface: \"eth0\" is there twice; accepted: each interface once"
                .to_string(),
        ),
    ] {
        let said = said(&format!("load.links = {links}\n{WEB}"));
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
}

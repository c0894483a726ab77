//! The file as a whole.

use std::path::Path;

use equipoise_config::load;

use crate::bed::{read, said};

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
[[topic]]
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
upstream = "exclusive"          # or "multiplexed", "http2"
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
fn the_time_of_a_replaced_process_is_a_duration_of_at_most_a_day() {
    let said = said("[shutdown]\nupgrade-grace = '2d'\n");
    assert!(
        said.contains(
            "f:2:17: shutdown.upgrade-grace: '2d' is too long; accepted: a number and a unit \
             (ms, s, m, h, d), 0s to 1d"
        ),
        "{said}"
    );
}

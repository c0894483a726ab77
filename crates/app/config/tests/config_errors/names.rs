//! Unknown or missing options and tables, and names that occur twice or do not exist.

use crate::bed::{WEB, assert_said, door, in_pool, said};

#[test]
fn unknown_tables_and_options_name_the_nearest_known_one() {
    assert_said(
        &[
            (
                "[[topic]]\nname = 'x'",
                "f:2:3: topic: unknown table in this version; known: instance, api, log, tracing, shutdown, load, controller, cluster, acme, pool, session, dispatch, packet, flows, dns, nameserver, slice",
            ),
            ("[pools]", "f:2:2: pools: unknown table in this version; did you mean `pool`?"),
            (
                "[instance]\nthread = 1",
                "f:3:1: instance.thread: unknown option in this version; did you mean `threads`?",
            ),
            (
                "[instance]\ncolour = 1",
                "f:3:1: instance.colour: unknown option in this version; known: name, threads, memory-max",
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
fn missing_options_are_reported_at_the_start_of_their_table() {
    let name = "accepted: 1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit";
    assert_eq!(
        said("[[session]]\n"),
        format!(
            "f:1:1: session[#1].listen: missing; accepted: IP:PORT or *:PORT, such as \"0.0.0.0:80\", \"[::]:80\" or \"*:80\"; or a list of such\n\
             f:1:1: session[#1].protocol: missing; accepted: \"tcp\", \"udp\" or \"http\"\n\
             f:1:1: session[#1].pool: missing; {name}"
        )
    );
    // The front door may refer to the pool without a name: this is not a second error.
    let nameless = "[[pool]]\nbackends = ['10.0.0.1:80']\n";
    assert_eq!(
        said(&format!("{nameless}{}", door("[::]:80", "tcp", "p"))),
        format!("f:1:1: pool[#1].name: missing; {name}")
    );
    // The same if the pool is written as a single table.
    assert_eq!(
        said(&format!("[pool]\nname = 'p'\n{}", door("[::]:80", "tcp", "p"))),
        "f:1:1: pool: a table stands here; accepted: tables: [[pool]] above each"
    );
}

#[test]
fn duplicate_and_unknown_names_and_addresses_are_rejected() {
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
                "{WEB}concurrency = 40\n{}{}",
                door("0.0.0.0:80", "http", "web"),
                door("0.0.0.0:80", "tcp", "web")
            ),
            "f:10:10: session[0.0.0.0:80].listen: \"0.0.0.0:80\" is in use, on line 6; accepted: a free address or port",
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

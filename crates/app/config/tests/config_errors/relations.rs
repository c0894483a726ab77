//! Options that exclude each other, or have no effect.

use crate::bed::{assert_said, in_pool, in_session, read, said, with_backends};

#[test]
fn a_protocol_that_is_agreed_on_by_alpn_needs_tls() {
    assert_eq!(
        said(&in_pool("upstream = 'auto'")),
        "f:8:12: pool.p.upstream: HTTP/2 is agreed on by ALPN, which is a part of TLS; accepted: `tls` of the pool, or another `upstream`"
    );
}

#[test]
fn options_that_exclude_each_other_are_errors() {
    assert_said(
        &[
            (
                "health = {}",
                "f:8:10: pool.p.health: none of `tcp`, `http` and `grpc` is set; accepted: tcp = true, http = \"/PATH\" or grpc = \"SERVICE\"",
            ),
            (
                "health = { tcp = true, http = '/' }",
                "f:8:18: pool.p.health.tcp: true, together with `http`; accepted: one of the two (http opens a connection too)",
            ),
            (
                "health = { tcp = true, host = 'x' }",
                "f:8:31: pool.p.health.host: has no effect on a tcp check; accepted: with `http` beside it",
            ),
            (
                "health = { tcp = true, method = 'HEAD' }",
                "f:8:33: pool.p.health.method: has no effect on a tcp check; accepted: with `http` beside it",
            ),
            (
                "health = { http = '/', method = 'HEAD', body = 'ok' }",
                "f:8:48: pool.p.health.body: a response to HEAD has no body; accepted: `method` GET, OPTIONS or POST, or no `body`",
            ),
            (
                "upstream = 'multiplexed'\nhedge = 'p95'",
                "f:9:9: pool.p.hedge: a request on a shared session cannot be hedged; accepted: `upstream = \"exclusive\"`, `\"http2\"` or `\"auto\"`",
            ),
            (
                "tls = { verify = false }\nhealth = { grpc = '' }",
                "f:8:18: warning: pool.p.tls.verify: false, so backends are not verified: anyone on the way can read and change what passes\nf:9:19: pool.p.health.grpc: over TLS this check needs HTTP/2 of the pool's backends; accepted: `upstream = \"http2\"`, or no `tls`",
            ),
            (
                "passive = { ejection = '10m' }",
                "f:8:24: pool.p.passive.ejection: `ejection-max` (5m) is below `ejection` (10m); accepted: as long or longer",
            ),
        ],
        in_pool,
    );
    let at_unix_socket = in_pool("health = { tcp = true, port = 81 }")
        .replace("'10.0.0.1:80'", "'unix:/run/app.sock'");
    assert_eq!(
        said(&at_unix_socket),
        "f:8:31: pool.p.health.port: has no effect on a unix socket, which this pool has as a backend; accepted: without `port`, or with backends at IP:PORT alone"
    );
    assert_eq!(
        said(&in_session("protocol = 'udp'\naccept-proxy = true")),
        "f:6:16: session[0.0.0.0:80].accept-proxy: true, but datagrams carry no PROXY protocol header; accepted with udp: false"
    );
    assert_eq!(
        said(&in_session("protocol = 'http'\naccept-proxy = true")),
        "f:6:16: session[0.0.0.0:80].accept-proxy: true, but no sender is `trusted`; accepted: `trusted` with the addresses of the proxies that send the header, such as trusted = [\"10.0.0.0/8\"]"
    );
    assert_eq!(
        said(&in_session("protocol = 'http'\nforwarded = 'append'")),
        "f:6:13: session[0.0.0.0:80].forwarded: 'append' is not a header that this front door writes; accepted: \"x-forwarded-for\", \"x-forwarded-proto\", \"x-forwarded-host\", \"x-real-ip\" or \"forwarded\" (whose headers pass depends on `trusted`); or a list of such"
    );
    assert_eq!(
        said(&in_pool("health = { http = '/' }").replace("'http'", "'udp'")),
        "f:8:19: pool.p.health.http: every front door of this pool is udp, whose backends do not answer HTTP there; accepted: tcp = true where they accept TCP too, or no `health`"
    );
    assert_eq!(
        said(&in_pool("concurrency = 'learnt'").replace("'http'", "'udp'")),
        "f:8:15: pool.p.concurrency: \"learnt\", and a front door that speaks udp uses this pool, from which no limit can be learned; accepted: a number or \"none\""
    );
    let paused = "[pool.elastic]\nmode = 'paused'\nmin = 1\nmax = 2\n[pool.elastic.process]\ncommand = ['x']";
    assert!(
        said(&in_pool(paused).replace("'http'", "'udp'"))
            .contains("this elastic pool would learn it")
    );
    let limited = in_pool("concurrency = 40").replace("'http'", "'udp'");
    assert!(read(&limited).is_ok(), "{}", said(&limited));
}

#[test]
fn a_grpc_check_has_no_options_of_http_and_is_the_only_check() {
    assert_said(
        &[
            (
                "health = { grpc = 'orders.v1.Orders', host = 'a' }",
                "f:8:46: pool.p.health.host: has no effect on a grpc check; accepted: with `http` beside it",
            ),
            (
                "health = { http = '/', grpc = '' }",
                "f:8:31: pool.p.health.grpc: set, together with `http`; accepted: one of the two",
            ),
        ],
        in_pool,
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
                "streams-max = 8",
                "f:8:15: warning: pool.p.streams-max: has no effect: `upstream` is \"exclusive\"",
            ),
            (
                "upstream = 'http2'\nidle-sessions-max = 8",
                "f:9:21: warning: pool.p.idle-sessions-max: has no effect: `upstream` is \"http2\"",
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
            "# A template that failed.".to_string(),
            "f:1:1: warning: session: no front door, pool or zone, so this file configures nothing; add a [[session]], [[dispatch]], [[packet]], [[dns]] or [[slice]] table",
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
        (in_pool("send-proxy = 'v2'"), ""),
        (
            in_pool("send-proxy = 'v2'\nupstream = 'multiplexed'"),
            "f:8:14: pool.p.send-proxy: the header names one client, and clients share sessions by `upstream`; accepted: `upstream = \"exclusive\"`, or no `send-proxy`: http front doors send the client's address in headers",
        ),
        (
            in_pool("send-proxy = 'v1'\nupstream = 'http2'"),
            "f:8:14: pool.p.send-proxy: the header names one client, and clients share sessions by `upstream`; accepted: `upstream = \"exclusive\"`, or no `send-proxy`: http front doors send the client's address in headers",
        ),
        (
            udp,
            "f:8:14: warning: pool.p.send-proxy: has no effect: no front door of this pool is tcp or http",
        ),
        (
            in_session("protocol = 'tcp'\nbody-max = '1MB'"),
            "f:6:12: warning: session[0.0.0.0:80].body-max: has no effect: this front door does not speak HTTP",
        ),
    ];
    assert_said(&cases, str::to_string);
}

#[test]
fn a_list_of_addresses_has_one_at_least_and_each_once() {
    let session = |listen: &str| {
        said(&format!(
            "session = [{{ listen = {listen}, protocol = 'tcp', pool = 'p' }}]\n\
             pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]"
        ))
    };
    for listen in ["['0.0.0.0:80', '[::]:80']", "'*:80'", "['127.0.0.1:80', '*:81']"] {
        assert_eq!(session(listen), "", "{listen}");
    }
    let in_use = "\"[::]:80\" is in use, on line 1; accepted: a free address or port";
    assert!(session("['*:80', '[::]:80']").contains(in_use));
    assert!(session("[]").contains(".listen: an empty list; accepted: one address or more"));
    assert!(session("'*:99999'").contains("is not an address to listen on"));
}

#[test]
fn levels_that_do_not_know_backups_are_named() {
    let pool = "pool = [{ name = 'p', backends = ['10.0.0.1:80', { address = '10.0.0.2:80', backup = true }] }]\n";
    let session = "session = [{ listen = '0.0.0.0:80', protocol = 'tcp', pool = 'p' }]\n";
    assert_eq!(said(&format!("{pool}{session}")), "");
    let packet =
        "[[packet]]\nvip = '192.0.2.1:80/tcp'\ninterface = 'eth0'\nforward = 'gue'\npool = 'p'\n";
    let found = said(&format!("{pool}{session}{packet}"));
    assert!(!found.contains("backup"), "{found}");
}

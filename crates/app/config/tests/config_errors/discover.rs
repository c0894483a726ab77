//! `[pool.discover]`.

use crate::bed::assert_said;

/// A pool with this line, and a front door.
fn with(line: &str) -> String {
    format!(
        "[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\n[[pool]]\nname = 'p'\n{line}"
    )
}

#[test]
fn a_pool_has_one_source_with_its_options() {
    assert_said(
        &[
            ("discover = { file = { path = '/web.json' } }", ""),
            ("discover = { dns = { name = '_http._tcp.a.', type = 'srv' } }", ""),
            ("discover = { dns = { name = 'a', port = 80, servers = ['[::1]:53'] } }", ""),
            (
                "discover = { labels = 'a=b' }",
                "f:7:12: pool.p.discover: states no source; accepted: one of `file`, `dns`",
            ),
            (
                "discover = { file = { path = '/x' }, dns = { name = 'a', port = 80 } }",
                "f:7:44: pool.p.discover.dns: `file` is stated too; accepted: one source",
            ),
            (
                "discover = { file = { path = 'web.json' } }",
                "f:7:30: pool.p.discover.file.path: 'web.json' is not a path of a file; accepted: an absolute path, such as \"/etc/equipoise/web.json\"",
            ),
            (
                "discover = { dns = { name = 'a' } }",
                "f:7:20: pool.p.discover.dns.port: missing; accepted: the port of the backends, or `type = \"srv\"`",
            ),
            (
                "discover = { dns = { name = 'a', type = 'srv', port = 80 } }",
                "f:7:55: warning: pool.p.discover.dns.port: has no effect: SRV records have the port",
            ),
            (
                "discover = { dns = { name = 'a', port = 80, ttl-min = '10m' } }",
                "f:7:55: pool.p.discover.dns.ttl-min: larger than `ttl-max`; accepted: at most that",
            ),
            (
                "discover = { dns = { name = 'a', port = 80, servers = [] } }",
                "f:7:55: pool.p.discover.dns.servers: an empty list; accepted: at least one server",
            ),
            (
                "discover = { dns = { name = 'a..b', port = 80, servers = '10.0.0.1' } }",
                "f:7:29: pool.p.discover.dns.name: 'a..b' is not a domain name; accepted: labels of at most 63 letters, digits, `-` and `_` with dots between them, such as \"_http._tcp.app.internal\"\n\
                 f:7:58: pool.p.discover.dns.servers: '10.0.0.1' is not a DNS server; accepted: IP:PORT, such as \"10.0.0.53:53\"; or a list of such",
            ),
            (
                "discover = { file = { path = '/x' } }\nelastic = { max = 3, exec = { add = '/a', remove = '/r' } }",
                "f:7:12: pool.p.discover: the pool is elastic too; accepted: one of `discover` and `elastic`",
            ),
        ],
        with,
    );
}

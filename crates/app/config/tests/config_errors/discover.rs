//! `[pool.discover]`.

use crate::bed::{assert_said, said};

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
                "f:7:12: pool.p.discover: states no source; accepted: one of `file`, `dns`, `http`, `etcd`, `consul`, `kubernetes`",
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
            ("discover = { http = { url = 'https://a/b', interval = '1s', ca = '/x' } }", ""),
            ("discover = { etcd = { members = 'http://a:2379', prefix = 'services/web' } }", ""),
            ("discover = { consul = { service = 'web', tag = 'a' } }", ""),
            ("discover = { kubernetes = { service = 'web', port = 'http' } }", ""),
            (
                "discover = { http = { url = 'ftp://a', token-file = '/open' } }",
                "f:7:29: pool.p.discover.http.url: 'ftp://a' is not a URL; accepted: an http or https URL, such as \"https://scaler.internal/add\"\n\
                 f:7:53: warning: pool.p.discover.http.token-file: \"/open\" has the mode 0644, so users besides its owner and group have access to the token; accepted: 0600 or 0640 (chmod o-rwx,g-w /open)",
            ),
            (
                "discover = { etcd = { members = 'https://a:2379', prefix = '/services/' } }",
                "f:7:33: pool.p.discover.etcd.members: https needs the certificate of etcd's authority; accepted: https with `authority`\n\
                 f:7:60: pool.p.discover.etcd.prefix: '/services/' is not a prefix of keys; accepted: words of letters, digits and `. _ : @ + -` with `/` between them, such as \"services/web\"",
            ),
            (
                "discover = { kubernetes = { service = 'Web' }, consul = {} }",
                "f:7:27: pool.p.discover.kubernetes: `consul` is stated too; accepted: one source\n\
                 f:7:39: pool.p.discover.kubernetes.service: 'Web' is not a name of Kubernetes; accepted: 1 to 63 lower-case letters, digits and `-`, such as \"web\"\n\
                 f:7:57: pool.p.discover.consul.service: missing; accepted: 1 to 128 letters, digits, `.`, `_` and `-`",
            ),
            (
                "discover = { file = { path = '/x' } }\nelastic = { max = 3, exec = { add = '/a', remove = '/r' } }",
                "f:7:12: pool.p.discover: the pool is elastic too; accepted: one of `discover` and `elastic`",
            ),
        ],
        with,
    );
}

#[test]
fn a_name_over_a_pool_with_a_source_gives_addresses() {
    let zone = |mode: &str, max: usize| {
        format!(
            "[[pool]]\nname = 'web'\n[pool.discover]\nbackends-max = {max}\nfile = {{ path = '/x' }}\n\
             [[dns]]\nzone = 'a.example.'\nlisten = '0.0.0.0:53'\nns = ['ns.b.example.']\npool = 'web'\nmode = '{mode}'\n"
        )
    };
    assert_eq!(said(&zone("pair", 1000)), "");
    assert_eq!(said(&zone("ordered", 64)), "");
    let hosts = said(&zone("srv", 64));
    assert!(
        hosts.contains(
            "the source of pool \"web\" reports have none; accepted: a mode of addresses"
        ),
        "{hosts}"
    );
    let many = said(&zone("ordered", 65));
    assert!(many.contains("has 65 nodes, and mode \"ordered\" gives all of them"), "{many}");
}

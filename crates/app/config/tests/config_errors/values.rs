//! Values of the wrong type, out of bounds, or of another form.

use crate::bed::{assert_said, in_pool, in_session, said};

#[test]
fn invalid_numbers_and_durations_are_reported_with_the_accepted_range() {
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
fn invalid_keywords_flags_and_strings_are_reported_with_accepted_forms() {
    assert_said(
        &[
            (
                "upstream = 'multiplex'",
                "f:8:12: pool.p.upstream: 'multiplex' is none of them (did you mean \"multiplexed\"?); accepted: \"exclusive\", \"multiplexed\", \"http2\" or \"auto\"",
            ),
            (
                "scheduler = 'random(2)'",
                "f:8:13: pool.p.scheduler: 'random(2)' is none of them (did you mean \"power-of-two\"?); accepted: \"round-robin\", \"weighted-round-robin\", \"least-connection\", \"weighted-least-connection\", \"weighted-random\", \"power-of-two\", \"least-time\", \"prequal\", \"maglev\" or \"source-hash\"",
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
                "f:8:33: pool.p.health.status: 200 is a whole number; accepted: statuses, and ranges of two with `-` between them, 100 to 599, with `,` between the parts, such as \"200-299\" or \"200-299,401\"",
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
fn invalid_sizes_are_reported_with_the_accepted_range() {
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
fn invalid_names_addresses_and_paths_are_reported_with_accepted_forms() {
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
                "f:3:10: api.listen: \"0.0.0.0:9909\" can be reached from other machines, and no token is configured; accepted: a loopback address; another address with an [[api.token]] (equipoise api-token FILE creates one) or with certificates of clients that `tls` requires; or another address with allow-remote = true, so that other machines can read, and cannot change anything",
            ),
            ("[api]\nlisten = '0.0.0.0:9909'\nallow-remote = true", ""),
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
        "f:1:23: session[:80].listen: ':80' is not an address to listen on; accepted: IP:PORT or *:PORT, such as \"0.0.0.0:80\", \"[::]:80\" or \"*:80\"; or a list of such\n\
         f:1:55: session[:80].pool: no pool is named \"p\"; add a [[pool]] table"
    );
}

#[test]
fn invalid_log_and_tracing_options_are_reported_with_accepted_forms() {
    assert_said(
        &[
            (
                "[log]\naccess-log = 'out'",
                "f:3:14: log.access-log: 'out' is not a place for the access log; accepted: \"stderr\", \"stdout\", a path with a `/` in it, such as \"/var/log/equipoise/access.log\", \"syslog\" (/dev/log), \"syslog:/PATH\" of a socket or \"syslog:IP:PORT\" (UDP)",
            ),
            ("[log]\naccess-log = 'syslog'\naccess-format = 'combined'", ""),
            ("[log]\naccess-log = 'syslog:[::1]:514'\naccess-fields = ['client', 'route']", ""),
            (
                "[log]\naccess-log = 'syslog:log.internal:514'",
                "f:3:14: log.access-log: 'syslog:log.internal:514' is not a place for the access log; accepted: \"stderr\", \"stdout\", a path with a `/` in it, such as \"/var/log/equipoise/access.log\", \"syslog\" (/dev/log), \"syslog:/PATH\" of a socket or \"syslog:IP:PORT\" (UDP)",
            ),
            (
                "[tracing]\notlp = 'grpc://127.0.0.1:4317'",
                "f:3:8: tracing.otlp: 'grpc://127.0.0.1:4317' is not a collector; accepted: http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH], such as \"http://127.0.0.1:4318\"",
            ),
            ("[tracing]\notlp = 'https://collector:4318'", ""),
            (
                "[tracing]\notlp = 'https://collector:4318'\nca = '/none.pem'",
                "f:4:6: tracing.ca: \"/none.pem\" cannot be read: No such file or directory; accepted: a file of PEM",
            ),
            (
                "[tracing]\notlp = 'https://collector:4318'\nca = '/seed'",
                "f:4:6: tracing.ca: \"/seed\" has no certificate in PEM (-----BEGIN CERTIFICATE-----)",
            ),
            ("[tracing]\notlp = 'http://[::1]:4318/otlp'\nsample = 1.0\nservice = 'edge'", ""),
            (
                "[log]\naccess-format = 'apache'",
                "f:3:17: log.access-format: 'apache' is none of them; accepted: \"text\", \"json\" or \"combined\"",
            ),
            (
                "[log]\naccess-fields = ['paths']",
                "f:3:18: log.access-fields: 'paths' is not a field of the access log; accepted: the fields in docs/operations/logs.md, such as \"client\" or \"route\"; or a list of such",
            ),
            (
                "[log]\naccess-fields = []",
                "f:3:17: log.access-fields: an empty list; accepted: one field or more",
            ),
            (
                "[log]\naccess-format = 'combined'\naccess-fields = ['path']\n[nameserver]\nquery-log = 0.5",
                "f:4:17: log.access-fields: stated, and the combined format has its own; accepted: `access-format` \"text\" or \"json\"\n\
                 f:6:13: nameserver.query-log: above 0.0, and the combined format has lines for HTTP requests only; accepted: `log.access-format` \"text\" or \"json\"",
            ),
        ],
        |text| format!("session = []\n{text}"),
    );
    assert_eq!(
        said(
            "pool = [{ name = 'p', backends = ['10.0.0.1:80'] }]\n\
             session = [{ listen = '0.0.0.0:80', protocol = 'tcp', pool = 'p', access-log = 1.0 }]\n\
             log.access-format = 'combined'"
        ),
        "f:2:80: session[0.0.0.0:80].access-log: above 0.0, and the combined format has lines for HTTP requests only; accepted: `log.access-format` \"text\" or \"json\""
    );
}

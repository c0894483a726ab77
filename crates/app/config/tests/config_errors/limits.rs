//! Errors of `allow`, `deny` and `[[session.limit]]`.

use super::bed;

/// The messages about a front door of this protocol with these options.
fn said(protocol: &str, options: &str) -> String {
    bed::said(&format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n\
         [[session]]\nlisten = '0.0.0.0:443'\nprotocol = '{protocol}'\npool = 'p'\n{options}\n"
    ))
}

#[test]
fn a_limit_limits_something_that_the_front_door_has() {
    let limit =
        |protocol: &str, options: &str| said(protocol, &format!("limit = [{{ {options} }}]"));
    for protocol in ["http", "tcp"] {
        for good in [
            "rate = '100/s'",
            "rate = '1/h', burst = 5",
            "connections = 20",
            "rate = '600/m', connections = 20, ipv4-prefix = 24, ipv6-prefix = 48",
            "by = 'front-door', rate = '1000/s'",
        ] {
            assert_eq!(limit(protocol, good), "", "{protocol}: {good}");
        }
    }
    assert_eq!(limit("http", "by = 'header:X-Api-Key', rate = '10/s'"), "");
    for (protocol, options, expected) in [
        ("http", "by = 'source'", "rate: missing; accepted: `rate` or `connections`, or both"),
        ("http", "connections = 5, burst = 5", "burst: stated, but there is no `rate`"),
        ("http", "rate = '0/s'", "'0/s' is not a rate"),
        ("http", "rate = '5/d'", "'5/d' is not a rate"),
        ("http", "rate = '+5/s'", "'+5/s' is not a rate"),
        ("http", "rate = '5'", "'5' is not a rate"),
        ("http", "by = 'route', rate = '5/s'", "'route' is not a way to count"),
        ("http", "by = 'cookie', rate = '5/s'", "'cookie' is not a way to count"),
        ("http", "by = 'header:', rate = '5/s'", "'header:' is not a way to count"),
        ("http", "by = 'header:a b', rate = '5/s'", "'header:a b' is not a way to count"),
        (
            "http",
            "by = 'header:a', connections = 5",
            "connections: stated, but a connection has no header",
        ),
        (
            "http",
            "by = 'front-door', rate = '5/s', ipv4-prefix = 24",
            "ipv4-prefix: stated, but the limit is not by",
        ),
        (
            "tcp",
            "by = 'header:a', rate = '5/s'",
            "by: a header, and this front door does not speak HTTP",
        ),
        ("http", "rate = '5/s', shared = true", "accepted: by = \"front-door\""),
        (
            "http",
            "by = 'front-door', connections = 5, shared = true",
            "shared: true, but there is no `rate`",
        ),
        ("udp", "rate = '5/s'", "limit: stated, and this front door speaks udp"),
    ] {
        let found = limit(protocol, options);
        assert!(found.contains(expected), "{protocol} {options}\n{found}\nlacks: {expected}");
    }
}

#[test]
fn a_shared_rate_needs_a_cluster() {
    let shared = "limit = [{ by = 'front-door', rate = '1000/s', shared = true }]";
    let found = said("http", shared);
    assert!(
        found.contains("warning") && found.contains("this machine is in no cluster"),
        "{found}"
    );
    let cluster = format!("{shared}\n[cluster]\ncontrollers = 'c1:9911'\njoin-token-file = '/t'");
    let found = said("http", &cluster);
    assert!(!found.contains("no cluster"), "{found}");
}

#[test]
fn a_wrong_rate_is_one_error() {
    let found = said("http", "limit = [{ rate = '5', burst = 3 }]");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn a_prefix_is_allowed_or_denied() {
    for protocol in ["http", "tcp", "udp"] {
        let lists = "allow = ['10.0.0.0/8', '2001:db8::/32']\ndeny = ['10.1.0.0/16', '192.0.2.7']";
        assert_eq!(said(protocol, lists), "");
    }
    let both = said("http", "allow = ['10.0.0.0/8']\ndeny = ['10.0.0.0/8']");
    assert!(both.contains("\"10.0.0.0/8\" is in `allow`, too"), "{both}");
    let wrong = said("http", "deny = ['10.0.0.0/33']");
    assert!(wrong.contains("'10.0.0.0/33' is not"), "{wrong}");
}

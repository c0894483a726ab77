//! Messages about wrong `[[packet]]` and `[flows]` tables: the whole text.

use crate::common::said_among;

const FILES: &[(&str, &str)] = &[("/seed", "0123456789abcdef\n"), ("/short", "0123456789\n")];

fn said(text: &str) -> String {
    said_among(FILES, text)
}

/// A pool `p` on line 1, then a VIP that uses it. The additional text is line 7.
fn in_packet(vip: &str, forward: &str, more: &str) -> String {
    format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80', '10.0.0.2:80'] }}]\n\
         [[packet]]\nvip = '{vip}'\nforward = '{forward}'\npool = 'p'\ninterface = 'eth0'\n{more}\n"
    )
}

fn assert_said<T: AsRef<str>>(cases: &[(T, &str)], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(said(&file(text.as_ref())), *expected, "{}", text.as_ref());
    }
}

const VIP: &str = "IP:PORT/PROTOCOL with tcp or udp, such as \"192.0.2.10:443/tcp\" or \"[2001:db8::1]:53/udp\"; PORT may be a range (\"8000-8999\") or \"*\", and IP neither loopback nor multicast";

#[test]
fn a_valid_vip_loads_without_warnings() {
    for (vip, forward) in [
        ("192.0.2.1:80/tcp", "nat"),
        ("192.0.2.1:8080/tcp", "nat"),
        ("192.0.2.1:80/udp", "tunnel"),
        ("192.0.2.1:*/tcp", "direct-routing"),
        ("192.0.2.1:80-90/tcp", "gue"),
        ("[2001:db8::1]:80/tcp", "tunnel"),
    ] {
        assert_eq!(said(&in_packet(vip, forward, "")), "", "{vip} {forward}");
    }
    for more in ["interface = ['eth0', 'eth1']", "interface = 'eth0'\nscheduler = 'round-robin'"] {
        let file = in_packet("192.0.2.1:80/tcp", "nat", "").replace("interface = 'eth0'", more);
        assert_eq!(said(&file), "", "{more}");
    }
}

#[test]
fn invalid_vip_options_are_reported_with_the_accepted_values() {
    for vip in
        ["192.0.2.1:80", "192.0.2.1/tcp", "127.0.0.1:80/tcp", "web:80/tcp", "192.0.2.1:80/sctp"]
    {
        assert_eq!(
            said(&in_packet(vip, "nat", "")),
            format!("f:3:7: packet[{vip}].vip: '{vip}' is not a VIP; accepted: {VIP}")
        );
    }
    assert_said(
        &[
            (
                "scheduler = 'least-time'",
                "f:7:13: packet[192.0.2.1:80/tcp].scheduler: 'least-time' is none of them; accepted: \"maglev\", \"weighted-random\", \"round-robin\", \"weighted-round-robin\", \"least-connection\", \"weighted-least-connection\", \"sed\", \"nq\" or \"sh\"",
            ),
            (
                "key = 'source'",
                "f:7:7: packet[192.0.2.1:80/tcp].key: 'source' is none of them (did you mean \"source-address\"?); accepted: \"five-tuple\", \"source-address\", \"source-prefix\" or \"source-mac\"",
            ),
            (
                "when-down = true",
                "f:7:13: packet[192.0.2.1:80/tcp].when-down: true is a boolean; accepted: \"move\" or \"keep\"",
            ),
            (
                "reply-interface = 'eth0:1'",
                "f:7:19: packet[192.0.2.1:80/tcp].reply-interface: 'eth0:1' is not the name of an interface; accepted: 1 to 15 characters without white space, `/` or `:`, such as \"eth0\"; or a list of such",
            ),
            (
                "reply-interface = ['eth1', 2]",
                "f:7:28: packet[192.0.2.1:80/tcp].reply-interface: 2 is a whole number; accepted: 1 to 15 characters without white space, `/` or `:`, such as \"eth0\"; or a list of such",
            ),
            (
                "intreface = 'eth1'",
                "f:7:1: packet[192.0.2.1:80/tcp].intreface: unknown option in this version; did you mean `interface`?",
            ),
            (
                "reply-interface = 'eth0'",
                "f:7:19: warning: packet[192.0.2.1:80/tcp].reply-interface: \"eth0\" has no effect here: `interface` names it",
            ),
        ],
        |more| in_packet("192.0.2.1:80/tcp", "nat", more),
    );
    assert_said(
        &[
            (
                "interface = []",
                "f:6:13: packet[192.0.2.1:80/tcp].interface: an empty list, so no packet arrives; accepted: at least one name",
            ),
            (
                "",
                "f:2:1: packet[192.0.2.1:80/tcp].interface: missing; accepted: 1 to 15 characters without white space, `/` or `:`, such as \"eth0\"; or a list of such",
            ),
        ],
        |line| in_packet("192.0.2.1:80/tcp", "nat", "").replace("interface = 'eth0'", line),
    );
}

#[test]
fn timeouts_of_a_vip_must_match_its_protocol_and_bounds() {
    let with = |times: &str| in_packet("192.0.2.1:80/tcp", "nat", times);
    assert_eq!(said(&with("tcp-timeout = '1h'\nclosing-timeout = '10s'")), "");
    assert_said(
        &[
            (
                "tcp-timeout = '5s'",
                "f:7:15: packet[192.0.2.1:80/tcp].tcp-timeout: '5s' is too short; accepted: a number and a unit (ms, s, m, h, d), 20s to 1d",
            ),
            (
                "udp-timeout = '1m'",
                "f:7:15: warning: packet[192.0.2.1:80/tcp].udp-timeout: has no effect: the VIP is not of UDP",
            ),
        ],
        with,
    );
    assert_eq!(
        said(&in_packet("192.0.2.1:80/udp", "nat", "udp-timeout = '1m'\nclosing-timeout = '1m'")),
        "f:8:19: warning: packet[192.0.2.1:80/udp].closing-timeout: has no effect: the VIP is not of TCP"
    );
}

#[test]
fn a_key_prefix_must_fit_the_address_family_of_the_vip() {
    let with = |key: &str| in_packet("192.0.2.1:80/tcp", "nat", key);
    for key in ["key = 'source-prefix'", "key = 'source-prefix'\nkey-prefix = 32"] {
        assert_eq!(said(&with(key)), "", "{key}");
    }
    let six = "key = 'source-prefix'\nkey-prefix = 56";
    assert_eq!(said(&in_packet("[2001:db8::1]:80/tcp", "tunnel", six)), "");
    assert_said(
        &[
            (
                "key = 'source-prefix'\nkey-prefix = 56",
                "f:8:14: packet[192.0.2.1:80/tcp].key-prefix: 56, and the VIP is IPv4; accepted: 1 to 32",
            ),
            (
                "key-prefix = 24",
                "f:7:14: warning: packet[192.0.2.1:80/tcp].key-prefix: has no effect without key = \"source-prefix\"",
            ),
        ],
        with,
    );
}

#[test]
fn a_second_chance_needs_gue_tcp_and_a_hash() {
    let on = "second-chance = true";
    for scheduler in ["maglev", "weighted-random"] {
        let more = format!("{on}\nscheduler = '{scheduler}'");
        assert_eq!(said(&in_packet("192.0.2.1:80/tcp", "gue", &more)), "");
    }
    assert_eq!(said(&in_packet("192.0.2.1:80/tcp", "nat", "second-chance = false")), "");
    let refused = |vip: &str, forward: &str, scheduler: &str| {
        said(&in_packet(vip, forward, &format!("{on}\nscheduler = '{scheduler}'")))
    };
    let no_field = "accepted with forward = \"gue\"";
    assert_eq!(
        refused("192.0.2.1:80/tcp", "tunnel", "maglev"),
        format!(
            "f:7:17: packet[192.0.2.1:80/tcp].second-chance: IP in IP has no field for the other backend's address; \
             {no_field}"
        )
    );
    for forward in ["nat", "direct-routing"] {
        assert_eq!(
            refused("192.0.2.1:80/tcp", forward, "maglev"),
            format!(
                "f:7:17: packet[192.0.2.1:80/tcp].second-chance: the packet has no outer header for the other backend's \
                 address; {no_field}"
            )
        );
    }
    assert_eq!(
        refused("192.0.2.1:80/udp", "gue", "maglev"),
        "f:7:17: packet[192.0.2.1:80/udp].second-chance: the VIP is UDP, and a backend does not know which flows of UDP \
         it has; accepted for VIPs of TCP"
    );
    assert_eq!(
        refused("192.0.2.1:80/tcp", "gue", "round-robin"),
        "f:7:17: packet[192.0.2.1:80/tcp].second-chance: `round-robin` places flows by the balancer's own history, so \
         another balancer cannot know the backend of a flow; accepted with \"maglev\" or \"weighted-random\""
    );
}

#[test]
fn source_lists_must_fit_the_vip_family_and_the_prefix_limit() {
    let with = |lists: &str| in_packet("192.0.2.1:80/tcp", "nat", lists);
    assert_eq!(said(&with("allow = '10.0.0.0/8'\ndeny = ['10.1.0.0/16', '10.2.0.0/16']")), "");
    assert_said(
        &[
            (
                "allow = ['10.0.0.0/8']\ndeny = ['10.0.0.0/8']",
                "f:8:8: packet[192.0.2.1:80/tcp].deny: \"10.0.0.0/8\" is in `allow`, too; accepted: one of them",
            ),
            (
                "deny = ['2001:db8::/32']",
                "f:7:8: warning: packet[192.0.2.1:80/tcp].deny: \"2001:db8::/32\" has no effect: it is IPv6, and the VIP's clients are IPv4",
            ),
            (
                "allow = ['10.0.0.0/8']\ndeny = ['10.1.0.0/16']\n[flows]\nprefixes-max = 1",
                "f:10:16: flows.prefixes-max: 1, but `allow` and `deny` of all [[packet]] tables have 2 prefixes; accepted: as many or more",
            ),
        ],
        with,
    );
}

#[test]
fn a_pool_must_exist_and_suit_the_forwarding_method() {
    assert_eq!(
        said(&in_packet("192.0.2.1:80/tcp", "nat", "").replace("pool = 'p'", "pool = 'q'")),
        "f:5:8: packet[192.0.2.1:80/tcp].pool: no pool is named \"q\"; did you mean `p`?"
    );
    assert_eq!(
        said(&in_packet("192.0.2.1:443/tcp", "tunnel", "")),
        "f:5:8: packet[192.0.2.1:443/tcp].pool: backend `10.0.0.1:80` has port 80 and the VIP 443, and tunnel does not change ports; accepted: the VIP's port, or forward = \"nat\""
    );
    for forward in ["nat", "direct-routing"] {
        assert_eq!(
            said(&in_packet("[2001:db8::1]:80/tcp", forward, "")),
            format!(
                "f:5:8: packet[[2001:db8::1]:80/tcp].pool: backend `10.0.0.1:80` is IPv4 and the VIP IPv6, which {forward} cannot join; accepted: backends of the VIP's family, or forward = \"tunnel\""
            )
        );
    }
}

#[test]
fn overlapping_vips_are_rejected() {
    let second = |vip: &str| {
        let more = format!(
            "[[packet]]\nvip = '{vip}'\nforward = 'tunnel'\npool = 'p'\ninterface = 'eth0'"
        );
        said(&in_packet("192.0.2.1:80/tcp", "tunnel", &more))
    };
    assert_eq!(second("192.0.2.1:80/udp"), "");
    assert_eq!(second("192.0.2.2:80/tcp"), "");
    // All ports that no other VIP has.
    assert_eq!(second("192.0.2.1:*/tcp"), "");
    for vip in ["192.0.2.1:80/tcp", "192.0.2.1:79-81/tcp"] {
        assert_eq!(
            second(vip),
            format!(
                "f:8:7: packet[{vip}].vip: \"{vip}\" overlaps \"192.0.2.1:80/tcp\", on line 3; accepted: VIPs of which no two share an address, port and protocol"
            )
        );
    }
}

#[test]
fn full_nat_needs_source_addresses_of_its_own() {
    let vip = "192.0.2.1:80/tcp";
    let sources = "source-addresses = ['10.0.0.200', '10.0.0.201']";
    for more in [sources, &format!("{sources}\nsource-ports = '5000-5009'")] {
        assert_eq!(said(&in_packet(vip, "full-nat", more)), "", "{more}");
    }
    let with_port = in_packet("192.0.2.1:8080/tcp", "full-nat", sources);
    assert_eq!(said(&with_port), "");
    let many = (1..=65).map(|at| format!("'10.0.1.{at}'")).collect::<Vec<_>>().join(", ");
    assert_said(
        &[
            (
                String::new(),
                "f:2:1: packet[192.0.2.1:80/tcp].source-addresses: no valid address is given, and full-nat sends from addresses of its own; accepted: 1 to 64 addresses that nothing else uses",
            ),
            (
                format!("source-addresses = [{many}]"),
                "f:7:20: packet[192.0.2.1:80/tcp].source-addresses: 65 addresses; accepted: at most 64",
            ),
            (
                "source-addresses = '2001:db8::1'".into(),
                "f:7:20: packet[192.0.2.1:80/tcp].source-addresses: \"2001:db8::1\" is IPv6 and the VIP IPv4; accepted: addresses of the VIP's family",
            ),
            (
                "source-addresses = ['10.0.0.9', '10.0.0.9']".into(),
                "f:7:20: packet[192.0.2.1:80/tcp].source-addresses: \"10.0.0.9\" stands twice; accepted: each address once",
            ),
            (
                "source-addresses = '10.0.0.1'".into(),
                "f:7:20: packet[192.0.2.1:80/tcp].source-addresses: \"10.0.0.1\" is the address of a backend; accepted: addresses that nothing else uses",
            ),
            (
                "source-addresses = '192.0.2.1'".into(),
                "f:7:20: packet[192.0.2.1:80/tcp].source-addresses: \"192.0.2.1\" is the address of a VIP; accepted: addresses that nothing else uses",
            ),
            (
                "source-addresses = '127.0.0.1'".into(),
                "f:2:1: packet[192.0.2.1:80/tcp].source-addresses: no valid address is given, and full-nat sends from addresses of its own; accepted: 1 to 64 addresses that nothing else uses\nf:7:20: packet[192.0.2.1:80/tcp].source-addresses: '127.0.0.1' is not a source address; accepted: an IP address, neither loopback nor multicast, such as \"10.0.0.9\" or \"2001:db8::9\"; or a list of such",
            ),
            (
                format!("{sources}\nsource-ports = '5009-5000'"),
                "f:8:16: packet[192.0.2.1:80/tcp].source-ports: '5009-5000' is not a range of ports; accepted: FIRST-LAST, from 1 to 65535, such as \"1024-65535\"",
            ),
        ],
        |more| in_packet(vip, "full-nat", more),
    );
    assert_eq!(
        said(&in_packet(vip, "nat", sources)),
        "f:7:20: warning: packet[192.0.2.1:80/tcp].source-addresses: has no effect without forward = \"full-nat\"",
    );
}

#[test]
fn two_nat_vips_may_not_share_a_backend_port() {
    let second = |vip: &str, forward: &str| {
        let more = format!(
            "[[packet]]\nvip = '{vip}'\nforward = '{forward}'\npool = 'p'\ninterface = 'eth0'"
        );
        said(&in_packet("192.0.2.1:80/tcp", "nat", &more))
    };
    assert_eq!(second("192.0.2.2:80/tcp", "tunnel"), "");
    assert_eq!(second("192.0.2.2:80/udp", "nat"), "");
    for vip in ["192.0.2.2:8080/tcp", "192.0.2.2:*/tcp"] {
        assert_eq!(
            second(vip, "nat"),
            format!(
                "f:10:8: packet[{vip}].pool: backend `10.0.0.1:80` serves \"192.0.2.1:80/tcp\", on line 3, by nat too, so its replies could belong to either VIP; accepted: another port of the backend, or another `forward`"
            )
        );
    }
}

#[test]
fn a_backend_with_the_address_of_its_vip_is_rejected() {
    for forward in ["nat", "tunnel", "gue", "direct-routing"] {
        let file = in_packet("10.0.0.1:80/tcp", forward, "");
        let wrong = "pool: backend `10.0.0.1:80` has the VIP's own address, so its packets would come back here; accepted: \
                     the address of the backend's own interface";
        assert!(said(&file).contains(wrong), "{forward}: {}", said(&file));
    }
}

#[test]
fn a_backend_with_the_address_of_another_vip_is_rejected() {
    let file = |first: &str, second: &str| {
        format!(
            "[[pool]]\nname = 'a'\nbackends = ['{first}']\n[[pool]]\nname = 'b'\nbackends = ['{second}']\n\
             [[packet]]\nvip = '192.0.2.20:80/tcp'\ninterface = 'eth0'\nforward = 'nat'\npool = 'a'\n\
             [[packet]]\nvip = '192.0.2.21:80/tcp'\ninterface = 'eth0'\nforward = 'nat'\npool = 'b'\n"
        )
    };
    assert_eq!(said(&file("10.0.0.1:80", "10.0.0.2:80")), "");
    let wrong = |vip: &str, backend: &str, other: &str| {
        format!(
            "packet[{vip}:80/tcp].pool: backend `{backend}` has the address of VIP \"{other}:80/tcp\", on line "
        )
    };
    let (first, second) = ("192.0.2.20", "192.0.2.21");
    let found = said(&file("192.0.2.21:80", "192.0.2.20:80"));
    assert!(found.contains(&wrong(first, "192.0.2.21:80", second)), "{found}");
    assert!(found.contains(&wrong(second, "192.0.2.20:80", first)), "{found}");
    // The VIP does not have the other ports of the address, but no backend has them either.
    let found = said(&file("10.0.0.1:80", "192.0.2.20:8080"));
    assert!(found.contains(&wrong(second, "192.0.2.20:8080", first)), "{found}");
    assert!(!found.contains(&format!("packet[{first}")), "{found}");
}

#[test]
fn invalid_or_insufficient_flow_table_options_are_reported() {
    assert_said(
        &[
            (
                "[flows]\nbackends-max = 1",
                "f:8:16: flows.backends-max: 1, but the pools of all [[packet]] tables have 2 backends; accepted: as many or more",
            ),
            (
                "[flows]\nmax = 2048",
                "f:8:7: warning: flows.max: `pins-max` (262144) is above `max` (2048), which limits the number of flows",
            ),
            (
                "[flows]\nelephants = 64",
                "f:8:13: flows.elephants: 64 is a whole number; accepted: true or false",
            ),
            (
                "[flows]\npending-max = 1000",
                "f:8:15: flows.pending-max: 1000 is too small; accepted: a whole number, 32768 to 8388608",
            ),
            (
                // More than a program can be loaded with.
                "[flows]\nmax = 33554433",
                "f:8:7: flows.max: 33554433 is too large; accepted: a whole number, 1024 to 33554432",
            ),
            (
                "[flows]\ntunnel-source = '172.16.0.1/16'",
                "f:8:17: flows.tunnel-source: '172.16.0.1/16' is not an IPv4 prefix; accepted: ADDRESS/LENGTH with zero bits behind the length, such as \"172.16.0.0/16\"",
            ),
            (
                "[flows]\ntunnel-source6 = '2001:db8::/48'",
                "f:8:18: flows.tunnel-source6: '2001:db8::/48' is not an IPv6 prefix of 64 bits; accepted: ADDRESS/64 with zero bits behind the length, such as \"100::/64\"",
            ),
        ],
        |more| in_packet("192.0.2.1:80/tcp", "nat", more),
    );
}

#[test]
fn fleet_peers_need_a_secret_and_a_listen_address() {
    let secret = "seed = '0123456789abcdef'";
    assert_said(
        &[
            (
                format!(
                    "{secret}\npeers = ['10.0.0.2:7946', '[::1]:7946']\npeers-listen = '10.0.0.1:7946'"
                ),
                "",
            ),
            (
                "peers = ['10.0.0.2:7946']\npeers-listen = '10.0.0.1:7946'".to_owned(),
                "f:8:9: flows.peers: given without the secret of the fleet; accepted with `seed` or `seed-file`, the same on all balancers",
            ),
            (
                format!("{secret}\npeers = ['10.0.0.2:7946']"),
                "f:9:9: flows.peers: given without `peers-listen`; accepted with the address that peers connect to",
            ),
            (
                format!("{secret}\npeers-listen = '10.0.0.1:7946'"),
                "f:9:16: warning: flows.peers-listen: has no effect without `peers`",
            ),
            (
                format!("{secret}\npeers = ['10.0.0.2']\npeers-listen = '10.0.0.1:7946'"),
                "f:9:10: flows.peers: '10.0.0.2' is not a peer's address; accepted: IP:PORT, such as \"10.0.0.2:7946\" or \"[2001:db8::2]:7946\"; or a list of such\nf:10:16: warning: flows.peers-listen: has no effect without `peers`",
            ),
        ],
        |more| in_packet("192.0.2.1:80/tcp", "nat", &format!("[flows]\n{more}")),
    );
}

#[test]
fn a_fleet_needs_one_secret_of_sufficient_length() {
    assert_said(
        &[
            ("seed = '0123456789abcdef'", ""),
            ("seed-file = '/seed'", ""),
            (
                "seed = '0123456789'",
                "f:8:8: flows.seed: '0123456789' is not a secret; accepted: 16 characters or more, such as those of `openssl rand -hex 16`",
            ),
            (
                "seed-file = '/short'",
                "f:8:13: flows.seed-file: \"/short\" holds 10 characters; accepted: 16 or more (try: openssl rand -hex 16)",
            ),
            (
                "seed-file = '/none'",
                "f:8:13: flows.seed-file: \"/none\" cannot be read: No such file or directory; accepted: a file with the secret",
            ),
            (
                "seed = '0123456789abcdef'\nseed-file = '/seed'",
                "f:9:13: flows.seed-file: `seed` is given too; accepted: one of the two",
            ),
        ],
        |more| in_packet("192.0.2.1:80/tcp", "nat", &format!("[flows]\n{more}")),
    );
}

#[test]
fn options_without_effect_on_a_vip_cause_a_warning() {
    assert_eq!(
        said(&in_packet("192.0.2.1:80/tcp", "tunnel", "reply-interface = 'eth1'")),
        "f:7:19: warning: packet[192.0.2.1:80/tcp].reply-interface: has no effect: only nat and full-nat see replies"
    );
    let pool = |more: &str| {
        in_packet("192.0.2.1:80/tcp", "nat", "")
            .replace("name = 'p',", &format!("name = 'p', {more},"))
    };
    assert_eq!(
        said(&pool("scheduler = 'maglev'")),
        "f:1:35: warning: pool.p.scheduler: has no effect: only [[packet]] tables use this pool, and each has its own `scheduler`"
    );
    assert_eq!(
        said(&pool("slow-start = '1m'")),
        "f:1:36: warning: pool.p.slow-start: has no effect: only [[packet]] tables use this pool"
    );
    assert_eq!(
        said(&pool("health = { tcp = true, close-connections = true }")),
        "f:1:66: warning: pool.p.health.close-connections: has no effect: only [[packet]] tables use this pool"
    );
    let weighted = in_packet("192.0.2.1:80/tcp", "nat", "scheduler = 'least-connection'")
        .replace("'10.0.0.1:80'", "{ address = '10.0.0.1:80', weight = 2 }");
    assert_eq!(
        said(&weighted),
        "f:7:13: warning: packet[192.0.2.1:80/tcp].scheduler: ignores weights, and backend `10.0.0.1:80` has one; use weighted-least-connection"
    );
    let heavy = |weights: [u32; 2]| {
        in_packet("192.0.2.1:80/tcp", "nat", "scheduler = 'sh'")
            .replace(
                "'10.0.0.1:80'",
                &format!("{{ address = '10.0.0.1:80', weight = {} }}", weights[0]),
            )
            .replace(
                "'10.0.0.2:80'",
                &format!("{{ address = '10.0.0.2:80', weight = {} }}", weights[1]),
            )
    };
    assert_eq!(said(&heavy([255, 100])), "");
    assert_eq!(
        said(&heavy([256, 1])),
        "f:7:13: warning: packet[192.0.2.1:80/tcp].scheduler: `sh` has 256 buckets, and the weights before backend `10.0.0.2:80` use them all, so it gets no clients; use smaller weights"
    );
}

//! Messages about wrong `[[dns]]` and `[nameserver]` tables: the whole text.

use crate::common::said_among;

const FILES: &[(&str, &str)] = &[
    ("/good.zone", "text IN TXT \"x\"\nns1 IN A 192.0.2.1\n"),
    ("/include.zone", "$INCLUDE other.zone\n"),
    ("/above.zone", "$TTL 1h\n$INCLUDE ../other.zone\n"),
    ("/parts.zone", "$TTL 1h30m\n$INCLUDE good.zone\n$GENERATE 1-2 h$ A 192.0.2.$"),
    ("/ttl.zone", "www 2147483648 IN A 1.2.3.4\n"),
    ("/soa.zone", "@ SOA ns1 mail 1 1h 10m 2w 5m\n\n@ SOA ns1 mail 2 1h 10m 2w 5m\n"),
    ("/broken.zone", "text IN TXT \"x\"\nwww IN A 1.2.3\n"),
    ("/outside.zone", "www.other.example. IN A 192.0.2.1\n"),
    ("/alias.zone", "a IN CNAME b\na IN TXT \"x\"\n"),
    ("/www.zone", "www IN A 192.0.2.1\n"),
    ("/wildcard.zone", "*.x IN NS ns.other.example.\n"),
    ("/signed.zone", "x IN DNAME y\n"),
];

fn said(text: &str) -> String {
    said_among(FILES, text)
}

/// A pool `p` on line 1, then a zone. The additional text is line 5.
fn in_zone(more: &str) -> String {
    format!(
        "pool = [{{ name = 'p', backends = [{{ name = 'n1', address = '10.0.0.1:80' }}, '10.0.0.2:81'] }}]\n\
         [[dns]]\nzone = 'cluster.example.'\nlisten = '0.0.0.0:53'\n{more}\n"
    )
}

const NS: &str = "ns = [{ name = 'ns1', addresses = '192.0.2.1' }]";

#[test]
fn a_valid_zone_loads_without_dns_warnings() {
    for more in [
        NS,
        "ns = ['ns1']\nzone-file = '/good.zone'",
        "ns = ['ns1']\nzone-file = '/parts.zone'",
        "ns = ['ns.other.example.']",
        "ns = ['ns.other.example.']\npool = 'p'",
        "ns = ['ns.other.example.']\nnames = [{ name = 'www', pool = 'p', backends = 'n1' }]",
        "ns = ['ns.other.example.']\npool = 'p'\nnames = ['www', 'www2']",
        "ns = ['ns.other.example.']\npool = 'p'\nnames = [{ name = '_web._tcp', mode = 'srv', backends = 'n1' }]",
    ] {
        assert_eq!(said(&in_zone(more)), in_zone_warnings(more), "{more}");
    }
}

#[test]
fn an_srv_name_accepts_backends_with_different_ports() {
    let named = in_zone(
        "ns = ['ns.other.example.']\npool = 'p'\nnames = [{ name = '_x._tcp', mode = 'srv' }]",
    );
    assert_eq!(
        said(&named.replace("'10.0.0.2:81'", "{ name = 'n2', address = '10.0.0.2:81' }")),
        ""
    );
}

/// A zone with these options, over an elastic pool with these options.
fn over_elastic(pool: &str, zone: &str) -> String {
    format!(
        "[[pool]]\nname = 'web'\n[pool.elastic]\nmax = 3\n{pool}\n[[dns]]\nzone = 'cluster.example.'\n\
         listen = '0.0.0.0:53'\nns = ['ns.other.example.']\npool = 'web'\n{zone}\n"
    )
}

const SCRIPTS: &str = "[pool.elastic.exec]\nadd = '/add'\nremove = '/remove'\n";
const PROCESSES: &str =
    "[pool.elastic.process]\ncommand = ['/app', '{port}']\naddress = '10.0.0.1'\n";

#[test]
fn a_name_over_a_reachable_elastic_pool_loads_with_one_warning() {
    let one_port = format!("{PROCESSES}ports = '8080-8080'");
    for (pool, zone) in [
        (SCRIPTS, ""),
        (SCRIPTS, "mode = 'https'"),
        (PROCESSES, "mode = 'srv'"),
        (&one_port, "mode = 'single'"),
        (&one_port, "names = ['www', { name = '_x._tcp', mode = 'srv' }]"),
    ] {
        let said = said(&over_elastic(pool, zone));
        assert!(said.contains("`equipoise plan pin` sets how many backends it has"), "{said}");
        assert_eq!(said.lines().count(), 1, "{pool} {zone}: {said}");
    }
}

#[test]
fn unsupported_options_of_names_over_elastic_pools_are_reported() {
    let zone = "dns[cluster.example.]";
    let local = PROCESSES.replace("10.0.0.1", "127.0.0.1");
    let impatient = format!("drain-timeout = '30s'\n{SCRIPTS}");
    let cluster = "[cluster]\ncontrollers = ['c1:9911']\njoin-token-file = '/t'\n";
    for (pool, more, expected) in [
        (
            PROCESSES,
            "",
            format!(
                "{zone}.pool: mode \"pair\" gives clients no ports, and each process of pool \"web\" has its own; \
                 accepted: mode \"srv\", or `ports` of one port, such as \"8080-8080\", in pool.web.elastic.process"
            ),
        ),
        (
            PROCESSES,
            "mode = 'srv'\nnames = [{ name = 'www', mode = 'ordered' }]",
            format!("{zone}.names.www.mode: mode \"ordered\" gives clients no ports"),
        ),
        (
            &local,
            "mode = 'srv'",
            "warning: pool.web.elastic.process.address: a loopback address, which answers give to clients that cannot \
             reach it"
                .to_string(),
        ),
        (
            &impatient,
            "names = [{ name = 'www', ttl = '20s' }]",
            "warning: pool.web.elastic.drain-timeout: 30s, and for 1m after a backend has left the answers".to_string(),
        ),
        (
            SCRIPTS,
            &format!("shares = 'load'\n{cluster}"),
            format!("{zone}.shares: \"load\" needs backends that are members of the cluster, and those of pool \"web\""),
        ),
    ] {
        let said = said(&over_elastic(pool, more));
        assert!(said.contains(&expected), "{more}\n  said     {said}\n  expected {expected}");
    }
    let many = over_elastic(SCRIPTS, "mode = 'srv'").replace("max = 3", "max = 65");
    assert!(
        said(&many).contains("has 65 nodes, and mode \"srv\" gives all of them"),
        "{}",
        said(&many)
    );
    let dotted = over_elastic(SCRIPTS, "mode = 'srv'").replace("'web'", "'w.eb'");
    assert!(said(&dotted).contains("such as `w.eb-e1`, have none"), "{}", said(&dotted));
}

#[test]
fn a_name_over_an_elastic_pool_may_list_configured_backends_instead() {
    let listed = |pool: &str, zone: &str| {
        let backends = "backends = [{ name = 'b1', address = '10.0.0.2:80' }]\n[pool.elastic]";
        let config = over_elastic(pool, zone).replacen("[pool.elastic]", backends, 1);
        said(&config.replace("\npool = 'web'\n", "\n"))
    };
    let cluster = "[cluster]\ncontrollers = ['c1:9911']\njoin-token-file = '/t'\n";
    for (pool, zone, table, expected) in [
        (PROCESSES, "", "", "in pool.web.elastic.process, or list `backends`"),
        (
            SCRIPTS,
            "shares = 'load'",
            cluster,
            "of the pool), or list `backends` of `www.cluster.example.`",
        ),
    ] {
        let names = |more: &str| {
            // The same for the zone's own name.
            let name = |name| format!("{{ name = '{name}', pool = 'web'{more} }}");
            format!("{zone}\nnames = [{}, {}]\n{table}", name("www"), name("cluster.example."))
        };
        let whole = listed(pool, &names(""));
        assert!(whole.contains(expected), "{whole}\n  expected {expected}");
        let picked = listed(pool, &names(", backends = ['b1']"));
        assert!(!picked.contains("error") && !picked.contains("accepted"), "{picked}");
    }
}

/// The warning about a pool that no table uses.
fn in_zone_warnings(more: &str) -> &'static str {
    if more.contains("'p'") { "" } else { "f:1:9: warning: pool.p: no front door uses this pool" }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn invalid_zone_options_and_zone_files_are_reported_with_place_and_reason() {
    let zone = "dns[cluster.example.]";
    let cases = [
        (
            "pool = 'p'",
            format!("f:3:8: {zone}.ns: zone `cluster.example.` has no name server; accepted: `ns`, or NS records of the zone's own name in its zone file").replace("f:3:8", "f:2:1"),
        ),
        (
            "pool = 'p'\nns = ['192.0.2.1']",
            format!("f:6:7: {zone}.ns[192.0.2.1].name: '192.0.2.1' is not a domain name; accepted: labels of at most 63 letters, digits, `-` and `_` with dots between them, and no IP address, such as \"cluster.example.\""),
        ),
        (
            "pool = 'p'\nns = ['ns1']",
            format!("f:6:6: {zone}.ns: name server `ns1.cluster.example.` is in the zone and has no address there; accepted: `addresses` beside it, or A or AAAA records of that name in the zone file"),
        ),
        (
            "pool = 'q'\nns = ['ns.other.example.']",
            format!("f:5:8: {zone}.pool: no pool is named \"q\"; did you mean `p`?"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/include.zone'",
            format!("f:7:13: {zone}.zone-file: \"/include.zone\" line 1: $INCLUDE \"/other.zone\" cannot be read: No such file or directory; accepted: a zone file"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/above.zone'",
            format!("f:7:13: {zone}.zone-file: \"/above.zone\" line 2: $INCLUDE \"../other.zone\" is not below the zone file's folder; accepted: files below \"/\", without `..`"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/ttl.zone'",
            format!("f:7:13: {zone}.zone-file: \"/ttl.zone\" line 1: `2147483648` is not a time; accepted: 0 to 2147483647 seconds (RFC 2181, 8), also with units (w, d, h, m, s), such as `1h30m`"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/soa.zone'",
            format!("f:7:13: {zone}.zone-file: \"/soa.zone\" line 3: a second SOA record, the first is in \"/soa.zone\" line 1; accepted: one"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/none.zone'",
            format!("f:7:13: {zone}.zone-file: \"/none.zone\" cannot be read: No such file or directory; accepted: a zone file"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/outside.zone'",
            format!("f:7:13: {zone}.zone-file: `www.other.example.` is not in zone `cluster.example.`; accepted: names that end with the zone's"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/alias.zone'",
            format!("f:7:13: {zone}.zone-file: `a.cluster.example.` is an alias (CNAME) and has other records; accepted: a CNAME alone, which the zone's own name cannot have (RFC 1034, 3.6.2)"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/signed.zone'",
            format!("f:7:13: {zone}.zone-file: `x.cluster.example.` has a record of type DNAME, which is not served; accepted: a CNAME for each name"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/wildcard.zone'",
            format!("f:7:13: {zone}.zone-file: `*.x.cluster.example.` is a wildcard and has NS records, which no two servers take alike (RFC 4592, 4.2); accepted: NS records of each name by itself"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnames = ['www.sub']\n[[dns]]\nzone = 'sub.cluster.example.'\nlisten = '0.0.0.0:53'\nns = ['ns.other.example.']",
            format!("f:7:9: {zone}.names: `www.sub.cluster.example.` is in zone `sub.cluster.example.`, which is served, too, and answers for it; accepted: the name in that zone's table"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/www.zone'\nnames = ['www']",
            format!("f:7:13: {zone}.zone-file: `www.cluster.example.` is balanced over nodes and has A records in the zone file; accepted: one of the two"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnames = ['www', 'WWW']",
            format!("f:7:9: {zone}.names: `www.cluster.example.` is listed twice; accepted: each name once"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnames = [{ name = 'www', backends = 'n7' }]",
            format!("f:7:37: {zone}.names.www.backends: pool \"p\" has no backend `n7`; its backends are `n1`, `10.0.0.2:81`"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnames = [{ name = '_x._tcp', mode = 'srv', port = 80 }]",
            format!("f:7:9: {zone}.names: mode \"srv\" of `_x._tcp.cluster.example.` gives clients host names, and backend `10.0.0.2:81` has none; accepted: a backend with a `name` of letters, digits and hyphens, which becomes NAME.ZONE"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nmode = 'random'",
            format!("f:7:8: {zone}.mode: 'random' is none of them; accepted: \"pair\", \"single\", \"ordered\", \"srv\" or \"https\""),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\n[nameserver]\ncookie-secrets = '123'",
            "f:8:18: nameserver.cookie-secrets: '123' is not a cookie secret; accepted: 32 hexadecimal digits, such as those of `openssl rand -hex 16`; or a list of such".to_string(),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnames = [{ name = 'www', alpn = 'h2' }]",
            format!("f:7:33: warning: {zone}.names.www.alpn: has no effect: only mode \"https\" tells it"),
        ),
        (
            "pool = 'p'\nns = ['ns.other.example.']\nnodes = [{ backend = 'n9', addresses = '192.0.2.9' }]",
            format!("f:7:22: warning: {zone}.nodes[n9].backend: no name of this zone is spread over a backend `n9`"),
        ),
    ];
    let mut others = Vec::new();
    for (more, expected) in cases {
        let said = said(&in_zone(more));
        if !said.lines().any(|line| line == expected) {
            others.push(format!("{more}\n  said     {said}\n  expected {expected}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    let broken =
        said(&in_zone("pool = 'p'\nns = ['ns.other.example.']\nzone-file = '/broken.zone'"));
    assert!(broken.contains("\"/broken.zone\" line 2: data of the A record: "), "{broken}");
}

/// The pool of [`in_zone`] with labels.
fn labelled(more: &str) -> String {
    let labels = "address = '10.0.0.1:80', labels = ['region=eu', 'tier=front']";
    let others = "{ address = '10.0.0.2:81', labels = 'region=us' }";
    let text = in_zone(&format!("pool = 'p'\nns = ['ns.other.example.']\n{more}"));
    text.replace("address = '10.0.0.1:80'", labels).replace("'10.0.0.2:81'", others)
}

#[test]
fn labels_choose_backends_that_have_all_of_them() {
    let zone = "dns[cluster.example.].names.www";
    for labels in ["'region=eu'", "['region=eu', 'tier=front']", "['region=us']"] {
        let names = format!("names = [{{ name = 'www', labels = {labels} }}]");
        assert_eq!(said(&labelled(&names)), "", "{labels}");
    }
    let none = "no backend of pool \"p\" has all of them; there are `region=eu`, `region=us`, `tier=front`";
    for (labels, wrong) in [
        ("labels = ['region=us', 'tier=front']", format!("{zone}.labels: {none}")),
        ("labels = 'region=as'", format!("{zone}.labels: {none}")),
        ("labels = []", format!("{zone}.labels: an empty list; accepted: at least one")),
        (
            "labels = ['region=us', 'region=eu']",
            format!("{zone}.labels: `region` is listed twice; accepted: each key once"),
        ),
        (
            "labels = 'region=us', backends = 'n1'",
            format!("{zone}.labels: is set together with `backends`; accepted: one of the two"),
        ),
        (
            "labels = 'eu'",
            format!(
                "{zone}.labels: 'eu' is not a label; accepted: KEY=VALUE, both of 1 to 63 letters, digits, `.`, `_` and `-`, such as \"region=eu\"; or a list of such"
            ),
        ),
    ] {
        let said = said(&labelled(&format!("names = [{{ name = 'www', {labels} }}]")));
        assert!(said.contains(&wrong), "{labels}\n  said     {said}\n  expected {wrong}");
    }
    let without = in_zone(
        "ns = ['ns.other.example.']\npool = 'p'\nnames = [{ name = 'www', labels = 'a=b' }]",
    );
    assert!(said(&without).contains("has all of them; none has any"), "{}", said(&without));
    let twice = labelled("").replace("'tier=front'", "'region=us'");
    assert!(said(&twice).contains("labels: `region` is listed twice"), "{}", said(&twice));
}

#[test]
fn shares_by_load_need_a_cluster_and_members() {
    let zone = format!("{NS}\npool = 'p'\nshares = 'load'");
    let alone = said(&in_zone(&zone));
    assert!(alone.contains("without a [cluster] table no member reports its load"), "{alone}");
    let cluster = "[cluster]\ncontrollers = ['c1:9911']\njoin-token-file = '/t'\n";
    let found = said(&format!("{}{cluster}", in_zone(&zone)));
    let expected = "which member of the cluster backend p/10.0.0.2:81 is";
    assert!(found.contains(expected) && !found.contains("p/n1"), "{found}");
}

//! Messages about `[load]`.

use crate::bed::{WEB, said};

#[test]
fn an_elastic_pool_needs_limits_or_a_target_for_each_backend() {
    let file = |pool: &str, elastic: &str, door: &str| {
        format!(
            "[[pool]]\nname = 'web'\n{pool}\n[pool.elastic]\nmax = 2\nmin = 0\n{elastic}\n\
             [pool.elastic.process]\ncommand = ['/app']\n{door}"
        )
    };
    let error = "f:3:15: pool.web.concurrency: \"none\", so the pool's load is unknown, and the pool never grows; \
                 accepted: another `concurrency`, or `target-concurrency` or `target-requests` in its [pool.elastic]";
    let (none, door) = (
        "concurrency = 'none'",
        "[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'web'\n",
    );
    for (pool, elastic, door, is_wrong) in [
        (none, "", door, true),
        ("concurrency = 4", "", door, false),
        (none, "target-concurrency = 20.0", door, false),
        (none, "target-requests = 100.0", door, false),
        // An operator sets the size; the pool has no front door.
        (none, "mode = 'paused'", door, false),
        (none, "", "", false),
    ] {
        let said = said(&file(pool, elastic, door));
        assert_eq!(said.contains(error), is_wrong, "{pool} {elastic}: {said}");
        assert_eq!(said.contains("never grows"), is_wrong, "{pool} {elastic}: {said}");
    }
    let two = said(&file("", "target-requests = 1.0\ntarget-concurrency = 1.0", door));
    let expected = "a second target; accepted: one of `target-concurrency` and `target-requests`";
    assert!(two.contains(expected), "{two}");
    let zero = said(&file("concurrency = 4", "target = 0.0", door));
    assert!(zero.contains("target is 0; accepted: a number above 0, up to 1"), "{zero}");
}

#[test]
fn a_schedule_has_times_days_and_a_number_up_to_max() {
    let file = |hours: &str| {
        format!(
            "[[pool]]\nname = 'web'\n[pool.elastic]\nmax = 4\n[pool.elastic.process]\ncommand = ['/app', '{{port}}']\n\
             [[pool.elastic.schedule]]\n{hours}"
        )
    };
    let fine = said(&file(
        "days = ['mon', 'fri']\nfrom = '22:00'\nto = '06:30'\nutc-offset = '-05:00'\nmin = 4\n",
    ));
    assert!(!fine.contains("pool.web.elastic"), "{fine}");
    let fine = said(&file("from = '08:00'\nto = '18:00'\nmin = 2\nzone = 'UTC'\n"));
    assert!(!fine.contains("pool.web.elastic"), "{fine}");
    for (hours, expected) in [
        (
            "from = '8:00'\nto = '18:00'\nmin = 2\n",
            "accepted: hours and minutes of two digits each",
        ),
        ("from = '08:00'\nto = '18:00'\nmin = 2\ndays = ['monday']\n", "\"mon\", \"tue\""),
        ("from = '08:00'\nto = '18:00'\nmin = 2\nutc-offset = 'CET'\n", "such as \"+02:00\""),
        (
            "from = '08:00'\nto = '18:00'\nmin = 5\n",
            "min = 5; accepted: at most elastic.max, which is 4",
        ),
        ("from = '08:00'\nto = '18:00'\n", "min"),
        (
            "from = '08:00'\nto = '18:00'\nmin = 2\nzone = 'Europe/Atlantis'\n",
            "accepted: a name of the IANA time zone database, such as \"Europe/Berlin\"",
        ),
        (
            "from = '08:00'\nto = '18:00'\nmin = 2\nzone = 'UTC'\nutc-offset = '+00:00'\n",
            "stated beside `zone`",
        ),
    ] {
        let said = said(&file(hours));
        assert!(said.contains(expected), "{hours}: {said}");
    }
}

#[test]
fn an_elastic_pool_used_by_dns_is_reported_as_not_scaling() {
    let file = |elastic: &str, user: &str| {
        format!(
            "[[pool]]\nname = 'web'\nbackends = ['10.0.0.1:80']\n[pool.elastic]\nmax = 2\n{elastic}\n\
             [pool.elastic.exec]\nadd = '/add'\nremove = '/remove'\n\
             [[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'web'\n{user}"
        )
    };
    let zone = "[[dns]]\nzone = 'cluster.example.'\nlisten = '0.0.0.0:53'\nns = ['ns.other.example.']\npool = 'web'\n";
    let (error, warning) = (
        "pool.web.elastic.min: 0, and [[dns]] tables use this pool, whose clients are not counted",
        "warning: pool.web.elastic: the pool does not scale by itself: [[dns]] tables use it",
    );
    for (elastic, user, is_error, is_warned) in [
        ("min = 0", zone, true, true),
        ("min = 1", zone, false, true),
        ("min = 2", zone, false, false),
        ("min = 0\nmode = 'paused'", zone, false, false),
        ("min = 0", "", false, false),
    ] {
        let said = said(&file(elastic, user));
        assert_eq!(said.contains(error), is_error, "{elastic}: {said}");
        assert_eq!(said.contains(warning), is_warned, "{elastic}: {said}");
    }
}

#[test]
fn a_link_needs_a_speed_with_unit_and_a_unique_interface() {
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
            "f:1:72: load.links[eth0].interface: \"eth0\" is listed twice; accepted: each interface once"
                .to_string(),
        ),
    ] {
        let said = said(&format!("load.links = {links}\n{WEB}"));
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
}

//! What is said about `[load]`.

use crate::bed::{WEB, said};

#[test]
fn an_automatic_pool_that_lists_no_backend_that_takes_work_has_a_min_above_0() {
    let file = |backends: &str, elastic: &str| {
        format!(
            "[[pool]]\nname = 'web'\nbackends = {backends}\n[pool.elastic]\nmax = 2\n{elastic}\n\
             [pool.elastic.process]\ncommand = ['/app']\n"
        )
    };
    let error = "f:6:7: pool.web.elastic.min: 0 and no backend that takes work is listed, so no load shows and the pool \
                 never grows; accepted: 1 or more, or a backend in `backends`";
    let (one, idle) = ("['10.0.0.1:80']", "[{ address = '10.0.0.1:80', weight = 0 }]");
    for (backends, elastic, is_wrong) in [
        ("[]", "min = 0", true),
        (idle, "min = 0", true),
        (one, "min = 0", false),
        ("[]", "min = 1", false),
        // An operator sets the size.
        ("[]", "min = 0\nmode = 'paused'", false),
    ] {
        let said = said(&file(backends, elastic));
        assert_eq!(said.contains(error), is_wrong, "{backends} {elastic}: {said}");
        assert_eq!(said.contains("never grows"), is_wrong, "{backends} {elastic}: {said}");
    }
}

#[test]
fn links_have_a_speed_with_a_unit_and_are_there_once() {
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
            "f:1:72: load.links[eth0].interface: \"eth0\" is there twice; accepted: each interface once"
                .to_string(),
        ),
    ] {
        let said = said(&format!("load.links = {links}\n{WEB}"));
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
}

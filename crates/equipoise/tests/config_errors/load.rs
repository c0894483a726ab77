//! What is said about `[load]`.

use crate::bed::{WEB, said};

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

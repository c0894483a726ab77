//! Backends with host names in the file.

use equipoise_testkit::netns::SiteShape;

use crate::bed::{Bed, soon};
use crate::method::{NAT, Service};

const SHAPE: SiteShape = SiteShape { backends: 2, two_arms: false };

#[test]
fn packets_go_to_the_address_of_a_name_that_passes_its_checks() {
    let Some(mut bed) = Bed::new("names", SHAPE) else { return };
    let address = |index, v6| bed.site.backend_address(index, v6);
    // The first IPv4 address is dead, and checks over IPv6 pass.
    let addresses = [address(0, false), address(1, false), address(1, true)];
    let hosts: String = addresses.iter().map(|it| format!("{it} app.test\n")).collect();
    let stated = format!("{}:80", addresses[0]);
    let config = NAT.config_of(Service::Web, &bed.site, &[0], "");
    assert!(config.contains(&stated), "{config}");
    bed.configure(&config.replace(&stated, "app.test:80"));
    bed.servers[0] = None;
    bed.balance_with_hosts(&hosts);
    let url = format!("http://{}/", NAT.vip(Service::Web));
    let is_served_by = |bed: &Bed, name: &str| {
        soon(|| bed.curl(&[&url]).is_ok_and(|answer| answer.contains(name)))
    };
    assert!(is_served_by(&bed, "backend-2"), "{:?}\n{}", bed.curl(&[&url]), bed.log());
    for _ in 0..10 {
        let answer = bed.curl(&[&url]);
        assert!(answer.is_ok(), "{answer:?}\n{}", bed.log());
    }
    bed.serve_again(0);
    bed.servers[1] = None;
    assert!(is_served_by(&bed, "backend-1"), "{:?}\n{}", bed.curl(&[&url]), bed.log());
}

#[test]
fn a_name_that_resolves_to_a_vip_refuses_neither_the_start_nor_a_reload() {
    let Some(mut bed) = Bed::new("names-loop", SHAPE) else { return };
    let stated = format!("{}:80", bed.site.backend_address(0, false));
    let config = NAT.config_of(Service::Web, &bed.site, &[0, 1], "");
    assert!(config.contains(&stated), "{config}");
    bed.configure(&config.replace(&stated, "app.test:80"));
    let vip = NAT.vip(Service::Web);
    bed.balance_with_hosts(&format!("{} app.test\n", vip.ip()));
    let said = format!("backend backend-1: {vip}/tcp: no packets go to it: its name resolves to");
    assert!(soon(|| bed.log().contains(&said)), "{said}\n{}", bed.log());
    let url = format!("http://{vip}/");
    let is_served_by = |bed: &Bed, name: &str| {
        soon(|| bed.curl(&[&url]).is_ok_and(|answer| answer.contains(name)))
    };
    assert!(is_served_by(&bed, "backend-2"), "{:?}\n{}", bed.curl(&[&url]), bed.log());
    bed.command(&["reload"]);
    let status = bed.command(&["status", "--json"]);
    assert!(status.contains("packets would return to the balancer"), "{status}");
}

//! nat: clients that reach a backend directly, in addition to those of a VIP.

use std::net::SocketAddr;

use equipoise_testkit::netns::SiteShape;

use crate::bed::Bed;
use crate::method::{NAT, NAT6, Service};

/// The balancer is the backends' gateway: replies to direct clients pass it too.
#[test]
fn a_nat_backend_serves_both_direct_clients_and_vip_clients() {
    for (name, two_arms) in [("unasked", false), ("unasked-arms", true)] {
        let Some(mut bed) = Bed::new(name, SiteShape { backends: 1, two_arms }) else { return };
        let more = if two_arms { "reply-interface = \"eth1\"\n" } else { "" };
        let methods = [NAT, NAT6];
        let config = methods.map(|method| method.config(Service::Web, &bed.site, more)).concat();
        bed.configure(&config);
        bed.balance();
        for method in methods {
            let address = bed.site.backend_address(0, method.backend_v6);
            let direct = SocketAddr::new(address, Service::Web.port());
            for server in [method.vip(Service::Web), direct, method.vip(Service::Web), direct] {
                let answer = bed.curl(&[&format!("http://{server}/who")]);
                let status = || bed.command(&["status"]);
                let answer = answer.unwrap_or_else(|why| panic!("{server}: {why}\n{}", status()));
                assert!(answer.contains("\"backend\":\"backend-1\""), "{server}: {answer}");
            }
        }
    }
}

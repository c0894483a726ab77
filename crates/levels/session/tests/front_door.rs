//! A front door before its requests: the PROXY protocol.

mod common;

use common::{Plan, both_upstreams, get};
use equipoise_session::Reason;
use equipoise_session::config::{FrontDoor, TrustedSources, Upstream};
use equipoise_testkit::{Ending, HttpBackend};

both_upstreams! {
    a_required_proxy_header_names_the_client,
    a_connection_without_the_required_proxy_header_is_reset,
}

/// The PROXY header is required, and accepted from loopback.
fn behind_a_proxy(front: &mut FrontDoor) {
    front.accept_proxy = true;
    front.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
}

fn a_required_proxy_header_names_the_client(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(behind_a_proxy).start();
    let mut client = proxy.connect();
    client.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{}", get("/1")));
    client.response().expect("an answer");
    client.ask(get("/2")).expect("an answer on the same connection");
    for request in backend.requests() {
        assert_eq!(request.head.all("x-forwarded-for"), ["192.0.2.7"]);
    }
    proxy.assert_drops(&[]);
}

fn a_connection_without_the_required_proxy_header_is_reset(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(behind_a_proxy).start();
    let mut client = proxy.connect();
    client.send(get("/"));
    assert_eq!(client.read_to_end(), (Vec::new(), Ending::Reset));
    proxy.assert_drops(&[(Reason::ProxyHeader, 1)]);
    assert_eq!(backend.requests().len(), 0);
}

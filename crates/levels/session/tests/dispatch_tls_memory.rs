//! The memory of an encrypted response is bounded, whatever its size and however slowly the client
//! reads. The only test of its process, since it measures the process.

mod common_dispatch;

use common_dispatch::tls::Fleet;
use common_dispatch::{Plan, get};
use equipoise_testkit::{Answer, Client, HttpBackend, Pattern, eventually, rss_bytes};

const BODY_BYTES: u64 = 64 << 20;

/// Far below the size of a body, and far above the buffers of two nodes, client and application,
/// which share the process.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

#[test]
fn a_client_that_does_not_read_holds_the_application_up_through_both_nodes() {
    let (fleet, here) = (Fleet::new(), HttpBackend::named("here"));
    let there = HttpBackend::always(Answer::pattern(1, BODY_BYTES));
    let taker = Plan::new("b", &there).travels(fleet.required("b")).start();
    let giver = Plan::new("a", &here).keep(0.0).travels(fleet.required("a"));
    let giver = giver.peers(&[("b", taker.address)]).start();
    let before = rss_bytes();
    let mut client = Client::connect(giver.address);
    client.send(get("/"));
    // The buffers of the kernel are full, so nothing moves any more.
    let moved = || taker.status().bytes_out;
    let mut last = 0;
    let stands = || {
        let now = moved();
        std::mem::replace(&mut last, now) == now && now > 0
    };
    assert!(eventually(stands));
    assert!(moved() < BODY_BYTES, "it is held up");
    let mut most = rss_bytes();
    let mut pattern = Pattern::new(1);
    client
        .response_into(&mut |piece| {
            assert_eq!(pattern.check(piece), Ok(()));
            most = most.max(rss_bytes());
        })
        .expect("a whole body");
    assert_eq!(pattern.offset(), BODY_BYTES);
    let growth = most.saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes");
}

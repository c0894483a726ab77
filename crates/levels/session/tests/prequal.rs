//! The scheduler `prequal` with a slow backend.

mod common;

use std::time::Duration;

use common::{Plan, get};
use equipoise_core::SchedulerKind;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, HttpBackend, Step, eventually};

const SLOW: Duration = Duration::from_millis(50);
/// Requests after which the shares are compared.
const ROUND: usize = 30;

#[test]
fn a_slow_backend_gets_little_while_others_are_free() {
    let backends = [SLOW, Duration::ZERO, Duration::ZERO]
        .map(|pause| HttpBackend::start(move |_| Answer::ok("ok").first(Step::Pause(pause))));
    let addresses = backends.each_ref().map(HttpBackend::address);
    let proxy =
        Plan::new(Upstream::Exclusive, &addresses).scheduler(SchedulerKind::Prequal).start();
    // Round-robin would give it ten of thirty. A round in which the machine slowed down the others
    // is repeated.
    let spares_the_slow_one = || {
        let before = backends[0].completed();
        for _ in 0..ROUND {
            assert_eq!(proxy.ask(get("/")).text(), "ok");
        }
        backends[0].completed() - before <= 3
    };
    let completed = || backends.each_ref().map(HttpBackend::completed);
    assert!(eventually(spares_the_slow_one), "{:?}", completed());
    assert!(completed()[0] > 0, "each backend is tried");
}

//! Ten thousand connected and silent clients. The only test of its process, because of the
//! descriptors.

mod common;

use common::{Plan, get};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Client, HttpBackend, PATIENCE, eventually, raise_fd_limit, rss_bytes};
use std::net::TcpStream;

const CLIENTS: u64 = 10_000;

/// Each client uses two descriptors in this process, one at each end. This many are for everything
/// else, besides the eighth of the limit that clients may not use.
const FDS_BESIDES: u64 = 500;

#[test]
fn ten_thousand_idle_clients_leave_the_others_served() {
    let limit = raise_fd_limit((2 * CLIENTS + FDS_BESIDES) * 8 / 7);
    let clients = CLIENTS.min((limit / 8 * 7 - FDS_BESIDES) / 2);
    if clients < CLIENTS {
        println!("{clients} clients only: the hard limit of open files is {limit}");
    }
    let backend = HttpBackend::named("x");
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).threads(2);
    // No client is closed as idle before the last has connected.
    let proxy = plan.front(|f| f.timeouts.idle = 6 * PATIENCE).start();
    proxy.ask(get("/"));
    let before = rss_bytes();
    let mut idle: Vec<TcpStream> = Vec::new();
    for n in 0..clients {
        idle.push(TcpStream::connect(proxy.address).expect("it is accepted"));
        if n % 100 == 0 {
            assert_eq!(proxy.ask(get("/")).text(), "x", "beside {n} idle clients");
        }
    }
    let open = || proxy.stats.sum(|s| s.connections_open.get());
    assert!(eventually(|| open() == clients), "{} of {clients}", open());
    println!("{} bytes of this process per idle client", (rss_bytes() - before) / clients);
    for stream in idle.iter().step_by(97) {
        let stream = stream.try_clone().expect("a descriptor is free");
        assert_eq!(Client::over(stream).ask(get("/")).map(|r| r.text()), Ok("x".to_owned()));
    }
    drop(idle);
    assert!(eventually(|| open() == 0), "{} left", open());
    proxy.assert_drops(&[]);
}

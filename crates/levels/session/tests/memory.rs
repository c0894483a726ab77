//! The memory of a body is bounded, whatever its size and however slow either side is. The only
//! test of its process, since it measures the process.

mod common;
mod common_http2;

use std::thread;

use common::{Plan, get, request};
use common_http2::{GET, Raw, SETTINGS, WINDOW_UPDATE};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, Intake, Pattern, eventually, rss_bytes,
};

const BODY_BYTES: u64 = 64 << 20;

/// Far below the size of a body, and far above the buffers of proxy, client and backend, which
/// share the process.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// Streams of a client of HTTP/2 that reads nothing.
const STREAMS: u32 = 50;

fn growth_of(what: impl FnOnce(&dyn Fn())) -> u64 {
    let before = rss_bytes();
    let most = std::cell::Cell::new(0);
    what(&|| most.set(most.get().max(rss_bytes())));
    most.get().saturating_sub(before)
}

/// Sends from its own thread, without copying the pieces.
fn upload(client: &Client) -> thread::JoinHandle<()> {
    let mut writer = Client::over(client.stream().try_clone().expect("a descriptor is free"));
    thread::spawn(move || {
        writer.send(request("POST", "/", &format!("Content-Length: {BODY_BYTES}\r\n")));
        let mut pattern = Pattern::new(1);
        while pattern.offset() < BODY_BYTES {
            let left = BODY_BYTES - pattern.offset();
            // Ends when the proxy is stopped; its test then reports that.
            if writer.try_send(pattern.next(left as usize)).is_err() {
                return;
            }
        }
    })
}

#[test]
fn bodies_use_bounded_memory_even_if_a_client_does_not_read() {
    for upstream in [Upstream::Exclusive, Upstream::Multiplexed] {
        let gate = Gate::new();
        let held = gate.clone();
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/" => Answer::ok("x").intake(Intake::Check(1)),
            "/stalled" => Answer::ok("x").intake(Intake::After(held.clone())),
            _ => Answer::pattern(2, BODY_BYTES),
        });
        let plan = Plan::new(upstream, &[backend.address()]).front(|front| front.http2 = true);
        let proxy = plan.start();
        let down = growth_of(|look| {
            let mut client = proxy.connect();
            client.send(get("/down"));
            client.response_into(&mut |_| look()).expect("a whole body");
        });
        let up = growth_of(|look| {
            let mut client = proxy.connect();
            let sender = upload(&client);
            assert!(eventually(|| {
                look();
                sender.is_finished()
            }));
            assert_eq!(client.response().map(|r| r.status()), Ok(200));
        });
        let unread = growth_of(|look| {
            let mut client = proxy.connect();
            client.send(get("/down")).head().expect("it has begun");
            settles(|| proxy.stats.sum(|s| s.bytes_out.get()), look);
        });
        let streams = growth_of(|look| {
            let mut client = Raw::to(proxy.address);
            // The largest windows: of each stream, and of the connection.
            let window = i32::MAX as u32;
            client.frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
            client.frame(WINDOW_UPDATE, 0, 0, &(window - 65_535).to_be_bytes());
            (0..STREAMS).for_each(|at| {
                client.ask(2 * at + 1, &[GET[0], GET[1], GET[2], (":path", "/down")]);
            });
            settles(|| proxy.stats.sum(|s| s.bytes_out.get()), look);
        });
        assert!(
            [down, up, unread, streams].iter().all(|growth| *growth < GROWTH_BYTES_MAX),
            "{upstream:?}: {down} bytes more for a body down, {up} up, {unread} unread, {streams} on streams"
        );
        assert!(eventually(|| proxy.drops(Reason::ClientGone) == 1 + u64::from(STREAMS)));
        gate.open();
    }
}

/// Waits until a count has not changed for a while: both sockets' buffers are full.
fn settles(count: impl Fn() -> u64, look: &dyn Fn()) {
    let mut last = (count(), 0);
    while last.1 < 100 {
        thread::sleep(std::time::Duration::from_millis(2));
        look();
        let now = count();
        last = if now == last.0 { (now, last.1 + 1) } else { (now, 0) };
    }
}

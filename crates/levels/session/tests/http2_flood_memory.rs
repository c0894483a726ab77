//! Heads that `h2` refuses itself, without end, take bounded memory, and other clients are served.
//! The only test of its process, since it measures the process.

mod common;
mod common_http2;

use std::io::Write;

use common::{Plan, get};
use common_http2::{
    DATA, END_HEADERS, END_STREAM, GET, HEADERS, INDEXED, Raw, block, frame, indexed_field,
};
use equipoise_session::config::Upstream;
use equipoise_testkit::{HttpBackend, rss_bytes};

/// Heads between two looks at the memory and at another client: fewer than `streams-max`.
const AT_ONCE: u32 = 50;
const ROUNDS: u32 = 400;

/// Copies of a field of 4 KB in a head: less than four times `head-max`, more than which ends the
/// connection.
const COPIES: usize = 28;

/// The heads would be 2.3 GB.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

#[test]
fn a_flood_of_heads_that_are_answered_431_takes_bounded_memory() {
    let backend = HttpBackend::echo();
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let proxy = plan.front(|front| front.http2 = true).start();
    let mut other = proxy.connect();
    let mut client = Raw::to(proxy.address);
    let mut before = None;
    let head = |at: u32| match at {
        0 => indexed_field(COPIES),
        // The field is in the table already.
        _ => [block(&GET), INDEXED.repeat(COPIES)].concat(),
    };
    for round in 0..ROUNDS {
        let all = (round * AT_ONCE)..((round + 1) * AT_ONCE);
        let heads =
            all.clone().map(|at| frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * at, &head(at)));
        let heads: Vec<u8> = heads.flatten().collect();
        client.0.write_all(&heads).expect("they are taken");
        for _ in all {
            let answer = client.read_until(HEADERS);
            assert_eq!(answer.flags, END_STREAM | END_HEADERS, "it is refused: {answer:?}");
        }
        assert_eq!(other.ask(get("/")).map(|answer| answer.status()), Ok(200));
        // The first rounds have what the process needs for any.
        if round < ROUNDS / 10 {
            continue;
        }
        let growth = rss_bytes().saturating_sub(*before.get_or_insert_with(rss_bytes));
        assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes after {round} rounds");
    }
    // It goes on.
    client.ask(1 + 2 * ROUNDS * AT_ONCE, &GET);
    client.read_until(DATA);
    // No backend has any of them.
    let requests = backend.requests();
    assert!(requests.iter().all(|request| request.head.header("x").is_none()));
    proxy.assert_drops(&[]);
}

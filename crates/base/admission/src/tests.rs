use std::time::Duration;

use tokio::time::{advance, timeout};

use super::*;

type Port = Admission<u8, &'static str>;

const SECOND: Duration = Duration::from_secs(1);

fn port() -> Port {
    Admission::new(Limits {
        connections_max: 5,
        unproven_max: 3,
        unproven_by_source_max: 2,
        by_member_max: 2,
    })
}

fn enter(port: &Port, from: u8) -> Pass<u8, &'static str> {
    port.enter(from).unwrap().0
}

/// Whether each connection was evicted.
async fn evicted<const N: usize>(passes: [&Pass<u8, &'static str>; N]) -> [bool; N] {
    let mut ended = [false; N];
    for (pass, ended) in passes.into_iter().zip(&mut ended) {
        *ended = timeout(Duration::ZERO, pass.evicted()).await.is_ok();
    }
    ended
}

#[tokio::test(start_paused = true)]
async fn a_source_at_its_limit_loses_its_longest_idle_connection() {
    let port = port();
    let (a, b) = (enter(&port, 1), enter(&port, 1));
    advance(SECOND).await;
    a.activity().note();
    let (c, full) = port.enter(1).unwrap();
    assert_eq!(full, Some(Full::Source));
    assert_eq!(evicted([&a, &b, &c]).await, [false, true, false]);
    drop(b);
    assert_eq!(port.inside().unproven.len(), 2, "an evicted connection is counted out once");
}

#[tokio::test(start_paused = true)]
async fn a_full_port_evicts_from_the_source_with_the_most_connections() {
    let port = port();
    let small = enter(&port, 1);
    advance(SECOND).await;
    let (a, b) = (enter(&port, 2), enter(&port, 2));
    let (newcomer, full) = port.enter(3).unwrap();
    assert_eq!(full, Some(Full::Unproven));
    assert_eq!(evicted([&small, &a, &b, &newcomer]).await, [false, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_proven_member_has_a_connection_limit_and_is_never_evicted() {
    let port = port();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut pass = enter(&port, 1);
        pass.prove(&"a").unwrap();
        held.push(pass);
    }
    let mut third = enter(&port, 1);
    assert_eq!(third.prove(&"a"), Err(Full::Member));
    drop(third);
    let unproven: Vec<_> = (1..4).map(|source| enter(&port, source)).collect();
    assert_eq!(port.enter(4).unwrap().1, Some(Full::Connections));
    assert_eq!(evicted([&held[0], &held[1], &unproven[0]]).await, [false, false, true]);
    drop((held, unproven));
    let inside = port.inside();
    assert_eq!((inside.all, inside.unproven.len()), (0, 0));
    assert!(inside.by_source.is_empty() && inside.by_member.is_empty(), "{inside:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_are_refused_while_members_hold_every_place() {
    let limits = Limits { by_member_max: 5, ..port().limits };
    let port = Port::new(limits);
    let _held: Vec<_> = (0..5)
        .map(|_| {
            let mut pass = enter(&port, 1);
            pass.prove(&"a").unwrap();
            pass
        })
        .collect();
    assert_eq!(port.enter(2).unwrap_err(), Full::Connections);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_connection_cannot_prove_its_member() {
    let port = port();
    let mut late = enter(&port, 1);
    let _others = [enter(&port, 1), enter(&port, 1)];
    assert_eq!(late.prove(&"a"), Err(Full::Unproven));
}

/// Maximum time to answer a request.
const WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_connection_being_answered_is_not_evicted_during_a_flood() {
    let port = port();
    let slow = enter(&port, 1);
    let answer = slow.activity().answering(WITHIN);
    let mut flood = Vec::new();
    for source in [1, 2, 3, 4, 1, 2, 1, 1] {
        advance(SECOND).await;
        flood.push(enter(&port, source));
    }
    assert_eq!(evicted([&slow]).await, [false], "others were silent for less long");
    drop(answer);
    advance(SECOND).await;
    for _ in 0..3 {
        flood.push(enter(&port, 1));
    }
    assert_eq!(evicted([&slow]).await, [true], "it has its answer");
}

#[tokio::test(start_paused = true)]
async fn an_overdue_answer_no_longer_protects_its_connection() {
    let port = port();
    let slow = enter(&port, 1);
    let _answer = slow.activity().answering(WITHIN);
    advance(WITHIN).await;
    let _others = [enter(&port, 1), enter(&port, 1)];
    assert_eq!(evicted([&slow]).await, [true]);
}

#[tokio::test(start_paused = true)]
async fn if_all_are_answered_only_a_smaller_source_evicts_a_connection() {
    let port = port();
    let passes = [enter(&port, 1), enter(&port, 2), enter(&port, 2)];
    let _answers = passes.each_ref().map(|pass| pass.activity().answering(WITHIN));
    assert_eq!(port.enter(2).unwrap_err(), Full::Unproven, "it would push out its own");
    assert_eq!(port.enter(1).unwrap_err(), Full::Unproven, "it has as many then");
    let (newcomer, _) = port.enter(3).unwrap();
    let [one, two, three] = &passes;
    assert_eq!(evicted([one, two, three, &newcomer]).await, [false, true, false, false]);
    let _answer = newcomer.activity().answering(WITHIN);
    assert_eq!(port.enter(4).unwrap_err(), Full::Unproven, "each has one");
    assert_eq!(evicted([one, three, &newcomer]).await, [false; 3]);
}

#[test]
fn an_ipv6_source_is_a_network_of_64_bits() {
    let of = |text: &str| source(text.parse().unwrap()).to_string();
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(of("::ffff:192.0.2.1"), "192.0.2.1");
    assert_eq!(of("192.0.2.1"), "192.0.2.1");
}

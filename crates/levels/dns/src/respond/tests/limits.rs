//! Rate limits.

use super::*;
use crate::{Reason, Transport};

fn limited(per_second: u32, slip: u32) -> Server {
    let mut config = config();
    config.options.rate_limit.per_second = per_second;
    config.options.rate_limit.slip = slip;
    Server::of(&config, &[])
}

#[test]
fn a_flood_of_one_question_is_limited_and_others_are_not() {
    let mut server = limited(5, 0);
    let asked = query("www.cluster.example", A);
    let answers = (0..100).filter(|_| server.over(Transport::Udp, &asked).is_ok()).count();
    assert_eq!(answers, 5);
    assert_eq!(server.figure("rate_limited"), 95);
    assert!(server.over(Transport::Udp, &query("text.cluster.example", TXT)).is_ok());
    assert!(server.over(Transport::Tcp, &asked).is_ok(), "TCP proves its source");
    server.client = "198.51.101.7".parse().unwrap();
    assert!(server.over(Transport::Udp, &asked).is_ok(), "another prefix");
}

#[test]
fn names_that_do_not_exist_are_one_kind_as_are_errors() {
    let mut server = limited(5, 0);
    let flood = |server: &mut Server, name: &dyn Fn(usize) -> String| {
        (0..100).filter(|n| server.over(Transport::Udp, &query(&name(*n), A)).is_ok()).count()
    };
    assert_eq!(flood(&mut server, &|n| format!("x{n}.cluster.example")), 5);
    assert_eq!(flood(&mut server, &|n| format!("x{n}.other.example")), 5);
    assert_eq!(flood(&mut server, &|n| format!("x{n}.sub.cluster.example")), 5);
    assert_eq!(flood(&mut server, &|n| format!("x{n}.wild.cluster.example")), 5);
    let broken = query("www.cluster.example", A);
    let answers = (0..100).filter(|_| server.over(Transport::Udp, &broken[..20]).is_ok()).count();
    assert_eq!(answers, 5);
}

#[test]
fn some_limited_responses_go_out_short_so_that_a_real_client_comes_over_tcp() {
    let mut server = limited(1, 2);
    let asked = with_opt(query("www.cluster.example", A), 1232, 0, &[]);
    server.udp(&asked);
    let answers: Vec<_> =
        (0..1000).filter_map(|_| server.over(Transport::Udp, &asked).ok()).collect();
    assert!((400..600).contains(&answers.len()), "{}", answers.len());
    for answer in &answers {
        let told = told(answer);
        assert_eq!((told.flags.as_str(), told.sections[0].len()), ("tc rd", 0));
        assert!(answer.len() <= asked.len());
    }
    assert_eq!(server.stats.slipped.get(), answers.len() as u64);
}

#[test]
fn a_client_with_a_cookie_is_not_limited_and_one_that_takes_cookies_is_given_one() {
    let mut server = limited(1, 1);
    let client = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let first = with_opt(query("www.cluster.example", A), 1232, 0, &client);
    server.udp(&first);
    let answer = server.udp(&first);
    let refused = told(&answer);
    assert_eq!((refused.code.as_str(), refused.flags.as_str()), ("BADCOOKIE", "rd"));
    let cookie = &answer[answer.len() - 24..];
    let option = [&[0, 10, 0, 24][..], cookie].concat();
    let proven = with_opt(query("www.cluster.example", A), 1232, 0, &option);
    for _ in 0..100 {
        assert_eq!(told(&server.udp(&proven)).sections[0].len(), 2);
    }
    // The same cookie from another address proves nothing.
    server.client = "198.51.100.8".parse().unwrap();
    assert_eq!(told(&server.udp(&proven)).code, "BADCOOKIE");
}

#[test]
fn limited_errors_are_dropped_too() {
    let mut server = limited(1, 0);
    let broken = query("www.cluster.example", A)[..20].to_vec();
    assert!(server.over(Transport::Udp, &broken).is_ok());
    assert_eq!(server.over(Transport::Udp, &broken), Err(Reason::RateLimited));
    assert!(server.over(Transport::Tcp, &broken).is_ok());
}

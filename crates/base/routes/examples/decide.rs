//! Prints the time of a decision with few and with many routes:
//! `cargo run --release -p equipoise-routes --example decide`.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use equipoise_routes::{Conditions, PathCondition, RequestParts, Table, normal};

const DECISIONS: u32 = 200_000;
const ROUNDS: usize = 7;

/// Makes the route of a number.
type Make = fn(usize) -> Conditions;

fn by_path(route: usize) -> Conditions {
    let path = PathCondition::prefix(&format!("/team{}/service{route}/v1", route % 30));
    Conditions { paths: vec![path.expect("a path")], ..Conditions::default() }
}

fn by_host(route: usize) -> Conditions {
    let host = format!("service{route}.example.com").parse().expect("a host");
    Conditions { hosts: vec![host], ..Conditions::default() }
}

fn by_host_and_path(route: usize) -> Conditions {
    Conditions { hosts: by_host(route / 10 * 10).hosts, ..by_path(route) }
}

fn by_regex(route: usize) -> Conditions {
    let text = format!("^/team{}/service{route}/v[0-9]+", route % 30);
    let pattern = PathCondition::Regex(text.parse().expect("an expression"));
    Conditions { paths: vec![pattern], ..Conditions::default() }
}

/// The median time of a decision, in ns.
fn measure(table: &Table, host: &str, target: &str) -> f64 {
    let headers: &[(&str, &str)] = &[];
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..DECISIONS {
                let path = normal::path(black_box(target.as_bytes())).expect("a path");
                let request = RequestParts {
                    method: "GET",
                    host: host.as_bytes(),
                    path: &path,
                    query: b"",
                    source: Ipv4Addr::LOCALHOST.into(),
                    headers: &headers,
                };
                black_box(table.decide(&request));
            }
            begun.elapsed().as_nanos() as f64 / f64::from(DECISIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!("{:<16}{:>10}{:>10}{:>12}", "ns a decision", "1 route", "1000", "no match");
    let kinds: [(&str, Make); 4] = [
        ("path prefix", by_path),
        ("host", by_host),
        ("host and path", by_host_and_path),
        ("path regex", by_regex),
    ];
    for (name, route) in kinds {
        let one = Table::new(vec![route(999)]).expect("it is small");
        let many = Table::new((0..1000).map(route).collect()).expect("it is small");
        let host = if name == "host" { "service999.example.com" } else { "service990.example.com" };
        let target = "/team9/service999/v1/users/7";
        println!(
            "{name:<16}{:>10.0}{:>10.0}{:>12.0}",
            measure(&one, host, target),
            measure(&many, host, target),
            measure(&many, "other.example.com", "/other/path"),
        );
    }
}

//! Requests every route with every role.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::Method;
use common::{
    Answered, Recorder, TOKENS, ask, audited, bearer, guarded_api, on_loopback, open_api, policy,
    token,
};
use equipoise_api::listen::ApiUnix;
use equipoise_api::{Access, Declared, Policy, Role, declared, serve_unix};
use equipoise_testkit::Folder;
use tokio::net::{TcpStream, UnixStream};

/// A path for the route, and a body that it accepts.
fn example(route: &Declared) -> (String, &'static str) {
    let path = route.path.replace("{pool}", "web").replace("{backend}", "b");
    let path = path.replace("{node}", "n").replace("{token}", "t").replace("{stream}", "images");
    let path = path.replace("{worker}", "w").replace("{slice}", "3");
    match (route.method.as_str(), route.path) {
        (_, "/v1/flow") => (format!("{path}?source=192.0.2.1:1&vip=192.0.2.2:80/tcp"), ""),
        (_, "/v1/flow/clients") => (format!("{path}?source=192.0.2.1:1"), ""),
        (_, "/v1/capture") => (path, r#"{"vip":"v"}"#),
        (_, "/v1/why") => (path, r#"{"request":{"url":"http://a.example/"}}"#),
        ("DELETE", "/v1/pins") => (format!("{path}?vip=v&flow=f"), ""),
        ("PUT" | "POST", "/v1/pins") => (path, r#"{"vip":"v","flow":"f","backend":"b"}"#),
        (_, "/v1/pools/{pool}/backends/{backend}/weight") => (path, r#"{"weight":2}"#),
        ("PUT", "/v1/pools/{pool}/backends/{backend}") => (path, r#"{"address":"127.0.0.1:1"}"#),
        ("PATCH", "/v1/pools/{pool}/backends/{backend}") => (path, r#"{"concurrency":2}"#),
        ("PUT", "/v1/slices/{stream}/pins/{slice}") => (path, r#"{"worker":"w"}"#),
        (_, "/v1/slices/{stream}/resize") => (path, r#"{"slices":2}"#),
        (_, "/v1/slices/{stream}/moves") => (path, r#"{"slices":[3],"worker":"w"}"#),
        ("PUT", "/v1/plan/pools/{pool}") => (path, r#"{"mode":"paused"}"#),
        ("PUT", "/v1/config/text") => (path, r#"{"toml":""}"#),
        (_, "/v1/config/check" | "/v1/upgrade") | ("POST", "/v1/cluster/tokens") => (path, "{}"),
        _ => (path, ""),
    }
}

async fn tcp(address: SocketAddr, route: &Declared, headers: &[String]) -> Answered {
    let (path, body) = example(route);
    let stream = TcpStream::connect(address).await.unwrap();
    ask(stream, &format!("{} {path}", route.method), headers, body).await
}

/// Creates objects for routes that move a pin or revoke a token.
async fn prepare(operator: &Recorder) {
    let wanted = serde_json::from_str("{}").unwrap();
    *operator.tokens.lock().unwrap() = vec![token("t", wanted)];
    let pin = r#"{"vip":"v","flow":"f","backend":"a"}"#;
    operator.pins.lock().unwrap().push(serde_json::from_str(pin).unwrap());
}

#[tokio::test]
async fn every_route_admits_exactly_its_declared_roles() {
    let folder = Folder::new("roles");
    let operator = Arc::new(Recorder::default());
    let api = guarded_api(&operator, policy(), folder.path("audit"));
    let address = on_loopback(api).await;
    let routes = declared::<Recorder>();
    assert!(routes.len() > 15, "{routes:?}");
    for route in &routes {
        for (name, role, token) in TOKENS {
            prepare(&operator).await;
            let answered = tcp(address, route, &[bearer(token)]).await;
            let may = route.access.allows(Some(role));
            let expected = if may { 200 } else { 403 };
            assert_eq!(answered.status, expected, "{name} {route:?} {answered:?}");
            if !may {
                let challenge = answered.header("www-authenticate").unwrap();
                assert!(challenge.contains("insufficient_scope"), "{challenge}");
            }
        }
        let nobody: [&[String]; 5] = [
            &[],
            &[bearer("wrong-0123456789abcdef0123456789abcdef")],
            &[bearer("")],
            &[format!("Authorization: Basic {}", TOKENS[2].2)],
            &[bearer(TOKENS[2].2), bearer(TOKENS[2].2)],
        ];
        for headers in nobody {
            let answered = tcp(address, route, headers).await;
            let expected = if route.access == Access::Anyone { 200 } else { 401 };
            assert_eq!(answered.status, expected, "{headers:?} {route:?} {answered:?}");
            if expected == 401 {
                let challenge = answered.header("www-authenticate").unwrap();
                assert!(challenge.starts_with("Bearer realm="), "{challenge}");
                assert!(answered.body.contains("--token-file"), "{answered:?}");
            }
        }
    }
}

#[test]
fn changing_routes_need_operate_and_administrative_routes_need_admin() {
    for Declared { method, path, access, .. } in declared::<Recorder>() {
        match (method, path) {
            // The dashboard's files have no state.
            (_, "/v1/health" | "/" | "/dashboard.js" | "/dashboard.css") => {
                assert_eq!(access, Access::Anyone);
            }
            // Admission to a cluster, and eviction.
            (_, "/v1/cluster/tokens" | "/v1/cluster/tokens/{token}")
            | (_, "/v1/cluster/nodes/{node}/evict") => {
                assert_eq!(access, Access::Needs(Role::Admin), "{path}");
            }
            // The file may have secrets of discovery and drivers.
            (_, "/v1/config/text") => assert_eq!(access, Access::Needs(Role::Admin)),
            // A question with a body.
            (_, path @ "/v1/why") | (Method::GET, path) => {
                assert_eq!(access, Access::Needs(Role::Read), "{path}")
            }
            (
                _,
                "/v1/reload"
                | "/v1/config/check"
                | "/v1/config/preview"
                | "/v1/config/roll-back"
                | "/v1/upgrade",
            ) => {
                assert_eq!(access, Access::Needs(Role::Admin), "{path}");
            }
            (_, path) => assert!(access >= Access::Needs(Role::Operate), "{path}"),
        }
    }
}

#[tokio::test]
async fn unix_socket_callers_have_every_right_and_are_audited_by_uid() {
    let folder = Folder::new("socket-roles");
    let operator = Arc::new(Recorder::default());
    let api = guarded_api(&operator, policy(), folder.path("audit"));
    let listener = ApiUnix::bind(&folder.path("api.sock")).unwrap();
    tokio::spawn(serve_unix(listener, api, std::future::pending()));
    for route in declared::<Recorder>() {
        prepare(&operator).await;
        let (path, body) = example(&route);
        let stream = UnixStream::connect(folder.path("api.sock")).await.unwrap();
        let answered = ask(stream, &format!("{} {path}", route.method), &[], body).await;
        assert_eq!(answered.status, 200, "{route:?} {answered:?}");
    }
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let who = format!("uid:{}", unsafe { libc::geteuid() });
    for line in audited(&folder.path("audit")) {
        assert_eq!((&line["who"], &line["from"]), (&who.clone().into(), &"unix".into()), "{line}");
        assert_eq!(line["pid"], std::process::id(), "{line}");
    }
}

#[tokio::test]
async fn without_tokens_loopback_callers_can_only_read() {
    let operator = Arc::new(Recorder::default());
    let address = on_loopback(open_api(&operator)).await;
    for route in declared::<Recorder>() {
        prepare(&operator).await;
        let may = route.access.allows(Some(Role::Read));
        let answered = tcp(address, &route, &[]).await;
        assert_eq!(answered.status, if may { 200 } else { 403 }, "{route:?} {answered:?}");
    }
    assert_eq!(*operator.reads.lock().unwrap(), 0, "no file was read");
}

#[tokio::test]
async fn unauthenticated_requests_get_401_even_for_unknown_routes() {
    let folder = Folder::new("unknown");
    let api = guarded_api(&Arc::default(), policy(), folder.path("audit"));
    let address = on_loopback(api).await;
    for (start, known) in
        [("GET /v1/nothing", 404), ("PATCH /v1/status", 405), ("GET /favicon.ico", 404)]
    {
        for (headers, status) in [(vec![], 401), (vec![bearer(TOKENS[1].2)], known)] {
            let stream = TcpStream::connect(address).await.unwrap();
            let answered = ask(stream, start, &headers, "").await;
            assert_eq!(answered.status, status, "{start} {answered:?}");
            let media_type = answered.header("content-type");
            assert_eq!(media_type, Some("application/problem+json"), "{start}");
            if status == 405 {
                assert_eq!(answered.header("allow"), Some("GET,HEAD"), "{start}");
            }
        }
    }
}

#[tokio::test]
async fn the_caller_route_returns_the_name_and_role_of_the_caller() {
    let folder = Folder::new("caller");
    let api = guarded_api(&Arc::default(), policy(), folder.path("audit"));
    let address = on_loopback(api).await;
    for (name, role, token) in TOKENS {
        let stream = TcpStream::connect(address).await.unwrap();
        let answered = ask(stream, "GET /v1/caller", &[bearer(token)], "").await;
        assert_eq!(answered.body, format!(r#"{{"who":"token:{name}","role":"{role}"}}"#));
    }
}

#[tokio::test]
async fn a_source_with_too_many_failures_gets_429_with_retry_after() {
    let folder = Folder::new("throttled");
    let policy = Policy { failures_per_minute: 3, ..policy() };
    let api = guarded_api(&Arc::default(), policy, folder.path("audit"));
    let address = on_loopback(api).await;
    let (path, access) = ("/v1/status", Access::Needs(Role::Read));
    let status = Declared { method: Method::GET, path, access, query: Vec::new() };
    let wrong = [bearer("wrong-0123456789abcdef0123456789abcdef")];
    for expected in [401, 401, 401, 429, 429] {
        let answered = tcp(address, &status, &wrong).await;
        assert_eq!(answered.status, expected, "{answered:?}");
        let after = answered.header("retry-after").map(|seconds| seconds.parse::<u64>().unwrap());
        assert_eq!(after.is_some(), expected == 429);
        assert!(after.is_none_or(|seconds| (1..=21).contains(&seconds)), "{after:?}");
    }
    assert_eq!(tcp(address, &status, &[bearer(TOKENS[0].2)]).await.status, 200);
    let reload = Declared { method: Method::POST, path: "/v1/reload", ..status.clone() };
    assert_eq!(tcp(address, &reload, &[bearer(TOKENS[2].2)]).await.status, 200);
    let lines = audited(&folder.path("audit"));
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["denied", "denied", "denied", "done"], "{lines:?}");
    assert_eq!(lines[3]["turned_away_unlogged"], 2);
    let text = std::fs::read_to_string(folder.path("audit")).unwrap();
    assert!(!text.contains("0123456789abcdef"), "no token is in the log: {text}");
}

#[tokio::test]
async fn denied_requests_of_one_caller_are_audited_at_a_limited_rate() {
    let folder = Folder::new("flood");
    let policy = Policy { failures_per_minute: 5, ..policy() };
    let api = guarded_api(&Arc::default(), policy, folder.path("audit"));
    let address = on_loopback(api).await;
    for start in ["POST /v1/reload", "POST /v1/nothing", "PATCH /v1/status", "DELETE /"] {
        for _ in 0..5 {
            let stream = TcpStream::connect(address).await.unwrap();
            let answered = ask(stream, start, &[bearer(TOKENS[0].2)], "").await;
            assert_eq!(answered.status, 403, "{start} {answered:?}");
        }
    }
    assert_eq!(audited(&folder.path("audit")).len(), 5);
}

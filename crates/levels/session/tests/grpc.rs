//! gRPC: refusals have its statuses, and a client's deadline bounds its request.

mod common;
mod common_http2;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Plan, Proxy};
use common_http2::backend::{Arrived, Http2Backend};
use common_http2::{Connection, Reply, read, request, run, send};
use equipoise_session::Reason;
use equipoise_session::config::{QueueOptions, Upstream};
use equipoise_testkit::{Answer, HttpBackend, free_port};
use http::{HeaderValue, Request, Response};
use tokio::sync::Notify;

fn plan(backend: std::net::SocketAddr) -> Plan {
    Plan::new(Upstream::Http2, &[backend]).front(|front| front.http2 = true)
}

fn call(fields: &[(&'static str, &'static str)]) -> Request<()> {
    let mut asked = request("POST", "/orders.v1.Orders/Get");
    let headers = asked.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc+proto"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    for (name, value) in fields {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    asked
}

async fn hang(arrived: Arrived) {
    let _arrived = arrived;
    std::future::pending::<()>().await;
}

/// Makes a call, with an empty message.
fn ask(proxy: &Proxy, asked: Request<()>) -> Reply {
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(asked, false).await;
        let _ = send(&mut stream, vec![0; 5].into(), true).await;
        read(response).await.expect("a response")
    })
}

#[track_caller]
fn assert_refused(reply: &Reply, code: &str) {
    let field = |name: &str| reply.headers.get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((reply.status.as_u16(), field("content-type")), (200, Some("application/grpc")));
    assert_eq!(field("grpc-status"), Some(code), "{:?}", reply.headers);
    assert!(field("grpc-message").is_some_and(|text| !text.is_empty()));
    assert!(reply.body.is_empty() && reply.trailers.is_none());
}

#[test]
fn refusals_of_grpc_calls_are_grpc_statuses() {
    let refused = free_port();
    let proxy = plan(refused.address()).start();
    assert_refused(&ask(&proxy, call(&[])), "14");
    proxy.assert_drops(&[(Reason::ConnectRefused, 1)]);
    // Other requests get an answer of HTTP.
    assert_eq!(ask(&proxy, request("POST", "/")).status, 502);

    let mut proxy = plan(refused.address()).start();
    proxy.backends.clear();
    proxy.publish().expect("nothing is bound");
    assert_refused(&ask(&proxy, call(&[])), "14");
    proxy.assert_drops(&[(Reason::NoBackend, 1)]);

    let backend = Http2Backend::start(hang);
    let timed = plan(backend.address).pool(|pool| {
        (pool.response_timeout, pool.retries) = (Duration::from_millis(50), 0);
    });
    let proxy = timed.start();
    assert_refused(&ask(&proxy, call(&[])), "4");
    proxy.assert_drops(&[(Reason::ResponseTimeout, 1)]);

    let proxy = plan(backend.address).front(|front| front.limits.body_bytes_max = Some(3)).start();
    assert_refused(&ask(&proxy, call(&[])), "8");
    proxy.assert_drops(&[(Reason::RequestBodyTooLarge, 1)]);
}

#[test]
fn a_full_queue_and_a_queue_timeout_have_different_grpc_codes() {
    let backend = Http2Backend::start(hang);
    for (length, code, reason) in [(0, "8", Reason::QueueFull), (1, "14", Reason::QueueTimeout)] {
        let wait = Duration::from_millis(50);
        let plan = plan(backend.address).pool(|pool| pool.queue = QueueOptions { wait, length });
        let proxy = plan.start();
        proxy.backends[0].live.set_limit(std::num::NonZeroU32::new(1));
        let seen = backend.heads().len();
        run(async {
            let connection = Connection::to(proxy.address).await;
            let (_hanging, _stream) = connection.begin(call(&[]), true).await;
            while backend.heads().len() == seen {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_refused(&connection.ask(call(&[])).await.expect("a response"), code);
        });
        proxy.assert_drops(&[(Reason::ClientGone, 1), (reason, 1)]);
    }
}

#[test]
fn a_content_length_over_the_limit_gets_a_grpc_refusal() {
    let backend = Http2Backend::start(hang);
    let proxy = plan(backend.address).front(|front| front.limits.body_bytes_max = Some(4)).start();
    assert_refused(&ask(&proxy, call(&[("content-length", "5")])), "8");
    proxy.assert_drops(&[(Reason::RequestBodyTooLarge, 1)]);
    assert!(backend.heads().is_empty());
}

#[test]
fn the_shorter_of_client_and_front_door_deadlines_applies() {
    let backend = Http2Backend::start(hang);
    let long = Duration::from_secs(600);
    let rows = [(None, "100m"), (Some(long), "100000u"), (Some(Duration::from_millis(100)), "1H")];
    for (own, of_client) in rows {
        let plan = plan(backend.address).front(|front| front.timeouts.request = own);
        let proxy = plan.start();
        let begun = Instant::now();
        assert_refused(&ask(&proxy, call(&[("grpc-timeout", of_client)])), "4");
        assert!(begun.elapsed() >= Duration::from_millis(100));
        proxy.assert_drops(&[(Reason::RequestTimeout, 1)]);
        let passed = backend.heads().last().expect("a request").headers.clone();
        assert_eq!(passed["grpc-timeout"], of_client);
        assert_eq!(passed["content-type"], "application/grpc+proto");
    }
    // Of other requests it is a field like others.
    let answers = Http2Backend::says("ok");
    let proxy = plan(answers.address).start();
    let mut plain = request("GET", "/");
    plain.headers_mut().insert("grpc-timeout", HeaderValue::from_static("0n"));
    assert_eq!(ask(&proxy, plain).text(), "ok");
}

#[test]
fn a_backend_of_http11_serves_grpc_too() {
    let answer = Answer::chunked(&["abc"], &["grpc-status: 0"]);
    let backend = HttpBackend::always(answer);
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()])
        .front(|front| front.http2 = true)
        .start();
    let reply = ask(&proxy, call(&[]));
    assert_eq!((reply.text().as_str(), reply.trailers.expect("trailers").len()), ("abc", 1));
}

#[test]
fn a_response_with_trailers_alone_passes() {
    let backend = Http2Backend::start(|mut arrived| async move {
        let answer = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "5")
            .header("grpc-message", "no such order");
        let answer = answer.body(()).expect("a response");
        arrived.respond.send_response(answer, true).expect("it is taken");
    });
    let proxy = plan(backend.address).start();
    let reply = ask(&proxy, call(&[]));
    assert_eq!(reply.headers["grpc-status"], "5");
    assert!(reply.body.is_empty() && reply.trailers.is_none());
    proxy.assert_drops(&[]);
}

#[test]
fn a_deadline_in_the_middle_of_a_stream_ends_it() {
    let ended = Arc::new(Notify::new());
    let at_backend = ended.clone();
    let backend = Http2Backend::start(move |mut arrived| {
        let ended = at_backend.clone();
        async move {
            let mut stream =
                arrived.respond.send_response(Response::new(()), false).expect("it is taken");
            let _ = stream.send_data("message".into(), false);
            let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            ended.notify_one();
        }
    });
    let proxy = plan(backend.address).start();
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, _stream) = connection.begin(call(&[("grpc-timeout", "200m")]), false).await;
        read(response).await.expect_err("it is cut");
        ended.notified().await;
    });
    proxy.assert_drops(&[(Reason::RequestTimeout, 1)]);
}

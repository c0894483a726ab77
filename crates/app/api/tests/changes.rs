//! Changes: conditional on the state that the caller has seen, one at a time, and audited.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{
    Answered, Recorder, SECRET_OF_A_TOKEN, TOKENS, ask, audited, bearer, guarded_api, on_loopback,
    policy,
};
use equipoise_testkit::Folder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Bed {
    folder: Folder,
    operator: Arc<Recorder>,
    address: SocketAddr,
}

impl Bed {
    async fn new(test: &str) -> Bed {
        Bed::over(test, Recorder::default()).await
    }

    async fn over(test: &str, operator: Recorder) -> Bed {
        let (folder, operator) = (Folder::new(test), Arc::new(operator));
        let api = guarded_api(&operator, policy(), folder.path("audit"));
        let address = on_loopback(api).await;
        Bed { folder, operator, address }
    }

    /// Sends a request as the administrator.
    async fn ask(&self, start: &str, headers: &[&str], body: &str) -> Answered {
        let mut headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
        headers.push(bearer(TOKENS[2].2));
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask(stream, start, &headers, body).await
    }

    async fn tag(&self, path: &str) -> String {
        let answered = self.ask(&format!("GET {path}"), &[], "").await;
        answered.header("etag").unwrap_or_else(|| panic!("{answered:?}")).to_owned()
    }

    fn last_line(&self) -> Value {
        audited(&self.folder.path("audit")).pop().unwrap()
    }
}

const BACKEND: &str = "/v1/pools/web/backends/b";
const PIN: &str = r#"{"vip":"v","flow":"f","backend":"b"}"#;
const OTHER_PIN: &str = r#"{"vip":"v","flow":"f","backend":"c"}"#;

#[tokio::test]
async fn a_change_with_if_match_needs_the_current_etag() {
    let bed = Bed::new("if-match").await;
    let weight = format!("PUT {BACKEND}/weight");
    let (pins, stream) = ("/v1/pins", "/v1/slices/images");
    for (resource, change, body) in [
        (BACKEND, weight.as_str(), r#"{"weight":5}"#),
        (BACKEND, "PUT /v1/pools/web/backends/b", r#"{"weight":7,"address":"127.0.0.1:1"}"#),
        (BACKEND, "PATCH /v1/pools/web/backends/b", r#"{"weight":9}"#),
        (BACKEND, "DELETE /v1/pools/web/backends/b?now=true", ""),
        ("/v1/config", "POST /v1/reload", ""),
        ("/v1/config/text", "PUT /v1/config/text", r#"{"toml":"[instance]"}"#),
        ("/v1/config/text", "POST /v1/config/roll-back", ""),
        ("/v1/plan/pools/web", "PUT /v1/plan/pools/web", r#"{"mode":"pinned","count":3}"#),
        (pins, "POST /v1/pins", PIN),
        (pins, "PUT /v1/pins", OTHER_PIN),
        (pins, "DELETE /v1/pins?vip=v&flow=f", ""),
        ("/v1/cluster/tokens", "POST /v1/cluster/tokens", r#"{"single_use":true}"#),
        ("/v1/cluster/tokens", "DELETE /v1/cluster/tokens/t0", ""),
        ("/v1/cluster/nodes/n", "POST /v1/cluster/nodes/n/evict", ""),
        (stream, "POST /v1/slices/images/workers/w/drain", ""),
        (stream, "PUT /v1/slices/images/pins/3", r#"{"worker":"w"}"#),
        (stream, "DELETE /v1/slices/images/pins/3", ""),
        (stream, "POST /v1/slices/images/workers/w/undrain", ""),
    ] {
        let seen = bed.tag(resource).await;
        assert_eq!(bed.tag(resource).await, seen, "{resource} does not change by itself");
        let asked = bed.operator.asked();
        for wrong in ["garbage", "\"open", "*, \"a\"", "\"a\" \"b\"", "w/\"a\""] {
            let answered = bed.ask(change, &[&format!("If-Match: {wrong}")], body).await;
            assert_eq!(answered.status, 400, "{change} {wrong} {answered:?}");
            assert_eq!(answered.header("content-type"), Some("application/problem+json"));
            assert!(answered.body.contains("If-Match"), "{answered:?}");
            assert_eq!(bed.last_line()["outcome"], "refused");
        }
        let weak = format!("W/{seen}");
        for wrong in ["\"0000000000000000\"", "\"a,b\", \"c\"", "", weak.as_str()] {
            let answered = bed.ask(change, &[&format!("If-Match: {wrong}")], body).await;
            assert_eq!(answered.status, 412, "{change} {answered:?}");
            assert_eq!(answered.header("content-type"), Some("application/problem+json"));
            assert!(answered.body.contains(seen.trim_matches('"')), "{answered:?}");
            assert_eq!(bed.last_line()["outcome"], "refused");
        }
        assert_eq!(bed.operator.asked(), asked, "nothing was changed");
        let answered = bed.ask(change, &[&format!("If-Match: {seen}")], body).await;
        assert_eq!(answered.status, 200, "{change} {answered:?}");
        let now = bed.tag(resource).await;
        assert_ne!(now, seen, "{change}");
        assert_eq!(answered.header("etag"), Some(now.as_str()), "{change}");
        let answered = bed.ask(change, &[&format!("If-Match: {seen}")], body).await;
        assert_eq!(answered.status, 412, "{change}: it has changed since");
    }
}

#[tokio::test]
async fn if_match_on_a_missing_backend_fails() {
    let bed = Bed::new("no-backend").await;
    let add = "PUT /v1/pools/missing/backends/b";
    for tag in ["*", "\"0000000000000000\""] {
        let answered = bed.ask(add, &[&format!("If-Match: {tag}")], "{}").await;
        assert_eq!(answered.status, 412, "{answered:?}");
    }
    assert_eq!(bed.ask(add, &[], "{}").await.status, 404, "the operator decides");
}

#[tokio::test]
async fn invalid_backend_settings_are_refused_with_422_and_change_nothing() {
    let bed = Bed::new("invalid-backend").await;
    let tag = bed.tag(BACKEND).await;
    let asked = bed.operator.asked();
    for wrong in [r#"{"weight":1001}"#, r#"{"concurrency":0}"#, r#"{"labels":[]}"#, "[]"] {
        let answered = bed.ask(&format!("PUT {BACKEND}"), &[], wrong).await;
        assert_eq!(answered.status, 422, "{wrong} {answered:?}");
    }
    assert_eq!(bed.operator.asked(), asked);
    assert_eq!(bed.tag(BACKEND).await, tag);
}

#[tokio::test]
async fn a_pinned_slice_moves_to_another_worker_only_with_force() {
    let bed = Bed::new("pinned-slice").await;
    let stream = "/v1/slices/images";
    bed.ask("PUT /v1/slices/images/pins/3", &[], r#"{"worker":"w"}"#).await;
    let moves = "POST /v1/slices/images/moves";
    let refused = bed.ask(moves, &[], r#"{"slices":[3],"worker":"other"}"#).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains("pinned to w"), "{refused:?}");
    assert_eq!(bed.last_line()["outcome"], "refused");
    let forced = r#"{"slices":[3],"worker":"other","force":true}"#;
    let stale = bed.ask(moves, &["If-Match: \"0000000000000000\""], forced).await;
    assert_eq!(stale.status, 412, "{stale:?}");
    let tag = format!("If-Match: {}", bed.tag(stream).await);
    assert_eq!(bed.ask(moves, &[&tag], forced).await.status, 200);
}

#[tokio::test]
async fn a_change_without_if_match_or_with_a_star_is_made_in_any_state() {
    let bed = Bed::new("unconditional").await;
    let (weight, tag) = (format!("PUT {BACKEND}/weight"), bed.tag(BACKEND).await);
    let mut seen = vec![tag];
    // The state differs each time.
    for (headers, new) in
        [(vec![], 5), (vec!["If-Match: *"], 6), (vec![], 7), (vec!["If-Match: *"], 8)]
    {
        let answered = bed.ask(&weight, &headers, &format!(r#"{{"weight":{new}}}"#)).await;
        assert_eq!(answered.status, 200, "{answered:?}");
        let backend = bed.ask(&format!("GET {BACKEND}"), &[], "").await;
        assert_eq!(backend.json()["backend"]["weight"], new, "{backend:?}");
        assert_eq!(bed.last_line()["after"]["weight"], new);
        let tag = bed.tag(BACKEND).await;
        assert!(!seen.contains(&tag), "{tag}");
        seen.push(tag);
    }
}

#[tokio::test]
async fn an_unchanged_resource_is_answered_with_304() {
    let bed = Bed::new("not-modified").await;
    for path in [
        BACKEND,
        "/v1/config",
        "/v1/pins",
        "/v1/plan/pools/web",
        "/v1/cluster/tokens",
        "/v1/slices/images",
    ] {
        let tag = bed.tag(path).await;
        let answered =
            bed.ask(&format!("GET {path}"), &[&format!("If-None-Match: {tag}")], "").await;
        assert_eq!((answered.status, answered.body.as_str()), (304, ""), "{answered:?}");
        assert_eq!(answered.header("etag"), Some(tag.as_str()));
    }
}

#[tokio::test]
async fn an_audit_line_records_caller_and_state_before_and_after() {
    let bed = Bed::new("lines").await;
    bed.ask(&format!("PUT {BACKEND}/weight"), &[], r#"{"weight":5}"#).await;
    let line = bed.last_line();
    let settings = |weight: u16| {
        json!({
            "pool": "web", "backend": "b", "address": "127.0.0.1:1", "admin": "up", "weight": weight,
        })
    };
    assert_eq!((&line["before"], &line["after"]), (&settings(0), &settings(5)), "{line}");
    assert_eq!(line["who"], "token:root");
    assert_eq!(line["role"], "admin");
    assert_eq!(line["path"], format!("{BACKEND}/weight"));
    assert_eq!((&line["outcome"], &line["status"]), (&json!("done"), &json!(200)));
    assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");

    bed.ask("POST /v1/pins", &[], PIN).await;
    assert_eq!(
        (&bed.last_line()["before"], &bed.last_line()["after"]["backend"]),
        (&Value::Null, &json!("b"))
    );
    bed.ask("PUT /v1/pins", &[], OTHER_PIN).await;
    let line = bed.last_line();
    assert_eq!((&line["before"]["backend"], &line["after"]["backend"]), (&json!("b"), &json!("c")));
    bed.ask("DELETE /v1/pins?vip=v&flow=f", &[], "").await;
    assert_eq!(bed.last_line()["before"]["backend"], "c");

    let made = bed.ask("POST /v1/cluster/tokens", &[], r#"{"node":"n7"}"#).await;
    assert_eq!(made.json()["token"], SECRET_OF_A_TOKEN, "the caller gets the token");
    assert_eq!(bed.last_line()["after"]["node"], "n7");
    bed.ask("DELETE /v1/cluster/tokens/t0", &[], "").await;
    assert_eq!(bed.last_line()["before"]["node"], "n7");
    bed.ask("POST /v1/cluster/nodes/n/evict", &[], "").await;
    let line = bed.last_line();
    let evicted = |what: &str| line[what]["evicted"].clone();
    assert_eq!((evicted("before"), evicted("after")), (json!(false), json!(true)), "{line}");
    let text = std::fs::read_to_string(bed.folder.path("audit")).unwrap();
    assert!(!text.contains(SECRET_OF_A_TOKEN), "the audit log does not have the token: {text}");

    let lines = audited(&bed.folder.path("audit")).len();
    bed.ask("GET /v1/status", &[], "").await;
    bed.ask("POST /v1/why", &[], r#"{"request":{"url":"http://a.example/"}}"#).await;
    assert_eq!(audited(&bed.folder.path("audit")).len(), lines, "a look leaves no line");
}

#[tokio::test]
async fn a_refused_change_is_audited_with_its_status_and_reason() {
    let errors = vec!["f:1: one".to_owned()];
    let bed = Bed::over("refused", Recorder { reload_errors: errors, ..Recorder::default() }).await;
    for (start, headers, body, status) in [
        ("POST /v1/reload", vec![], "", 422),
        ("PUT /v1/pools/web/backends/b/weight", vec![], "{", 400),
        ("PUT /v1/pools/web/backends/b/weight", vec![], r#"{"weight":1001}"#, 422),
        ("PUT /v1/pools/web/backends/b/weight", vec![], r#"{"wait":1}"#, 422),
        ("PUT /v1/pools/missing/backends/b/weight", vec![], r#"{"weight":1}"#, 404),
        ("POST /v1/pools/missing/backends/b/drain", vec![], "", 404),
        ("DELETE /v1/pins?vip=v", vec![], "", 400),
        ("DELETE /v1/cluster/tokens/none", vec![], "", 404),
        ("POST /v1/cluster/tokens", vec![], r#"{"ttl":1}"#, 422),
        ("POST /v1/cluster/nodes/none/evict", vec![], "", 404),
        ("POST /v1/cluster/nodes/c/evict", vec![], "", 409),
        ("POST /v1/status", vec![], "", 405),
        ("POST /v1/reload", vec!["Origin: http://evil.example"], "", 403),
    ] {
        let answered = bed.ask(start, &headers, body).await;
        assert_eq!(answered.status, status, "{start} {answered:?}");
        assert_eq!(answered.header("content-type"), Some("application/problem+json"));
        let line = bed.last_line();
        assert_eq!((&line["status"], &line["after"]), (&json!(status), &Value::Null), "{line}");
        assert_eq!(line["detail"], answered.json()["detail"], "{line}");
    }
}

#[tokio::test]
async fn a_body_of_excessive_size_or_wrong_media_type_is_rejected() {
    let bed = Bed::new("bodies").await;
    let large = format!(r#"{{"toml":"{}"}}"#, "x".repeat(1100 << 10));
    let answered = bed.ask("POST /v1/config/check", &[], &large).await;
    assert_eq!(answered.status, 413, "{answered:?}");
    assert!(answered.body.contains("has more than 1048576 bytes"), "{answered:?}");
    assert_eq!(answered.header("content-type"), Some("application/problem+json"));
    let weight = format!("PUT {BACKEND}/weight");
    let answered = bed.ask(&weight, &["Content-Type: text/plain", "Content-Length: 0"], "").await;
    assert_eq!(answered.status, 415, "{answered:?}");
}

#[tokio::test]
async fn a_change_completes_and_is_audited_after_its_caller_disconnects() {
    use tokio::io::AsyncWriteExt;
    let bed = Bed::new("left").await;
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    let request =
        format!("POST /v1/reload HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", bearer(TOKENS[2].2));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    let noted = || {
        let lines = audited(&bed.folder.path("audit"));
        lines.iter().any(|line| line["path"] == "/v1/reload" && line["outcome"] == "done")
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while !noted() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(bed.operator.asked(), ["reload"]);
}

#[tokio::test]
async fn a_reload_by_signal_is_audited() {
    let (folder, operator) = (Folder::new("signal"), Arc::new(Recorder::default()));
    let api = guarded_api(&operator, policy(), folder.path("audit"));
    api.reload_by_signal("SIGHUP").await.unwrap();
    let line = audited(&folder.path("audit")).pop().unwrap();
    assert_eq!((&line["who"], &line["outcome"]), (&json!("signal:SIGHUP"), &json!("done")));
    assert_eq!(
        (&line["before"]["generation"], &line["after"]["generation"]),
        (&json!(0), &json!(1))
    );
}

#[tokio::test]
async fn a_reload_with_a_hanging_file_does_not_block_other_changes() {
    let bed = Bed::new("hangs").await;
    let hangs = bed.operator.file.lock().await;
    let reload = bed.ask("POST /v1/reload", &[], "");
    let others = async {
        while *bed.operator.reads.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        let drain = bed.ask(&format!("POST {BACKEND}/drain"), &[], "").await;
        assert_eq!(drain.status, 200, "{drain:?}");
        assert!(!bed.operator.asked().contains(&"reload".into()), "nothing is switched yet");
        drop(hangs);
    };
    let (reload, ()) = tokio::join!(reload, others);
    assert_eq!(reload.status, 200, "{reload:?}");
}

/// Number of connections of a flood: more than a listener accepts.
const FLOOD: usize = 200;

#[tokio::test]
async fn a_slow_request_is_answered_despite_a_flood_of_connections() {
    let bed = Bed::new("slow").await;
    let hangs = bed.operator.file.lock().await;
    let reload = bed.ask("POST /v1/reload", &[], "");
    let flood = async {
        while *bed.operator.reads.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        let mut held = Vec::new();
        for _ in 0..FLOOD {
            let mut stream = TcpStream::connect(bed.address).await.unwrap();
            let request = "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'H', "it is answered");
            held.push(stream);
        }
        drop(hangs);
        held
    };
    let (reload, _held) = tokio::join!(reload, flood);
    assert_eq!(reload.status, 200, "{reload:?}");
}

use std::path::Path;
use std::time::{Duration, SystemTime};

use equipoise_testkit::{Folder, LogBuffer, PATIENCE};
use serde_json::{Value, json};

use super::*;
use crate::auth::{Caller, Peer, Role, Who};

fn line(path: &str, status: u16) -> Line {
    let asked = Asked {
        peer: Some(Peer::Tcp {
            address: "[::ffff:192.0.2.1]:50".parse().unwrap(),
            loopback: false,
        }),
        caller: Some(Caller { who: Who::Token("ci".into()), role: Some(Role::Operate) }),
        method: "PUT".into(),
        path: path.into(),
        if_match: None,
    };
    let happened = Happened {
        status: Some(status),
        before: Some(json!({ "weight": 1 })),
        after: Some(json!({ "weight": 2 })),
        ..Happened::default()
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
    Line::new(asked, happened, now)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_audit_line_records_caller_origin_request_outcome_and_change() {
    let line: Value = serde_json::from_str(&line("/v1/x", 200).to_json()).unwrap();
    let expected = json!({
        "time": "2023-11-14T22:13:20.25Z", "who": "token:ci", "role": "operate", "from": "192.0.2.1:50",
        "method": "PUT", "path": "/v1/x", "outcome": "done", "status": 200,
        "before": { "weight": 1 }, "after": { "weight": 2 },
    });
    assert_eq!(line, expected);
}

#[test]
fn a_request_outside_the_api_is_audited_in_the_same_format() {
    let asked = Elsewhere {
        who: "join-token:0123456789".into(),
        from: Some("[::ffff:192.0.2.1]:50".parse().unwrap()),
        method: "POST".into(),
        path: "/cluster/v1/join".into(),
        status: 403,
        detail: Some("n1: it expired".into()),
        after: None,
    };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let line = Line::of_elsewhere(asked, now).to_json();
    let expected = json!({
        "time": "2023-11-14T22:13:20Z", "who": "join-token:0123456789", "from": "192.0.2.1:50",
        "method": "POST", "path": "/cluster/v1/join", "outcome": "denied", "status": 403,
        "detail": "n1: it expired",
    });
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
}

#[test]
fn the_outcome_of_an_audit_line_follows_from_the_http_status() {
    for (status, outcome) in
        [(200, "done"), (401, "denied"), (403, "denied"), (429, "denied")].into_iter().chain([
            (404, "refused"),
            (412, "refused"),
            (422, "refused"),
            (500, "failed"),
            (503, "failed"),
        ])
    {
        let line: Value = serde_json::from_str(&line("/", status).to_json()).unwrap();
        assert_eq!(line["outcome"], outcome, "{status}");
    }
}

#[test]
fn an_audit_line_for_an_oversized_request_is_bounded() {
    let long = Asked {
        peer: None,
        caller: None,
        method: "X".repeat(100_000),
        path: "é".repeat(100_000),
        if_match: Some("\"".repeat(100_000)),
    };
    let happened = Happened {
        detail: Some("d".repeat(100_000)),
        before: Some(json!("b".repeat(100_000))),
        ..Happened::default()
    };
    let asked = Line::new(long, happened, SystemTime::UNIX_EPOCH);
    let text = asked.to_json();
    assert!(text.len() < 8 << 10, "{}", text.len());
    assert!(text.contains("\"left_out_bytes\":100002"), "{text}");
}

#[tokio::test]
async fn the_audit_file_has_mode_0600_and_is_reopened_on_request() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("moved");
    let (path, moved) = (folder.path("audit"), folder.path("moved"));
    let target = AuditTarget::File { path: path.clone(), bytes_max: 1 << 20 };
    let audit = Audit::open(&target).unwrap();
    audit.write(line("/one", 200)).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::rename(&path, &moved).unwrap();
    audit.write(line("/two", 200)).await;
    audit.reopen(&target);
    audit.write(line("/three", 200)).await;
    audit.finish(PATIENCE);
    assert_eq!(
        lines(&moved).iter().map(|line| &line["path"]).collect::<Vec<_>>(),
        ["/one", "/two"]
    );
    assert_eq!(lines(&path)[0]["path"], "/three");
}

#[tokio::test]
async fn rotation_keeps_at_most_two_audit_files_of_bounded_size() {
    let folder = Folder::new("bounded");
    let path = folder.path("audit");
    let audit = Audit::open(&AuditTarget::File { path: path.clone(), bytes_max: 1000 }).unwrap();
    for number in 0..100 {
        audit.write(line(&format!("/{number}"), 200)).await;
    }
    audit.finish(PATIENCE);
    let names = std::fs::read_dir(folder.root()).unwrap().count();
    let bytes = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert_eq!(names, 2);
    assert!(bytes(&path) <= 1000 && bytes(&folder.path("audit.1")) <= 1000);
    assert_eq!(lines(&path).last().unwrap()["path"], "/99");
}

#[tokio::test]
async fn the_next_audit_line_reports_the_number_of_unlogged_callers() {
    let folder = Folder::new("counted");
    let path = folder.path("audit");
    let audit = Audit::open(&AuditTarget::File { path: path.clone(), bytes_max: 1 << 20 }).unwrap();
    (0..3).for_each(|_| audit.count());
    audit.write(line("/", 200)).await;
    audit.write(line("/", 200)).await;
    audit.finish(PATIENCE);
    let lines = lines(&path);
    assert_eq!(lines[0]["turned_away_unlogged"], 3);
    assert!(lines[1].get("turned_away_unlogged").is_none());
}

#[test]
fn a_file_that_cannot_be_opened_is_named_with_its_option() {
    let target = AuditTarget::File { path: "/nonexistent/audit".into(), bytes_max: 1 };
    let text = Audit::open(&target).unwrap_err().to_string();
    assert!(text.contains("/nonexistent/audit") && text.contains("`api.audit-log`"), "{text}");
}

#[tokio::test]
async fn a_file_system_that_hangs_delays_one_answer_and_loses_no_line() {
    let (go_on, hanging) = std::sync::mpsc::channel();
    let audit = Audit::start(Opened::Hanging(hanging)).unwrap();
    // Without the mark, each of these writes would wait for ever for its line.
    audit.write(line("/one", 200)).await;
    assert!(audit.queue.is_blocked());
    audit.write(line("/two", 200)).await;
    assert_eq!((audit.waiting(), audit.lost()), (2, 0));
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    audit.finish(PATIENCE);
    assert_eq!((audit.waiting(), audit.lost()), (0, 0));
    assert!(!audit.queue.is_blocked());
}

#[tokio::test]
async fn lines_unwritten_by_a_hanging_file_system_are_logged_and_counted_as_lost() {
    let (_go_on, hanging) = std::sync::mpsc::channel();
    let audit = Audit::start(Opened::Hanging(hanging)).unwrap();
    audit.write(line("/one", 200)).await;
    audit.write(line("/two", 200)).await;
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || audit.finish(Duration::from_millis(1)));
    assert_eq!((audit.waiting(), audit.lost()), (0, 2));
    for path in ["/one", "/two"] {
        let line = format!("path=\"{path}\"");
        assert!(log.text().contains(&line), "{line}\n{}", log.text());
    }
}

#[tokio::test]
async fn an_abandoned_audit_line_removes_no_other_line_from_the_queue() {
    let (go_on, hanging) = std::sync::mpsc::channel();
    let audit = Audit::start(Opened::Hanging(hanging)).unwrap();
    audit.write(line("/one", 200)).await;
    audit.finish(Duration::from_millis(1));
    assert_eq!((audit.waiting(), audit.lost()), (0, 1));
    // Added while the thread still works on the line above.
    drop(audit.add(line("/two", 200)));
    drop(audit.add(line("/three", 200)));
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    while audit.waiting() > 1 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!((audit.waiting(), audit.lost()), (1, 1), "the third one is not written yet");
    go_on.send(()).unwrap();
    audit.finish(PATIENCE);
    assert_eq!((audit.waiting(), audit.lost()), (0, 1));
}

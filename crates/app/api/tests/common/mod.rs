//! An API over an operator that only records its calls, and requests to it.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::unwrap_used,
    reason = "each test uses its part"
)]

mod cluster;
mod pools;
mod recorder;
mod slices;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use equipoise_api::audit::{Audit, AuditTarget};
use equipoise_api::listen::ApiTcp;
use equipoise_api::{Api, ApiToken, Gate, Policy, Role, TokenDigest, serve_tcp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use self::cluster::{SECRET_OF_A_TOKEN, token};
pub use self::recorder::Recorder;

/// An API over `operator` without access rules on loopback, and without an audit file.
pub fn open_api(operator: &Arc<Recorder>) -> Api<Recorder> {
    let audit = Audit::open(&AuditTarget::Log).unwrap();
    Api::new(Arc::clone(operator), Arc::default(), Arc::new(audit), Arc::default())
}

/// The tokens of [`guarded_api`] and their names.
pub const TOKENS: [(&str, Role, &str); 3] = [
    ("viewer", Role::Read, "read-0123456789abcdef0123456789abcdef"),
    ("ci", Role::Operate, "operate-0123456789abcdef0123456789abcdef"),
    ("root", Role::Admin, "admin-0123456789abcdef0123456789abcdef"),
];

/// A policy with the tokens in [`TOKENS`].
pub fn policy() -> Policy {
    let token = |(name, role, text): (&str, Role, &str)| ApiToken {
        name: name.into(),
        role,
        digest: TokenDigest::of(text.as_bytes()),
    };
    Policy { tokens: TOKENS.map(token).to_vec(), failures_per_minute: 1000, ..Policy::default() }
}

/// An API with `policy` that audits changes in `file`.
pub fn guarded_api(operator: &Arc<Recorder>, policy: Policy, file: PathBuf) -> Api<Recorder> {
    let target = AuditTarget::File { path: file.clone(), bytes_max: 1 << 20 };
    let audit = Arc::new(Audit::open(&target).unwrap());
    AUDITS.lock().unwrap().push((file, Arc::clone(&audit)));
    Api::new(Arc::clone(operator), Arc::new(Gate::new(policy)), audit, Arc::default())
}

/// The audit logs by file.
static AUDITS: Mutex<Vec<(PathBuf, Arc<Audit>)>> = Mutex::new(Vec::new());

/// The lines of an audit log, after all of them are written.
pub fn audited(file: &Path) -> Vec<serde_json::Value> {
    for (_, audit) in AUDITS.lock().unwrap().iter().filter(|(path, _)| path == file) {
        // An answer waits for its line only for a bounded time.
        audit.finish(equipoise_testkit::PATIENCE);
    }
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Serves the API on a free port of loopback.
pub async fn on_loopback(api: Api<Recorder>) -> SocketAddr {
    let listener = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, api, std::future::pending()));
    address
}

/// A complete answer.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answered {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request over `stream`. `start` is method and path, `headers` are lines.
pub async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    start: &str,
    headers: &[String],
    body: &str,
) -> Answered {
    let mut request = format!("{start} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    headers.iter().for_each(|line| request.push_str(&format!("{line}\r\n")));
    if !body.is_empty() {
        let length = body.len();
        request.push_str("Content-Type: application/json\r\n");
        request.push_str(&format!("Content-Length: {length}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A refused body may be cut off by a reset after the answer.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap();
    Answered { status, head: head.to_owned(), body: body.to_owned() }
}

/// The header with a token.
pub fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::auth::{Caller, Peer};

/// Largest length of a path or a reason, in bytes. Longer texts are cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Largest size of the states before and after a change, in bytes of JSON. Larger states are left
/// out.
const STATE_BYTES_MAX: usize = 4096;

/// The request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) peer: Option<Peer>,
    pub(crate) caller: Option<Caller>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) if_match: Option<String>,
}

/// Outcome of the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Happened {
    pub(crate) status: Option<u16>,
    pub(crate) detail: Option<String>,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// A request to something other than the API, with its outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elsewhere {
    /// The caller: kind and name, such as `operator:c1`.
    pub who: String,
    /// Address and port of the caller.
    pub from: Option<SocketAddr>,
    /// Method of the request.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Status of the answer.
    pub status: u16,
    /// Reason why it was not done.
    pub detail: Option<String>,
    /// State after the change.
    pub after: Option<Value>,
}

/// Outcome as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Done as requested.
    Done,
    /// The caller does not have the right.
    Denied,
    /// The request is not possible.
    Refused,
    /// The request failed, although it should be possible.
    Failed,
}

impl Outcome {
    fn of(status: Option<u16>) -> Outcome {
        match status {
            Some(100..=399) => Outcome::Done,
            Some(401 | 403 | 429) => Outcome::Denied,
            Some(400..=499) => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }
}

/// A line of the log. Later versions only add fields.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Time (RFC 3339, UTC).
    time: String,
    /// `token:NAME`, `uid:NUMBER`, `signal:NAME` or `anonymous`; for the cluster API
    /// `operator:NAME`, `node:NAME` or `join-token:ID`.
    who: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Address and port of the caller, or `unix`.
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    method: String,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_match: Option<String>,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) turned_away_unlogged: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Line {
    pub(crate) fn of_elsewhere(asked: Elsewhere, now: SystemTime) -> Line {
        let Elsewhere { who, from, method, path, status, detail, after } = asked;
        let asked = Asked { peer: None, caller: None, method, path, if_match: None };
        let happened = Happened { status: Some(status), detail, before: None, after };
        let line = Line::new(asked, happened, now);
        let from = from.map(|from| canonical(from.ip(), from.port()));
        Line { who: cut(who), from: from.unwrap_or(line.from), ..line }
    }

    pub(crate) fn new(asked: Asked, happened: Happened, now: SystemTime) -> Line {
        let Asked { peer, caller, method, path, if_match } = asked;
        let now = OffsetDateTime::from(now);
        let time = now.replace_millisecond(now.millisecond()).unwrap_or(now).format(&Rfc3339);
        let (from, pid) = match peer {
            Some(Peer::Unix { pid, .. }) => ("unix".to_owned(), pid),
            Some(Peer::Tcp { address, .. }) => (canonical(address.ip(), address.port()), None),
            None => ("inside".to_owned(), None),
        };
        Line {
            time: time.unwrap_or_default(),
            who: caller.as_ref().map_or_else(|| "anonymous".into(), |c| c.who.to_string()),
            role: caller.and_then(|caller| caller.role).map(crate::Role::word),
            from,
            pid,
            method: cut(method),
            path: cut(path),
            if_match: if_match.map(cut),
            outcome: Outcome::of(happened.status),
            status: happened.status,
            detail: happened.detail.map(cut),
            before: happened.before.map(bounded),
            after: happened.after.map(bounded),
            turned_away_unlogged: 0,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a line has string keys and no failing serializer")
    }

    /// Emits an event if the request changed something, or failed while it did.
    pub(super) fn to_event(&self) {
        if self.before.is_none() && self.after.is_none() {
            return;
        }
        let Line { who, method, path, .. } = self;
        match self.outcome {
            Outcome::Done => tracing::info!(
                target: "event",
                event = "change.done",
                subject = path,
                "{who}: {method} {path}"
            ),
            Outcome::Failed => tracing::warn!(
                target: "event",
                event = "change.failed",
                subject = path,
                "{who}: {method} {path}: {}",
                self.detail.as_deref().unwrap_or_default()
            ),
            Outcome::Denied | Outcome::Refused => {}
        }
    }

    /// Writes the line as an event of the process's log.
    pub(crate) fn to_log(&self) {
        let text = |state: &Option<Value>| state.as_ref().map(ToString::to_string);
        tracing::info!(
            target: "audit",
            who = self.who,
            role = self.role,
            from = self.from,
            pid = self.pid,
            method = self.method,
            path = self.path,
            if_match = self.if_match,
            outcome = ?self.outcome,
            status = self.status,
            detail = self.detail,
            before = text(&self.before),
            after = text(&self.after),
            turned_away_unlogged = self.turned_away_unlogged,
            "audit"
        );
    }
}

fn canonical(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address.to_canonical(), port).to_string()
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}

fn bounded(state: Value) -> Value {
    let bytes = state.to_string().len();
    if bytes <= STATE_BYTES_MAX { state } else { json!({ "left_out_bytes": bytes }) }
}

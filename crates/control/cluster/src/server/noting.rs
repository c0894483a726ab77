//! Records requests in the journal.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::connections::Peer;
use super::routes::{Caller, Server, refuse};
use crate::journal::Deed;

/// Facts about a change that a handler knows and the response lacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// The caller, if no certificate names it.
    pub(crate) who: Option<String>,
    pub(crate) detail: Option<String>,
    pub(crate) after: Option<Value>,
}

impl Noted {
    /// Attaches the facts to a response.
    pub(crate) fn on(self, answer: impl IntoResponse) -> Response {
        let mut response = answer.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Records changes and refused callers before the response.
pub(crate) async fn note(
    State(shared): Server,
    peer: Caller,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // A change is completed and logged whether or not its caller still waits.
    let done = tokio::spawn(async move {
        let response = next.run(request).await;
        let status = response.status();
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if status == StatusCode::TOO_MANY_REQUESTS
            || is_denied && !shared.may_be_noted(peer.address.ip())
        {
            shared.journal().count();
        } else if is_denied || method != Method::GET {
            let noted = response.extensions().get::<Noted>().cloned().unwrap_or_default();
            let Noted { who, detail, after } = noted;
            let (method, status) = (method.to_string(), status.as_u16());
            let who = who.unwrap_or_else(|| name_of(&peer));
            let from = peer.address;
            shared.journal().note(Deed { who, from, method, path, status, detail, after });
        }
        response
    });
    done.await.unwrap_or_else(|_| {
        let detail = "the request failed because of a fault in equipoise; see its log";
        refuse(StatusCode::INTERNAL_SERVER_ERROR, "fault", detail).into_response()
    })
}

fn name_of(peer: &Peer) -> String {
    let identity = peer.certified.as_ref().map(|certified| &certified.identity);
    identity.map_or_else(|| "anonymous".into(), |it| format!("{}:{}", it.role, it.name))
}

//! The paths, and the roles that they require.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use equipoise_controller::{IntakeError, NodeReport};
use hyper::body::{Body as _, Bytes};
use serde::de::DeserializeOwned;

use super::connections::Peer;
use super::noting::Noted;
use super::office::Office;
use super::{Shared, join, noting, operator, stream};
use crate::wire::{self, Problem};
use crate::{Certified, Role};

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let noted = Router::new()
        .route(wire::JOIN, post(join::join))
        .route(wire::TOKENS, get(operator::tokens).post(operator::create_token))
        .route(&format!("{}/{{id}}", wire::TOKENS), delete(operator::revoke_token))
        .route(wire::NODES, get(operator::nodes))
        .route(&format!("{}/{{name}}", wire::NODES), delete(operator::evict))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&shared), noting::note));
    Router::new()
        .route(wire::RENEW, post(join::renew))
        .route(wire::REPORT, post(report))
        .route(wire::INSTRUCTIONS, get(instructions))
        .route(wire::CERTIFICATES, post(certificates))
        .route(wire::MEMBERS, get(members))
        .merge(noted)
        .fallback(unknown)
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

pub(crate) type Caller = Extension<Arc<Peer>>;
pub(crate) type Server = State<Arc<Shared>>;

/// A refusal as a response.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    title: &'static str,
    detail: Cow<'static, str>,
    /// The facts for the journal, if they differ from those for the peer.
    noted: Option<Box<Noted>>,
}

pub(crate) type Answer = Result<Response, Refusal>;

pub(crate) fn refuse(
    status: StatusCode,
    title: &'static str,
    detail: impl Into<Cow<'static, str>>,
) -> Refusal {
    Refusal { status, title, detail: detail.into(), noted: None }
}

impl Refusal {
    /// Adds facts for the journal.
    pub(crate) fn noted(self, noted: Noted) -> Refusal {
        Refusal { noted: Some(Box::new(noted)), ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal { status, title, detail, noted } = self;
        let (title, detail) = (title.to_string(), detail.into_owned());
        let plain = || Noted { detail: Some(detail.clone()), ..Noted::default() };
        let noted = noted.map_or_else(plain, |noted| *noted);
        let body = Problem { status: status.as_u16(), title, detail };
        let mut response = noted.on((status, Json(body)));
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

impl Peer {
    /// Content of the caller's certificate, if one of these roles permits the request now.
    pub(crate) fn role(&self, shared: &Shared, roles: &[Role]) -> Result<&Certified, Refusal> {
        let Some(certified) = &self.certified else {
            shared.count("refused_without_certificate");
            let detail = "present a certificate of this cluster; a node receives one when it joins";
            return Err(refuse(StatusCode::UNAUTHORIZED, "no certificate", detail));
        };
        if !certified.holds_at(SystemTime::now()) {
            shared.count("refused_certificate_ended");
            let detail =
                "the certificate has expired or is not valid yet; compare the machines' clocks";
            return Err(refuse(StatusCode::UNAUTHORIZED, "certificate ended", detail));
        }
        if shared.evictions.borrow().has(certified) {
            shared.count("refused_evicted");
            let detail = "this node was evicted; only a token made for it lets it join again";
            return Err(refuse(StatusCode::FORBIDDEN, wire::EVICTED_TITLE, detail));
        }
        if !roles.contains(&certified.identity.role) {
            shared.count("refused_role");
            let detail = format!("a {} may not request this", certified.identity.role);
            return Err(refuse(StatusCode::FORBIDDEN, "not for this role", detail));
        }
        Ok(certified)
    }
}

/// Reads the body of a request as JSON, with limits of size and time.
pub(crate) async fn read<T: DeserializeOwned>(
    shared: &Shared,
    body: Body,
    bytes_max: usize,
) -> Result<T, Refusal> {
    let too_large = || {
        shared.count("refused_body");
        let detail = format!("the body is incomplete, or has more than {bytes_max} bytes");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, "body refused", detail)
    };
    // A body that is announced as too large is refused at once.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let all = axum::body::to_bytes(body, bytes_max);
    let bytes: Bytes = match tokio::time::timeout(shared.options.limits.body_timeout, all).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a body was refused");
            return Err(too_large());
        }
        Err(_) => {
            shared.count("body_timed_out");
            let detail = "the body did not arrive in time";
            return Err(refuse(StatusCode::REQUEST_TIMEOUT, "too slow", detail));
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        shared.count("refused_json");
        let detail = format!("not understood: {error}");
        refuse(StatusCode::BAD_REQUEST, "not understood", detail)
    })
}

async fn report(State(shared): Server, Extension(peer): Caller, request: Request) -> Answer {
    let node = peer.role(&shared, &[Role::Node])?.identity.name.clone();
    let report: NodeReport = read(&shared, request.into_body(), NodeReport::BYTES_MAX).await?;
    // An older node does not understand an answer, and reports no tallies.
    let shares = !report.tallies.is_empty();
    // A report always counts for the node of the certificate.
    match shared.intake.report(node.as_str(), report).await {
        Ok(()) => {
            shared.count("reports");
            Ok(match shares {
                true => Json(shared.intake.tallies(node.as_str())).into_response(),
                false => StatusCode::NO_CONTENT.into_response(),
            })
        }
        Err(IntakeError::Refused(refused)) => {
            shared.count("refused_reports");
            let detail = refused.to_string();
            Err(refuse(StatusCode::UNPROCESSABLE_ENTITY, "report refused", detail))
        }
        Err(error @ IntakeError::Stopping) => {
            Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string()))
        }
    }
}

async fn instructions(
    State(shared): Server,
    Extension(peer): Caller,
    Query(wish): Query<stream::Wish>,
    headers: HeaderMap,
) -> Answer {
    peer.role(&shared, &[Role::Node])?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    shared.count("streams");
    Ok(stream::respond(&shared, peer, wish, last.and_then(stream::edition)))
}

async fn certificates(State(shared): Server, Extension(peer): Caller, request: Request) -> Answer {
    let node = peer.role(&shared, &[Role::Node])?.identity.name.clone();
    let question = read(&shared, request.into_body(), wire::SMALL_BYTES_MAX).await?;
    shared.count("certificate_questions");
    match shared.options.certificates.answer(node.as_str(), question).await {
        Some(answer) => Ok(Json(answer).into_response()),
        None => {
            let detail = "this controller gives no certificates";
            Err(refuse(StatusCode::NOT_FOUND, "no certificates", detail))
        }
    }
}

async fn members(State(shared): Server, Extension(peer): Caller) -> Answer {
    peer.role(&shared, &[Role::Node, Role::Controller, Role::Operator])?;
    let members = Office::new(shared).members();
    Ok(Json(members).into_response())
}

async fn unknown(State(shared): Server, request: Request) -> Refusal {
    shared.count("refused_path");
    let path: String = request.uri().path().chars().take(80).collect();
    let detail = format!("{path} does not exist; this controller serves /cluster/v1");
    refuse(StatusCode::NOT_FOUND, "no such path", detail)
}

pub(crate) type Named = Path<String>;

//! Issues a node's certificate, and its renewals.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::Shared;
use super::noting::Noted;
use super::office::Office;
use super::routes::{Answer, Caller, Refusal, Server, read, refuse};
use crate::authority::{SigningRequest, certificate_pem};
use crate::token::{Applicant, JoinToken, TokenError};
use crate::wire::{JoinRequest, Joined, RenewRequest, SMALL_BYTES_MAX};
use crate::{JoinRefused, Name, Role};

/// The reason why no certificate is issued.
enum NotJoined {
    Refused(JoinRefused),
    Store(TokenError),
    Signing(crate::AuthorityError),
}

pub(crate) async fn join(
    State(shared): Server,
    Extension(peer): Caller,
    request: Request,
) -> Answer {
    let from = peer.address.ip();
    // Checked before the body is read, so that guessing costs us almost nothing.
    if !shared.may_attempt(from) {
        shared.count(JoinRefused::TooOften.word());
        tracing::debug!(%from, "{}", JoinRefused::TooOften);
        let detail = "too many attempts to join; wait a moment";
        return Err(refuse(StatusCode::TOO_MANY_REQUESTS, "too often", detail));
    }
    let asked: JoinRequest = read(&shared, request.into_body(), SMALL_BYTES_MAX).await?;
    let token = asked.token.parse::<JoinToken>().ok();
    let who = token.map(|token| format!("join-token:{}", token.id()));
    match admit(&shared, &asked).await {
        Ok(joined) => {
            shared.count("joined");
            tracing::info!(event = "node.joined", subject = %asked.name, node = %asked.name, %from, "a node joined the cluster");
            let after = Some(json!({ "node": asked.name }));
            Ok(Noted { who, after, ..Noted::default() }.on(Json(joined)))
        }
        Err(NotJoined::Refused(refused)) => {
            shared.count(refused.word());
            let reason = refused.word();
            tracing::warn!(event = "node.refused", subject = %asked.name, node = %asked.name, %from, reason, "a node may not join: {refused}");
            // The response is the same for every reason, so that a guesser learns nothing.
            let detail = "the cluster does not let this node join; a controller's log says why";
            let refusal = refuse(StatusCode::FORBIDDEN, "may not join", detail);
            let why = Some(format!("{}: {refused}", asked.name));
            Err(refusal.noted(Noted { who, detail: why, after: None }))
        }
        Err(NotJoined::Store(error)) => Err(Office::new(shared).store(error).into()),
        Err(NotJoined::Signing(error)) => Err(signing_problem(&shared, &error)),
    }
}

async fn admit(shared: &Arc<Shared>, asked: &JoinRequest) -> Result<Joined, NotJoined> {
    let refused = NotJoined::Refused;
    let token: JoinToken = asked.token.parse().map_err(|_| refused(JoinRefused::NotAToken))?;
    let id = token.id().clone();
    if token.authority() != shared.authority.fingerprint() {
        return Err(refused(JoinRefused::OtherCluster { id }));
    }
    let request = signing_request(&asked.request)
        .ok_or_else(|| refused(JoinRefused::NotARequest { id: id.clone() }))?;
    let (now, lifetime) = (SystemTime::now(), shared.options.node_lifetime);
    let applicant = Applicant { name: asked.name.clone(), key: request.key() };
    shared
        .tokens
        .admit(&token, &applicant, now, lifetime)
        .await
        .map_err(NotJoined::Store)?
        .map_err(refused)?;
    sign(shared, &request, &asked.name, now).map_err(NotJoined::Signing)
}

/// The next certificate for a node that has one.
pub(crate) async fn renew(
    State(shared): Server,
    Extension(peer): Caller,
    request: Request,
) -> Answer {
    let certified = peer.role(&shared, &[Role::Node])?;
    let asked: RenewRequest = read(&shared, request.into_body(), SMALL_BYTES_MAX).await?;
    // The key must be the same, so that an eviction, which names a key, covers all certificates of
    // the node.
    let request = signing_request(&asked.request).filter(|asked| asked.key() == certified.key);
    let Some(request) = request else {
        shared.count("not_a_request");
        let detail = "not a signing request (PKCS #10, DER in base64) of the certificate's own key";
        return Err(refuse(StatusCode::BAD_REQUEST, "not understood", detail));
    };
    let now = SystemTime::now();
    let until = now + shared.options.node_lifetime;
    let renewed = shared.tokens.renew(certified, until).await;
    let office = Office::new(Arc::clone(&shared));
    if !renewed.map_err(|error| office.store(error))? {
        shared.count("refused_renewals");
        let node = &certified.identity.name;
        tracing::warn!(%node, "refused to renew a certificate, because another key has the node's name");
        let detail = "another key has this node's name; join again";
        return Err(refuse(StatusCode::FORBIDDEN, "not renewed", detail));
    }
    let joined = sign(&shared, &request, &certified.identity.name, now);
    let joined = joined.map_err(|error| signing_problem(&shared, &error))?;
    shared.count("renewed");
    Ok(Json(joined).into_response())
}

fn signing_request(base64: &str) -> Option<SigningRequest> {
    SigningRequest::from_der(&STANDARD.decode(base64).ok()?).ok()
}

fn sign(
    shared: &Shared,
    request: &SigningRequest,
    name: &Name,
    now: SystemTime,
) -> Result<Joined, crate::AuthorityError> {
    let lifetime = shared.options.node_lifetime;
    let certificate = shared.authority.sign_node(request, name, now, lifetime)?;
    Ok(Joined {
        certificate: certificate_pem(&certificate),
        authority: shared.authority.certificate_pem(),
    })
}

fn signing_problem(shared: &Shared, error: &crate::AuthorityError) -> Refusal {
    shared.count("signing_failed");
    tracing::error!(%error, "cannot sign a certificate");
    let detail = "the controller cannot sign; see its log";
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "not signed", detail)
}

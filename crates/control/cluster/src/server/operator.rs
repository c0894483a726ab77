//! Routes for operators: tokens and evictions.

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::noting::Noted;
use super::office::{Office, OfficeError};
use super::routes::{Answer, Caller, Named, Refusal, Server, read, refuse};
use crate::token::TokenId;
use crate::wire::{CreateToken, ListedNode, ListedNodes, SMALL_BYTES_MAX};
use crate::{Name, Role};

pub(crate) async fn create_token(
    State(shared): Server,
    Extension(peer): Caller,
    request: Request,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let asked: CreateToken = read(&shared, request.into_body(), SMALL_BYTES_MAX).await?;
    let made = Office::new(shared).create_token(asked).await?;
    // The journal contains the listed entry, never the token itself.
    let after = serde_json::to_value(&made.listed).ok();
    Ok(Noted { after, ..Noted::default() }.on(Json(made)))
}

pub(crate) async fn tokens(State(shared): Server, Extension(peer): Caller) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    Ok(Json(Office::new(shared).tokens().await?).into_response())
}

pub(crate) async fn revoke_token(
    State(shared): Server,
    Extension(peer): Caller,
    Path(id): Named,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let id: TokenId = id.parse().map_err(|_| OfficeError::NoSuchToken)?;
    Office::new(shared).revoke_token(&id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) async fn nodes(State(shared): Server, Extension(peer): Caller) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let joined = Office::new(shared).joined().await?;
    let nodes = joined.into_iter().map(|(name, record)| ListedNode {
        name,
        joined_at: record.joined_at,
        valid_until: record.valid_until,
        evicted: record.is_evicted(record.key),
        token: record.token,
    });
    Ok(Json(ListedNodes { nodes: nodes.collect() }).into_response())
}

pub(crate) async fn evict(
    State(shared): Server,
    Extension(peer): Caller,
    Path(name): Named,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let name: Name = name.parse().map_err(|_| OfficeError::NoSuchNode)?;
    Office::new(shared).evict(&name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl From<OfficeError> for Refusal {
    fn from(error: OfficeError) -> Refusal {
        let (status, title) = match &error {
            OfficeError::TimeToLive => (StatusCode::BAD_REQUEST, "time to live"),
            OfficeError::TooMany(_) => (StatusCode::CONFLICT, "too many tokens"),
            OfficeError::NoSuchToken => (StatusCode::NOT_FOUND, "no such token"),
            OfficeError::NoSuchNode => (StatusCode::NOT_FOUND, "no such node"),
            OfficeError::IsController(_) => (StatusCode::CONFLICT, "a controller"),
            OfficeError::Store(_) | OfficeError::Unconfirmed(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "store unavailable")
            }
        };
        refuse(status, title, error.to_string())
    }
}

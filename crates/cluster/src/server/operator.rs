//! What operators ask for: tokens, and nodes to shut out.

use std::time::{Duration, SystemTime};

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::join::store_problem;
use super::routes::{Answer, Caller, Named, Server, read, refuse};
use crate::token::{TokenId, TokenRecord, TokenWish};
use crate::wire::{CreateToken, CreatedToken, ListedToken, ListedTokens, SMALL_BYTES_MAX};
use crate::{Name, Role, TokenError};

/// No token is for longer: what lies about for years is found by somebody.
const TIME_TO_LIVE_S_MAX: u64 = 90 * 86_400;

pub(crate) async fn create_token(
    State(shared): Server,
    Extension(peer): Caller,
    request: Request,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let asked: CreateToken = read(&shared, request.into_body(), SMALL_BYTES_MAX).await?;
    if !(1..=TIME_TO_LIVE_S_MAX).contains(&asked.time_to_live_s) {
        let detail = format!("a token lives 1 to {TIME_TO_LIVE_S_MAX} seconds (90 days)");
        return Err(refuse(StatusCode::BAD_REQUEST, "time to live", detail));
    }
    let wish = TokenWish {
        time_to_live: Duration::from_secs(asked.time_to_live_s),
        single_use: asked.single_use,
        node: asked.node,
    };
    let authority = shared.authority.fingerprint();
    match shared.tokens.create(&wish, authority, SystemTime::now()).await {
        Ok((token, record)) => {
            let TokenWish { time_to_live, single_use, node } = &wish;
            let node = node.as_ref().map(tracing::field::display);
            tracing::info!(token = %token.id(), ?time_to_live, single_use, node, "a join token was made");
            let listed = listed(token.id().clone(), record);
            Ok(Json(CreatedToken { token: token.reveal(), listed }).into_response())
        }
        Err(error @ TokenError::TooMany) => {
            Err(refuse(StatusCode::CONFLICT, "too many tokens", error.to_string()))
        }
        Err(error) => Err(store_problem(&shared, &error)),
    }
}

pub(crate) async fn tokens(State(shared): Server, Extension(peer): Caller) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let tokens = shared.tokens.list().await.map_err(|error| store_problem(&shared, &error))?;
    let tokens = tokens.into_iter().map(|(id, record)| listed(id, record)).collect();
    Ok(Json(ListedTokens { tokens }).into_response())
}

pub(crate) async fn revoke_token(
    State(shared): Server,
    Extension(peer): Caller,
    Path(id): Named,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let detail = "there is no such token; `equipoise cluster token list` shows those there are";
    let missing = || refuse(StatusCode::NOT_FOUND, "no such token", detail);
    let id: TokenId = id.parse().map_err(|_| missing())?;
    match shared.tokens.revoke(&id).await {
        Ok(true) => {
            tracing::info!(token = %id, "a join token was revoked");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Ok(false) => Err(missing()),
        Err(error) => Err(store_problem(&shared, &error)),
    }
}

pub(crate) async fn evict(
    State(shared): Server,
    Extension(peer): Caller,
    Path(name): Named,
) -> Answer {
    peer.role(&shared, &[Role::Operator])?;
    let detail = "no node of that name ever joined";
    let missing = || refuse(StatusCode::NOT_FOUND, "no such node", detail);
    let name: Name = name.parse().map_err(|_| missing())?;
    match shared.tokens.evict(&name).await {
        Ok(true) => {
            tracing::info!(node = %name, "a node was evicted: its certificates are refused");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        Ok(false) => Err(missing()),
        Err(error) => Err(store_problem(&shared, &error)),
    }
}

fn listed(id: TokenId, record: TokenRecord) -> ListedToken {
    let TokenRecord { created_at, expires_at, single_use, node, used, .. } = record;
    ListedToken { id, created_at, expires_at, single_use, node, used }
}

//! Backends of pools: their state, admin state and weight.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Routes;
use crate::answer::Tagged;
use crate::auth::Access;
use crate::change::{Change, Turn};
use crate::condition::ETag;
use crate::extract::{Asked, Body, Named};
use crate::wire::backends::{AddBackend, ChangeBackend, RemoveBackend};
use crate::wire::{Added, Admin, Changed, SetWeight};
use crate::{OperateError, Operator, PoolOperator, Problem};

/// Path of a backend.
#[derive(Deserialize, JsonSchema)]
struct BackendPath {
    /// The pool's name.
    pool: String,
    /// The backend's name, or its address.
    backend: String,
}

/// `enable` and `undrain` lead to the same state. Both exist so that each action has an opposite
/// with a matching name.
pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .get(
            Access::READ,
            "/v1/pools/{pool}/backends/{backend}",
            backend::<O>,
            "A backend; its ETag covers its address, admin state, weight and concurrency",
        )
        .put(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}",
            put::<O>,
            "Add a backend to the pool, or change one that was added",
        )
        .patch(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}",
            patch::<O>,
            "Change the weight or the concurrency limit of a backend",
        )
        .delete(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}",
            remove::<O>,
            "Remove a backend that was added, when it has finished its work",
        )
        .post(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}/drain",
            drain::<O>,
            "Stop new work for the backend, which finishes its current work",
        )
        .post(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}/undrain",
            up::<O>,
            "Give a drained backend new work again",
        )
        .post(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}/enable",
            up::<O>,
            "Give a disabled backend new work again",
        )
        .post(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}/disable",
            disable::<O>,
            "Disable the backend and close its connections",
        )
        .put(
            Access::OPERATE,
            "/v1/pools/{pool}/backends/{backend}/weight",
            weight::<O>,
            "Set the backend's weight; 0 drains",
        )
}

/// The writable state of a backend.
#[derive(Serialize)]
struct Settings<'c> {
    pool: &'c str,
    backend: &'c str,
    address: &'c str,
    admin: Admin,
    weight: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<Added>,
}

impl<'c> From<&'c Changed> for Settings<'c> {
    fn from(Changed { pool, backend }: &'c Changed) -> Self {
        Settings {
            pool,
            backend: &backend.name,
            address: &backend.address,
            admin: backend.admin,
            weight: backend.weight,
            concurrency: backend.concurrency,
            added: backend.added,
        }
    }
}

type Done = Result<Tagged<Changed>, Problem>;

async fn backend<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    headers: HeaderMap,
) -> Done {
    let found = operator.backend(&pool, &backend).await?;
    let tag = ETag::of(&Settings::from(&found));
    Ok(Tagged::new(found, tag).unless_seen(&headers))
}

async fn drain<O: PoolOperator>(
    operator: State<Arc<O>>,
    named: Named<BackendPath>,
    turn: Turn,
) -> Done {
    set(operator, named, turn, Admin::Drain).await
}

async fn up<O: PoolOperator>(
    operator: State<Arc<O>>,
    named: Named<BackendPath>,
    turn: Turn,
) -> Done {
    set(operator, named, turn, Admin::Up).await
}

async fn disable<O: PoolOperator>(
    operator: State<Arc<O>>,
    named: Named<BackendPath>,
    turn: Turn,
) -> Done {
    set(operator, named, turn, Admin::Down).await
}

async fn set<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    turn: Turn,
    admin: Admin,
) -> Done {
    let change = turn.wait().await;
    begin(&*operator, &pool, &backend, &change).await?;
    Ok(done(operator.set_admin(&pool, &backend, admin).await?, &change))
}

async fn weight<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    turn: Turn,
    Body(SetWeight { weight }): Body<SetWeight>,
) -> Done {
    let change = turn.wait().await;
    begin(&*operator, &pool, &backend, &change).await?;
    Ok(done(operator.set_weight(&pool, &backend, weight).await?, &change))
}

async fn put<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    turn: Turn,
    Body(wish): Body<AddBackend>,
) -> Done {
    let change = turn.wait().await;
    match operator.backend(&pool, &backend).await {
        Ok(found) => {
            let settings = Settings::from(&found);
            change.of(&ETag::of(&settings))?;
            change.before(&settings);
        }
        Err(OperateError::NotFound(_)) => change.of_nothing()?,
        Err(error) => return Err(error.into()),
    }
    Ok(done(operator.put_backend(&pool, &backend, wish).await?, &change))
}

async fn patch<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    turn: Turn,
    Body(ChangeBackend { weight, concurrency }): Body<ChangeBackend>,
) -> Done {
    let change = turn.wait().await;
    begin(&*operator, &pool, &backend, &change).await?;
    if let Some(weight) = weight {
        operator.set_weight(&pool, &backend, weight).await?;
    }
    if let Some(limit) = concurrency {
        operator.set_concurrency(&pool, &backend, limit).await?;
    }
    Ok(done(operator.backend(&pool, &backend).await?, &change))
}

async fn remove<O: PoolOperator>(
    State(operator): State<Arc<O>>,
    Named(BackendPath { pool, backend }): Named<BackendPath>,
    Asked(RemoveBackend { now }): Asked<RemoveBackend>,
    turn: Turn,
) -> Done {
    let change = turn.wait().await;
    begin(&*operator, &pool, &backend, &change).await?;
    Ok(done(operator.remove_backend(&pool, &backend, now).await?, &change))
}

async fn begin<O: PoolOperator>(
    operator: &O,
    pool: &str,
    backend: &str,
    change: &Change,
) -> Result<(), Problem> {
    let found = operator.backend(pool, backend).await?;
    let settings = Settings::from(&found);
    change.of(&ETag::of(&settings))?;
    change.before(&settings);
    Ok(())
}

fn done(changed: Changed, change: &Change) -> Tagged<Changed> {
    let settings = Settings::from(&changed);
    change.after(&settings);
    let tag = ETag::of(&settings);
    Tagged::new(changed, tag)
}

//! Backends of pools: their state, admin state and weight.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Routes;
use crate::answer::Tagged;
use crate::change::{Change, Turn};
use crate::condition::ETag;
use crate::extract::{Asked, Body, Named};
use crate::wire::backends::{AddBackend, ChangeBackend, RemoveBackend};
use crate::wire::{Added, Admin, BackendStatus, Changed, SetWeight};
use crate::{OperateError, Operator, Problem, ProcessOperator};

/// Path of a backend.
#[derive(Deserialize, JsonSchema)]
struct BackendPath {
    /// The pool's name.
    pool: String,
    /// The backend's name, or its address.
    backend: String,
}

operations! {
    /// A backend; its ETag covers its address, admin state, weight and concurrency
    BACKEND = GET "/v1/pools/{pool}/backends/{backend}", READ, () => Changed;

    /// Add a backend to the pool, or change one that was added
    PUT = PUT "/v1/pools/{pool}/backends/{backend}", OPERATE, AddBackend => Changed;

    /// Change the weight or the concurrency limit of a backend
    CHANGE = PATCH "/v1/pools/{pool}/backends/{backend}", OPERATE, ChangeBackend => Changed;

    /// Remove a backend that was added, when it has finished its work
    REMOVE = DELETE "/v1/pools/{pool}/backends/{backend}", OPERATE, RemoveBackend => Changed;

    /// Stop new work for the backend, which finishes its current work
    DRAIN = POST "/v1/pools/{pool}/backends/{backend}/drain", OPERATE, () => Changed;

    /// Give a drained backend new work again
    UNDRAIN = POST "/v1/pools/{pool}/backends/{backend}/undrain", OPERATE, () => Changed;

    /// Give a disabled backend new work again
    ENABLE = POST "/v1/pools/{pool}/backends/{backend}/enable", OPERATE, () => Changed;

    /// Disable the backend and close its connections
    DISABLE = POST "/v1/pools/{pool}/backends/{backend}/disable", OPERATE, () => Changed;

    /// Set the backend's weight; 0 drains
    WEIGHT = PUT "/v1/pools/{pool}/backends/{backend}/weight", OPERATE, SetWeight => Changed;
}

/// Operations on backends of pools.
pub trait PoolOperator: ProcessOperator {
    /// Sets the admin state of a backend, identified by name or address. It survives reloads, not
    /// restarts.
    fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Sets a backend's weight, `0..=1000`. It survives reloads, not restarts.
    fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Sets a backend's concurrency limit; 0 returns to the configured one. It survives reloads,
    /// not restarts.
    fn set_concurrency(
        &self,
        pool: &str,
        backend: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Adds a backend with this name, or changes an added one. It survives reloads until the file
    /// names it, not restarts.
    fn put_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: AddBackend,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Removes an added backend once it has no work, or at once.
    fn remove_backend(
        &self,
        pool: &str,
        backend: &str,
        now: bool,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// A backend, identified by name or address.
    fn backend(
        &self,
        pool: &str,
        backend: &str,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send {
        async move {
            let status = self.status().await?;
            let known = |names: Vec<&str>| names.join("`, `");
            let pools = || known(status.pools.iter().map(|pool| &*pool.name).collect());
            let found = status.pools.iter().find(|entry| entry.name == pool).ok_or_else(|| {
                OperateError::NotFound(format!(
                    "there is no pool `{pool}`; the pools are `{}`",
                    pools()
                ))
            })?;
            let backends = || known(found.backends.iter().map(|entry| &*entry.name).collect());
            let called = |entry: &&BackendStatus| entry.name == backend || entry.address == backend;
            let entry = found.backends.iter().find(called).ok_or_else(|| {
                OperateError::NotFound(format!(
                    "pool `{pool}` has no backend `{backend}`; its backends are `{}`",
                    backends()
                ))
            })?;
            Ok(Changed { pool: pool.to_owned(), backend: entry.clone() })
        }
    }
}

/// `enable` and `undrain` lead to the same state. Both exist so that each action has an opposite
/// with a matching name.
pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(BACKEND, backend::<O>)
        .serve(PUT, put::<O>)
        .serve(CHANGE, patch::<O>)
        .serve(REMOVE, remove::<O>)
        .serve(DRAIN, drain::<O>)
        .serve(UNDRAIN, up::<O>)
        .serve(ENABLE, up::<O>)
        .serve(DISABLE, disable::<O>)
        .serve(WEIGHT, weight::<O>)
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

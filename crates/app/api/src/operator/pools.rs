//! Backends of pools: the session level, and every level that uses pools.

use std::future::Future;

use super::{OperateError, ProcessOperator};
use crate::wire::backends::AddBackend;
use crate::wire::{Admin, BackendStatus, Changed};

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

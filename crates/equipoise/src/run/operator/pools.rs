//! Requests about backends, answered by the registry.

use std::num::NonZeroU32;
use std::time::Instant;

use anyhow::Context;
use equipoise_api::wire::backends::AddBackend;
use equipoise_api::wire::{Admin, Changed};
use equipoise_api::{OperateError, PoolOperator};
use equipoise_basics::{lock, with_causes};
use equipoise_core::{AdminState, Weight};
use equipoise_status::{packet, session};

use super::refused;
use crate::run::added;
use crate::run::control::Control;

impl PoolOperator for Control {
    async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        self.levels.registry.set_admin(pool, backend, admin.into()).await.map_err(refused)?;
        self.sync_levels().await;
        self.changed(pool, backend).await
    }

    async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let weight =
            Weight::new(weight).map_err(|error| OperateError::WeightOutOfRange(error.0))?;
        self.levels.registry.set_weight(pool, backend, weight).await.map_err(refused)?;
        self.sync_levels().await;
        self.changed(pool, backend).await
    }

    async fn set_concurrency(
        &self,
        pool: &str,
        backend: &str,
        limit: u32,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let (registry, limit) = (&self.levels.registry, NonZeroU32::new(limit));
        registry.set_concurrency(pool, backend, limit).await.map_err(refused)?;
        self.changed(pool, backend).await
    }

    async fn put_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: AddBackend,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let config = self.config.lock().await;
        let there = self.known(pool).await?;
        let new = added::checked(&config, (pool, backend), wish, &there)?;
        let before = self.levels.added.put(new)?;
        let kept = self.levels.added.save().await.context("cannot keep it over a restart");
        let joined = match kept {
            Ok(()) => self.join_made(&config).await,
            Err(error) => Err(error),
        };
        if let Err(error) = joined {
            // As it was.
            self.levels.added.take(pool, backend);
            let _ = before.map(|before| self.levels.added.put(before));
            self.save_added().await;
            if let Err(error) = self.join_made(&config).await {
                tracing::error!("could not remove a backend that was refused: {error:#}");
            }
            return Err(OperateError::Refused(with_causes(&*error)));
        }
        drop(config);
        if before.is_some_and(|before| before.is_leaving) {
            self.levels.registry.set_admin(pool, backend, AdminState::Up).await.map_err(refused)?;
        }
        // Earlier settings of the operator do not hold any more.
        self.levels.registry.reset_weight(pool, backend).await.map_err(refused)?;
        self.levels.registry.set_concurrency(pool, backend, None).await.map_err(refused)?;
        self.sync_levels().await;
        self.changed(pool, backend).await
    }

    async fn remove_backend(
        &self,
        pool: &str,
        backend: &str,
        now: bool,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let name = self.changed(pool, backend).await?.backend.name;
        if !self.levels.added.leave(pool, &name) {
            return Err(OperateError::Conflict(format!(
                "backend `{name}` was not added through the API: remove it from the configuration file or its source, or \
                 drain it (POST .../drain)"
            )));
        }
        self.save_added().await;
        let admin = if now { AdminState::Down } else { AdminState::Drain };
        self.levels.registry.set_admin(pool, &name, admin).await.map_err(refused)?;
        self.sync_levels().await;
        let changed = self.changed(pool, &name).await?;
        if now {
            self.remove(pool, &name).await;
        } else {
            self.remove_idle().await;
        }
        Ok(changed)
    }
}

impl Control {
    /// Names and addresses of a pool's backends, and whether operators added them.
    async fn known(&self, pool: &str) -> Result<Vec<(String, String, bool)>, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let Some(found) = status.pools.iter().find(|entry| &*entry.name == pool) else {
            let pools: Vec<&str> = status.pools.iter().map(|pool| &*pool.name).collect();
            return Err(OperateError::NotFound(format!(
                "there is no pool `{pool}`; the pools are `{}`",
                pools.join("`, `")
            )));
        };
        let known = found.backends.iter().map(|it| {
            let is_added = self.levels.added.origin(pool, &it.name).is_some();
            (it.name.to_string(), it.place.text(it.address), is_added)
        });
        Ok(known.collect())
    }

    /// Writes the added backends that outlive the process. A failure is logged: a restart then
    /// has them as they were.
    pub(in crate::run) async fn save_added(&self) {
        if let Err(error) = self.levels.added.save().await {
            tracing::error!(
                "cannot write the added backends, so that a restart has those of before: {error}"
            );
        }
    }

    /// Removes the added backends that leave and have no work any more.
    pub(in crate::run) async fn remove_idle(&self) {
        for (pool, name) in self.levels.added.leaving() {
            if self.accepts_changes().is_err() {
                return;
            }
            let Ok(Changed { backend, .. }) = self.changed(&pool, &name).await else { continue };
            if backend.in_flight == 0 && backend.flows == 0 {
                self.remove(&pool, &name).await;
            }
        }
    }

    async fn remove(&self, pool: &str, name: &str) {
        let config = self.config.lock().await;
        if !self.levels.added.take_leaving(pool, name) {
            return;
        }
        if let Err(error) = self.join_made(&config).await {
            tracing::error!("could not remove backend {pool}/{name}: {error:#}");
        }
    }

    async fn changed(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let gone =
            || OperateError::NotFound(format!("{pool}/{backend} was removed during the change"));
        let pool = status.pools.iter().find(|entry| &*entry.name == pool).ok_or_else(gone)?;
        let named = |entry: &&_| is_named(entry, backend);
        let backend = pool.backends.iter().find(named).ok_or_else(gone)?;
        let mut backend = session::backend(pool, backend, &lock(&self.rates), Instant::now());
        backend.added = self.levels.added.origin(&pool.name, &backend.name);
        if let Some(status_of_packet) = self.packet_status().await {
            let has_door = status.front_doors.iter().any(|door| door.leads_to(&pool.name));
            packet::add_to_backend(&mut backend, &pool.name, &status_of_packet, has_door);
        }
        Ok(Changed { pool: pool.name.to_string(), backend })
    }
}

/// Whether `asked` is the name or the address of the backend.
fn is_named(backend: &equipoise_session::registry::BackendStatus, asked: &str) -> bool {
    &*backend.name == asked || backend.place.text(backend.address) == asked
}

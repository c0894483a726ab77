//! Requests about backends, answered by the registry.

use std::time::Instant;

use equipoise_api::wire::{Admin, Changed};
use equipoise_api::{OperateError, PoolOperator};
use equipoise_basics::lock;
use equipoise_core::Weight;
use equipoise_status::{packet, session};

use super::refused;
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
}

impl Control {
    async fn changed(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let gone =
            || OperateError::NotFound(format!("{pool}/{backend} was removed during the change"));
        let pool = status.pools.iter().find(|entry| &*entry.name == pool).ok_or_else(gone)?;
        let named = |entry: &&_| is_named(entry, backend);
        let backend = pool.backends.iter().find(named).ok_or_else(gone)?;
        let mut backend = session::backend(pool, backend, &lock(&self.rates), Instant::now());
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

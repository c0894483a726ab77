//! Serves the API from the registry and the configuration file.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use equipoise_api::metrics::Reading;
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_api::wire::config::{Checked, ConfigState};
use equipoise_api::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use equipoise_api::wire::plan::{HistoryQuestion, NodeHistory, Nodes, PlanStatus, PoolWish};
use equipoise_api::wire::slice::{SliceMove, SliceMoves, SlicePlan, StreamStatus, Streams};
use equipoise_api::wire::{Admin, Changed, Phase, Reloaded, Status};
use equipoise_api::{OperateError, Operator};
use equipoise_core::Weight;
use equipoise_session::registry::RegistryError;

use crate::commands::check;
use crate::run::control::Control;
use crate::run::notify::{Notice, notify};
use crate::run::reload::Prepared;
use crate::run::{dns, lock, packet_reading, reading};
use equipoise_config as config;

impl Control {
    async fn changed(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let gone =
            || OperateError::NotFound(format!("{pool}/{backend} was removed during the change"));
        let pool = status.pools.iter().find(|entry| &*entry.name == pool).ok_or_else(gone)?;
        let named = |entry: &&_| is_named(entry, backend);
        let backend = pool.backends.iter().find(named).ok_or_else(gone)?;
        let mut backend = reading::backend(pool, backend, &lock(&self.rates), Instant::now());
        if let Some(packet) = self.packet_status().await {
            let has_door = status.front_doors.iter().any(|door| door.pool == pool.name);
            packet_reading::add_to_backend(&mut backend, &pool.name, &packet, has_door);
        }
        Ok(Changed { pool: pool.name.to_string(), backend })
    }

    pub(super) fn accepts_changes(&self) -> Result<(), OperateError> {
        match self.phase() {
            Phase::Running => Ok(()),
            Phase::Stopping => Err(OperateError::Stopping),
        }
    }
}

/// Whether `asked` is the name or the address of the backend.
fn is_named(backend: &equipoise_session::registry::BackendStatus, asked: &str) -> bool {
    &*backend.name == asked || backend.place.text(backend.address) == asked
}

impl Operator for Control {
    type Prepared = Prepared;

    fn phase(&self) -> Phase {
        if self.stopping.load(Relaxed) { Phase::Stopping } else { Phase::Running }
    }

    fn degraded(&self) -> Vec<&'static str> {
        let controller = self.levels.planner.controller_status();
        let is_degraded = controller.is_some_and(|controller| controller.problem.is_some());
        let parts = [
            ("controller", is_degraded),
            // The controllers' files lack an elastic pool of this file, so it gets no backends.
            ("elastic", !self.levels.planner.unscaled().is_empty()),
            // A file that a reload or check reads does not answer. Traffic is not affected.
            ("configuration", self.loader.hangs().is_some()),
        ];
        parts.into_iter().filter(|(_, degraded)| *degraded).map(|(part, _)| part).collect()
    }

    async fn status(&self) -> Result<Status, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let packet = self.packet_status().await.map(|mut packet| {
            packet_reading::without_zeros(&mut packet);
            packet
        });
        let dns = self.levels.dns.status().await.map(|mut dns| {
            dns::without_zeros(&mut dns);
            dns
        });
        let view = self.levels.registry.stats();
        let now = Instant::now();
        let rates = lock(&self.rates);
        let doors = status.front_doors.iter().map(|door| {
            reading::front_door(door, reading::accept_pauses(&view, door), &rates, now)
        });
        let mut pools: Vec<_> =
            status.pools.iter().map(|pool| reading::pool(pool, &rates, now)).collect();
        if let Some(packet) = &packet {
            let has_door = |pool: &str| status.front_doors.iter().any(|door| &*door.pool == pool);
            packet_reading::add_to_pools(&mut pools, packet, has_door);
        }
        Ok(Status {
            instance: self.fixed.instance.name.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            phase: self.phase(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            threads: self.levels.threads,
            config_file: self.file.display().to_string(),
            last_reload: lock(&self.reloads).last.clone(),
            rates_over_seconds: rates.span(now).as_secs_f64(),
            front_doors: doors.collect(),
            pools,
            packet,
            cluster: self.levels.planner.standing(),
            controller: self.levels.planner.controller_status(),
            dns,
            streams: self.levels.slices.summary(),
        })
    }

    async fn metrics(&self) -> Result<Reading, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let view = self.levels.registry.stats();
        let packet = self.packet_status().await;
        let dns = self.levels.dns.status().await;
        Ok(Reading {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.fixed.instance.name.to_string(),
            threads: self.levels.threads,
            reload: lock(&self.reloads).figures,
            access: self.entrance.reading(),
            front_doors: view
                .front_doors
                .iter()
                .map(|door| reading::front_door_figures(door, &status))
                .collect(),
            pools: status.pools.iter().map(|pool| reading::pool_figures(pool, &view)).collect(),
            packet,
            machine: self.levels.planner.machine(),
            planning: self.levels.planner.reading(),
            dns,
            streams: self.levels.slices.reading(),
        })
    }

    async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let admin = reading::admin_state(admin);
        self.levels.registry.set_admin(pool, backend, admin).await.map_err(refused)?;
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

    async fn config(&self) -> Result<ConfigState, OperateError> {
        let figures = lock(&self.reloads).figures;
        Ok(ConfigState {
            file: self.file.display().to_string(),
            generation: figures.succeeded,
            loaded_at_unix_seconds: figures.last_success_unix_seconds,
        })
    }

    fn config_schema(&self) -> serde_json::Value {
        config::schema::schema()
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        Ok(check::asked(&self.loader, &self.file, toml).await)
    }

    async fn prepare_reload(&self) -> Prepared {
        self.prepare().await
    }

    async fn reload(&self, prepared: Prepared) -> Result<Reloaded, OperateError> {
        self.accepts_changes()?;
        notify(Notice::Reloading);
        let outcome = self.switch(prepared).await;
        notify(Notice::Ready);
        self.note_reload(&outcome);
        outcome.map_err(|errors| OperateError::ReloadFailed {
            config_file: self.file.display().to_string(),
            errors,
        })
    }

    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        self.levels.planner.plan(next)
    }

    async fn wish(&self, pool: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.wish(pool, wish).await
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        Ok(self.levels.planner.nodes())
    }

    async fn set_node_admin(&self, node: &str, admin: Admin) -> Result<Nodes, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.set_node_admin(node, reading::admin_state(admin)).await
    }

    async fn node_history(
        &self,
        node: &str,
        question: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        self.levels.planner.history(node, question)
    }

    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        self.levels.planner.cluster_members()
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        self.levels.planner.cluster_tokens().await
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.create_token(wanted).await
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.revoke_token(id).await
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        self.levels.planner.joined_nodes().await
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.evict_node(node).await
    }

    async fn explain_flow(&self, question: FlowQuestion) -> Result<FlowAnswer, OperateError> {
        self.flow(&question).await
    }

    async fn pins(&self) -> Result<Pins, OperateError> {
        self.all_pins().await
    }

    async fn add_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, false).await
    }

    async fn move_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, true).await
    }

    async fn remove_pin(&self, pin: PinKey) -> Result<Pins, OperateError> {
        self.accepts_changes()?;
        self.drop_pin(&pin).await
    }

    async fn streams(&self) -> Result<Streams, OperateError> {
        self.levels.slices.status().await
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        self.levels.slices.plan(stream).await
    }

    async fn move_slices(&self, stream: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.move_slices(stream, &wish).await
    }

    async fn drain_worker(
        &self,
        stream: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.drain(stream, worker, drained).await
    }

    async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.pin(stream, slice, worker).await
    }
}

fn refused(error: RegistryError) -> OperateError {
    match error {
        RegistryError::Stopped => OperateError::Stopping,
        unknown => OperateError::NotFound(unknown.to_string()),
    }
}

//! Requests about the process and its configuration file.

use std::time::Instant;

use equipoise_api::metrics::{MemoryReading, Reading};
use equipoise_api::wire::config::{Checked, ConfigState, ConfigText, ReloadPreview};
use equipoise_api::wire::controller::ControllerStatus;
use equipoise_api::wire::tls::TlsStatus;
use equipoise_api::wire::{Phase, Reloaded, Status, Upgrade, Upgraded};
use equipoise_api::{NewText, OperateError, ProcessOperator};
use equipoise_basics::lock;
use equipoise_config as config;
use equipoise_session::registry::DoorTlsStatus;
use equipoise_status as status;
use equipoise_status::tls::CertificateStates;

use super::{cluster, refused, slice};
use crate::run::control::{Control, Ending};
use crate::run::notify::{Notice, notify};
use crate::run::prepared::Prepared;
use crate::run::replace::NewConfig;

impl ProcessOperator for Control {
    type Prepared = Prepared;
    type NewConfig = NewConfig;

    fn phase(&self) -> Phase {
        match self.ending.get() {
            // Requests that it accepted before ask for the instance, which runs on.
            None | Some(Ending::Replaced) => Phase::Running,
            Some(Ending::Stopped) => Phase::Stopping,
        }
    }

    fn degraded(&self) -> Vec<&'static str> {
        let controller = self.controller_status();
        let is_degraded = controller.is_some_and(|controller| controller.problem.is_some());
        let parts = [
            ("controller", is_degraded),
            // The controllers' files lack an elastic pool of this file, so it gets no backends.
            ("elastic", !self.levels.planner.unscaled().is_empty()),
            // A file that a reload or check reads does not answer. Traffic is not affected.
            ("configuration", self.loader.hangs().is_some()),
            // A source of backends fails, so its last good set is in use.
            ("discovery", self.levels.discovery.states().iter().any(|it| it.problem.is_some())),
        ];
        parts.into_iter().filter(|(_, degraded)| *degraded).map(|(part, _)| part).collect()
    }

    async fn status(&self) -> Result<Status, OperateError> {
        let levels = self.levels.registry.status().await.map_err(refused)?;
        let packet = self.packet_status().await.map(|mut packet| {
            status::packet::without_zeros(&mut packet);
            packet
        });
        let dns = self.levels.dns.running().await.map(|dns| {
            let mut dns = status::dns::status(&dns);
            status::dns::without_zeros(&mut dns);
            dns
        });
        let view = self.levels.registry.stats();
        let now = Instant::now();
        let rates = lock(&self.rates);
        let certificates = self.certificate_states();
        let doors = levels.front_doors.iter().map(|door| {
            let pauses = status::session::accept_pauses(&view, door);
            status::session::front_door(door, pauses, &rates, &certificates, now)
        });
        let mut pools: Vec<_> =
            levels.pools.iter().map(|pool| status::session::pool(pool, &rates, now)).collect();
        if let Some(packet) = &packet {
            let has_door = |pool: &str| levels.front_doors.iter().any(|door| door.leads_to(pool));
            status::packet::add_to_pools(&mut pools, packet, has_door);
        }
        status::discovery::add_to_pools(&mut pools, &self.levels.discovery.states());
        for pool in &mut pools {
            for backend in &mut pool.backends {
                backend.added = self.levels.added.origin(&pool.name, &backend.name);
            }
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
            api_tls: self.api_tls(&certificates),
            rates_over_seconds: rates.span(now).as_secs_f64(),
            front_doors: doors.collect(),
            pools,
            packet,
            cluster: cluster::standing(self.planner()),
            controller: self.controller_status(),
            dns,
            streams: slice::summary(&self.levels.slices),
            replaced: self.upgrades.replaced(),
        })
    }

    async fn metrics(&self) -> Result<Reading, OperateError> {
        let levels = self.levels.registry.status().await.map_err(refused)?;
        let view = self.levels.registry.stats();
        let packet = self.packet_status().await;
        let dns = self.levels.dns.running().await;
        let certificates = self.certificate_states();
        let figures = levels.pools.iter().map(|pool| status::session::pool_figures(pool, &view));
        let mut pools: Vec<_> = figures.collect();
        status::discovery::add_to_figures(&mut pools, &self.levels.discovery.states());
        Ok(Reading {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.fixed.instance.name.to_string(),
            threads: self.levels.threads,
            memory: MemoryReading {
                allocated_bytes: (self.levels.memory.used_bytes)() as u64,
                max_bytes: self.levels.memory.max_bytes as u64,
            },
            reload: lock(&self.reloads).figures,
            access: self.entrance.reading(),
            api_tls: self.api_tls(&certificates),
            spans: self.spans(),
            front_doors: view
                .front_doors
                .iter()
                .map(|door| status::session::front_door_figures(door, &levels, &certificates))
                .collect(),
            pools,
            packet,
            machine: self.planner().utilisation().as_ref().map(status::plan::machine),
            planning: cluster::reading(self.planner()),
            dns: dns.as_ref().map(status::dns::status),
            streams: slice::reading(&self.levels.slices),
        })
    }

    async fn config(&self) -> Result<ConfigState, OperateError> {
        let figures = lock(&self.reloads).figures;
        Ok(ConfigState {
            file: self.file.display().to_string(),
            generation: figures.succeeded,
            loaded_at_unix_seconds: figures.last_success_unix_seconds,
        })
    }

    async fn config_text(&self) -> Result<ConfigText, OperateError> {
        let toml = self.loader.text(&self.file).await;
        let toml = toml.map_err(|error| OperateError::Unavailable(error.to_string()))?;
        let writable = self.may_write_config().await;
        // A previous text that cannot be read is reported when it is to be restored.
        let previous = match writable {
            true => self.loader.previous(&self.file).await.unwrap_or_default(),
            false => None,
        };
        Ok(ConfigText { file: self.file.display().to_string(), toml, writable, previous })
    }

    async fn prepare_config(&self, new: NewText) -> Result<NewConfig, OperateError> {
        self.prepare_text(new).await
    }

    async fn replace_config(
        &self,
        new: NewConfig,
        seen: Option<String>,
    ) -> Result<(Reloaded, String), OperateError> {
        self.replace_text(new, seen).await
    }

    fn config_schema(&self) -> serde_json::Value {
        config::schema::schema()
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        Ok(config::asked(&self.loader, &self.file, toml).await)
    }

    async fn prepare_reload(&self) -> Prepared {
        self.prepare().await
    }

    async fn preview_reload(&self) -> Result<ReloadPreview, OperateError> {
        let previewed = self.preview().await;
        previewed.map_err(|errors| self.not_loaded(errors))
    }

    async fn reload(&self, prepared: Prepared) -> Result<Reloaded, OperateError> {
        self.accepts_changes()?;
        notify(Notice::Reloading);
        let outcome = self.switch(prepared).await;
        notify(Notice::Ready);
        self.note_reload(&outcome);
        outcome.map_err(|errors| self.not_loaded(errors))
    }

    async fn upgrade(&self, how: Upgrade) -> Result<Upgraded, OperateError> {
        if self.phase() == Phase::Stopping {
            return Err(OperateError::Stopping);
        }
        self.upgrades.ask(how).await
    }
}

impl Control {
    /// The state of TLS of the API's address.
    fn api_tls(&self, certificates: &CertificateStates) -> Option<TlsStatus> {
        let api = &self.entrance.tls;
        let (handshakes, resumed) = (api.handshakes(), api.resumed());
        let status = DoorTlsStatus { tls: api.in_force()?, handshakes, resumed };
        Some(status::tls::tls(&status, certificates))
    }

    /// State of the controller; `None` if no controller should run here.
    fn controller_status(&self) -> Option<ControllerStatus> {
        let planner = self.planner();
        let controller = planner.controller_now()?;
        Some(status::controller::status(&controller, planner.period()))
    }
}

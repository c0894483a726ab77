//! The API of an agent: its state in the cluster, and its measurements. It accepts no changes.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use equipoise_api::metrics::{Reading, ReloadReading};
use equipoise_api::wire::backends::AddBackend;
use equipoise_api::wire::config::{Checked, ConfigState, ConfigText, ReloadPreview};
use equipoise_api::wire::plan::PlanStatus;
use equipoise_api::wire::{Admin, Changed, Phase, Reloaded, Status, Upgrade, Upgraded};
use equipoise_api::{
    ClusterOperator, NewText, OperateError, PacketOperator, PlanOperator, PoolOperator,
    ProcessOperator, SliceOperator, WhyOperator,
};
use equipoise_basics::lock;
use equipoise_cluster::NodeClient;
use equipoise_config::{self as config, Config, Loader};
use equipoise_controller::NodeKind;
use equipoise_core::load::Coefficients;
use equipoise_monitor::Utilisation;
use equipoise_status::cluster;
use equipoise_status::plan::machine;

/// State behind the API of an agent.
pub(super) struct Desk {
    name: String,
    file: PathBuf,
    loader: Loader,
    client: NodeClient,
    weigh: Coefficients,
    used: Mutex<Option<Utilisation>>,
    started: Instant,
    loaded_at: u64,
}

impl Desk {
    /// The state of an agent that starts with this file.
    pub(super) fn new(file: &Path, config: &Config, client: NodeClient) -> Desk {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Desk {
            name: config.instance.name.to_string(),
            file: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()),
            loader: Loader::default(),
            client,
            weigh: config.planning.policy.coefficients,
            used: Mutex::default(),
            started: Instant::now(),
            loaded_at: now.unwrap_or_default().as_secs(),
        }
    }

    pub(super) fn client(&self) -> &NodeClient {
        &self.client
    }

    /// Stores the last measurement.
    pub(super) fn measured(&self, used: &Utilisation) {
        *lock(&self.used) = Some(used.clone());
    }

    fn used(&self) -> Option<Utilisation> {
        lock(&self.used).clone()
    }

    fn no_backends<T>(&self) -> Result<T, OperateError> {
        Err(OperateError::NotFound(format!(
            "{} is an agent: it only reports, and has no pools",
            self.name
        )))
    }
}

/// The refusal of a reload.
const READS_AT_START: &str = "an agent reads its file only at start; restart it to apply changes";

impl ProcessOperator for Desk {
    type Prepared = ();
    type NewConfig = ();

    fn phase(&self) -> Phase {
        Phase::Running
    }

    fn degraded(&self) -> Vec<&'static str> {
        self.loader.hangs().map(|_| "configuration").into_iter().collect()
    }

    async fn status(&self) -> Result<Status, OperateError> {
        let load = self.used().map(|used| cluster::own_load(&used, &self.weigh));
        Ok(Status {
            instance: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            phase: self.phase(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            threads: 0,
            config_file: self.file.display().to_string(),
            last_reload: None,
            rates_over_seconds: 0.0,
            front_doors: Vec::new(),
            pools: Vec::new(),
            packet: None,
            cluster: Some(cluster::standing(NodeKind::Agent, &self.client.status(), load)),
            controller: None,
            dns: None,
            streams: Vec::new(),
            replaced: Vec::new(),
            api_tls: None,
        })
    }

    async fn upgrade(&self, _: Upgrade) -> Result<Upgraded, OperateError> {
        let text = "an agent has no clients; restart it to start a new program";
        Err(OperateError::Refused(text.into()))
    }

    async fn metrics(&self) -> Result<Reading, OperateError> {
        let reload = ReloadReading {
            succeeded: 1,
            failed: 0,
            last_succeeded: true,
            last_success_unix_seconds: self.loaded_at,
        };
        Ok(Reading {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.name.clone(),
            reload,
            machine: self.used().as_ref().map(machine),
            planning: Some(cluster::reading(&self.client.status(), self.started.elapsed())),
            ..Reading::default()
        })
    }

    async fn config(&self) -> Result<ConfigState, OperateError> {
        let (file, loaded_at_unix_seconds) = (self.file.display().to_string(), self.loaded_at);
        Ok(ConfigState { file, generation: 1, loaded_at_unix_seconds })
    }

    async fn config_text(&self) -> Result<ConfigText, OperateError> {
        let toml = self.loader.text(&self.file).await;
        let toml = toml.map_err(|error| OperateError::Unavailable(error.to_string()))?;
        let file = self.file.display().to_string();
        Ok(ConfigText { file, toml, writable: false, previous: None })
    }

    fn config_schema(&self) -> serde_json::Value {
        config::schema::schema()
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        Ok(config::asked(&self.loader, &self.file, toml).await)
    }

    async fn prepare_config(&self, _: NewText) -> Result<(), OperateError> {
        Err(OperateError::Refused(READS_AT_START.into()))
    }

    async fn replace_config(
        &self,
        (): (),
        _: Option<String>,
    ) -> Result<(Reloaded, String), OperateError> {
        Err(OperateError::Refused(READS_AT_START.into()))
    }

    async fn prepare_reload(&self) {}

    async fn preview_reload(&self) -> Result<ReloadPreview, OperateError> {
        Err(OperateError::Refused(READS_AT_START.into()))
    }

    async fn reload(&self, (): ()) -> Result<Reloaded, OperateError> {
        Err(OperateError::Refused(READS_AT_START.into()))
    }
}

impl PoolOperator for Desk {
    async fn set_admin(&self, _: &str, _: &str, _: Admin) -> Result<Changed, OperateError> {
        self.no_backends()
    }

    async fn set_weight(&self, _: &str, _: &str, _: u16) -> Result<Changed, OperateError> {
        self.no_backends()
    }

    async fn set_concurrency(&self, _: &str, _: &str, _: u32) -> Result<Changed, OperateError> {
        self.no_backends()
    }

    async fn put_backend(&self, _: &str, _: &str, _: AddBackend) -> Result<Changed, OperateError> {
        self.no_backends()
    }

    async fn remove_backend(&self, _: &str, _: &str, _: bool) -> Result<Changed, OperateError> {
        self.no_backends()
    }
}

impl PlanOperator for Desk {
    async fn plan(&self, _: bool) -> Result<PlanStatus, OperateError> {
        let there = cluster::ask_there(&self.client.status(), "plan");
        Err(OperateError::NotPlanning(format!(
            "{} is an agent and does not plan; {there}",
            self.name
        )))
    }
}

impl ClusterOperator for Desk {}

impl PacketOperator for Desk {}

impl SliceOperator for Desk {}

impl WhyOperator for Desk {}

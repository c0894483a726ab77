//! An operator that only records its calls: its process, and what the API does for every level.

use std::sync::Mutex;

use equipoise_api::metrics::Reading;
use equipoise_api::wire::cluster::ClusterToken;
use equipoise_api::wire::config::{Checked, ConfigState, ConfigText, ReloadPreview};
use equipoise_api::wire::packet::Pin;
use equipoise_api::wire::plan::PlanMode;
use equipoise_api::wire::why::{WhyAnswer, WhyQuestion, WhyStep};
use equipoise_api::wire::{Admin, Phase, Reloaded, Status, Upgrade, Upgraded};
use equipoise_api::{NewText, OperateError, ProcessOperator, WhyOperator};

/// Records its calls in order.
pub struct Recorder {
    pub asked: Mutex<Vec<String>>,
    /// Number of reads of the file for a reload.
    pub reads: Mutex<usize>,
    pub weight: Mutex<u16>,
    pub generation: Mutex<u64>,
    pub pins: Mutex<Vec<Pin>>,
    pub decided: Mutex<(PlanMode, Option<u32>)>,
    pub node_admin: Mutex<Admin>,
    pub tokens: Mutex<Vec<ClusterToken>>,
    pub evicted: Mutex<bool>,
    pub drained: Mutex<bool>,
    pub slice_pin: Mutex<Option<String>>,
    /// The text that replaced the file's.
    pub toml: Mutex<Option<String>>,
    pub reload_errors: Vec<String>,
    /// Reading the file for a reload waits for this lock.
    pub file: tokio::sync::Mutex<()>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder {
            asked: Mutex::default(),
            reads: Mutex::default(),
            weight: Mutex::default(),
            generation: Mutex::default(),
            pins: Mutex::default(),
            decided: Mutex::new((PlanMode::Auto, None)),
            node_admin: Mutex::new(Admin::Up),
            tokens: Mutex::default(),
            evicted: Mutex::default(),
            drained: Mutex::default(),
            slice_pin: Mutex::default(),
            toml: Mutex::default(),
            reload_errors: Vec::new(),
            file: tokio::sync::Mutex::default(),
        }
    }
}

impl Recorder {
    pub(super) fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl ProcessOperator for Recorder {
    type Prepared = ();
    type NewConfig = String;

    fn phase(&self) -> Phase {
        Phase::Running
    }

    async fn status(&self) -> Result<Status, OperateError> {
        Ok(Status {
            instance: "test".into(),
            version: "0".into(),
            pid: 1,
            phase: Phase::Running,
            uptime_seconds: 0.5,
            threads: 1,
            config_file: "f".into(),
            last_reload: None,
            rates_over_seconds: 0.0,
            front_doors: Vec::new(),
            pools: Vec::new(),
            packet: None,
            cluster: None,
            controller: None,
            dns: None,
            streams: Vec::new(),
            replaced: Vec::new(),
            api_tls: None,
        })
    }

    async fn metrics(&self) -> Result<Reading, OperateError> {
        Ok(Reading { threads: 3, ..Reading::default() })
    }

    async fn config(&self) -> Result<ConfigState, OperateError> {
        let generation = *self.generation.lock().unwrap();
        Ok(ConfigState { file: "f".into(), generation, loaded_at_unix_seconds: 7 })
    }

    async fn config_text(&self) -> Result<ConfigText, OperateError> {
        let toml = self.toml.lock().unwrap().clone().unwrap_or("[api]".into());
        Ok(ConfigText { file: "f".into(), toml, writable: true, previous: None })
    }

    fn config_schema(&self) -> serde_json::Value {
        serde_json::json!({ "type": "object" })
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        Ok(Checked { file: "f".into(), valid: toml.is_none(), problems: Vec::new() })
    }

    async fn prepare_config(&self, new: NewText) -> Result<String, OperateError> {
        Ok(match new {
            NewText::Given(toml) => toml,
            NewText::Previous => "[previous]".into(),
        })
    }

    async fn replace_config(
        &self,
        toml: String,
        _: Option<String>,
    ) -> Result<(Reloaded, String), OperateError> {
        *self.toml.lock().unwrap() = Some(toml.clone());
        Ok((self.reload(()).await?, toml))
    }

    async fn prepare_reload(&self) {
        *self.reads.lock().unwrap() += 1;
        drop(self.file.lock().await);
    }

    async fn preview_reload(&self) -> Result<ReloadPreview, OperateError> {
        *self.reads.lock().unwrap() += 1;
        Ok(ReloadPreview { config_file: "f".into(), ..ReloadPreview::default() })
    }

    async fn reload(&self, (): ()) -> Result<Reloaded, OperateError> {
        self.note("reload".into());
        if self.reload_errors.is_empty() {
            *self.generation.lock().unwrap() += 1;
            let config_file = "f".into();
            return Ok(Reloaded {
                config_file,
                front_doors: 1,
                vips: 0,
                pools: 1,
                backends: 2,
                changes: vec![],
                ends: vec![],
                need_restart: vec![],
            });
        }
        let errors = self.reload_errors.clone();
        Err(OperateError::ReloadFailed { config_file: "f".into(), errors })
    }

    async fn upgrade(&self, _: Upgrade) -> Result<Upgraded, OperateError> {
        self.note("upgrade".into());
        Ok(Upgraded { pid: 2, replaced_pid: 1, connections: 3, took_seconds: 0.5 })
    }
}

impl WhyOperator for Recorder {
    async fn explain(&self, _: WhyQuestion) -> Result<WhyAnswer, OperateError> {
        let step = WhyStep { level: "session".into(), text: "it does".into(), backend: None };
        let (subject, outcome) = ("a request".into(), "nowhere".into());
        Ok(WhyAnswer { subject, outcome, taken: true, backend: None, steps: vec![step] })
    }
}

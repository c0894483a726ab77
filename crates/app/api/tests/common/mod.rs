//! An operator that only records its calls, and a folder.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use equipoise_api::audit::{Audit, AuditTarget};
use equipoise_api::listen::ApiTcp;
use equipoise_api::metrics::Reading;
use equipoise_api::wire::backends::AddBackend;
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterToken, ClusterTokens, JoinedNode, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_api::wire::config::{Checked, ConfigState};
use equipoise_api::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use equipoise_api::wire::plan::{
    HistoryQuestion, NodeHistory, NodeStatus, Nodes, PlanMode, PlanStatus, PlannedPool,
    PlannedScaling, PoolWish,
};
use equipoise_api::wire::slice::{
    SliceMove, SliceMoves, SlicePlan, SlicePlanReason, SliceState, SliceWorker, StreamStatus,
    Streams, WorkerState,
};
use equipoise_api::wire::why::{WhyAnswer, WhyQuestion, WhyStep};
use equipoise_api::wire::{
    Admin, BackendState, BackendStatus, ByClass, Changed, Health, Phase, Rates, Reloaded, Status,
    Upgrade, Upgraded,
};
use equipoise_api::{
    Api, ApiToken, ClusterOperator, Gate, OperateError, PacketOperator, PlanOperator, Policy,
    PoolOperator, ProcessOperator, Role, SliceOperator, TokenDigest, WhyOperator, serve_tcp,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

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
            reload_errors: Vec::new(),
            file: tokio::sync::Mutex::default(),
        }
    }
}

impl Recorder {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Recorder {
    fn stream(&self) -> StreamStatus {
        let worker = SliceWorker {
            name: "w".into(),
            state: WorkerState::Active,
            state_seconds: 0.0,
            reason: None,
            drained: *self.drained.lock().unwrap(),
            problem: None,
            host: Some("rack-3".into()),
            pid: Some(4711),
            started_unix_seconds: Some(1.7e9),
            slices: 1,
            load: 0.0,
            items_per_second: 0.0,
            queued: 0,
            in_hand: 1,
            queue_age_seconds: 0.2,
            stalled_seconds: 1.5,
            items_total: 0,
            drops: BTreeMap::new(),
            checkpoints: None,
        };
        let slice = SliceState {
            slice: 3,
            owner: Some("w".into()),
            epoch: 1,
            load: 0.0,
            queued: 0,
            queue_age_seconds: 0.0,
            pinned: self.slice_pin.lock().unwrap().clone(),
            blocked: None,
            blocked_seconds: None,
            cool_down_seconds: None,
        };
        StreamStatus {
            name: "images".into(),
            slices_total: 1,
            resizing: None,
            domain: 0,
            leading: true,
            leader: Some("test".into()),
            problem: None,
            imbalance: 0.0,
            workers: vec![worker],
            slices: vec![slice],
            handovers: Vec::new(),
            hot: Vec::new(),
            unread: Vec::new(),
            connections_strange_total: 0,
            handovers_moved_total: 0,
            handovers_called_off_total: 0,
            handover_seconds_p50: None,
            handover_seconds_max: None,
        }
    }
}

fn changed(pool: &str, backend: &str, admin: Admin, weight: u16) -> Changed {
    let backend = BackendStatus {
        name: backend.into(),
        address: "127.0.0.1:1".into(),
        resolved: None,
        weight,
        admin,
        health: Health::Unknown,
        state: BackendState::Up,
        health_detail: None,
        in_flight: 0,
        added: None,
        concurrency: None,
        limit: None,
        group_limit: None,
        region: None,
        knee: None,
        service_seconds: None,
        queue_seconds: None,
        flows: 0,
        requests_total: 0,
        responses: ByClass::default(),
        failures: Default::default(),
        sessions_open: 0,
        sessions_opened_total: 0,
        sessions_reused_total: 0,
        multiplex_faults_total: 0,
        multiplex_shared_total: 0,
        multiplex_alone_total: 0,
        multiplex_handed_over_total: 0,
        multiplex_repeated_total: 0,
        multiplexing_lost: false,
        tls: None,
        bytes_out_total: 0,
        bytes_in_total: 0,
        rates: Rates::default(),
    };
    Changed { pool: pool.into(), backend }
}

impl ProcessOperator for Recorder {
    type Prepared = ();

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

    fn config_schema(&self) -> serde_json::Value {
        serde_json::json!({ "type": "object" })
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        Ok(Checked { file: "f".into(), valid: toml.is_none(), problems: Vec::new() })
    }

    async fn prepare_reload(&self) {
        *self.reads.lock().unwrap() += 1;
        drop(self.file.lock().await);
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

impl PoolOperator for Recorder {
    async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> Result<Changed, OperateError> {
        if pool == "missing" {
            return Err(OperateError::NotFound("there is no pool `missing`".into()));
        }
        self.note(format!("{pool} {backend} {admin}"));
        Ok(changed(pool, backend, admin, 1))
    }

    async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, OperateError> {
        if weight > 1000 {
            return Err(OperateError::WeightOutOfRange(weight));
        }
        self.note(format!("{pool} {backend} weight {weight}"));
        *self.weight.lock().unwrap() = weight;
        Ok(changed(pool, backend, Admin::Up, weight))
    }

    async fn set_concurrency(
        &self,
        pool: &str,
        backend: &str,
        limit: u32,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} concurrency {limit}"));
        self.backend(pool, backend).await
    }

    async fn put_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: AddBackend,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} at {:?} weight {}", wish.address, wish.weight));
        *self.weight.lock().unwrap() = wish.weight;
        self.backend(pool, backend).await
    }

    async fn remove_backend(
        &self,
        pool: &str,
        backend: &str,
        now: bool,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} removed, now: {now}"));
        *self.weight.lock().unwrap() = 0;
        self.backend(pool, backend).await
    }

    async fn backend(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        if pool == "missing" {
            return Err(OperateError::NotFound("there is no pool `missing`".into()));
        }
        let weight = *self.weight.lock().unwrap();
        Ok(changed(pool, backend, Admin::Up, weight))
    }
}

impl PlanOperator for Recorder {
    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        let (mode, pinned) = *self.decided.lock().unwrap();
        let scaling = PlannedScaling {
            mode,
            pinned,
            backends: 1,
            min: 1,
            max: 9,
            action: "hold".into(),
            count: 0,
            size: None,
            leaving: Vec::new(),
            reason: "idle".into(),
            in_use: None,
        };
        let web = PlannedPool { name: "web".into(), weights: Vec::new(), scaling: Some(scaling) };
        Ok(PlanStatus {
            next,
            leader: None,
            term: 1,
            generation: 1,
            age_seconds: None,
            period_seconds: 1.0,
            store_failing_seconds: None,
            pools: vec![web],
            nodes: Vec::new(),
        })
    }

    async fn wish(&self, _: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        *self.decided.lock().unwrap() = (wish.mode, wish.count);
        self.plan(false).await
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        let node = NodeStatus {
            name: "n".into(),
            kind: "node".into(),
            state: "alive".into(),
            version: "0".into(),
            capacity: 1.0,
            claimed_capacity: None,
            admin: *self.node_admin.lock().unwrap(),
            standing: None,
            shares: BTreeMap::new(),
            cpu_percent: None,
            machine_cpu_percent: None,
            memory_percent: None,
            net_percent: None,
            l1: None,
            l2: None,
            keep: None,
            report_age_seconds: None,
            applied: None,
            refused_total: 0,
        };
        Ok(Nodes { leader: None, controllers: Vec::new(), nodes: vec![node] })
    }

    async fn set_node_admin(&self, _: &str, admin: Admin) -> Result<Nodes, OperateError> {
        *self.node_admin.lock().unwrap() = admin;
        self.nodes().await
    }

    async fn node_history(
        &self,
        node: &str,
        _: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        Ok(NodeHistory { node: node.into(), points: Vec::new() })
    }
}

impl ClusterOperator for Recorder {
    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        let nodes = self.nodes().await?;
        Ok(ClusterMembers {
            cluster: "test".into(),
            authority: "a".into(),
            controller: "c".into(),
            leader: nodes.leader,
            term: None,
            controllers: nodes.controllers,
            instructions: None,
            instructions_age_seconds: None,
            period_seconds: 1.0,
            store_failing_seconds: None,
            store_failure: None,
            problem: None,
            members: nodes.nodes,
            elastic: Vec::new(),
            counts: BTreeMap::new(),
        })
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        Ok(ClusterTokens { tokens: self.tokens.lock().unwrap().clone() })
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        let mut tokens = self.tokens.lock().unwrap();
        let listed = token(&format!("t{}", tokens.len()), wanted);
        tokens.push(listed.clone());
        Ok(TokenMade { token: SECRET_OF_A_TOKEN.into(), listed })
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        let mut tokens = self.tokens.lock().unwrap();
        let place = tokens.iter().position(|token| token.id == id);
        let place = place.ok_or_else(|| OperateError::NotFound("no such token".into()))?;
        tokens.remove(place);
        Ok(())
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        let node = JoinedNode {
            name: "n".into(),
            key: "k".into(),
            joined_at_unix_seconds: 1,
            certificate_until_unix_seconds: 2,
            token: "t".into(),
            evicted: *self.evicted.lock().unwrap(),
        };
        Ok(JoinedNodes { nodes: vec![node], controllers: vec!["c".into()] })
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        if node == "c" {
            return Err(OperateError::Conflict("c is a controller".into()));
        }
        *self.evicted.lock().unwrap() = true;
        Ok(())
    }
}

impl PacketOperator for Recorder {
    async fn explain_flow(&self, _: FlowQuestion) -> Result<FlowAnswer, OperateError> {
        Ok(FlowAnswer {
            verdict: "passed".into(),
            vip: None,
            pool: None,
            backend: None,
            address: None,
            by: None,
            reason: None,
            digest: None,
            pinned_to: None,
            why: "no VIP has this address".into(),
        })
    }

    async fn pins(&self) -> Result<Pins, OperateError> {
        Ok(Pins { pins: self.pins.lock().unwrap().clone() })
    }

    async fn add_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.pins.lock().unwrap().push(pin.clone());
        Ok(pin)
    }

    async fn move_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        let mut pins = self.pins.lock().unwrap();
        let there = pins.iter_mut().find(|there| there.flow == pin.flow);
        let there = there.ok_or_else(|| OperateError::NotFound("no such pin".into()))?;
        there.backend.clone_from(&pin.backend);
        Ok(pin)
    }

    async fn remove_pin(&self, key: PinKey) -> Result<Pins, OperateError> {
        let mut pins = self.pins.lock().unwrap();
        pins.retain(|pin| pin.flow != key.flow);
        Ok(Pins { pins: pins.clone() })
    }
}

impl WhyOperator for Recorder {
    async fn explain(&self, _: WhyQuestion) -> Result<WhyAnswer, OperateError> {
        let step = WhyStep { level: "session".into(), text: "it does".into(), backend: None };
        let (subject, outcome) = ("a request".into(), "nowhere".into());
        Ok(WhyAnswer { subject, outcome, backend: None, steps: vec![step] })
    }
}

impl SliceOperator for Recorder {
    async fn streams(&self) -> Result<Streams, OperateError> {
        Ok(Streams { streams: vec![self.stream()] })
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        Ok(SlicePlan {
            stream: stream.into(),
            moves: Vec::new(),
            reason: SlicePlanReason::NothingMeasured,
            explanation: "no load was measured".into(),
            workers: Vec::new(),
            hot: Vec::new(),
            imbalance: 0.0,
        })
    }

    async fn move_slices(&self, _: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.note(format!("move {:?} to {}", wish.slices, wish.worker));
        let pinned = self.slice_pin.lock().unwrap().clone().filter(|worker| *worker != wish.worker);
        if let Some(worker) = pinned.filter(|_| !wish.force) {
            return Err(OperateError::Conflict(format!("slice 3 is pinned to {worker}")));
        }
        let (there, refused, unpinned) = (Vec::new(), Vec::new(), Vec::new());
        Ok(SliceMoves { handovers: vec![1], moving: wish.slices, there, refused, unpinned })
    }

    async fn resize_stream(&self, _: &str, slices: u32) -> Result<StreamStatus, OperateError> {
        self.note(format!("resize to {slices}"));
        Ok(self.stream())
    }

    async fn drain_worker(
        &self,
        _: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.note(format!("{worker} drained {drained}"));
        *self.drained.lock().unwrap() = drained;
        Ok(self.stream())
    }

    async fn pin_slice(
        &self,
        _: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.note(format!("slice {slice} on {worker:?}"));
        *self.slice_pin.lock().unwrap() = worker;
        Ok(self.stream())
    }
}

/// The join token that [`Recorder`] returns.
pub const SECRET_OF_A_TOKEN: &str = "eqp1.t.secret.fingerprint";

/// A join token as listed.
pub fn token(id: &str, wanted: TokenWanted) -> ClusterToken {
    ClusterToken {
        id: id.into(),
        created_at_unix_seconds: 1,
        expires_at_unix_seconds: 1 + wanted.time_to_live_seconds,
        single_use: wanted.single_use,
        node: wanted.node,
        used_by: None,
    }
}

/// An API over `operator` without access rules on loopback, and without an audit file.
pub fn open_api(operator: &Arc<Recorder>) -> Api<Recorder> {
    let audit = Audit::open(&AuditTarget::Log).unwrap();
    Api::new(Arc::clone(operator), Arc::default(), Arc::new(audit), Arc::default())
}

/// The tokens of [`guarded_api`] and their names.
pub const TOKENS: [(&str, Role, &str); 3] = [
    ("viewer", Role::Read, "read-0123456789abcdef0123456789abcdef"),
    ("ci", Role::Operate, "operate-0123456789abcdef0123456789abcdef"),
    ("root", Role::Admin, "admin-0123456789abcdef0123456789abcdef"),
];

/// A policy with the tokens in [`TOKENS`].
pub fn policy() -> Policy {
    let token = |(name, role, text): (&str, Role, &str)| ApiToken {
        name: name.into(),
        role,
        digest: TokenDigest::of(text.as_bytes()),
    };
    Policy { tokens: TOKENS.map(token).to_vec(), failures_per_minute: 1000, ..Policy::default() }
}

/// An API with `policy` that audits changes in `file`.
pub fn guarded_api(operator: &Arc<Recorder>, policy: Policy, file: PathBuf) -> Api<Recorder> {
    let target = AuditTarget::File { path: file.clone(), bytes_max: 1 << 20 };
    let audit = Arc::new(Audit::open(&target).unwrap());
    AUDITS.lock().unwrap().push((file, Arc::clone(&audit)));
    Api::new(Arc::clone(operator), Arc::new(Gate::new(policy)), audit, Arc::default())
}

/// The audit logs by file.
static AUDITS: Mutex<Vec<(PathBuf, Arc<Audit>)>> = Mutex::new(Vec::new());

/// The lines of an audit log, after all of them are written.
pub fn audited(file: &Path) -> Vec<serde_json::Value> {
    for (_, audit) in AUDITS.lock().unwrap().iter().filter(|(path, _)| path == file) {
        // An answer waits for its line only for a bounded time.
        audit.finish(equipoise_testkit::PATIENCE);
    }
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Serves the API on a free port of loopback.
pub async fn on_loopback(api: Api<Recorder>) -> SocketAddr {
    let listener = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, api, std::future::pending()));
    address
}

/// A complete answer.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answered {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request over `stream`. `start` is method and path, `headers` are lines.
pub async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    start: &str,
    headers: &[String],
    body: &str,
) -> Answered {
    let mut request = format!("{start} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    headers.iter().for_each(|line| request.push_str(&format!("{line}\r\n")));
    if !body.is_empty() {
        let length = body.len();
        request.push_str("Content-Type: application/json\r\n");
        request.push_str(&format!("Content-Length: {length}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A refused body may be cut off by a reset after the answer.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap();
    Answered { status, head: head.to_owned(), body: body.to_owned() }
}

/// The header with a token.
pub fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

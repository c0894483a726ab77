//! Nodes in node mode, each with its own engine and application.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part of this")]

pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use equipoise_core::load::{ClassRules, PerClass, RequestClass, Shares};
use equipoise_core::{SchedulerKind, Weight};
use equipoise_dispatch::{DelegationKeys, NodeDoor, Transport};
use equipoise_session::config::{
    BackendConfig, FrontDoor, NodeMode, PassiveHealth, PoolConfig, PoolOptions, Protocol,
    SessionConfig, UpstreamTls,
};
use equipoise_session::registry::{
    DispatchStatus, FrontDoorStatus, Registry, RegistryHandle, RegistryOptions,
};
use equipoise_session::{Engine, EngineOptions, LogOutput, MemoryBound};
use equipoise_testkit::{Client, HttpBackend, ReservedPort, Response, eventually, free_port};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// The header by which a target recognizes delegated requests.
pub(crate) const MARKER: &str = "equipoise-delegated";

/// A node with its application.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    pub(crate) registry: RegistryHandle,
    pub(crate) runtime: Runtime,
    thread: Option<JoinHandle<()>>,
    _port: Option<ReservedPort>,
}

/// A node that is not started yet.
pub(crate) struct Plan {
    pub(crate) config: SessionConfig,
    port: Option<ReservedPort>,
}

pub(crate) fn pool(name: &str, backends: &[(&str, SocketAddr)]) -> PoolConfig {
    let backend = |(name, address): &(&str, SocketAddr)| BackendConfig {
        backup: false,
        name: (*name).into(),
        address: *address,
        place: Default::default(),
        weight: Weight::DEFAULT,
        concurrency: None,
    };
    PoolConfig {
        name: name.into(),
        scheduler: SchedulerKind::WeightedRandom,
        backends: backends.iter().map(backend).collect(),
        concurrency: Default::default(),
        options: PoolOptions { connect_timeout: Duration::from_secs(20), ..PoolOptions::default() },
        health: None,
        passive: PassiveHealth { failures: 0, ..PassiveHealth::default() },
        slow_start: None,
        weights_by_load: false,
        starts_within: None,
    }
}

pub(crate) fn keys(secret: &str) -> DelegationKeys {
    DelegationKeys::new(vec![secret.repeat(16).into_bytes()]).expect("it is long enough")
}

/// The same share for every class.
pub(crate) fn of_all(keep: f64) -> PerClass<f64> {
    PerClass::from_fn(|_| keep)
}

fn node_mode(node: NodeDoor) -> NodeMode {
    let (peers, peers_tls) = (node.peers.clone(), node.transport.incoming().cloned());
    NodeMode { peers, peers_tls, delegation: Arc::new(node) }
}

impl Plan {
    /// A node that keeps everything, with the application `app` and a reserved port.
    pub(crate) fn new(name: &str, app: &HttpBackend) -> Plan {
        let port = free_port();
        let mut front = FrontDoor::new(port.address(), Protocol::Http, "app");
        front.dispatch = Some(node_mode(NodeDoor {
            peers: "app.peers".into(),
            node: name.into(),
            keys: keys("s"),
            transport: Transport::Plain,
            classes: ClassRules::default(),
            keep: of_all(1.0),
        }));
        let pools = vec![pool("app", &[("app", app.address())]), pool("app.peers", &[])];
        Plan { config: SessionConfig { pools, front_doors: vec![front] }, port: Some(port) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.config.front_doors[0].listen
    }

    /// Listens on another loopback address than clients use.
    pub(crate) fn apart(mut self, number: u8) -> Plan {
        self.config.front_doors[0].listen.set_ip([127, 0, 0, number].into());
        self
    }

    pub(crate) fn node(mut self, change: impl FnOnce(&mut NodeDoor)) -> Plan {
        let mode = self.config.front_doors[0].dispatch.as_mut().expect("it is in node mode");
        let mut node = NodeDoor::of(&*mode.delegation).expect("the dispatch level's").clone();
        change(&mut node);
        *mode = node_mode(node);
        self
    }

    pub(crate) fn keep(self, keep: f64) -> Plan {
        self.node(|node| node.keep = of_all(keep))
    }

    pub(crate) fn peers(mut self, peers: &[(&str, SocketAddr)]) -> Plan {
        self.config.pools[1].backends = pool("app.peers", peers).backends;
        self
    }

    /// Sets the transport between the node and its peers.
    pub(crate) fn travels(mut self, transport: Transport) -> Plan {
        self.config.pools[1].options.tls = transport.outgoing().cloned().map(UpstreamTls::Peer);
        self.node(|node| node.transport = transport)
    }

    pub(crate) fn start(self) -> Node {
        let (events, failing) = mpsc::channel(64);
        let engine = Engine::start(EngineOptions {
            threads: 1,
            instance: "edge".into(),
            events,
            access_log: LogOutput::Stream(Box::new(std::io::sink())),
            access_log_format: Default::default(),
            traces: None,
            challenges: Default::default(),
            inherited: Default::default(),
            memory: MemoryBound::NONE,
            is_held: false,
        });
        let options = RegistryOptions { threads: 1, scheduler_seed: 1, jitter_seed: 1 };
        let (owner, registry) =
            Registry::new(options, engine.expect("threads can be started"), failing);
        let runtime = || Builder::new_current_thread().enable_all().build().expect("a runtime");
        let thread = std::thread::spawn(move || {
            runtime().block_on(async { owner.run().await.stop(Duration::ZERO).await });
        });
        let (address, runtime) = (self.address(), runtime());
        runtime.block_on(registry.apply(self.config)).expect("the port is reserved");
        Node { address, registry, runtime, thread: Some(thread), _port: self.port }
    }
}

impl Node {
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        Client::exchange(self.address, request).expect("a whole response")
    }

    pub(crate) fn status(&self) -> FrontDoorStatus {
        let status = self.runtime.block_on(self.registry.status()).expect("it runs");
        status.front_doors.into_iter().next().expect("it has one")
    }

    /// The reasons of failed requests to a peer, with their numbers.
    pub(crate) fn failures(&self, peer: &str) -> Vec<(equipoise_session::Reason, u64)> {
        let status = self.runtime.block_on(self.registry.status()).expect("it runs");
        let pool = status.pools.iter().find(|pool| &*pool.name == "app.peers");
        let backends = &pool.expect("it is there").backends;
        let peer = backends.iter().find(|it| &*it.name == peer).expect("it is there");
        peer.failures.clone()
    }

    pub(crate) fn dispatch(&self) -> DispatchStatus {
        self.status().dispatch.expect("it is in node mode")
    }

    /// The numbers of requests that arrived, were delegated, and were accepted and not returned.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let dispatch = self.dispatch();
        let sum = |of: fn(&equipoise_session::registry::ClassCounts) -> u64| {
            RequestClass::ALL.iter().map(|class| of(&dispatch.classes[*class])).sum()
        };
        (sum(|it| it.arrived), sum(|it| it.delegated), sum(|it| it.taken - it.handed_back))
    }

    /// Checks the counts. Waits, as some change after the answer.
    #[track_caller]
    pub(crate) fn assert_counts(&self, expected: (u64, u64, u64)) {
        assert!(eventually(|| self.counts() == expected), "{:?}", self.counts());
    }

    /// Checks the refusals and losses. Waits, as counters may change after the answer.
    #[track_caller]
    pub(crate) fn assert_drops(&self, expected: &[(equipoise_session::Reason, u64)]) {
        eventually(|| self.status().drops == expected);
        assert_eq!(self.status().drops, expected);
    }

    pub(crate) fn goes_by(&self, keep: PerClass<f64>, weights: &[(&str, f64)]) {
        self.goes_by_and_refuses(keep, weights, PerClass::default());
    }

    pub(crate) fn goes_by_and_refuses(
        &self,
        keep: PerClass<f64>,
        weights: &[(&str, f64)],
        refuse: PerClass<f64>,
    ) {
        let weights = weights.iter().map(|(name, weight)| (name.to_string(), *weight)).collect();
        let shares = Some(Arc::new(Shares { keep, weights, refuse }));
        self.runtime.block_on(self.registry.set_shares(shares)).expect("it runs");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.runtime.block_on(self.registry.stop());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn get(target: &str) -> String {
    with_lines("GET", target, "")
}

pub(crate) fn with_lines(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}

pub(crate) fn post(target: &str, body: &str) -> String {
    let length = format!("Content-Length: {}\r\n", body.len());
    format!("{}{body}", with_lines("POST", target, &length))
}

/// The signed lines of a request and its marker, as its last receiver got them: the lines for a
/// replay.
pub(crate) fn signed_lines(app: &HttpBackend) -> String {
    let names = [MARKER, "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"];
    let line = |name: &&str| seen(app, name).first().map(|value| format!("{name}: {value}\r\n"));
    names.iter().filter_map(line).collect()
}

/// The values of a header in the last request of an application.
pub(crate) fn seen(app: &HttpBackend, name: &str) -> Vec<String> {
    let requests = app.requests();
    let last = requests.last().expect("it was asked");
    let same = last.head.headers.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    same.map(|(_, value)| value.clone()).collect()
}

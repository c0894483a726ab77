//! Simulated nodes: each joins, reports and follows as a real one does, by the same client. The CPU
//! that it reports follows the weight that instructions give to its backend, so that a plan comes
//! back in reports. Its backend answers requests.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_cluster::{
    ControllerAddress, JoinToken, NodeClient, NodeOptions, StateFolder, TokenSource,
};
use equipoise_controller::{Instructions, NodeReport};
use equipoise_core::load::Reported;
use equipoise_netns::Host;
use tokio::net::TcpListener;

use crate::traffic;

/// Initial CPU, per cent, of a node with a backend of the mean weight.
pub(crate) const CPU_AT_FIRST: u64 = 30;
/// The mean weight by load (`WEIGHT_MEAN` of the planner).
const WEIGHT_MEAN: f64 = 100.0;

/// How many nodes, and of which cluster.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) nodes: usize,
    pub(crate) per_machine: usize,
    pub(crate) period: Duration,
    pub(crate) controller: ControllerAddress,
    pub(crate) token: JoinToken,
    pub(crate) folder: PathBuf,
}

/// A weight that instructions gave the watched backend, when they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    pub(crate) weight: u16,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// CPU of node number 0 at the mean weight, per cent.
    cpu_of_first: AtomicU64,
    /// At the last node: instructions, with the weight of the first node's backend.
    heard: Mutex<Vec<Heard>>,
    problems: Mutex<Vec<String>>,
}

/// Nodes that run until this is dropped.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say but a panic, which it printed.
            let _ = thread.join();
        }
    }
}

pub(crate) fn node(number: usize) -> String {
    format!("node-{number}")
}

pub(crate) fn is_simulated(name: &str) -> bool {
    name.starts_with("node-")
}

pub(crate) fn backend(number: usize) -> String {
    format!("backend-{number}")
}

/// The port of a node's backend, on all addresses of its machine.
pub(crate) fn port(number: usize) -> u16 {
    8000 + number as u16
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Each machine has a thread for its nodes.
    pub(crate) fn start(machines: &[Host], wanted: Wanted) -> Result<Fleet> {
        let shared = Arc::new(Shared::default());
        shared.cpu_of_first.store(CPU_AT_FIRST, Relaxed);
        let mut threads = Vec::new();
        for (at, machine) in machines.iter().enumerate() {
            let first = at * wanted.per_machine;
            let numbers = first..(first + wanted.per_machine).min(wanted.nodes);
            let (wanted, shared) = (wanted.clone(), Arc::clone(&shared));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            threads.push(machine.spawn_thread(move || {
                let ended = runtime.block_on(nodes(numbers, &wanted, &shared));
                if let Err(error) = ended {
                    lock(&shared.problems).push(format!("{error:#}"));
                }
            }));
        }
        Ok(Fleet { shared, threads })
    }

    /// From now on what the first node does takes so much of its CPU, per cent, at the mean weight.
    pub(crate) fn set_cpu_of_first(&self, cpu: u64) {
        self.shared.cpu_of_first.store(cpu, Relaxed);
    }

    /// Messages about the first node's backend that the last node received, in order.
    pub(crate) fn heard(&self) -> Vec<Heard> {
        lock(&self.shared.heard).clone()
    }

    pub(crate) fn problems(&self) -> String {
        lock(&self.shared.problems).join("\n")
    }
}

/// The nodes of one machine, each with its own phase within the period.
async fn nodes(
    numbers: std::ops::Range<usize>,
    wanted: &Wanted,
    shared: &Arc<Shared>,
) -> Result<()> {
    let mut clients = Vec::new();
    for number in numbers {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port(number))).await;
        tokio::spawn(traffic::serve(listener.context("a backend's port")?));
        let name = node(number);
        let folder = StateFolder::new(wanted.folder.join(&name));
        let token = Some(TokenSource::Given(wanted.token.clone()));
        let controllers = vec![wanted.controller.clone()];
        let name = name.parse().context("a node's name")?;
        let client = NodeClient::start(NodeOptions::new(name, controllers, token, folder));
        if number + 1 == wanted.nodes {
            tokio::spawn(listen(client.instructions(), Arc::clone(shared)));
        }
        clients.push((number, client));
    }
    let begin = tokio::time::Instant::now();
    for turn in 0_u32.. {
        for (at, (number, client)) in clients.iter().enumerate() {
            let phase = wanted.period.mul_f64(at as f64 / clients.len() as f64);
            tokio::time::sleep_until(begin + wanted.period * turn + phase).await;
            if shared.stop.load(Relaxed) {
                return Ok(());
            }
            let cpu = if *number == 0 { shared.cpu_of_first.load(Relaxed) } else { CPU_AT_FIRST };
            let weight = weight(&client.instructions().borrow(), *number);
            let cpu = cpu as f64 * weight.map_or(1.0, |weight| f64::from(weight) / WEIGHT_MEAN);
            client.report(&report(cpu.min(100.0), client));
            note(client, *number, shared);
        }
    }
    Ok(())
}

/// Without a link's speed, as on most virtual machines: load is CPU and memory.
fn report(cpu: f64, client: &NodeClient) -> NodeReport {
    NodeReport {
        version: env!("CARGO_PKG_VERSION").to_string(),
        capacity: 2.0,
        load: Some(Reported { cpu, memory: 30.0, net: None }),
        applied: client.status().edition,
        ..NodeReport::default()
    }
}

/// Why one has not joined, once.
fn note(client: &NodeClient, number: usize, shared: &Shared) {
    if let Some(problem) = client.status().certificate_problem {
        let problem = format!("{}: {problem}", node(number));
        let mut problems = lock(&shared.problems);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

async fn listen(
    mut instructions: tokio::sync::watch::Receiver<Arc<Instructions>>,
    shared: Arc<Shared>,
) {
    while instructions.changed().await.is_ok() {
        let newest = Arc::clone(&instructions.borrow_and_update());
        if let Some(weight) = weight(&newest, 0) {
            lock(&shared.heard).push(Heard { at: Instant::now(), weight });
        }
    }
}

/// The weight that instructions give the backend on a node.
fn weight(instructions: &Instructions, number: usize) -> Option<u16> {
    let pool = instructions.plan.pools.get("web")?;
    pool.weights.get(&backend(number)).map(|one| one.weight.get())
}

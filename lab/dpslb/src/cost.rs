//! CPU time of an item at the client, at the worker and at its program, beside plain DDS; and what
//! a worker and a client cost that wait.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape, next_domain};
use crate::offering::Offering;
use crate::overhead::{self, Process};
use crate::trace;
use crate::usage;

/// The processor of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A thread of a program with plain DDS.
    Plain,
    /// A thread of the worker's.
    Thread,
    /// A program that the worker gives items to.
    Program,
}

const KINDS: [Kind; 3] = [Kind::Plain, Kind::Thread, Kind::Program];

/// Of an item, microseconds.
#[derive(Debug, Clone, Copy)]
struct Spent {
    worker: f64,
    program: f64,
    client: f64,
}

/// Kinds take turns, on fresh processes each.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let mut spent = KINDS.map(|_| Vec::new());
    for repetition in 0..case.count("repetitions")? {
        for turn in 0..KINDS.len() {
            let kind = (turn + repetition) % KINDS.len();
            spent[kind].push(items(case, KINDS[kind])?);
        }
    }
    let [plain, thread, program] = spent;
    let of = |spent: &[Spent], what: fn(&Spent) -> f64| {
        median(&spent.iter().map(what).collect::<Vec<_>>())
    };
    let (worker, client) = (of(&plain, |one| one.worker), of(&plain, |one| one.client));
    row.figure("plain_worker_us", worker)
        .figure("plain_client_us", client)
        .figure("worker_added_us", of(&thread, |one| one.worker) - worker)
        .figure("client_added_us", of(&thread, |one| one.client) - client)
        .figure("program_worker_us", of(&program, |one| one.worker))
        .figure("program_us", of(&program, |one| one.program))
        .figure("program_added_us", of(&program, |one| one.worker + one.program) - worker);
    Ok(())
}

/// Where items go to.
enum Workers {
    Plain(Process),
    Slices(Box<Cluster>),
}

impl Workers {
    fn start(case: &Case, kind: Kind, domain: &mut u32) -> Result<Self> {
        if kind == Kind::Plain {
            *domain = next_domain();
            return Ok(Self::Plain(overhead::plain_worker(case, *domain)?));
        }
        let cost = Duration::from_micros(case.count("item_us")? as u64);
        let shape = Shape::new(case.count("slices")? as u32);
        let shape = Shape { cost, program: kind == Kind::Program, logs: false, ..shape };
        let cluster = Cluster::with_workers(shape, &["one"])?;
        *domain = cluster.stream.domain;
        Ok(Self::Slices(Box::new(cluster)))
    }

    fn pid(&self) -> Result<u32> {
        match self {
            Self::Plain(process) => Ok(process.id()),
            Self::Slices(cluster) => {
                let (_, pid) = cluster.pids().into_iter().next().context("no worker")?;
                Ok(pid)
            }
        }
    }
}

fn items(case: &Case, kind: Kind) -> Result<Spent> {
    let mut domain = 0;
    let workers = Workers::start(case, kind, &mut domain)?;
    let mut client = Offering::start(case, domain, kind == Kind::Plain)?;
    let worker = workers.pid()?;
    let mut pids = vec![worker, client.id()];
    if kind == Kind::Program {
        pids.push(usage::child(worker)?);
    }
    // Caches are cold, and readers new.
    client.wait_for(case.count("items")? as u64 / 4)?;
    let spent_before = read(&pids)?;
    let threads_before = [worker, client.id()].map(usage::threads);
    let first = client.answered()?;
    let items = client.wait_for(first + case.count("items")? as u64)? - first;
    let spent = read(&pids)?;
    let us = |which: usize| match (spent.get(which), spent_before.get(which)) {
        (Some(now), Some(before)) => (*now - *before).as_secs_f64() * 1e6 / items as f64,
        _ => 0.0,
    };
    let threads = [worker, client.id()].map(usage::threads);
    for (name, (before, now)) in
        ["worker", "client"].into_iter().zip(threads_before.iter().zip(&threads))
    {
        let (Ok(before), Ok(now)) = (before, now) else { continue };
        for (thread, time) in now {
            let added = *time - before.get(thread).copied().unwrap_or_default();
            trace::cost(&format!("{kind:?} {name} {thread}"), added / items as u32);
        }
    }
    Ok(Spent { worker: us(0), client: us(1), program: us(2) })
}

fn read(pids: &[u32]) -> Result<Vec<Duration>> {
    pids.iter().map(|pid| usage::cpu(*pid)).collect()
}

/// CPU time and waits a second of processes that have nothing to do.
pub(crate) fn measure_idle(case: &Case, row: &mut Row) -> Result<()> {
    let kind = match case.word("doer")? {
        "program" => Kind::Program,
        _ => Kind::Thread,
    };
    let mut domain = 0;
    let workers = Workers::start(case, kind, &mut domain)?;
    let mut client = Offering::start(case, domain, false)?;
    let pids = [workers.pid()?, client.id(), std::process::id()];
    // One item of each slice has come, so that each reader has had something.
    client.wait_for(0)?;
    std::thread::sleep(Duration::from_secs(4));
    let look = || -> Result<Vec<(Duration, u64)>> {
        pids.iter().map(|pid| Ok((usage::cpu(*pid)?, usage::waits(*pid)?))).collect()
    };
    let (before, begun) = (look()?, Instant::now());
    std::thread::sleep(Duration::from_secs(case.count("seconds")? as u64));
    let (now, seconds) = (look()?, begun.elapsed().as_secs_f64());
    for (at, name) in ["worker", "client", "controller"].into_iter().enumerate() {
        let cpu = (now[at].0 - before[at].0).as_secs_f64() * 1e3 / seconds;
        let waits = (now[at].1 - before[at].1) as f64 / seconds;
        row.figure(&format!("{name}_cpu_ms"), cpu).figure(&format!("{name}_waits"), waits);
    }
    Ok(())
}

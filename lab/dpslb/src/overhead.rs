//! The cost of the slice level beside plain Cyclone DDS with the same work: the paper's Figures 29
//! and 30.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_dds::items::{DATA_ITEM, DataItem, REPLY, Reply};
use equipoise_dds::{Domain, Participant, Qos};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape, next_domain, stream};
use crate::image;
use crate::load::{Answered, Load, NEVER, Offer, Outcome};
use crate::times::{at_ms, mean_ms};
use crate::trace::unix_ns;
use crate::usage;

/// Both in turn, several times; each time on fresh processes.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let [mut rates, mut delays, mut medians, mut of_worker, mut of_client] =
        [const { [Vec::new(), Vec::new()] }; 5];
    for repetition in 0..case.count("repetitions")? {
        // Each is first in turn.
        let order = if repetition % 2 == 0 { [SLICES, PLAIN] } else { [PLAIN, SLICES] };
        for kind in order {
            let (outcome, cpu) = if kind == SLICES { with_slices(case)? } else { plain(case)? };
            of_worker[kind].push(cpu.worker_us);
            of_client[kind].push(cpu.client_us);
            // The first are slower: caches, and frequencies of the CPU.
            let warm = outcome.answers.len() / 10;
            let answers = &outcome.answers[warm..];
            let (first, last) = (answers[0].at, answers[answers.len() - 1].at);
            rates[kind].push(answers.len() as f64 / (last - first).as_secs_f64());
            let mut all: Vec<_> = answers.iter().map(|answer| answer.delay).collect();
            delays[kind].push(mean_ms(&all));
            medians[kind].push(at_ms(&mut all, 500));
        }
    }
    let cpu_added = |[slices, plain]: &[Vec<f64>; 2]| median(slices) - median(plain);
    let ratio = |[slices, plain]: &[Vec<f64>; 2]| median(slices) / median(plain);
    row.figure("plain_items_per_second", median(&rates[1]))
        .figure("slices_items_per_second", median(&rates[0]))
        .figure("plain_delay_ms", median(&delays[1]))
        .figure("slices_delay_ms", median(&delays[0]))
        .figure("plain_delay_ms_median", median(&medians[1]))
        .figure("slices_delay_ms_median", median(&medians[0]))
        .figure("throughput_overhead_percent", 100.0 * (1.0 - ratio(&rates)))
        .figure("delay_overhead_percent", 100.0 * (ratio(&delays) - 1.0))
        .figure("delay_added_us", 1e3 * (median(&delays[0]) - median(&delays[1])))
        .figure("plain_worker_cpu_us", median(&of_worker[PLAIN]))
        .figure("worker_cpu_added_us", cpu_added(&of_worker))
        .figure("plain_client_cpu_us", median(&of_client[PLAIN]))
        .figure("client_cpu_added_us", cpu_added(&of_client));
    Ok(())
}

const SLICES: usize = 0;
const PLAIN: usize = 1;

/// CPU time, user and system, of a worker's process and of the client's, which with slices is the
/// controller's, too.
struct Meter {
    worker: u32,
    at: [Duration; 2],
    answered: u64,
}

/// Of an item.
struct Cpu {
    worker_us: f64,
    client_us: f64,
}

impl Meter {
    fn start(worker: u32, answered: u64) -> Result<Self> {
        Ok(Self { worker, at: Self::read(worker)?, answered })
    }

    fn read(worker: u32) -> Result<[Duration; 2]> {
        Ok([usage::cpu(worker)?, usage::cpu(std::process::id())?])
    }

    fn stop(&self, answered: u64) -> Result<Cpu> {
        let items = answered.saturating_sub(self.answered).max(1) as f64;
        let now = Self::read(self.worker)?;
        let [worker_us, client_us] =
            [0, 1].map(|of| 1e6 * now[of].saturating_sub(self.at[of]).as_secs_f64() / items);
        Ok(Cpu { worker_us, client_us })
    }
}

/// Items for each second; infinite: as many under way as the window allows.
fn rate(case: &Case) -> Result<f64> {
    let rate = case.number("items_per_second")?;
    Ok(if rate > 0.0 { rate } else { f64::INFINITY })
}

fn offer(case: &Case) -> Result<Offer> {
    let message = image::of_bytes(case.count("item_bytes")?);
    let (slices, window) = (case.count("slices")? as u32, case.count("window")?);
    Ok(Offer { items_per_second: rate(case)?, message, slices, window, resend: NEVER })
}

fn with_slices(case: &Case) -> Result<(Outcome, Cpu)> {
    let offer = offer(case)?;
    let cost = Duration::from_micros(case.count("item_us")? as u64);
    let shape =
        Shape { cost, share: case.number("share")?, logs: false, ..Shape::new(offer.slices) };
    let cluster = Cluster::with_workers(shape, &["one"])?;
    let (_, worker) = cluster.pids().into_iter().next().context("no worker")?;
    let load = Load::start(&cluster.stream, offer)?;
    let items = case.count("items")? as u64;
    let meter = Meter::start(worker, load.answered())?;
    while load.answered() < items {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cpu = meter.stop(load.answered())?;
    Ok((load.finish()?, cpu))
}

/// Ends with this.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn of(child: Child) -> Self {
        Self(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn plain(case: &Case) -> Result<(Outcome, Cpu)> {
    let domain = next_domain();
    let worker = plain_worker(case, domain)?;
    let items = case.count("items")? as u64;
    let mut meter = None;
    let start = || {
        meter = Some(Meter::start(worker.id(), 0)?);
        Ok(())
    };
    let outcome = publish(domain, &offer(case)?, start, |answered| answered < items)?;
    let cpu = meter.context("it was not begun")?.stop(outcome.answers.len() as u64)?;
    Ok((outcome, cpu))
}

/// The process that does items with plain DDS.
pub(crate) fn plain_worker(case: &Case, domain: u32) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["plain", "--name", "plain"])
        .args(["--domain", &domain.to_string()])
        .args(["--cost-us", &case.count("item_us")?.to_string()])
        .args(["--share", &case.number("share").unwrap_or(0.0).to_string()])
        .stdin(Stdio::piped());
    Ok(Process(command.spawn().context("a worker does not start")?))
}

/// As [`Load`] does it, but what was published is not kept, and goes into no group. `start` is
/// called when all have met, and `goes_on` with the number of replies.
pub(crate) fn publish(
    domain: u32,
    offer: &Offer,
    start: impl FnOnce() -> Result<()>,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<Outcome> {
    let stream = stream(domain, 0);
    let participant = Participant::new(Domain::open(domain, &stream.dds)?, &[])?;
    let writer = participant.topic(&stream.items, &DATA_ITEM)?.writer(&Qos::default())?;
    let replies = participant.topic(&stream.replies, &REPLY)?.reader(&Qos::default())?;
    let waitset = participant.waitset()?;
    waitset.attach(&replies, 0)?;
    while writer.matched()? == 0 || replies.writers()?.is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(500));
    start()?;
    let mut outcome = Outcome::default();
    let (mut samples, mut cdr, mut published) = (Vec::new(), Vec::new(), Vec::new());
    let (mut due, mut last) = (0.0, Instant::now());
    while goes_on(outcome.answers.len() as u64) {
        let now = Instant::now();
        due = (due + now.duration_since(last).as_secs_f64() * offer.items_per_second).min(2000.0);
        last = now;
        while due >= 1.0 && published.len() - outcome.answers.len() < offer.window {
            let id = outcome.published;
            let slice_id = (id % i64::from(offer.slices)) as i32;
            let item = DataItem {
                slice_id,
                id,
                sender_id: 1,
                timestamp: unix_ns(),
                message: &offer.message,
            };
            item.encode(&mut cdr);
            published.push(Instant::now());
            writer.write(&cdr)?;
            outcome.published += 1;
            due -= 1.0;
        }
        waitset.wait(Duration::from_micros(500), &mut Vec::new())?;
        replies.take(&mut samples)?;
        let at = Instant::now();
        for sample in samples.drain(..) {
            let id = Reply::decode(sample.cdr())?.id;
            let since = published.get(id as usize).context("a reply to nothing")?;
            outcome.answers.push(Answered { id, at, delay: at - *since });
        }
    }
    Ok(outcome)
}

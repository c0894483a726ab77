//! Compares equipoise's session level with HAProxy and nginx: CPU time per request, latency,
//! memory.
//!
//! `Stage` holds what stands for the whole run (files, upstream), `Bench` makes one measurement,
//! `main` goes through the rows and interleaves the proxies. README.md says how the figures come
//! about.

mod child;
mod closed;
mod handshakes;
mod http;
mod idle;
mod manifest;
mod measure;
mod open;
mod options;
mod peers;
mod place;
mod process;
mod quota;
mod report;
mod rows;
mod sample;
mod slow;
mod stage;
mod streams;
mod sys;
mod tls;

use std::fs::{self, File};
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::manifest::Manifest;
use crate::measure::Bench;
use crate::options::Options;
use crate::peers::Peers;
use crate::place::Placement;
use crate::report::RowReport;
use crate::rows::{Load, Row};
use crate::sample::{Sample, Summary};
use crate::stage::Stage;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let rows = rows::select(&options.rows)?;
    let peers = Peers::find(options)?;
    sys::catch_interrupts()?;
    sys::adopt_orphans()?;
    let placement = Placement::choose(options.pin, &sys::allowed_cpus()?);
    let manifest = Manifest::collect(options, &peers, &placement);
    let mut results = Results::create(options, &manifest)?;
    results.say(&introduction(&manifest, &placement, options))?;
    if let Some(load) = &placement.load {
        // The open loop and the idle connections are driven from this thread.
        sys::stay_on(load)?;
    }
    let stage = Stage::build(peers, placement, idle_connections(options)?)?;
    let bench = Bench { stage: &stage, options };
    let mut saturation = None;
    for row in &rows {
        let notes = run_row(bench, row, &mut saturation, &mut results)?;
        let samples = results.of_row(row);
        let text = RowReport { row, samples: &samples, notes: &notes }.text();
        results.say(&text)?;
    }
    println!(
        "Every measurement: {}/runs.csv; circumstances: manifest.json beside it",
        options.out.display()
    );
    Ok(())
}

/// Measures every proxy in `row`, interleaved: A B C, B C A, C A B. The notes for the reader.
fn run_row(
    bench: Bench<'_>,
    row: &Row,
    saturation: &mut Option<f64>,
    results: &mut Results,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let mut proxies = row.proxies.to_vec();
    proxies.retain(|&proxy| match bench.stage.absence(proxy, row) {
        Some(absence) => {
            notes.push(absence);
            false
        }
        None => true,
    });
    if let Load::Open { percent } = row.load {
        let rate = match *saturation {
            Some(rate) => rate,
            None => *saturation.insert(bench.saturation(row)?),
        };
        notes.push(format!(
            "HAProxy's saturation rate is {rate:.0} requests/s: {percent} % of it were offered, as Poisson \
             arrivals; latency counts from the arrival"
        ));
    }
    if row.load == Load::Idle {
        let connections = bench.stage.idle_connections;
        notes.push(format!(
            "{connections} connections; the kernel's memory for sockets is not in these figures"
        ));
    }
    for repetition in 1..=bench.options.repetitions() {
        for &proxy in &proxies {
            let progress = format!("{} {repetition}: {}", row.name, proxy.name());
            eprintln!("{progress}");
            results.add(bench.measure(proxy, row, repetition, *saturation)?)?;
        }
        let turn = proxies.len().min(1);
        proxies.rotate_left(turn);
    }
    let samples = results.of_row(row);
    notes.extend(report::doubts(row, &samples));
    if row.name == "http-1k" {
        let haproxy = samples.iter().filter(|sample| sample.proxy == "haproxy");
        *saturation = Summary::of(haproxy.filter_map(|s| s.requests_per_second)).map(|s| s.median);
    }
    Ok(notes)
}

fn introduction(manifest: &Manifest, placement: &Placement, options: &Options) -> String {
    let mut text = format!(
        "{}\n{placement}\n{} repetitions of {} s, {} connections, one proxy thread; medians\n",
        manifest.headline(),
        options.repetitions(),
        options.seconds(),
        options.connections
    );
    let load = manifest.load_before();
    if load > 0.5 {
        text +=
            &format!("Others are at work on this machine (load average {load}): expect noise\n");
    }
    text
}

/// As many idle connections as asked for, or as the limit of open files allows.
fn idle_connections(options: &Options) -> Result<u32> {
    let wanted = stage::open_files_for(options.idle_connections);
    let limit = sys::raise_open_files(wanted).context("reading the limit of open files")?;
    if limit >= wanted {
        return Ok(options.idle_connections);
    }
    let spare = stage::open_files_for(0);
    let possible = u32::try_from(limit.saturating_sub(spare)).unwrap_or(u32::MAX);
    anyhow::ensure!(
        possible >= 100,
        "the limit of open files is {limit}, too low for any row: raise it with `ulimit -n {wanted}`"
    );
    eprintln!(
        "{possible} idle connections instead of {}: the limit of open files is {limit}; `ulimit -n {wanted}` \
         would do",
        options.idle_connections
    );
    Ok(possible)
}

/// The samples so far, and the files that they go to at once: an interrupted run keeps what it
/// measured.
struct Results {
    samples: Vec<Sample>,
    runs: File,
    table: File,
}

impl Results {
    fn create(options: &Options, manifest: &Manifest) -> Result<Results> {
        let folder = &options.out;
        let place = || format!("--out: writing to {}", folder.display());
        fs::create_dir_all(folder).with_context(place)?;
        let text = serde_json::to_string_pretty(manifest)?;
        fs::write(folder.join("manifest.json"), text + "\n").with_context(place)?;
        let mut runs = File::create(folder.join("runs.csv")).with_context(place)?;
        writeln!(runs, "{}", Sample::CSV_HEADER)?;
        let table = File::create(folder.join("table.txt")).with_context(place)?;
        Ok(Results { samples: Vec::new(), runs, table })
    }

    fn add(&mut self, sample: Sample) -> Result<()> {
        writeln!(self.runs, "{}", sample.csv())?;
        self.samples.push(sample);
        Ok(())
    }

    fn say(&mut self, text: &str) -> Result<()> {
        println!("{text}");
        writeln!(self.table, "{text}")?;
        Ok(())
    }

    fn of_row(&self, row: &Row) -> Vec<Sample> {
        self.samples.iter().filter(|sample| sample.row == row.name).cloned().collect()
    }
}

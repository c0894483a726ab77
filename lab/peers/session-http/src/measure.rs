//! One measurement: start the proxy, warm it up, load it, read the clocks before and after.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::options::Options;
use crate::peers::Proxy;
use crate::process::CpuTime;
use crate::rows::{Load, Row};
use crate::sample::{Sample, Summary, quantile};
use crate::stage::{Server, Stage};
use crate::{closed, handshakes, idle, open, streams};

/// Measurements of HAProxy's saturation rate when no row has found it.
const SATURATION_RUNS: u32 = 3;

/// Parameters of one measurement.
#[derive(Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) options: &'a Options,
}

impl Bench<'_> {
    /// `saturation` is HAProxy's, requests per second; only open loads ask for it.
    pub(crate) fn measure(
        &self,
        proxy: Proxy,
        row: &Row,
        repetition: u32,
        saturation: Option<f64>,
    ) -> Result<Sample> {
        let mut server = self.stage.start(proxy, row)?;
        let measured = match row.load {
            Load::Closed | Load::Streams { .. } | Load::Calls { .. } => self.closed(&server, row),
            Load::Handshakes { resumed } => self.handshakes(&server, row, resumed),
            Load::Open { percent } => {
                let saturation = saturation.context("an open load without a saturation rate")?;
                self.open(&server, row, repetition, saturation * f64::from(percent) / 100.0)
            }
            Load::Idle => self.idle(&server, row),
        };
        // A proxy that died explains a failed measurement better than the failure does.
        server.check_alive()?;
        let sample = measured.with_context(|| format!("{} in row {}", proxy.name(), row.name))?;
        Ok(Sample { row: row.name, proxy: proxy.name(), repetition, ..sample })
    }

    /// The requests per second of HAProxy under as much load as there is, the median of several
    /// runs.
    pub(crate) fn saturation(&self, row: &Row) -> Result<f64> {
        let runs = (1..=SATURATION_RUNS).map(|run| {
            let row = Row { load: Load::Closed, ..*row };
            let sample = self.measure(Proxy::Haproxy, &row, run, None)?;
            sample.requests_per_second.context("no rate")
        });
        let rates = runs.collect::<Result<Vec<_>>>()?;
        Ok(Summary::of(rates).context("no rate")?.median)
    }

    fn closed(&self, server: &Server, row: &Row) -> Result<Sample> {
        let (stage, path, options) = (self.stage, row.object.path, self.options);
        let run = |seconds| match row.load {
            Load::Streams { per_connection } | Load::Calls { per_connection } => {
                let what = (row.load, row.object);
                streams::run(stage, server, what, options, per_connection, seconds)
            }
            _ => closed::run(stage, server, path, options, seconds),
        };
        run(row.warm_up_seconds)?;
        let clocks = Clocks::read(self.stage, server)?;
        let outcome = run(self.options.seconds())?;
        let sample = clocks.since(outcome.requests, outcome.seconds)?;
        Ok(Sample {
            errors: Some(outcome.errors),
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            p999_us: outcome.p999_us,
            ..sample
        })
    }

    fn handshakes(&self, server: &Server, row: &Row, resumed: bool) -> Result<Sample> {
        let tls = row.tls.context("handshakes without TLS")?;
        let run = |seconds| {
            let (folder, time) = (self.stage.certificates(), Duration::from_secs(seconds));
            handshakes::run(server.address, row.object, folder, tls, resumed, time)
        };
        run(row.warm_up_seconds)?;
        let clocks = Clocks::read(self.stage, server)?;
        let outcome = run(self.options.seconds())?;
        let times = &outcome.latencies_ns;
        let sample = clocks.since(times.len() as u64, outcome.elapsed.as_secs_f64())?;
        Ok(Sample {
            errors: Some(0),
            p50_us: quantile_us(times, 0.5),
            p99_us: quantile_us(times, 0.99),
            p999_us: quantile_us(times, 0.999),
            ..sample
        })
    }

    fn open(&self, server: &Server, row: &Row, repetition: u32, rate: f64) -> Result<Sample> {
        let plan = open::Plan {
            connections: self.options.connections as usize,
            requests_per_second: rate,
            time: Duration::from_secs(self.options.seconds()),
            seed: self.options.seed.wrapping_add(u64::from(repetition)),
        };
        let warm_up = open::Plan { time: Duration::from_secs(row.warm_up_seconds), ..plan };
        open::run(server.address, row.object.path, warm_up)?;
        let clocks = Clocks::read(self.stage, server)?;
        let outcome = open::run(server.address, row.object.path, plan)?;
        let answered = outcome.latencies_ns.len() as u64;
        let sample = clocks.since(answered, outcome.elapsed.as_secs_f64())?;
        Ok(Sample {
            errors: Some(outcome.unanswered),
            p50_us: quantile_us(&outcome.latencies_ns, 0.5),
            p99_us: quantile_us(&outcome.latencies_ns, 0.99),
            p999_us: quantile_us(&outcome.latencies_ns, 0.999),
            delay_p99_us: quantile_us(&outcome.delays_ns, 0.99),
            ..sample
        })
    }

    fn idle(&self, server: &Server, row: &Row) -> Result<Sample> {
        // Buffers that busy connections need are there before the idle ones come.
        closed::run(self.stage, server, row.object.path, self.options, row.warm_up_seconds)?;
        let connections = self.stage.idle_connections;
        let memory = idle::run(server, row.object, connections)?;
        Ok(Sample {
            idle_connections: Some(connections),
            private_bytes: Some(memory.private),
            resident_bytes: Some(memory.resident),
            ..Sample::default()
        })
    }
}

/// The share-th value of ascending nanoseconds, in microseconds.
fn quantile_us(values: &[u64], share: f64) -> Option<f64> {
    quantile(values, share).map(|ns| ns as f64 / 1000.0)
}

/// CPU clocks of proxy and upstream at one moment.
struct Clocks<'a> {
    servers: [&'a Server; 2],
    times: [CpuTime; 2],
}

impl<'a> Clocks<'a> {
    fn read(stage: &'a Stage, proxy: &'a Server) -> Result<Clocks<'a>> {
        let servers = [proxy, &stage.upstream];
        Ok(Clocks { servers, times: Clocks::times(servers)? })
    }

    fn times(servers: [&Server; 2]) -> Result<[CpuTime; 2]> {
        Ok([CpuTime::of(&servers[0].pids)?, CpuTime::of(&servers[1].pids)?])
    }

    /// CPU per request since the clocks were read.
    fn since(&self, requests: u64, seconds: f64) -> Result<Sample> {
        ensure!(
            requests > 0,
            "no request was answered: see whether others keep the CPUs of load and upstream busy"
        );
        let now = Clocks::times(self.servers)?;
        let [proxy, upstream] = [now[0] - self.times[0], now[1] - self.times[1]];
        let per_request = |time_us: f64| Some(time_us / requests as f64);
        Ok(Sample {
            requests: Some(requests),
            seconds: Some(seconds),
            requests_per_second: Some(requests as f64 / seconds),
            cpu_us: per_request(proxy.total_us()),
            user_us: per_request(proxy.user_us()),
            system_us: per_request(proxy.system_us()),
            busy: Some(proxy.total_us() / 1e6 / seconds),
            upstream_cpu_us: per_request(upstream.total_us()),
            ..Sample::default()
        })
    }
}

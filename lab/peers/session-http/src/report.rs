//! The report for people: an aligned table per row, with the goal beside the result.

use std::fmt::Write;

use crate::peers::Proxy;
use crate::rows::{Figure, Goal, Load, Row};
use crate::sample::{Sample, Summary};

/// The samples of one row.
pub(crate) struct RowReport<'a> {
    pub(crate) row: &'a Row,
    pub(crate) samples: &'a [Sample],
    /// Notes that the reader needs for this row.
    pub(crate) notes: &'a [String],
}

impl RowReport<'_> {
    /// Title, table, goal and notes.
    pub(crate) fn text(&self) -> String {
        let row = self.row;
        let mut text = format!("{}: {}\n", row.name, row.title);
        let table = if row.load == Load::Idle { self.memory_table() } else { self.request_table() };
        text.push_str(&aligned(&table));
        let _ = writeln!(text, "  goal: {}", self.verdict());
        if row.load != Load::Idle
            && let Some(share) = self.upstream_share()
        {
            let first = title(self.first());
            let _ = writeln!(text, "  backend: CPU per request {share:.2} of that behind {first}");
        }
        for note in self.notes.iter().cloned().chain(self.error_notes()) {
            let _ = writeln!(text, "  note: {note}");
        }
        text
    }

    fn request_table(&self) -> Vec<Vec<String>> {
        let to_first = format!("to {}", title(self.first()));
        let header = [
            "proxy",
            "CPU us/request",
            "min-max",
            "user",
            "system",
            &to_first,
            "min-max",
            "requests/s",
            "busy",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "upstream CPU us/request",
        ];
        let mut table = vec![header.map(str::to_owned).to_vec()];
        for proxy in self.proxies() {
            let proxy = proxy.name();
            let median = |value: fn(&Sample) -> Option<f64>, decimals| {
                self.summary(proxy, value).map_or_else(dash, |s| format!("{:.decimals$}", s.median))
            };
            let ratio = self.ratios(proxy, self.row.goal.figure());
            table.push(vec![
                proxy.to_owned(),
                median(|s| s.cpu_us, 2),
                self.summary(proxy, |s| s.cpu_us).map_or_else(dash, |s| range(s, 2)),
                median(|s| s.user_us, 2),
                median(|s| s.system_us, 2),
                ratio.map_or_else(dash, |s| format!("{:.2}", s.median)),
                ratio.map_or_else(dash, |s| range(s, 2)),
                median(|s| s.requests_per_second, 0),
                median(|s| s.busy.map(|busy| busy * 100.0), 0) + " %",
                median(|s| s.p50_us, 0),
                median(|s| s.p99_us, 0),
                median(|s| s.p999_us, 0),
                median(|s| s.upstream_cpu_us, 2),
            ]);
        }
        table
    }

    fn memory_table(&self) -> Vec<Vec<String>> {
        let header = ["proxy", "private bytes/connection", "min-max", "resident bytes/connection"];
        let mut table = vec![header.map(str::to_owned).to_vec()];
        for proxy in self.proxies() {
            let proxy = proxy.name();
            let private = self.summary(proxy, |s| s.private_bytes);
            let resident = self.summary(proxy, |s| s.resident_bytes);
            table.push(vec![
                proxy.to_owned(),
                private.map_or_else(dash, |s| format!("{:.0}", s.median)),
                private.map_or_else(dash, |s| range(s, 0)),
                resident.map_or_else(dash, |s| format!("{:.0}", s.median)),
            ]);
        }
        table
    }

    /// The goal in words, and whether equipoise reached it.
    pub(crate) fn verdict(&self) -> String {
        let (goal, at_most) = match self.row.goal {
            Goal::ShareOfFirst { figure, at_most } => {
                let of = match figure {
                    Figure::CpuPerRequest => "CPU per request",
                    Figure::LatencyP99 => "p99",
                    Figure::MemoryPerConnection => "memory",
                };
                (format!("at most {at_most:.2} of {}'s {of}", title(self.first())), at_most)
            }
            Goal::Bytes { at_most } => {
                (format!("at most {at_most:.0} bytes beyond the kernel's"), at_most)
            }
        };
        let judge = |proxy: Proxy| match self.reached(proxy) {
            None => format!("{} was not measured", proxy.name()),
            Some(value) => {
                let verdict = if value <= at_most { "met" } else { "MISSED" };
                // A row with one equipoise need not name it.
                let name = if proxy == Proxy::Equipoise { "" } else { proxy.name() };
                format!("{name} {verdict} ({value:.2})").trim_start().to_owned()
            }
        };
        let verdicts: Vec<String> = self.row.judged().map(judge).collect();
        format!("{goal}: {}", verdicts.join(", "))
    }

    /// The figure of the row's goal.
    fn reached(&self, proxy: Proxy) -> Option<f64> {
        let summary = match self.row.goal {
            Goal::ShareOfFirst { figure, .. } => self.ratios(proxy.name(), figure),
            Goal::Bytes { .. } => self.summary(proxy.name(), |s| s.private_bytes),
        };
        summary.map(|summary| summary.median)
    }

    /// The proxy with which the others are compared.
    fn first(&self) -> Proxy {
        self.row.proxies[0]
    }

    fn proxies(&self) -> Vec<Proxy> {
        let measured =
            |proxy: &Proxy| self.samples.iter().any(|sample| sample.proxy == proxy.name());
        self.row.proxies.iter().copied().filter(measured).collect()
    }

    fn summary(&self, proxy: &str, value: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        Summary::of(self.samples.iter().filter(|sample| sample.proxy == proxy).filter_map(value))
    }

    /// The figure as a share of the first proxy's in the same repetition: a disturbance changes
    /// both alike.
    fn ratios(&self, proxy: &str, figure: Figure) -> Option<Summary> {
        self.paired(proxy, |sample| sample.figure(figure))
    }

    fn upstream_share(&self) -> Option<f64> {
        let last = self.row.judged().last()?;
        self.paired(last.name(), |sample| sample.upstream_cpu_us).map(|s| s.median)
    }

    fn paired(&self, proxy: &str, value: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        let first = self.first().name();
        let of_first = |repetition| {
            self.samples.iter().find(|s| s.proxy == first && s.repetition == repetition)
        };
        let own = self.samples.iter().filter(|sample| sample.proxy == proxy);
        Summary::of(
            own.filter_map(|sample| Some(value(sample)? / value(of_first(sample.repetition)?)?)),
        )
    }

    fn error_notes(&self) -> Vec<String> {
        let failed = |proxy: &Proxy| -> u64 {
            let own = self.samples.iter().filter(|sample| sample.proxy == proxy.name());
            own.filter_map(|sample| sample.errors).sum()
        };
        let proxies = self.proxies().into_iter().filter(|proxy| failed(proxy) > 0);
        proxies
            .map(|proxy| {
                format!(
                    "{}: {} failed or unanswered requests: do not quote this row",
                    proxy.name(),
                    failed(&proxy)
                )
            })
            .collect()
    }
}

/// Reasons to doubt a row's figures although nothing failed.
pub(crate) fn doubts(row: &Row, samples: &[Sample]) -> Vec<String> {
    let median = |value: fn(&Sample) -> Option<f64>| {
        Summary::of(samples.iter().filter_map(value)).map_or(0.0, |summary| summary.median)
    };
    let mut doubts = Vec::new();
    if let Load::Open { .. } = row.load
        && median(|s| s.delay_p99_us) > 0.5 * median(|s| s.p99_us)
    {
        doubts.push(
            "requests left late by more than half of p99: the CPU of the load was short, or all connections \
             were waiting for the proxy; see send_delay_us_p99 in runs.csv"
                .to_owned(),
        );
    }
    let haproxy = samples.iter().filter(|s| s.proxy == Proxy::Haproxy.name());
    let busy = Summary::of(haproxy.filter_map(|s| s.busy)).map_or(1.0, |summary| summary.median);
    if !matches!(row.load, Load::Open { .. } | Load::Idle) && row.quota.is_none() && busy < 0.9 {
        let percent = busy * 100.0;
        doubts.push(format!(
            "HAProxy was busy {percent:.0} % of the time: load or upstream, not the proxy, set the requests/s"
        ));
    }
    doubts
}

/// How a sentence names a proxy.
fn title(proxy: Proxy) -> &'static str {
    if proxy == Proxy::Haproxy { "HAProxy" } else { proxy.name() }
}

fn dash() -> String {
    "-".to_owned()
}

fn range(summary: Summary, decimals: usize) -> String {
    format!("{:.decimals$}-{:.decimals$}", summary.least, summary.greatest)
}

/// The first column to the left, the others to the right.
fn aligned(table: &[Vec<String>]) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| table.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut text = String::new();
    for line in table {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ROWS;

    fn sample(proxy: &'static str, repetition: u32, cpu_us: f64) -> Sample {
        let cpu_us = Some(cpu_us);
        Sample { proxy, repetition, cpu_us, errors: Some(0), ..Sample::default() }
    }

    #[test]
    fn each_concurrency_limit_is_compared_with_no_limit() {
        let samples = [
            sample("equipoise-none", 1, 10.0),
            sample("equipoise-1000", 1, 10.1),
            sample("equipoise-learnt", 1, 11.0),
        ];
        let row = ROWS.iter().find(|row| row.name == "limit-1k").unwrap();
        let verdict = RowReport { row, samples: &samples, notes: &[] }.verdict();
        let expected = "at most 1.02 of equipoise-none's CPU per request: equipoise-1000 met (1.01), equipoise-learnt \
                        MISSED (1.10)";
        assert_eq!(verdict, expected);
    }

    fn verdict(samples: &[Sample]) -> String {
        RowReport { row: &ROWS[0], samples, notes: &[] }.verdict()
    }

    #[test]
    fn the_ratio_uses_samples_of_the_same_repetition() {
        // The machine was twice as slow in the second repetition.
        let samples = [
            sample("haproxy", 1, 10.0),
            sample("equipoise", 1, 8.0),
            sample("haproxy", 2, 20.0),
            sample("equipoise", 2, 16.0),
        ];
        assert_eq!(verdict(&samples), "at most 0.85 of HAProxy's CPU per request: met (0.80)");
    }

    #[test]
    fn a_missed_goal_is_reported_as_missed() {
        let samples = [sample("haproxy", 1, 10.0), sample("equipoise", 1, 9.0)];
        assert!(verdict(&samples).ends_with("MISSED (0.90)"));
    }

    #[test]
    fn a_goal_without_equipoise_samples_is_not_measured() {
        assert!(verdict(&[sample("haproxy", 1, 10.0)]).ends_with("not measured"));
    }

    #[test]
    fn failed_requests_are_listed_in_the_report() {
        let failed = Sample { errors: Some(2), ..sample("nginx", 1, 10.0) };
        let text = RowReport { row: &ROWS[0], samples: &[failed], notes: &[] }.text();
        assert!(text.contains("nginx: 2 failed or unanswered requests"), "{text}");
    }
}

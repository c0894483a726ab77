//! Closed-loop load: wrk.

use anyhow::{Context, Result, ensure};

use crate::child::{Child, Setting};
use crate::options::Options;
use crate::stage::{Server, Stage};

/// The report of wrk or h2load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Connections that failed or timed out, and responses above 399.
    pub(crate) errors: u64,
    /// `None`: the load does not say.
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
}

/// Runs a new wrk for `seconds` against `server`.
pub(crate) fn run(
    stage: &Stage,
    server: &Server,
    path: &str,
    options: &Options,
    seconds: u64,
) -> Result<Outcome> {
    let mut command = stage.wrk();
    command
        .arg(format!("-t{}", options.wrk_threads))
        .arg(format!("-c{}", options.connections))
        .arg(format!("-d{seconds}s"))
        .arg(format!("{}://{}{path}", server.scheme(), server.address));
    let setting = Setting { cpus: stage.placement.load.clone(), open_files: 8192, quota: None };
    let mut wrk = Child::start(command, &setting, &stage.load_log())?;
    let status = wrk.wait()?;
    let output = wrk.output();
    ensure!(status.success(), "wrk ended with {status}:\n{output}");
    let outcome = parse(&output).with_context(|| {
        format!("wrk printed something else than configs/report.lua:\n{output}")
    })?;
    if outcome.errors > 0 {
        // wrk's own "Socket errors" and "Non-2xx" lines tell which kind: the sample has only the
        // sum.
        eprintln!("{output}");
    }
    Ok(outcome)
}

fn parse(output: &str) -> Option<Outcome> {
    let line = output.lines().find_map(|line| line.strip_prefix("measured "))?;
    let value = |name: &str| -> Option<f64> {
        let field = line.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        field.strip_prefix('=')?.parse().ok()
    };
    let errors: Option<f64> =
        ["connect", "read", "write", "status", "timeout"].map(value).into_iter().sum();
    Some(Outcome {
        requests: value("requests")? as u64,
        seconds: value("duration_us")? / 1e6,
        errors: errors? as u64,
        p50_us: Some(value("p50_us")?),
        p99_us: Some(value("p99_us")?),
        p999_us: Some(value("p999_us")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reports_line_is_found_among_wrks_own() {
        let output = "Running 1s test\nmeasured requests=10 duration_us=2000000 connect=0 read=1 write=0 \
                      status=1 timeout=1 p50_us=3 p99_us=5 p999_us=9\nRequests/sec: 5\n";
        let expected = Outcome {
            requests: 10,
            seconds: 2.0,
            errors: 3,
            p50_us: Some(3.0),
            p99_us: Some(5.0),
            p999_us: Some(9.0),
        };
        assert_eq!(parse(output), Some(expected));
        assert_eq!(parse("Running 1s test\n"), None);
    }
}

//! Closed-loop load over HTTP/2: h2load.

use anyhow::{Context, Result, ensure};

use crate::child::{Child, Setting};
use crate::closed::Outcome;
use crate::options::Options;
use crate::stage::{Server, Stage};

/// Runs a new h2load for `seconds` against `server`, which speaks TLS.
pub(crate) fn run(
    stage: &Stage,
    server: &Server,
    path: &str,
    options: &Options,
    per_connection: u32,
    seconds: u64,
) -> Result<Outcome> {
    let mut command = std::process::Command::new(&stage.peers.h2load);
    command
        .arg(format!("-t{}", options.wrk_threads))
        .arg(format!("-c{}", (options.connections / per_connection).max(1)))
        .arg(format!("-m{per_connection}"))
        .arg(format!("-D{seconds}"))
        .arg(format!("https://{}{path}", server.address));
    let setting = Setting { cpus: stage.placement.load.clone(), ..Setting::default() };
    let mut h2load = Child::start(command, &setting, &stage.load_log())?;
    let status = h2load.wait()?;
    let output = h2load.output();
    ensure!(status.success(), "h2load ended with {status}:\n{output}");
    ensure!(output.contains("Application protocol: h2"), "HTTP/2 was not chosen:\n{output}");
    parse(&output, seconds).with_context(|| format!("h2load printed something else:\n{output}"))
}

fn parse(output: &str, seconds: u64) -> Option<Outcome> {
    let line = |name: &str| output.lines().find_map(|line| line.strip_prefix(name));
    // "10 total, 12 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout"
    let count = |word: &str| -> Option<u64> {
        let mut counts = line("requests: ")?.split(", ");
        counts.find_map(|count| count.strip_suffix(word))?.trim().parse().ok()
    };
    Some(Outcome {
        requests: count("succeeded")?,
        seconds: seconds as f64,
        errors: count("failed")? + count("errored")? + count("timeout")?,
        // It prints means alone.
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_h2load_are_found() {
        let output = "finished in 2.00s, 5.00 req/s, 3.61MB/s\nrequests: 10 total, 12 started, 10 done, \
                      9 succeeded, 1 failed, 0 errored, 2 timeout\n";
        let expected = Outcome { requests: 9, seconds: 2.0, errors: 3, ..Outcome::default() };
        assert_eq!(parse(output, 2), Some(expected));
        assert_eq!(parse("starting benchmark...\n", 2), None);
    }
}

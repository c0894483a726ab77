//! Closed-loop load over HTTP/2: h2load.

use anyhow::{Context, Result, ensure};

use crate::child::{Child, Setting};
use crate::closed::Outcome;
use crate::options::Options;
use crate::rows::{Load, Object};
use crate::stage::{Server, Stage};

/// Runs a new h2load for `seconds` against `server`, which speaks TLS.
pub(crate) fn run(
    stage: &Stage,
    server: &Server,
    (load, object): (Load, Object),
    options: &Options,
    per_connection: u32,
    seconds: u64,
) -> Result<Outcome> {
    let mut command = std::process::Command::new(&stage.peers.h2load);
    command
        .arg(format!("-t{}", options.wrk_threads))
        .arg(format!("-c{}", (options.connections / per_connection).max(1)))
        .arg(format!("-m{per_connection}"))
        .arg(format!("-D{seconds}"));
    if matches!(load, Load::Calls { .. }) {
        let message = stage.message();
        command.args(["-H", "content-type: application/grpc", "-H", "te: trailers", "-d"]);
        command.arg(message);
    }
    command.arg(format!("https://{}{}", server.address, object.path));
    let setting = Setting { cpus: stage.placement.load.clone(), ..Setting::default() };
    let mut h2load = Child::start(command, &setting, &stage.load_log())?;
    let status = h2load.wait()?;
    let output = h2load.output();
    ensure!(status.success(), "h2load ended with {status}:\n{output}");
    ensure!(output.contains("Application protocol: h2"), "HTTP/2 was not chosen:\n{output}");
    let (outcome, body_bytes) = parse(&output, seconds)
        .with_context(|| format!("h2load printed something else:\n{output}"))?;
    // A refusal of gRPC has the status 200, and no message.
    let wanted = outcome.requests * object.length as u64;
    ensure!(body_bytes >= wanted, "{body_bytes} bytes of bodies, not {wanted}:\n{output}");
    Ok(outcome)
}

/// The counts, and the bytes of all responses' bodies.
fn parse(output: &str, seconds: u64) -> Option<(Outcome, u64)> {
    let line = |name: &str| output.lines().find_map(|line| line.strip_prefix(name));
    // "10 total, 12 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout"
    let count = |word: &str| -> Option<u64> {
        let mut counts = line("requests: ")?.split(", ");
        counts.find_map(|count| count.strip_suffix(word))?.trim().parse().ok()
    };
    // "traffic: 3.61MB (3788765) total, 39KB (39960) headers (...), 3.39MB (3552000) data"
    let traffic = line("traffic: ")?.strip_suffix(" data")?;
    let body_bytes = traffic.rsplit('(').next()?.strip_suffix(')')?.parse().ok()?;
    let outcome = Outcome {
        requests: count("succeeded")?,
        seconds: seconds as f64,
        errors: count("failed")? + count("errored")? + count("timeout")?,
        // It prints means alone.
        ..Outcome::default()
    };
    Some((outcome, body_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_h2load_are_found() {
        let output = "finished in 2.00s, 5.00 req/s, 3.61MB/s\nrequests: 10 total, 12 started, 10 done, \
                      9 succeeded, 1 failed, 0 errored, 2 timeout\ntraffic: 3.61MB (3788765) total, 39.02KB (39960) headers \
                      (space savings 97.42%), 3.39MB (3552000) data\n";
        let expected = Outcome { requests: 9, seconds: 2.0, errors: 3, ..Outcome::default() };
        assert_eq!(parse(output, 2), Some((expected, 3_552_000)));
        assert_eq!(parse("starting benchmark...\n", 2), None);
    }
}

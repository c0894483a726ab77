//! Runs and restarts the sample backends, which are child processes of this program.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use equipoise_basics::die_with_parent;

/// A sample backend to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Delay before each answer.
    pub(crate) delay_ms: u64,
}

/// Ports of a sample backend, which stay the same after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
}

/// A running sample backend.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) spec: Spec,
    pub(crate) ports: Ports,
    pub(crate) pid: u32,
    child: Child,
}

/// Longest time until a child reports that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

impl Sample {
    /// Starts a sample backend on free ports that it chooses.
    pub(crate) async fn start(spec: Spec) -> anyhow::Result<Sample> {
        let (child, pid, ports) = spawn(spec, Ports::default()).await?;
        Ok(Sample { spec, ports, pid, child })
    }
}

/// The supervised sample backends. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Supervisor(
    #[expect(dead_code, reason = "aborts its tasks when dropped")] JoinSet<()>,
);

impl Supervisor {
    /// Restarts each of `samples` whenever it ends.
    pub(crate) fn over(samples: Vec<Sample>) -> Supervisor {
        let mut tasks = JoinSet::new();
        for sample in samples {
            tasks.spawn(keep_alive(sample));
        }
        Supervisor(tasks)
    }
}

/// First pause before a restart; each further one is twice as long.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// Run time after which the pause starts again at the minimum.
const STABLE: Duration = Duration::from_secs(10);

async fn keep_alive(mut sample: Sample) {
    let Spec { name, .. } = sample.spec;
    let mut pause = BACK_OFF_MIN;
    loop {
        let started = Instant::now();
        match sample.child.wait().await {
            Ok(status) => tracing::warn!(name, pid = sample.pid, %status, "sample backend ended"),
            Err(error) => tracing::warn!(name, pid = sample.pid, %error, "sample backend lost"),
        }
        if started.elapsed() > STABLE {
            pause = BACK_OFF_MIN;
        }
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF_MAX);
            match spawn(sample.spec, sample.ports).await {
                Ok((child, pid, _)) => {
                    tracing::info!(name, pid, "sample backend restarted");
                    (sample.child, sample.pid) = (child, pid);
                    break;
                }
                Err(error) => tracing::warn!(name, "could not start the sample backend: {error:#}"),
            }
        }
    }
}

async fn spawn(spec: Spec, ports: Ports) -> anyhow::Result<(Child, u32, Ports)> {
    // Not `current_exe`: it is a file name, and another build may have replaced the file.
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command
        .arg("sample-backend")
        .args(["--name", spec.name, "--delay", &format!("{}ms", spec.delay_ms)])
        .args(["--http", &ports.http.to_string()])
        .args(["--tcp", &ports.tcp.to_string()])
        .args(["--udp", &ports.udp.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        // Ctrl-C reaches the terminal's whole process group, but the backends must outlive the
        // drain.
        .process_group(0);
    // The main thread starts the child, and ends only with the process.
    die_with_parent(command.as_std_mut());
    let mut child = command.spawn().context("cannot start a sample backend")?;
    let pid = child.id().context("a sample backend ended at once")?;
    let stdout = child.stdout.take().context("a sample backend has no standard output")?;
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout);
    match tokio::time::timeout(READY_TIMEOUT, stdout.read_line(&mut line)).await {
        Ok(read) => read.context("cannot read from a sample backend")?,
        Err(_) => bail!("sample backend `{}` was not ready within {READY_TIMEOUT:?}", spec.name),
    };
    let ports = parse_ready(&line)
        .with_context(|| format!("sample backend `{}` could not listen", spec.name))?;
    Ok((child, pid, ports))
}

fn parse_ready(line: &str) -> Option<Ports> {
    let mut words = line.strip_prefix("ready ")?.split_whitespace();
    let mut port = |prefix: &str| words.next()?.strip_prefix(prefix)?.parse().ok();
    Some(Ports { http: port("http=")?, tcp: port("tcp=")?, udp: port("udp=")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_of_a_child_yields_its_ports() {
        assert_eq!(
            parse_ready("ready http=1 tcp=2 udp=3\n"),
            Some(Ports { http: 1, tcp: 2, udp: 3 })
        );
        for bad in
            ["", "ready", "ready http=1 tcp=2", "http=1 tcp=2 udp=3", "ready http=x tcp=2 udp=3"]
        {
            assert_eq!(parse_ready(bad), None, "{bad}");
        }
    }
}

//! The exec driver: runs the operator's scripts with a JSON request on stdin and a JSON answer on
//! stdout.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::lock;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::driver::{Added, Ask, Driver, DriverError, Listed};
use crate::options::{OptionRefused, Refuse};
use crate::wire::{self, ANSWER_BYTES_MAX, AnswerError};

/// Time to read remaining output after a script has ended. Its background processes may keep the
/// pipe open for ever.
const AFTER_END: Duration = Duration::from_millis(200);
/// Number of bytes of stderr in an error, counted from its end.
const STDERR_BYTES: usize = 2048;

/// Options of the exec driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecOptions {
    /// Program and arguments that add a backend and answer `{"address": "IP:PORT", "id": "..."}`.
    /// They are run without a shell.
    pub add: Vec<String>,
    /// Program and arguments that remove a backend. Removing a backend that does not exist must
    /// succeed.
    pub remove: Vec<String>,
    /// Program and arguments that answer `{"backends": [{"name", "address", "id", "size"}]}`.
    /// `None`: the driver cannot list.
    pub list: Option<Vec<String>>,
    /// Environment variables, in addition to those of equipoise.
    pub environment: BTreeMap<String, String>,
    /// Working folder of the scripts; that of equipoise if `None`.
    pub folder: Option<PathBuf>,
    /// Longest run time of a script. A slower script is killed with its process group.
    pub timeout: Duration,
}

impl Default for ExecOptions {
    fn default() -> Self {
        ExecOptions {
            add: Vec::new(),
            remove: Vec::new(),
            list: None,
            environment: BTreeMap::new(),
            folder: None,
            timeout: Duration::from_secs(120),
        }
    }
}

impl ExecOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), OptionRefused> {
        let refuse = Refuse("exec");
        refuse.program("add", &self.add)?;
        refuse.program("remove", &self.remove)?;
        if let Some(list) = &self.list {
            refuse.program("list", list)?;
        }
        refuse.variables("environment", self.environment.iter())?;
        refuse.within("timeout", self.timeout, 100, 24 * 3600)
    }
}

/// A script's failure.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The script cannot be started.
    #[error("cannot run {program}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The script reported a failure.
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// The exit status.
        status: ExitStatus,
        /// The end of its stderr.
        stderr: String,
    },
    /// The script ran longer than the timeout.
    #[error("{program} was killed after {after:?} (timeout): {stderr}")]
    TimedOut {
        /// The program.
        program: String,
        /// The timeout.
        after: Duration,
        /// The end of its stderr.
        stderr: String,
    },
    /// The script wrote too much.
    #[error("{program} wrote more than {ANSWER_BYTES_MAX} bytes to stdout; logs belong on stderr")]
    TooLong {
        /// The program.
        program: String,
    },
    /// The script's answer is invalid.
    #[error("{program}")]
    Answer {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: AnswerError,
    },
}

/// The driver that runs the operator's scripts.
pub struct ExecDriver {
    pool: String,
    options: ExecOptions,
}

impl ExecDriver {
    /// Creates the driver of a pool.
    pub fn new(pool: &str, options: ExecOptions) -> ExecDriver {
        ExecDriver { pool: pool.to_string(), options }
    }

    /// Runs a script to its end. Returns its stdout.
    async fn run(&self, argv: &[String], question: &[u8]) -> Result<Vec<u8>, ExecError> {
        let program = || argv.first().cloned().unwrap_or_default();
        let failed = |source| ExecError::Start { program: program(), source };
        let mut command = Command::new(program());
        command.args(argv.get(1..).unwrap_or_default()).envs(&self.options.environment);
        if let Some(folder) = &self.options.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The script gets a process group of its own, so that a timeout kills all its processes.
        let mut child = command.process_group(0).spawn().map_err(failed)?;
        let group = Killed(child.id());
        let stdout = Output::read(child.stdout.take(), Keep::First(ANSWER_BYTES_MAX + 1));
        let stderr = Output::read(child.stderr.take(), Keep::Last(STDERR_BYTES));
        let after = self.options.timeout;
        let ended = timeout(after, tell_and_wait(&mut child, question)).await;
        let Ok(ended) = ended else {
            drop(group);
            let _ = child.wait().await;
            let stderr = stderr.text().await;
            return Err(ExecError::TimedOut { program: program(), after, stderr });
        };
        group.not();
        let status = ended.map_err(failed)?;
        let answer = stdout.bytes().await;
        if !status.success() {
            let stderr = stderr.text().await;
            return Err(ExecError::Failed { program: program(), status, stderr });
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(ExecError::TooLong { program: program() });
        }
        Ok(answer)
    }
}

async fn tell_and_wait(child: &mut Child, question: &[u8]) -> io::Result<ExitStatus> {
    if let Some(mut stdin) = child.stdin.take() {
        // A script need not read its request.
        let _ = stdin.write_all(question).await;
    }
    child.wait().await
}

/// Kills a process group when it is dropped: after a timeout, or when the caller gives up.
struct Killed(Option<u32>);

impl Killed {
    /// Disarms: the process group may continue.
    fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

enum Keep {
    First(usize),
    Last(usize),
}

/// Collects the output of a running script.
struct Output {
    read: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn read(from: Option<impl AsyncRead + Unpin + Send + 'static>, keep: Keep) -> Output {
        let read = Arc::new(Mutex::new(Vec::new()));
        let to = read.clone();
        let reader = tokio::spawn(async move {
            let Some(mut from) = from else { return };
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                let mut kept = lock(&to);
                kept.extend_from_slice(&buffer[..count]);
                match keep {
                    Keep::First(most) => kept.truncate(most),
                    Keep::Last(most) => {
                        let over = kept.len().saturating_sub(most);
                        kept.drain(..over);
                    }
                }
            }
        });
        Output { read, reader }
    }

    /// Returns the whole output, or the part that was read [`AFTER_END`] after the script's end.
    async fn bytes(mut self) -> Vec<u8> {
        let _ = timeout(AFTER_END, &mut self.reader).await;
        std::mem::take(&mut *lock(&self.read))
    }

    async fn text(self) -> String {
        let bytes = self.bytes().await;
        match String::from_utf8_lossy(&bytes).trim() {
            "" => "it wrote nothing to stderr".to_string(),
            text => text.to_string(),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[async_trait]
impl Driver for ExecDriver {
    fn outlives_us(&self) -> bool {
        true
    }

    async fn add(&self, ask: &Ask) -> Result<Added, DriverError> {
        let answer = self.run(&self.options.add, &wire::question("add", ask)).await?;
        let wrong = |source| ExecError::Answer { program: self.options.add[0].clone(), source };
        Ok(wire::added(&answer, &ask.name).map_err(wrong)?)
    }

    async fn remove(&self, ask: &Ask) -> Result<(), DriverError> {
        self.run(&self.options.remove, &wire::question("remove", ask)).await?;
        Ok(())
    }

    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        let Some(list) = &self.options.list else { return Ok(None) };
        let answer = self.run(list, &wire::list_question(&self.pool)).await?;
        let wrong = |source| ExecError::Answer { program: list[0].clone(), source };
        Ok(Some(wire::listed(&answer).map_err(wrong)?))
    }
}

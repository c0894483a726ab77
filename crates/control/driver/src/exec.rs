//! The operator's scripts: a question as JSON on stdin, an answer as JSON on stdout.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::driver::{Added, Ask, Driver, DriverError, Listed};
use crate::options::{OptionRefused, Refuse};
use crate::wire::{self, ANSWER_BYTES_MAX, AnswerError};

/// What a script's background processes may still write after it has ended; they may keep its output open for ever.
const AFTER_END: Duration = Duration::from_millis(200);
/// Bytes of stderr in an error: the last.
const STDERR_BYTES: usize = 2048;

/// Which scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecOptions {
    /// Program and arguments that add a backend and answer `{"address": "IP:PORT", "id": "..."}`. No shell reads them.
    pub add: Vec<String>,
    /// Those that remove one. One that is not there is to be no error.
    pub remove: Vec<String>,
    /// Those that answer `{"backends": [{"name", "address", "id", "size"}]}`, if there are any.
    pub list: Option<Vec<String>>,
    /// Variables beside ours.
    pub environment: BTreeMap<String, String>,
    /// Their working folder; ours if none.
    pub folder: Option<PathBuf>,
    /// A script that takes longer is killed, with its process group.
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
    /// Whether they can be followed.
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

/// A script that did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It cannot be started.
    #[error("cannot run {program}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It says that it failed.
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last that it wrote there.
        stderr: String,
    },
    /// It takes too long.
    #[error("{program} was killed after {after:?} (timeout): {stderr}")]
    TimedOut {
        /// The program.
        program: String,
        /// How long it had.
        after: Duration,
        /// The last that it wrote there.
        stderr: String,
    },
    /// It writes too much.
    #[error("{program} wrote more than {ANSWER_BYTES_MAX} bytes to stdout; logs belong on stderr")]
    TooLong {
        /// The program.
        program: String,
    },
    /// It answers something else.
    #[error("{program}")]
    Answer {
        /// The program.
        program: String,
        /// What is wrong.
        #[source]
        source: AnswerError,
    },
}

/// Asks scripts.
pub struct ExecDriver {
    pool: String,
    options: ExecOptions,
}

impl ExecDriver {
    /// For a pool.
    pub fn new(pool: &str, options: ExecOptions) -> ExecDriver {
        ExecDriver { pool: pool.to_string(), options }
    }

    /// Runs a script to its end. Gives what it wrote to stdout.
    async fn run(&self, argv: &[String], question: &[u8]) -> Result<Vec<u8>, ExecError> {
        let program = || argv.first().cloned().unwrap_or_default();
        let failed = |source| ExecError::Start { program: program(), source };
        let mut command = Command::new(program());
        command.args(argv.get(1..).unwrap_or_default()).envs(&self.options.environment);
        if let Some(folder) = &self.options.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that all of it can be killed when it takes too long.
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
        // A script that does not read what it is told is none of our business.
        let _ = stdin.write_all(question).await;
    }
    child.wait().await
}

/// Kills a process group when it is dropped: by a time-out, or when nobody waits any more.
struct Killed(Option<u32>);

impl Killed {
    /// The group may go on.
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

/// What a script writes, while it writes.
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
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// All of it, or what there is a moment after the script's end.
    async fn bytes(mut self) -> Vec<u8> {
        let _ = timeout(AFTER_END, &mut self.reader).await;
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
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

//! The process driver: backends are child processes on this machine.

mod account;
mod limits;
mod log;
mod options;
mod ports;
mod restarts;
mod supervisor;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::lock;
use tokio::sync::{mpsc, oneshot};

use crate::driver::{Added, Ask, Driver, DriverError, Event};
use crate::options::{OptionRefused, Refuse};
use crate::template::{Values, fill};
use account::Account;
use limits::Groups;
pub use limits::SizeLimit;
pub use options::{LogOptions, Ports, ProcessOptions};
use ports::PortAllotment;
use supervisor::{Job, Supervised};

/// Longest time from SIGKILL to the end of a process, which may be in an uninterruptible system
/// call.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts backends by a command template, and restarts them when they end.
pub struct ProcessDriver {
    pool: String,
    options: ProcessOptions,
    account: Option<Account>,
    groups: Option<Groups>,
    ports: Arc<PortAllotment>,
    running: Mutex<HashMap<String, Arc<Supervised>>>,
    events: mpsc::Sender<Event>,
}

/// A failure to start, run or stop a backend's process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The process cannot be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A resource of the process cannot be created.
    #[error("cannot prepare {what}")]
    Prepare {
        /// The resource.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No port is free.
    #[error(
        "no port of {first}-{last} is free on {address}: {used} are used by this pool, the others by other programs"
    )]
    NoPort {
        /// The address on which a port was sought.
        address: std::net::IpAddr,
        /// The range's first port.
        first: u16,
        /// The range's last port.
        last: u16,
        /// Number of ports that this pool's backends use.
        used: usize,
    },
    /// The process ended before it accepted connections.
    #[error("the process ended ({status}) before it accepted connections at {address}{tail}")]
    Ended {
        /// The exit status.
        status: ExitStatus,
        /// The address at which it should have listened.
        address: SocketAddr,
        /// The end of its output.
        tail: Tail,
    },
    /// The process ended after it had accepted connections.
    #[error("the process ended ({status}){tail}")]
    Died {
        /// The exit status.
        status: ExitStatus,
        /// The end of its output.
        tail: Tail,
    },
    /// The process did not accept connections in time.
    #[error(
        "the process accepts no connections at {address} after {after:?} (ready-timeout){tail}"
    )]
    NotReady {
        /// The address at which it should listen.
        address: SocketAddr,
        /// The time it had.
        after: Duration,
        /// The end of its output.
        tail: Tail,
    },
    /// The backend was removed before it was ready.
    #[error("the process was stopped before it was ready")]
    Stopped,
    /// The process still exists after SIGKILL.
    #[error("process {pid} still exists {after:?} after SIGKILL; it is stuck in the kernel")]
    Unkillable {
        /// The process id.
        pid: u32,
        /// Time since SIGKILL.
        after: Duration,
    },
}

/// The last lines of a process's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail(pub(crate) String);

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.trim() {
            "" => f.write_str("; it wrote nothing"),
            text => write!(f, "; it wrote: {text}"),
        }
    }
}

impl ProcessDriver {
    /// Creates the driver of a pool.
    ///
    /// # Errors
    /// [`OptionRefused`], also for a user, folder or control group that this machine does not have.
    pub fn open(
        pool: &str,
        options: ProcessOptions,
        events: mpsc::Sender<Event>,
    ) -> Result<ProcessDriver, OptionRefused> {
        options.check()?;
        let refuse = Refuse("process");
        let account =
            options.user.as_deref().map(|name| Account::find(name, &refuse)).transpose()?;
        if let Some(logs) = &options.logs {
            std::fs::create_dir_all(&logs.folder).map_err(|error| {
                let accepted = format!("a folder that can be made and written ({error})");
                refuse.with("logs", &logs.folder, accepted)
            })?;
        }
        let groups =
            if options.limits.is_empty() { None } else { Some(Groups::open(pool, &refuse)?) };
        let ports = Arc::new(PortAllotment::new(options.address, options.ports));
        let (pool, running) = (pool.to_string(), Mutex::new(HashMap::new()));
        Ok(ProcessDriver { pool, options, account, groups, ports, running, events })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Arc<Supervised>>> {
        lock(&self.running)
    }

    fn job(&self, ask: &Ask) -> Result<Job, ProcessError> {
        let port = self.ports.take()?;
        let address = port.address();
        let port_text = address.port().to_string();
        let ip_text = address.ip().to_string();
        let values = [
            ("address", ip_text.as_str()),
            ("name", ask.name.as_str()),
            ("pool", ask.pool.as_str()),
            ("port", port_text.as_str()),
            ("size", ask.size.as_deref().unwrap_or_default()),
        ];
        let values = Values(&values);
        let limit = self.options.limit_of(ask.size.as_deref());
        let group = match (&self.groups, limit) {
            (Some(groups), Some(limit)) => Some(groups.make(&ask.name, &limit)?),
            _ => None,
        };
        let log = match &self.options.logs {
            Some(options) => {
                let is_running = |name: &str| self.running().contains_key(name);
                let log = log::RotatedLog::open(options, &self.pool, &ask.name, is_running);
                let what = || format!("the log of {}", ask.name);
                Some(log.map_err(|source| ProcessError::Prepare { what: what(), source })?)
            }
            None => None,
        };
        let variable = |(name, value): (&String, &String)| (name.clone(), fill(value, &values));
        let folder =
            self.options.folder.as_ref().map(|path| fill(&path.to_string_lossy(), &values));
        Ok(Job {
            name: ask.name.clone(),
            argv: self.options.command.iter().map(|word| fill(word, &values)).collect(),
            environment: self.options.environment.iter().map(variable).collect(),
            inherit_environment: self.options.inherit_environment,
            folder: folder.map(Into::into),
            account: self.account,
            group,
            log,
            ready_timeout: self.options.ready_timeout,
            restart: self.options.restart,
            well_after: self.options.well_after,
            loop_after: self.options.loop_after,
            events: self.events.clone(),
            port,
        })
    }
}

#[async_trait]
impl Driver for ProcessDriver {
    fn outlives_us(&self) -> bool {
        false
    }

    async fn add(&self, ask: &Ask) -> Result<Added, DriverError> {
        let there = self.running().get(&ask.name).cloned();
        if let Some(old) = there {
            // The caller of an earlier attempt gave up before the answer.
            self.end(&ask.name, &old).await?;
        }
        let (first, ready) = oneshot::channel();
        let supervised = Supervised::start(self.job(ask)?, first)?;
        self.running().insert(ask.name.clone(), supervised);
        match ready.await {
            Ok(Ok(added)) => Ok(added),
            Ok(Err(error)) => {
                self.running().remove(&ask.name);
                Err(error.into())
            }
            Err(_) => Err(ProcessError::Stopped.into()),
        }
    }

    async fn remove(&self, ask: &Ask) -> Result<(), DriverError> {
        let there = self.running().get(&ask.name).cloned();
        match there {
            Some(supervised) => Ok(self.end(&ask.name, &supervised).await?),
            None => Ok(()),
        }
    }
}

impl ProcessDriver {
    /// Sends SIGTERM to the process group, and SIGKILL after the stop timeout.
    async fn end(&self, name: &str, supervised: &Supervised) -> Result<(), ProcessError> {
        supervised.terminate();
        if !supervised.ended_within(self.options.stop_timeout).await {
            supervised.kill();
            if !supervised.ended_within(KILL_TIMEOUT).await {
                let pid = supervised.pid().unwrap_or_default();
                return Err(ProcessError::Unkillable { pid, after: KILL_TIMEOUT });
            }
        }
        self.running().remove(name);
        Ok(())
    }
}

impl Drop for ProcessDriver {
    fn drop(&mut self) {
        for supervised in self.running().values() {
            supervised.terminate();
            supervised.kill();
        }
    }
}

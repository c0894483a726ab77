//! An application that is a program. It receives items on its standard input and acknowledges them
//! on its standard output, or both over a unix socket ([`Program::listen`]).
//!
//! Numbers are little-endian. Both directions consist of *batches*: the number of bytes that follow
//! (4), then entries.
//!
//! | to the program, an entry | bytes | from the program, an entry | bytes |
//! |---|---|---|---|
//! | job | 8 | job | 8 |
//! | slice | 4 | length of the reply | 4 |
//! | id | 8 | reply | |
//! | sender | 4 | | |
//! | timestamp | 8 | | |
//! | length of the message | 4 | | |
//! | message | | | |
//!
//! The two highest bits of a job are its kind; the program repeats them. Kinds other than items
//! exist only if state moves with slices ([`equipoise_slice::Order::Stateful`]), and have 0 for id,
//! sender and timestamp:
//!
//! | bits | kind | message | reply |
//! |---|---|---|---|
//! | 0 | an item | the item's | to the client |
//! | 1 | take over the state of the slice | the exported state; empty if there is none | none |
//! | 2 | the state of the slice was lost with its worker: begin with an empty one | none | none |
//! | 3 | export the state of the slice, which goes to another worker | none | the state |
//!
//! An export with the id 1 is for a checkpoint: the slice stays, and the program keeps its state.
//! These come only if workers take checkpoints ([`equipoise_slice::Config::checkpoint`]).
//!
//! With [`Dealings::tokens`] an entry has epoch (8), writer (8) and position (8) of the item
//! between its timestamp and the length of the message: its [`equipoise_slice::transport::Token`].
//! They are 0 for other kinds.
//!
//! A program that is started again must have stored its state itself.
//!
//! With [`Format::Lines`] jobs and acknowledgements are lines of text (`program/lines.rs`).
//!
//! An acknowledgement states that the item is processed and need not be sent again. It is also the
//! reply to the client. Jobs may be acknowledged in any order. A program that ends is started
//! again, and receives its unacknowledged jobs again. An item that ends it repeatedly is
//! quarantined ([`SetAside`]).

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equipoise_basics::lock;

mod batches;
mod desk;
mod lines;
mod rest;
mod serve;
mod set_aside;
mod socket;

use self::desk::Desk;
use self::rest::Rest;
pub use self::set_aside::{SET_ASIDE_AFTER, SET_ASIDE_REPLY, SetAside};
pub use self::socket::ListenError;
use self::socket::Listening;
use crate::worker::{Application, Job};

/// Pause between the end of the program and its next start.
const PAUSE: Duration = Duration::from_millis(500);

/// Encoding of jobs and acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Batches of bytes, as above.
    #[default]
    Batches,
    /// One line of text each, with messages and replies in base64.
    Lines,
}

/// Options of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dealings {
    /// The encoding.
    pub format: Format,
    /// Quarantine of items that end the program.
    pub set_aside: SetAside,
    /// It receives the fencing token of each item.
    pub tokens: bool,
}

impl From<Format> for Dealings {
    fn from(format: Format) -> Self {
        Self { format, ..Self::default() }
    }
}

/// The program, which is started again whenever it ends. A drop closes its input, which ends it.
#[derive(Debug)]
pub struct Program {
    shared: Arc<Shared>,
    /// The socket, if the program connects to one.
    listening: Option<Listening>,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
    restarts: AtomicU64,
    format: Format,
    set_aside: SetAside,
    tokens: bool,
}

impl Program {
    /// Starts the program.
    ///
    /// # Errors
    /// When the program cannot be started the first time.
    pub fn start(command: impl FnMut() -> Command + Send + 'static) -> io::Result<Self> {
        Self::start_with(Dealings::default(), command)
    }

    /// The same, with other options.
    ///
    /// # Errors
    /// When the program cannot be started the first time.
    pub fn start_with(
        dealings: impl Into<Dealings>,
        command: impl FnMut() -> Command + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Shared::of(dealings.into());
        let mut command = command;
        let first = spawn(&mut command)?;
        let keeper = Keeper { shared: shared.clone() };
        std::thread::Builder::new()
            .name("slice-program".into())
            .spawn(move || keeper.keep(first, command))?;
        Ok(Self { shared, listening: None })
    }

    /// Number of times that the program was started again.
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Relaxed)
    }
}

impl Application for Program {
    fn start(&mut self, job: Job) {
        if job.work().is_none() {
            // A malformed item.
            return job.done(None);
        }
        self.shared.desk().add(job);
        self.shared.changed.notify_all();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.shared.desk().closed = true;
        self.shared.changed.notify_all();
        self.listening = None;
    }
}

impl Shared {
    fn of(dealings: Dealings) -> Arc<Self> {
        let Dealings { format, set_aside, tokens } = dealings;
        Arc::new(Self { format, set_aside, tokens, ..Self::default() })
    }

    /// Handles the end of a program that had read this number of bytes: its jobs wait for the next
    /// run. `false`: there will be none.
    fn again(&self, read: u64) -> bool {
        let suspects = self.desk().ended(read);
        for suspect in &suspects {
            self.suspect(suspect);
        }
        let mut desk = self.desk();
        desk.again();
        !desk.closed
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }
}

fn spawn(command: &mut impl FnMut() -> Command) -> io::Result<Child> {
    command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

struct Keeper {
    shared: Arc<Shared>,
}

impl Keeper {
    fn keep(self, first: Child, mut command: impl FnMut() -> Command) {
        let mut child = Some(first);
        loop {
            let running = child.take().or_else(|| self.again(&mut command));
            let read = running.map_or(0, |child| self.serve(child));
            let desk = self.shared.desk();
            let closed = |desk: &mut Desk| !desk.closed;
            let waited = self.shared.changed.wait_timeout_while(desk, PAUSE, closed);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            if !self.shared.again(read) {
                return;
            }
        }
    }

    fn again(&self, command: &mut impl FnMut() -> Command) -> Option<Child> {
        self.shared.restarts.fetch_add(1, Relaxed);
        spawn(command)
            .inspect_err(|error| tracing::error!(%error, "cannot start the slice worker's program"))
            .ok()
    }

    /// Serves the program until it has ended. Returns how many bytes it had read.
    fn serve(&self, mut child: Child) -> u64 {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let rest = Rest::of(child.id());
        let mut end = || {
            // It may have closed only its output.
            let _ = child.kill();
            rest.end();
            match child.wait() {
                Ok(status) => tracing::warn!(%status, "the slice worker's program has ended"),
                Err(error) => {
                    tracing::warn!(%error, "cannot wait for the end of the slice worker's program")
                }
            }
        };
        let (Some(input), Some(output)) = (input, output) else {
            end();
            return 0;
        };
        serve::serve(&self.shared, input, output, end)
    }
}

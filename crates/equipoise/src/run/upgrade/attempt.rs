//! The running process starts a new one, and hands its sockets over.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_basics::{lock, with_causes};
use equipoise_handover::{Channel, ChannelError, HandoverMessage, Listening, VERSION};
use equipoise_packet::privileges;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::predecessor::VARIABLE;
use crate::run::control::Control;

/// Time in which the exit status of a new process that closed its channel is awaited.
const STATUS_WITHIN: Duration = Duration::from_secs(1);

/// A new process that is ready. It ends when this is dropped.
pub(crate) struct Successor {
    pub(super) channel: Channel,
    pub(super) process: Started,
    pub(super) took: Duration,
}

/// Starts the program of this process again with the same arguments, and waits until it is ready.
/// When the sender of `goes_on` is dropped, the new process is ended, and what was released to it
/// stays released: this process stops.
///
/// # Errors
/// The reason why there is no new process. This one goes on as before.
pub(crate) async fn attempt(
    control: Arc<Control>,
    within: Duration,
    mut goes_on: oneshot::Receiver<()>,
) -> Result<Successor, String> {
    if std::process::id() == 1 {
        return Err(
            "this process is the first of its PID namespace, which ends with it: start it \
                    under an init (docker run --init, tini)"
                .into(),
        );
    }
    let began = Instant::now();
    let _file = tokio::select! {
        file = control.file_as_it_is() => file.map_err(|errors| errors.join("; "))?,
        _ = &mut goes_on => return Err("a stop was requested".into()),
    };
    let (channel, theirs) = Channel::pair().map_err(|error| format!("no sockets: {error}"))?;
    let mut process = Started(Some(spawn(theirs)?));
    let pid = process.pid();
    tracing::info!(event = "upgrade.started", pid, "upgrade: started the new process");
    let mut attempt = Attempt { control: &control, channel, has_released: false };
    let outcome = tokio::select! {
        outcome = timeout(within, attempt.until_ready()) => outcome,
        _ = &mut goes_on => {
            process.kill().await;
            return Err("a stop was requested".into());
        }
    };
    let error = match outcome {
        Ok(Ok(())) => {
            return Ok(Successor { channel: attempt.channel, process, took: began.elapsed() });
        }
        Ok(Err(Failure::Told(error))) => error,
        Ok(Err(Failure::Channel(ChannelError::Ended))) => process.ended().await,
        Ok(Err(Failure::Channel(error))) => with_causes(&error),
        Err(_) => format!("the new process {pid} was not ready within {within:?}"),
    };
    let has_released = attempt.has_released;
    drop(attempt);
    // Its locks and addresses must be free before this process starts its levels again.
    process.kill().await;
    if has_released {
        control.resume().await;
    }
    Err(error)
}

/// The program of this process, found as the one that started it did, with its arguments.
fn program() -> (OsString, Vec<OsString>) {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_else(|| "equipoise".into());
    (program, arguments.collect())
}

fn spawn(channel: OwnedFd) -> Result<Child, String> {
    let (program, arguments) = program();
    let mut command = Command::new(&program);
    command.args(arguments).stdin(channel).env(VARIABLE, std::process::id().to_string());
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(inherit_standard_streams_only) };
    let runtime = Handle::current();
    // Its packet level needs the capabilities that this thread has given up.
    let spawned = privileges::run(move || {
        let _runtime = runtime.enter();
        command.spawn()
    });
    spawned.map_err(|error| format!("cannot start {}: {error}", program.display()))
}

/// Has `exec` close all other descriptors, also those of libraries that do not ask for it.
fn inherit_standard_streams_only() -> io::Result<()> {
    // SAFETY: the call takes numbers and touches no memory.
    let result = unsafe {
        libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The new process, which is killed when this is dropped.
pub(super) struct Started(Option<Child>);

impl Started {
    pub(super) fn pid(&self) -> u32 {
        self.0.as_ref().and_then(Child::id).unwrap_or_default()
    }

    pub(super) fn outlives_us(mut self) {
        // tokio reaps it, should it end first.
        drop(self.0.take());
    }

    /// Describes the end of the process.
    async fn ended(&mut self) -> String {
        let Some(child) = &mut self.0 else { return String::new() };
        let status = timeout(STATUS_WITHIN, child.wait()).await;
        let status = match status {
            Ok(Ok(status)) => ExitStatus::to_string(&status),
            _ => "it closed its channel".into(),
        };
        format!("the new process ended before it was ready ({status}); its log has the reason")
    }

    pub(super) async fn kill(mut self) {
        if let Some(mut child) = self.0.take()
            && let Err(error) = child.kill().await
        {
            tracing::error!(%error, "could not end the new process");
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.start_kill();
        }
    }
}

enum Failure {
    /// The new process reported it, or this one found it.
    Told(String),
    Channel(ChannelError),
}

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Failure {
        Failure::Channel(error)
    }
}

struct Attempt<'c> {
    control: &'c Control,
    channel: Channel,
    /// The control side of some levels has stopped.
    has_released: bool,
}

impl Attempt<'_> {
    async fn until_ready(&mut self) -> Result<(), Failure> {
        let sockets = self.control.listening().await;
        let sockets = sockets.map_err(|error| Failure::Told(format!("no descriptors: {error}")))?;
        for Listening { name, sockets } in sockets {
            for part in sockets.chunks(Channel::DESCRIPTORS_MAX) {
                self.channel.send(&HandoverMessage::Sockets(name.clone()), part).await?;
            }
        }
        for (earlier, descriptors) in self.control.upgrades.earlier() {
            self.channel.send(&HandoverMessage::Earlier(earlier), &descriptors).await?;
        }
        self.channel.tell(&HandoverMessage::Prepare { version: VERSION }).await?;
        self.expect(&HandoverMessage::Prepared).await?;
        self.has_released = true;
        let backends = self.control.release().await.map_err(Failure::Told)?;
        let added = self.control.levels.added.all();
        let ticket_keys = self.control.levels.tickets_for_successor();
        let released = HandoverMessage::Released { backends, added, ticket_keys };
        self.channel.tell(&released).await?;
        self.expect(&HandoverMessage::Ready).await
    }

    async fn expect(&mut self, expected: &HandoverMessage) -> Result<(), Failure> {
        match self.channel.receive().await?.0 {
            HandoverMessage::Failed { error } => Err(Failure::Told(error)),
            message if message == *expected => Ok(()),
            _ => Err(Failure::Told("the new process sent an unexpected message".into())),
        }
    }
}

impl Control {
    /// Duplicates of all listening sockets.
    async fn listening(&self) -> io::Result<Vec<Listening>> {
        let mut all = self.data.listening()?;
        all.extend(self.levels.dns.listening().await?);
        for Listening { name, sockets } in &*lock(&self.upgrades.api) {
            all.push(Listening::duplicate(name.clone(), sockets)?);
        }
        Ok(all)
    }
}

impl super::Upgrades {
    /// The replaced processes that still serve clients, for the next process.
    fn earlier(&self) -> Vec<(equipoise_handover::Replaced, Vec<OwnedFd>)> {
        let all = lock(&self.replaced);
        let living = all.iter().filter(|(_, departing)| departing.connections().is_some());
        let given = living.filter_map(|(replaced, departing)| {
            let descriptors = departing.descriptors().map(OwnedFd::try_clone);
            Some((*replaced, descriptors.into_iter().collect::<io::Result<_>>().ok()?))
        });
        given.collect()
    }
}

//! The new process takes over from the running one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail};
use equipoise_basics::with_causes;
use equipoise_config::Config;
use equipoise_core::{Health, eligibility};
use equipoise_handover::{
    BackendState, Channel, Departing, HandoverMessage, Inherited, Replaced, VERSION,
};
use equipoise_session::registry::PoolState;
use equipoise_session::{GivenClient, UdpHandover};
use equipoise_tickets::Tickets;
use tokio::time::timeout;

use crate::run::added::Added;
use crate::run::control::Control;
use crate::run::tickets;

/// Environment variable of the new process: the running process's id. Standard input is the channel
/// to it.
pub(super) const VARIABLE: &str = "EQUIPOISE_UPGRADES";

/// Time for which a new process waits until pools that served in the running one serve here too:
/// elastic backends may have to start.
const POOLS_WITHIN: Duration = Duration::from_secs(10);

/// The process that this one replaces.
pub(crate) struct Predecessor {
    channel: Channel,
    pid: u32,
    pub(crate) inherited: Inherited,
    earlier: Vec<(Replaced, Departing)>,
}

/// State that the new process begins with.
struct TakenOver {
    /// Clients of UDP front doors.
    given: Vec<UdpHandover>,
    /// The predecessor, and those before it that still serve clients.
    replaced: Vec<(Replaced, Departing)>,
}

impl Predecessor {
    /// The process that has started this one to be replaced; `None` if another program has.
    ///
    /// # Errors
    /// It does not hand its sockets over.
    pub(crate) async fn of_environment() -> anyhow::Result<Option<Predecessor>> {
        let Some(pid) = std::env::var(VARIABLE).ok().and_then(|pid| pid.parse().ok()) else {
            return Ok(None);
        };
        // Programs that the new process starts inherit the variable too.
        if pid != std::os::unix::process::parent_id() {
            return Ok(None);
        }
        let channel = take_standard_input().and_then(Channel::over);
        let channel = channel.context("cannot take over from the running process")?;
        let (inherited, earlier) = (Inherited::default(), Vec::new());
        let mut predecessor = Predecessor { channel, pid, inherited, earlier };
        predecessor.receive_sockets().await?;
        Ok(Some(predecessor))
    }

    async fn receive_sockets(&mut self) -> anyhow::Result<()> {
        loop {
            match self.channel.receive().await? {
                (HandoverMessage::Sockets(name), sockets) => self.inherited.add(name, sockets),
                (HandoverMessage::Earlier(earlier), descriptors) => {
                    let departing = Departing::from_descriptors(descriptors);
                    self.earlier.extend(departing.map(|departing| (earlier, departing)));
                }
                (HandoverMessage::Prepare { version: VERSION }, _) => return Ok(()),
                (HandoverMessage::Prepare { version }, _) => {
                    let error = format!(
                        "the running process hands over by version {version}, and this one by \
                         {VERSION}: restart equipoise instead"
                    );
                    self.channel.tell(&HandoverMessage::Failed { error: error.clone() }).await?;
                    bail!(error);
                }
                _ => bail!("the running process sent an unexpected message"),
            }
        }
    }

    /// Reports that the configuration is read and all sockets are there. Once the running process
    /// has released what only one can have, takes over its keys of session tickets, and returns the
    /// states of backends and those that operators added.
    pub(crate) async fn prepared(
        &mut self,
        config: &Config,
        tickets: &Tickets,
    ) -> anyhow::Result<(Vec<BackendState>, Added)> {
        self.channel.tell(&HandoverMessage::Prepared).await?;
        match self.channel.receive().await?.0 {
            HandoverMessage::Released { backends, added, ticket_keys } => {
                tickets::inherit(tickets, &ticket_keys);
                Ok((backends, Added::inherited(added, config)))
            }
            _ => bail!("the running process sent an unexpected message"),
        }
    }

    /// Reports that this process can serve, and waits until the running one accepts nothing more.
    async fn ready(mut self) -> anyhow::Result<TakenOver> {
        self.channel.tell(&HandoverMessage::Ready).await?;
        let (HandoverMessage::Committed(last), descriptors) = self.channel.receive().await? else {
            bail!("the running process sent an unexpected message");
        };
        let mut replaced = self.earlier;
        replaced.extend(Departing::from_descriptors(descriptors).map(|it| (last, it)));
        let mut given = Vec::new();
        loop {
            match self.channel.receive().await {
                Ok((HandoverMessage::Clients { door, socket, clients }, sockets)) => {
                    let mut sockets = sockets.into_iter();
                    let with_socket = |client: equipoise_handover::UdpClient| -> GivenClient {
                        let socket = client.upstream.as_ref().and_then(|_| sockets.next());
                        (client, socket)
                    };
                    let clients = clients.into_iter().map(with_socket).collect();
                    given.push(UdpHandover { door, socket, clients });
                }
                Ok((HandoverMessage::Begin, _)) => break,
                Ok(_) => tracing::error!("the replaced process sent an unexpected message"),
                // This process has replaced it already.
                Err(error) => {
                    tracing::error!("clients of UDP front doors are lost: {}", with_causes(&error));
                    break;
                }
            }
        }
        tracing::info!(
            event = "upgrade.replaced",
            pid = self.pid,
            "upgrade: replaced the running process"
        );
        Ok(TakenOver { given, replaced })
    }

    /// Reports the reason why this process does not replace the running one.
    pub(crate) async fn fail(mut self, error: &anyhow::Error) {
        let error = crate::cli::message(error);
        // It may have given up.
        let _ = self.channel.tell(&HandoverMessage::Failed { error }).await;
    }
}

/// Takes the socket that is standard input, and puts `/dev/null` in its place.
fn take_standard_input() -> io::Result<OwnedFd> {
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    let null = File::open("/dev/null")?;
    // SAFETY: both descriptors are open; standard input is replaced in one step.
    let replaced = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), 0) };
    if replaced < 0 { Err(io::Error::last_os_error()) } else { Ok(channel) }
}

impl Control {
    /// Replaces the running process.
    ///
    /// # Errors
    /// It has given up.
    pub(in crate::run) async fn take_over(&self, predecessor: Predecessor) -> anyhow::Result<()> {
        let TakenOver { given, replaced } = predecessor.ready().await?;
        self.data.begin(given);
        self.upgrades.note_replaced(replaced);
        Ok(())
    }

    /// Waits, for a while, until every pool that served in the running process serves here too.
    pub(crate) async fn await_pools(&self, before: &[BackendState]) {
        let mut pools = self.levels.registry.pools();
        let serve = |pools: &Vec<PoolState>| missing(before, pools).is_empty();
        if timeout(POOLS_WITHIN, async { drop(pools.wait_for(|now| serve(now)).await) })
            .await
            .is_err()
        {
            let missing = missing(before, &pools.borrow()).join(", ");
            tracing::warn!(
                event = "upgrade.pools-empty",
                pools = missing,
                "upgrade: pools that had backends have none yet"
            );
        }
    }
}

/// Pools that could serve before and cannot now, without those that are gone.
fn missing(before: &[BackendState], now: &[PoolState]) -> Vec<String> {
    let serves = |pool: &PoolState| {
        let mut backends = pool.backends.iter();
        backends.any(|it| eligibility(it.admin, it.health, it.weight).is_eligible())
    };
    let served = |pool: &PoolState| {
        let mut own = before.iter().filter(|state| *state.pool == *pool.name);
        own.any(|state| {
            state.health != Health::Unhealthy
                && state.admin == Default::default()
                && state.weight != Some(0)
        })
    };
    let missing = now.iter().filter(|pool| served(pool) && !serves(pool));
    missing.map(|pool| pool.name.to_string()).collect()
}

//! The replaced process serves its clients to their end.

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_api::wire::Upgraded;
use equipoise_basics::with_causes;
use equipoise_handover::{Channel, ChannelError, Departing, HandoverMessage, Replaced};
use equipoise_session::{StopReport, UdpHandover};

use super::Reply;
use super::attempt::Successor;
use super::unix_seconds_now;
use crate::run::control::{Control, Ending};
use crate::run::notify::{Notice, notify};
use crate::run::{Asked, LAST_LINES_WITHIN, Running};

/// Interval at which the work of a replaced process is counted.
const COUNT: Duration = Duration::from_millis(250);

impl Running {
    /// Leaves everything to the successor, and serves the remaining connections to their end.
    pub(in crate::run) async fn retire(
        mut self,
        mut successor: Successor,
        reply: Option<Reply>,
    ) -> anyhow::Result<ExitCode> {
        self.control.set_ending(Ending::Replaced);
        let departing = self.control.hand_over(&mut successor).await;
        let Successor { process, took, .. } = successor;
        let pid = process.pid();
        process.outlives_us();
        notify(Notice::Replaced(pid));
        self.api.ownership.store(false, Relaxed);
        self.control.upgrades.forget_api();
        self.control.planner().hand_over();
        let connections = self.plane.work().await as u64;
        tracing::info!(
            event = "upgrade.completed",
            pid,
            connections,
            ?took,
            "upgrade: the new process has taken over; this one finishes its connections"
        );
        if let Some(reply) = reply {
            let replaced_pid = std::process::id();
            let took_seconds = took.as_secs_f64();
            // The client may have gone.
            let _ = reply.send(Ok(Upgraded { pid, replaced_pid, connections, took_seconds }));
        }
        self.api.stop().await;
        self.control.stop_dns().await;
        let mut limit = Instant::now() + self.control.upgrade_grace().await;
        let mut was_asked = false;
        loop {
            tokio::select! {
                () = self.control.until_idle(departing.as_ref(), limit) => break,
                asked = self.signals.next() => match asked {
                    Asked::Stop if was_asked => break,
                    Asked::Stop => {
                        was_asked = true;
                        limit = limit.min(Instant::now() + self.control.grace().await);
                    }
                    Asked::Reload | Asked::Upgrade => {
                        tracing::warn!(pid, "signal ignored: send it to the process that has replaced this one");
                    }
                },
            }
        }
        let engine = self.plane.take().context("the data plane was stopped twice")?;
        let StopReport { cut } = engine.stop(Duration::ZERO).await;
        self.control.finish_spans().await;
        if cut > 0 {
            tracing::warn!(
                cut,
                "the time of a replaced process is over: the remaining work was cut"
            );
        }
        self.control.planner().stop_scalers().await;
        self.audit.finish(LAST_LINES_WITHIN);
        tracing::info!("stopped: the new process continues");
        Ok(ExitCode::SUCCESS)
    }
}

impl Control {
    /// Leaves all listening sockets to the successor, with the clients of UDP front doors. Returns
    /// the place for the number of connections that this process still has.
    pub(crate) async fn hand_over(&self, successor: &mut Successor) -> Option<Departing> {
        let departing = Departing::of_this_process();
        let departing = departing.inspect_err(|error| {
            tracing::warn!(%error, "the status of the new process will not show this one");
        });
        let departing = departing.ok();
        if let Err(error) = self.give(successor, departing.as_ref()).await {
            // It has everything that it needs to serve, and this process has stopped accepting.
            tracing::error!("the new process has ended: {}", with_causes(&error));
        }
        departing
    }

    async fn give(
        &self,
        successor: &mut Successor,
        departing: Option<&Departing>,
    ) -> Result<(), ChannelError> {
        let own = Replaced { pid: std::process::id(), since_unix_seconds: unix_seconds_now() };
        let descriptors = departing.map(Departing::descriptors);
        let descriptors = descriptors.as_ref().map_or(&[][..], |both| &both[..]);
        let told = successor.channel.send(&HandoverMessage::Committed(own), descriptors).await;
        let given = self.data.hand_over().await;
        told?;
        for given in given {
            send_clients(&mut successor.channel, given).await?;
        }
        successor.channel.tell(&HandoverMessage::Begin).await
    }

    /// Waits until this process has no work left, or until `limit`, and publishes the number of its
    /// connections.
    pub(crate) async fn until_idle(&self, departing: Option<&Departing>, limit: Instant) {
        loop {
            let work = self.data.work().await;
            if let Some(departing) = departing
                && let Err(error) = departing.set_connections(work as u64)
            {
                tracing::debug!(%error, "could not publish the number of connections");
            }
            if work == 0 || Instant::now() >= limit {
                return;
            }
            tokio::time::sleep(COUNT).await;
        }
    }
}

async fn send_clients(channel: &mut Channel, given: UdpHandover) -> Result<(), ChannelError> {
    let UdpHandover { door, socket, mut clients } = given;
    while !clients.is_empty() {
        let rest = clients.split_off(clients.len().min(Channel::DESCRIPTORS_MAX));
        let (mut part, mut sockets): (Vec<_>, Vec<OwnedFd>) = (Vec::new(), Vec::new());
        for (client, socket) in std::mem::replace(&mut clients, rest) {
            part.push(client);
            sockets.extend(socket);
        }
        channel.send(&HandoverMessage::Clients { door, socket, clients: part }, &sockets).await?;
    }
    Ok(())
}

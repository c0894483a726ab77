//! `equipoise agent`: a machine of backends that only reports its load.

mod desk;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use equipoise_api::events::EventJournal;
use equipoise_api::listen::ApiUnix;
use equipoise_api::{Api, serve_unix};
use equipoise_cli::logs::Logs;
use equipoise_cluster::{Cluster, ClusterRole, NodeClient, NodeOptions, Sightings};
use equipoise_config::{self as config, Config, Loaded};
use equipoise_controller::{NodeKind, NodeReport, Pressure};
use equipoise_monitor::{Monitor, MonitorOptions, Utilisation};
use equipoise_planning::{LEAVE_PATIENCE, begin, capacity, look_out, member};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use self::desk::Desk;
use super::notify::{Notice, notify};
use super::{Asked, Signals};
use crate::run::entrance::Entrance;

/// Sends reports as `file` configures, until the process is stopped.
pub(crate) async fn agent(file: &Path) -> anyhow::Result<ExitCode> {
    let Loaded { config, warnings } = config::load(file)?;
    let Some(place) = &config.cluster else {
        bail!(
            "{} has no [cluster] table; an agent needs `cluster.controllers`, the addresses of the controllers",
            file.display()
        );
    };
    let ClusterRole::Node { controllers, token } = &place.role else {
        bail!(
            "`cluster.store` makes this a controller, which reports to itself: use `equipoise run`"
        );
    };
    let logs = Logs::start(config.operations.log_level, config.operations.log_format)?;
    warnings.iter().for_each(|warning| tracing::warn!("{}", warning.in_file(file)));
    for pool in config.planning.makers.keys() {
        tracing::warn!(
            pool,
            "an agent only reports and creates no backends for the pool; run `equipoise run` for that"
        );
    }
    let mut signals = Signals::install().context("cannot handle signals")?;
    let node = member(place, controllers, token.as_ref(), &config.instance.name)?;
    // An agent applies no instructions, so it does not save them.
    let client = NodeClient::start(NodeOptions { keeps: false, ..node });
    let mut instructions = client.instructions();
    let desk = Arc::new(Desk::new(file, &config, client));
    if let Err(error) = serve(&desk, &config, place, logs.journal()) {
        tracing::warn!("the agent reports, but cannot serve its API: {error:#}");
    }
    let seen =
        look_out(&config.instance.name, instructions.clone(), config.planning.policy.period());
    let mut monitor = monitor(&config);
    let mut addresses = equipoise_planning::addresses(place).await;
    let period = config.planning.policy.period();
    let mut turns = interval_at(Instant::now() + period, period);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    notify(Notice::Ready);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "agent ready");
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            asked = signals.next() => match asked {
                Asked::Stop => break,
                Asked::Reload | Asked::Upgrade => {
                    tracing::info!("an agent reads its file only at start; restart it to apply changes");
                    continue;
                }
            },
        }
        // The network may have come up after the start.
        if addresses.is_empty() {
            addresses = equipoise_planning::addresses(place).await;
        }
        let used = monitor.sample();
        desk.measured(&used);
        let edition = Arc::clone(&instructions.borrow_and_update()).edition();
        let Sightings { reachable, refused } = seen.borrow().clone();
        desk.client().report(&NodeReport {
            addresses: addresses.clone(),
            reachable,
            refused,
            applied: Some(edition).filter(|edition| edition.term > 0),
            ..measured(&used)
        });
    }
    leave(&desk).await;
    Ok(ExitCode::SUCCESS)
}

/// Reports to the controllers that this agent stops.
async fn leave(desk: &Desk) {
    notify(Notice::Stopping);
    let last = measured(&Utilisation::default());
    desk.client().leave(&last, LEAVE_PATIENCE).await;
    tracing::info!("stopped");
}

/// Creates the monitor, and takes its first sample.
fn monitor(config: &Config) -> Monitor {
    let link_speeds = config.planning.link_speeds.clone();
    let mut monitor = Monitor::new(MonitorOptions { link_speeds, ..MonitorOptions::default() });
    begin(&mut monitor);
    monitor
}

/// The part of a report that describes this machine.
fn measured(used: &Utilisation) -> NodeReport {
    NodeReport {
        kind: NodeKind::Agent,
        version: env!("CARGO_PKG_VERSION").into(),
        capacity: capacity(Some(used)),
        load: NodeReport::load_of(used),
        machine_cpu: used.cpu_machine_percent,
        pressure: Pressure::of(used),
        ..NodeReport::default()
    }
}

/// Serves `equipoise status` and metrics on a unix socket until the process ends.
fn serve(
    desk: &Arc<Desk>,
    config: &Config,
    place: &Cluster,
    journal: Arc<EventJournal>,
) -> anyhow::Result<()> {
    let socket = match &config.operations.api_socket {
        usual if *usual == config::default_api_socket() => place.agent_socket(),
        stated => stated.clone(),
    };
    let entrance = Entrance::open(&config.operations)?;
    let unix = ApiUnix::bind(&socket)?;
    tracing::info!(socket = %socket.display(), "API");
    let service = Api::new(Arc::clone(desk), entrance.gate, entrance.audit, journal);
    tokio::spawn(serve_unix(unix, service, std::future::pending()));
    Ok(())
}

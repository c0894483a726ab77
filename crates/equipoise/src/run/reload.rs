//! Reloads the configuration file, completely or not at all.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_api::metrics::ReloadReading;
use equipoise_api::wire::config::ReloadPreview;
use equipoise_api::wire::{LastReload, Reloaded};
use equipoise_basics::{lock, with_causes};
use equipoise_config::{Config, Loaded};
use equipoise_planes::PacketWish;
use equipoise_session::registry::{ApplyError, Changes};

use crate::run::changes::Difference;
use crate::run::control::Control;
use crate::run::planning::planning_config;
use crate::run::prepared::Prepared;

/// Time for which a reload waits for new host names and sources. Later answers join their pools
/// later.
const NAMES_WITHIN: Duration = Duration::from_millis(500);

/// Outcomes of reloads.
#[derive(Debug)]
pub(super) struct Reloads {
    pub(super) figures: ReloadReading,
    pub(super) last: Option<LastReload>,
    /// Number of the newest reload that took effect.
    newest: u64,
}

impl Reloads {
    /// The state of a process that has just read its file.
    pub(super) fn begun() -> Reloads {
        let figures = ReloadReading {
            succeeded: 1,
            failed: 0,
            last_succeeded: true,
            last_success_unix_seconds: unix_seconds_now(),
        };
        Reloads { figures, last: None, newest: 0 }
    }
}

impl Control {
    /// Reads and checks the file, reads new sources, and resolves new names. Takes no lock, because
    /// files and resolvers may hang.
    pub(super) async fn prepare(&self) -> Prepared {
        let number = self.next_reload();
        self.learn(number, self.load().await).await
    }

    /// The number of a reload that begins now. Once it takes effect, earlier ones cannot.
    pub(super) fn next_reload(&self) -> u64 {
        self.reloads_begun.fetch_add(1, Relaxed) + 1
    }

    /// Reads new sources, and resolves new names.
    pub(super) async fn learn(
        &self,
        number: u64,
        outcome: Result<Loaded, Vec<String>>,
    ) -> Prepared {
        let learnt = outcome.as_ref().ok().map(|it| self.preparing.begin(number, &it.config));
        if let Ok(loaded) = &outcome {
            self.levels.learn(&loaded.config, NAMES_WITHIN).await;
        }
        Prepared { number, outcome, learnt }
    }

    /// Reads and checks the file.
    async fn load(&self) -> Result<Loaded, Vec<String>> {
        let _file = self.file_as_it_is().await?;
        self.loader.load(&self.file).await.map_err(|errors| errors.lines())
    }

    /// Switches every level to the new configuration, or changes nothing.
    pub(super) async fn switch(&self, prepared: Prepared) -> Result<Reloaded, Vec<String>> {
        let mut running = self.config.lock().await;
        let Prepared { number, outcome, learnt } = prepared;
        // From here on the lock keeps what was learnt.
        drop(learnt);
        let Loaded { config, warnings } = outcome?;
        if lock(&self.reloads).newest > number {
            let file = self.file.display();
            self.forget_others(&running);
            return Err(vec![format!(
                "{file}: not applied, because a reload that began later has taken effect"
            )]);
        }
        if config.is_empty() && !running.is_empty() {
            let text = "the file is empty, which would remove everything that runs (to stop equipoise, use `systemctl stop` \
                        or SIGTERM)";
            self.forget_others(&running);
            return Err(vec![format!("{}: {text}", self.file.display())]);
        }
        for warning in &warnings {
            tracing::warn!("{}", warning.in_file(&self.file));
        }
        let difference = Difference::between(&running, &config);
        for end in &difference.ends {
            tracing::warn!("reload: {end}");
        }
        if let Err(error) = self.follow_all(&running, &config, &difference).await {
            self.forget_others(&running);
            return Err(vec![with_causes(&*error)]);
        }
        lock(&self.reloads).newest = number;
        self.levels.added.follow(&config);
        self.save_added().await;
        self.logs.set_level(config.operations.log_level);
        self.logs.reopen_access_log();
        self.entrance.follow(&config.operations);
        let reloaded = Reloaded {
            config_file: self.file.display().to_string(),
            front_doors: config.session.front_doors.len(),
            vips: config.packet.vips.len(),
            pools: config.session.pools.len(),
            backends: config.session.pools.iter().map(|pool| pool.backends.len()).sum(),
            changes: difference.lines(),
            ends: difference.ends,
            need_restart: need_restart(&self.fixed, &config),
        };
        self.forget_others(&config);
        *running = config;
        Ok(reloaded)
    }

    /// Reads and checks the file, and returns the changes that a reload would make now. Changes
    /// nothing: it reads no new sources and resolves no new names.
    pub(super) async fn preview(&self) -> Result<ReloadPreview, Vec<String>> {
        let Loaded { config, .. } = self.load().await?;
        let difference = Difference::between(&*self.config.lock().await, &config);
        Ok(ReloadPreview {
            config_file: self.file.display().to_string(),
            changes: difference.lines(),
            ends: difference.ends,
            need_restart: need_restart(&self.fixed, &config),
        })
    }

    /// Applies the slice level first, because its previous state can be restored exactly.
    async fn follow_all(
        &self,
        before: &Config,
        after: &Config,
        difference: &Difference,
    ) -> anyhow::Result<()> {
        self.levels.slices.follow(&after.slices).await?;
        let applied = self.apply(before, after, difference).await;
        if applied.is_err()
            && let Err(error) = self.levels.slices.follow(&before.slices).await
        {
            tracing::error!("could not restore the slice level: {error:#}");
        }
        applied
    }

    /// Applies the packet level first, because it can be restored without losing a flow. A front
    /// door that was closed cannot be restored.
    async fn apply(
        &self,
        before: &Config,
        after: &Config,
        difference: &Difference,
    ) -> anyhow::Result<()> {
        let packet = |config: &Config| {
            let session = self.session(&config.session, &config.discovery);
            PacketWish::new(config.packet.clone(), session.pools)
        };
        let pools = self.levels.registry.pools().borrow().clone();
        self.levels.packet.follow(packet(after), &pools).await?;
        if let Err(error) = self.levels.dns.follow(after.dns.clone(), || self.seen()).await {
            if let Err(error) = self.levels.packet.follow(packet(before), &pools).await {
                tracing::error!("could not restore the packet level: {error:#}");
            }
            return Err(error);
        }
        let session = self.session(&after.session, &after.discovery);
        let applied = self.levels.registry.apply(session).await;
        if let Ok(changes) = &applied {
            log(changes, &difference.others);
        }
        if let Err(error) = applied {
            let back = self.levels.dns.follow(before.dns.clone(), || self.seen()).await;
            if let Err(error) = back {
                tracing::error!("could not restore the DNS level: {error:#}");
            }
            let back = self.levels.packet.follow(packet(before), &pools).await;
            if let Err(error) = back {
                tracing::error!("could not restore the packet level: {error:#}");
            }
            let error: ApplyError = error;
            return Err(error.into());
        }
        self.sync_levels().await;
        self.levels.orders.follow(after.acme.clone());
        self.levels.planner.follow(planning_config(after)).await;
        Ok(())
    }

    pub(super) fn note_reload(&self, outcome: &Result<Reloaded, Vec<String>>) {
        let now = unix_seconds_now();
        let mut reloads = lock(&self.reloads);
        reloads.figures.last_succeeded = outcome.is_ok();
        match outcome {
            Ok(reloaded) => {
                reloads.figures.succeeded += 1;
                reloads.figures.last_success_unix_seconds = now;
                tracing::info!(
                    target: "event",
                    event = "reload.applied",
                    subject = reloaded.config_file,
                    "reloaded; front doors: {}, VIPs: {}, pools: {}, backends: {}",
                    reloaded.front_doors,
                    reloaded.vips,
                    reloaded.pools,
                    reloaded.backends
                );
                for option in &reloaded.need_restart {
                    let except = if option == "flows" { " but those of full-nat" } else { "" };
                    tracing::warn!(
                        "`{option}` changed; `equipoise upgrade` applies it, without closing connections{except}"
                    );
                }
            }
            Err(errors) => {
                reloads.figures.failed += 1;
                for error in errors {
                    tracing::error!("{error}");
                }
                tracing::error!(
                    event = "reload.refused",
                    subject = %self.file.display(),
                    errors = errors.len(),
                    "reload failed: the running configuration stays in force ({})",
                    errors.first().map_or("", String::as_str)
                );
            }
        }
        let errors = outcome.as_ref().err().cloned().unwrap_or_default();
        reloads.last =
            Some(LastReload { succeeded: outcome.is_ok(), at_unix_seconds: now, errors });
    }
}

/// Logs the changes that the registry has not logged: those of the other levels, or that there are
/// none.
fn log(session: &Changes, others: &[String]) {
    let event = "configuration.applied";
    match (session.is_empty(), others.is_empty()) {
        (true, true) => tracing::info!(event, "configuration applied: nothing changed"),
        (false, true) => {}
        (_, false) => tracing::info!(event, "configuration applied: {}", others.join("; ")),
    }
}

/// Changed options that are read only at start.
fn need_restart(fixed: &Config, now: &Config) -> Vec<String> {
    let (before, after) = (&fixed.operations, &now.operations);
    [
        ("instance.name", fixed.instance.name == now.instance.name),
        ("instance.threads", fixed.instance.threads == now.instance.threads),
        ("instance.memory-max", fixed.instance.memory_max == now.instance.memory_max),
        ("cluster", fixed.cluster == now.cluster),
        ("api.socket", before.api_socket == after.api_socket),
        ("api.listen", before.api_listen == after.api_listen),
        ("log.format", before.log_format == after.log_format),
        ("flows", fixed.packet.flows == now.packet.flows),
        ("load.period", fixed.planning.policy.period() == now.planning.policy.period()),
        ("controller.state", fixed.planning.state == now.planning.state),
        ("tracing", fixed.tracing == now.tracing),
        ("log.access-log", before.access_log == after.access_log),
        // `log.format` is its default.
        (
            "log.access-format",
            before.access_format.form == after.access_format.form
                || before.log_format != after.log_format,
        ),
        ("log.access-fields", before.access_format.fields == after.access_format.fields),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(option, _)| option.to_owned())
    .collect()
}

fn unix_seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

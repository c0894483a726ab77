//! Consequences of checks, failures, operators' commands and the passing of time. Pure but for the
//! cells shared with the data plane (`failures_in_row`, `cut`, `unhealthy`).

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_core::load::Shares;
use equipoise_core::{AdminState, Health, Weight};

use super::error::RegistryError;
use super::inventory::{BackendEntry, Inventory, PoolEntry};
use super::notice::{Notice, What};
use crate::config::PoolConfig;
use crate::{BackendEvent, Reason};
use equipoise_health::{CheckReport, EjectionCause, panic, ramp};

/// Between two lines about one backend that fails and cannot be ejected.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

fn notice(pool: &PoolConfig, backend: &BackendEntry, what: What) -> Notice {
    Notice { pool: pool.name.clone(), backend: Some(backend.config.name.clone()), what }
}

impl Inventory {
    /// Sets a backend's admin state. [`Inventory::cut_downed`] must follow once the snapshot
    /// without the backend is published. If it were cut earlier, it would be picked again.
    pub(crate) fn set_admin(
        &mut self,
        pool: &str,
        backend: &str,
        admin: AdminState,
    ) -> Result<Option<Notice>, RegistryError> {
        let (settings, backend) = self.find(pool, backend)?;
        let changed = backend.admin != admin;
        backend.admin = admin;
        if admin != AdminState::Down {
            backend.live.cut.store(false, Relaxed);
        }
        if admin == AdminState::Up {
            backend.live.restore_multiplexing();
        }
        Ok(changed.then(|| notice(settings, backend, What::Admin(admin))))
    }

    /// Tells the data plane to cut what backends that are set down, or whose checks fail where that
    /// closes connections, still have. Returns whether any was not cut yet.
    pub(crate) fn cut_downed(&self) -> bool {
        let downed = |b: &&BackendEntry| b.admin == AdminState::Down || b.is_lost;
        let mut is_new = false;
        for backend in self.pools.iter().flat_map(|p| &p.backends).filter(downed) {
            is_new |= !backend.live.cut.swap(true, Relaxed);
        }
        is_new
    }

    /// Overrides a weight, or returns to the configured one.
    pub(crate) fn set_weight(
        &mut self,
        pool: &str,
        backend: &str,
        weight: Option<Weight>,
    ) -> Result<Option<Notice>, RegistryError> {
        let (settings, backend) = self.find(pool, backend)?;
        let changed = backend.weight_override != weight;
        backend.weight_override = weight;
        let what = weight.map_or(What::WeightReset(backend.config.weight), What::WeightSet);
        Ok(changed.then(|| notice(settings, backend, what)))
    }

    /// Overrides a concurrency limit, or returns to the configured one.
    pub(crate) fn set_concurrency(
        &mut self,
        pool: &str,
        backend: &str,
        limit: Option<NonZeroU32>,
    ) -> Result<Option<Notice>, RegistryError> {
        let (settings, backend) = self.find(pool, backend)?;
        let changed = backend.concurrency_override != limit;
        backend.concurrency_override = limit;
        Ok(changed.then(|| notice(settings, backend, What::ConcurrencySet(limit))))
    }

    /// Sets planned weights by backends' names. Backends that are missing keep their weights.
    /// Returns whether any weight changed.
    pub(crate) fn set_planned(
        &mut self,
        pool: &str,
        weights: &[(String, Weight)],
    ) -> Result<bool, RegistryError> {
        let pool = self.find_pool(pool)?;
        if !pool.settings.weights_by_load {
            return Ok(false);
        }
        let mut changed = false;
        for (name, weight) in weights {
            let named = |b: &&mut BackendEntry| *b.config.name == **name;
            // It may have been removed since the plan was made.
            let Some(backend) = pool.backends.iter_mut().find(named) else { continue };
            changed |= backend.weight_planned != Some(*weight);
            backend.weight_planned = Some(*weight);
        }
        pool.plan_for_the_unplanned();
        Ok(changed)
    }

    /// Applies these shares to every front door in node mode, or the configured ones. Returns
    /// whether that changed anything.
    pub(crate) fn set_shares(&mut self, shares: Option<Arc<Shares>>) -> bool {
        let mut changed = false;
        for door in self.front_doors.iter_mut().filter(|door| door.peers.is_some()) {
            changed |= door.shares != shares;
            door.shares.clone_from(&shares);
        }
        changed
    }

    /// Takes in an active check.
    pub(crate) fn checked(&mut self, report: CheckReport) -> Vec<Notice> {
        let (id, when) = (report.backend, report.when);
        let of_pool = |pool: &PoolEntry| pool.backends.iter().position(|b| b.id == id);
        let mut pools = self.pools.iter_mut();
        let Some((pool, at)) = pools.find_map(|pool| of_pool(pool).map(|at| (pool, at))) else {
            return Vec::new();
        };
        // A pool that is no longer checked may still have a result under way.
        let Some(rules) = &pool.settings.health else { return Vec::new() };
        let backend = &mut pool.backends[at];
        let why = report.result.as_ref().err().cloned();
        backend.last_check = Some(report);
        if rules.tls.is_some() {
            let label = || backend.live.label(&backend.config.name);
            backend.live.tls.warn_of_expiry(label);
        }
        if why.as_ref().is_some_and(|error| !error.blames_backend()) {
            return Vec::new();
        }
        let passed = why.is_none();
        let verdict = backend.health.checked(passed, rules).map(|verdict| {
            let of = if verdict.health == Health::Healthy { rules.rise } else { rules.fall };
            What::Checked { verdict, of, why: why.map(|error| error.to_string()) }
        });
        let is_readmitted = passed && backend.health.readmit_if_for_statuses(when);
        let readmitted = is_readmitted.then_some(What::ReadmittedByCheck);
        let whats = verdict.into_iter().chain(readmitted);
        whats.map(|what| notice(&pool.settings, backend, what)).collect()
    }

    /// Notes the addresses at which a backend with a host name passed its check; returns whether
    /// they are others than before. A family in which the check failed keeps the address at which
    /// it passed last.
    pub(crate) fn note_addresses(&mut self, report: &CheckReport) -> bool {
        if report.addresses.is_empty() {
            return false;
        }
        let mut backends = self.pools.iter_mut().flat_map(|pool| &mut pool.backends);
        let Some(backend) = backends.find(|it| it.id == report.backend) else { return false };
        let mut addresses = report.addresses.clone();
        let is_reported =
            |known: &&SocketAddr| report.addresses.iter().any(|it| it.is_ipv6() == known.is_ipv6());
        addresses.extend(backend.checked_at.iter().filter(|known| !is_reported(known)));
        // IPv6 first, as reports have them.
        addresses.sort_by_key(|address| !address.is_ipv6());
        let is_new = backend.checked_at != addresses;
        backend.checked_at = addresses;
        is_new
    }

    /// Processes an event of the data plane.
    pub(crate) fn heard(&mut self, event: BackendEvent, now: Instant) -> Option<Notice> {
        let BackendEvent::Failing { pool, backend, reason } = event;
        self.pools.iter_mut().find(|p| p.id == pool)?.failing(backend, reason, now)
    }

    /// Performs the changes that are due at `now`. It must follow every change and every
    /// [`Inventory::next_wake`].
    pub(crate) fn settle(&mut self, now: Instant) -> Vec<Notice> {
        let mut notices = Vec::new();
        let fail_open = self.fail_open();
        for (at, pool) in self.pools.iter_mut().enumerate() {
            pool.settle(fail_open.contains(&at), now, &mut notices);
        }
        notices
    }

    /// When [`Inventory::settle`] has something to do next: an ejection ends, a ramp rises, a pool
    /// should have started.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let of = |pool: &PoolEntry, backend: &BackendEntry| {
            let rise = match (pool.settings.slow_start, backend.ramp_from) {
                (Some(over), Some(from)) => {
                    ramp::next_rise(now.saturating_duration_since(from), over).map(|at| from + at)
                }
                _ => None,
            };
            rise.into_iter().chain(backend.health.ejected_until()).min()
        };
        let backends =
            self.pools.iter().flat_map(|p| p.backends.iter().filter_map(move |b| of(p, b)));
        backends.chain(self.pools.iter().filter_map(|pool| pool.starting_until)).min()
    }
}

impl PoolEntry {
    /// Beside planned weights, which are in a unit of their own, a backend without one gets what
    /// its wish is worth in it.
    pub(crate) fn plan_for_the_unplanned(&mut self) {
        let planned = self.backends.iter().filter_map(|b| {
            Some((f64::from(b.weight_planned?.get()), f64::from(b.weight_wanted().get())))
        });
        let (planned, wanted) =
            planned.fold((0.0, 0.0), |(sum, of), (planned, wanted)| (sum + planned, of + wanted));
        if planned <= 0.0 || wanted <= 0.0 {
            return;
        }
        for backend in self.backends.iter_mut().filter(|b| b.weight_planned.is_none()) {
            let worth = f64::from(backend.weight_wanted().get()) * planned / wanted;
            let worth = worth.round().clamp(1.0, f64::from(Weight::MAX)) as u16;
            backend.weight_planned = Weight::new(worth).ok();
        }
    }

    /// Ejects a backend that keeps failing, if the panic threshold allows.
    fn failing(&mut self, id: u32, reason: Reason, now: Instant) -> Option<Notice> {
        // Backups serve only when none of the others does, so they are counted separately.
        let on_backups = self.on_backups;
        let is_of_kind = |b: &&BackendEntry| b.config.backup == on_backups;
        let eligible = self.eligible().filter(is_of_kind).count();
        let total = self.backends.iter().filter(is_of_kind).count();
        // The threshold keeps a pool from having too few, where no backup can take over.
        let has_backup = self.has_backup_beside(id);
        let settings = Arc::clone(&self.settings);
        let rules = &settings.passive;
        let backend = self.backends.iter_mut().find(|b| b.id == id)?;
        let failures = backend.live.failures_in_row.load(Relaxed);
        // Events lag: the backend may be ejected already, or may have responded since.
        if rules.failures == 0 || failures < rules.failures || !backend.is_eligible() {
            return None;
        }
        if has_backup || panic::may_eject(eligible, total, rules.panic_threshold) {
            // A peer that hands requests back fails with the same reason, whatever its checks see.
            let lists_statuses = !rules.statuses.is_empty();
            let cause = match reason {
                Reason::BackendError if lists_statuses => EjectionCause::Status,
                _ => EjectionCause::Connection,
            };
            let lasts = backend.health.eject(rules, cause, now) - now;
            backend.refusal_noted = None;
            return Some(notice(&settings, backend, What::Ejected { failures, reason, lasts }));
        }
        let noted = backend.refusal_noted.map(|at| now.saturating_duration_since(at));
        if noted.is_some_and(|ago| ago < REFUSAL_LOG_INTERVAL) {
            return None;
        }
        backend.refusal_noted = Some(now);
        let share = rules.panic_threshold;
        let what = What::EjectionRefused { failures, eligible, total, share };
        Some(notice(&settings, backend, what))
    }

    fn settle(&mut self, may_fail_open: bool, now: Instant, notices: &mut Vec<Notice>) {
        for backend in &mut self.backends {
            if backend.health.expire(now) {
                let health = backend.health.health();
                notices.push(notice(&self.settings, backend, What::EjectionOver { health }));
            }
        }
        self.keep_the_share(now, notices);
        for backend in &mut self.backends {
            backend.settle(self.settings.slow_start, now);
        }
        // The connections of a last resort are needed.
        let fails_open = may_fail_open && self.last_resort().next().is_some();
        let closes = !fails_open && self.settings.health.as_ref().is_some_and(|it| it.closes);
        for backend in &mut self.backends {
            backend.is_lost = closes && backend.health.verdict() == Health::Unhealthy;
            if !backend.is_lost && backend.admin != AdminState::Down {
                backend.live.cut.store(false, Relaxed);
            }
        }
        let serving = self.follow_serving(now).map(|what| match what {
            What::Empty if may_fail_open => What::EmptyHere,
            what => what,
        });
        for what in [serving, self.follow_backups()].into_iter().flatten() {
            notices.push(Notice { pool: self.settings.name.clone(), backend: None, what });
        }
    }

    /// Whether it has come to serve, or to serve no more.
    fn follow_serving(&mut self, now: Instant) -> Option<What> {
        let was_serving = self.serving;
        self.serving = self.backends.iter().any(|b| b.was_eligible);
        let was_starting = self.starting_until.is_some();
        self.starting_until = self.starting_until.filter(|until| !self.serving && now < *until);
        match (was_serving, self.serving) {
            (false, true) if was_starting => Some(What::Started),
            (false, true) => Some(What::Serving),
            (true, false) if self.starting_until.is_some() => Some(What::Starting),
            (true, false) if self.awaits_backend() => Some(What::Awaiting),
            (true, false) => Some(What::Empty),
            (false, false) if was_starting && self.starting_until.is_none() => Some(What::Empty),
            _ => None,
        }
    }

    /// Notes whether the pool's work moved to its backups, or back.
    fn follow_backups(&mut self) -> Option<What> {
        let is_on_backups = self.picked().any(|b| b.config.backup)
            && self.backends.iter().any(|b| !b.config.backup);
        let was = std::mem::replace(&mut self.on_backups, is_on_backups);
        match (was, is_on_backups) {
            (false, true) => Some(What::OnBackups),
            (true, false) if self.serving => Some(What::OffBackups),
            _ => None,
        }
    }

    /// Readmits ejected backends, the soonest due first, while too few others are left.
    fn keep_the_share(&mut self, now: Instant, notices: &mut Vec<Notice>) {
        if self.eligible().any(|b| b.config.backup) {
            return;
        }
        let share = self.settings.passive.panic_threshold;
        let missing = panic::shortfall(self.eligible().count(), self.backends.len(), share);
        let mut ejected: Vec<usize> = (0..self.backends.len())
            .filter(|i| {
                let b = &self.backends[*i];
                let fit = b.eligibility_if(b.health.verdict()).is_eligible();
                fit && b.health.ejected_until().is_some()
            })
            .collect();
        ejected.sort_by_key(|i| self.backends[*i].health.ejected_until());
        for i in ejected.into_iter().take(missing) {
            self.backends[i].health.readmit(now);
            let what = What::Readmitted { share };
            notices.push(notice(&self.settings, &self.backends[i], what));
        }
    }
}

impl BackendEntry {
    /// Follows its coming and going: coming back starts a slow start and a new row of failures.
    fn settle(&mut self, slow_start: Option<Duration>, now: Instant) {
        let eligible = self.is_eligible();
        if eligible && !self.was_eligible {
            self.ramp_from = slow_start.map(|_| now);
            self.live.failures_in_row.store(0, Relaxed);
        }
        let ramping = |from: Instant| {
            slow_start.is_some_and(|over| now.saturating_duration_since(from) < over)
        };
        if !eligible || !self.ramp_from.is_some_and(ramping) {
            self.ramp_from = None;
        }
        self.was_eligible = eligible;
        self.live.unhealthy.store(self.health.verdict() == Health::Unhealthy, Relaxed);
    }
}

#[cfg(test)]
mod tests;

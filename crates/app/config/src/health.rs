//! Health checks of a pool: `[pool.health]` and `[pool.passive]`.

use std::sync::Arc;

use equipoise_session::config::checks::{CheckMethod, TcpCheck};
use equipoise_session::config::{ActiveHealth, HealthCheck, PassiveHealth, Upstream};

use super::key::{Any, Key};
use super::option::Kind;
use super::place::is_unix_socket;
use super::problem::Findings;
use super::tables::{CHECK_TYPES, CheckType, Health, Passive, Pool};
use super::text::{StatusRange, listed, show_duration};
use super::view::View;

/// Reads `[pool.health]` of a pool with this `upstream`.
pub(super) fn active(health: View<'_, Health>, upstream: Upstream) -> ActiveHealth {
    let check = CHECK_TYPES.iter().find_map(|kind| (kind.read)(health, upstream));
    ActiveHealth {
        check: check.unwrap_or(HealthCheck::Tcp(TcpCheck)),
        port: health.get(Health::PORT),
        interval: health.get(Health::INTERVAL),
        timeout: health.get(Health::TIMEOUT),
        rise: health.get(Health::RISE),
        fall: health.get(Health::FALL),
        tls: None,
        preamble: &[],
        every_family: false,
        closes: health.get(Health::CLOSE_CONNECTIONS),
    }
}

/// Reads `[pool.passive]`.
pub(super) fn passive(passive: View<'_, Passive>) -> PassiveHealth {
    PassiveHealth {
        failures: passive.get(Passive::FAILURES),
        statuses: statuses(passive),
        ejection: passive.get(Passive::EJECTION),
        ejection_max: passive.get(Passive::EJECTION_MAX),
        panic_threshold: passive.get(Passive::PANIC_THRESHOLD),
    }
}

fn statuses(passive: View<'_, Passive>) -> Arc<[(u16, u16)]> {
    let ranges = passive.get(Passive::STATUSES).into_iter();
    ranges.map(|StatusRange(first, last)| (first, last)).collect()
}

/// Checks the relations between the options of both kinds of checks.
pub(super) fn check(pool: View<'_, Pool>, findings: &mut Findings<'_>) {
    let passive = pool.get(Pool::PASSIVE);
    let (first, longest) = (passive.get(Passive::EJECTION), passive.get(Passive::EJECTION_MAX));
    if longest < first {
        let option = if passive.given(Passive::EJECTION_MAX) {
            Passive::EJECTION_MAX
        } else {
            Passive::EJECTION
        };
        let text = format!(
            "`ejection-max` ({}) is below `ejection` ({}); accepted: as long or longer",
            show_duration(longest),
            show_duration(first)
        );
        findings.error(passive.at(option), &passive.path_of(option), text);
    }
    let Some(health) = pool.get(Pool::HEALTH) else { return };
    check_type(health, pool.get(Pool::UPSTREAM), findings);
    if health.given(Health::BODY) && health.get(Health::METHOD) == CheckMethod::Head {
        let text = "a response to HEAD has no body; accepted: `method` GET, OPTIONS or POST, or no \
                    `body`";
        findings.error(health.at(Health::BODY), &health.path_of(Health::BODY), text.into());
    }
    if health.given(Health::PORT) && pool.get(Pool::BACKENDS).iter().any(is_unix_socket) {
        let text = "has no effect on a unix socket, which this pool has as a backend; accepted: \
                    without `port`, or with backends at IP:PORT alone";
        findings.error(health.at(Health::PORT), &health.path_of(Health::PORT), text.into());
    }
    let (interval, timeout) = (health.get(Health::INTERVAL), health.get(Health::TIMEOUT));
    if timeout > interval {
        let option = if health.given(Health::TIMEOUT) { Health::TIMEOUT } else { Health::INTERVAL };
        let text = format!(
            "`timeout` ({}) is longer than `interval` ({}), so a backend that hangs is checked less often",
            show_duration(timeout),
            show_duration(interval)
        );
        findings.warning(health.at(option), &health.path_of(option), text);
    }
}

/// Checks that the table states one type of checks, and options of that type only.
fn check_type(health: View<'_, Health>, upstream: Upstream, findings: &mut Findings<'_>) {
    let is_stated = |kind: &&CheckType| (kind.read)(health, upstream).is_some();
    let (stated, others): (Vec<_>, Vec<_>) = CHECK_TYPES.iter().partition(is_stated);
    match stated[..] {
        [] if !findings.has_error_below(health.path()) => {
            let types = || Key::<Health, Any>::all().filter_map(type_of);
            let names: Vec<_> = types().map(|kind| format!("`{}`", kind.option.name())).collect();
            let examples: Vec<_> = types().map(|kind| kind.example.to_string()).collect();
            let (names, examples) = (listed(&names, "and"), listed(&examples, "or"));
            let text = format!("none of {names} is set; accepted: {examples}");
            findings.error(health.start(), health.path(), text);
        }
        [first, &CheckType { option, note, .. }, ..] => {
            let set = if matches!(option.opt.kind, Kind::Flag) { "true" } else { "set" };
            let first = first.option.name();
            let text = format!("{set}, together with `{first}`; accepted: one of the two{note}");
            findings.error(health.at(option), &health.path_of(option), text);
        }
        _ => {}
    }
    let Some(kind) = stated.first() else { return };
    for other in others {
        for option in other.own.iter().copied().filter(|option| health.given(*option)) {
            let (kind, other) = (kind.option.name(), other.option.name());
            let text =
                format!("has no effect on a {kind} check; accepted: with `{other}` beside it");
            findings.error(health.at(option), &health.path_of(option), text);
        }
    }
}

/// The type that an option states.
fn type_of(option: Key<Health, Any>) -> Option<&'static CheckType> {
    CHECK_TYPES.iter().find(|kind| kind.option.name() == option.name())
}

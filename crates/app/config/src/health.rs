//! Health checks of a pool: `[pool.health]` and `[pool.passive]`.

use std::sync::Arc;

use equipoise_session::config::{ActiveHealth, CheckMethod, HealthCheck, HttpCheck, PassiveHealth};

use super::place::is_unix_socket;
use super::problem::Findings;
use super::tables::{Health, Passive, Pool};
use super::text::{StatusRange, StatusRanges, show_duration};
use super::view::View;

/// `http2`: the pool's backends speak it.
pub(super) fn active(health: View<'_, Health>, http2: bool) -> ActiveHealth {
    let StatusRanges(statuses) = health.get(Health::STATUS);
    let check = match (health.get(Health::HTTP), health.get(Health::GRPC)) {
        (Some(path), _) => HealthCheck::Http(HttpCheck {
            http2,
            method: health.get(Health::METHOD),
            path: path.into(),
            host: health.get(Health::HOST).map(Into::into),
            statuses: statuses.into(),
            body: health.get(Health::BODY).map(Into::into),
        }),
        (None, Some(service)) => HealthCheck::Grpc { service: service.into() },
        (None, None) => HealthCheck::Tcp,
    };
    ActiveHealth {
        check,
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
    // `tcp = false` beside `http` is allowed; it means the same as leaving `tcp` out.
    let (tcp, http, grpc) = (
        health.get(Health::TCP) == Some(true),
        health.given(Health::HTTP),
        health.given(Health::GRPC),
    );
    if tcp && http {
        let text =
            "true, together with `http`; accepted: one of the two (http opens a connection too)";
        findings.error(health.at(Health::TCP), &health.path_of(Health::TCP), text.into());
    } else if grpc && (tcp || http) {
        let other = if tcp { "tcp" } else { "http" };
        let text = format!("set, together with `{other}`; accepted: one of the two");
        findings.error(health.at(Health::GRPC), &health.path_of(Health::GRPC), text);
    } else if !tcp && !http && !grpc && !findings.has_error_below(health.path()) {
        let text = "none of `tcp`, `http` and `grpc` is set; accepted: tcp = true, http = \"/PATH\" \
                    or grpc = \"SERVICE\"";
        findings.error(health.start(), health.path(), text.into());
    }
    for option in
        [Health::METHOD.any(), Health::HOST.any(), Health::STATUS.any(), Health::BODY.any()]
    {
        if (tcp || grpc) && !http && health.given(option) {
            let kind = if tcp { "tcp" } else { "grpc" };
            let text = format!("has no effect on a {kind} check; accepted: with `http` beside it");
            findings.error(health.at(option), &health.path_of(option), text);
        }
    }
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

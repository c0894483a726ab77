//! Health checks of a pool: `[pool.health]` and `[pool.passive]`.

use std::sync::Arc;

use equipoise_session::config::{ActiveHealth, CheckMethod, HealthCheck, HttpCheck, PassiveHealth};

use super::place::is_unix_socket;
use super::problem::Findings;
use super::tables;
use super::text::{StatusRange, StatusRanges, show_duration};
use super::values::{Values, chosen};

/// `http2`: the pool's backends speak it.
pub(super) fn active(health: &Values, http2: bool) -> ActiveHealth {
    let StatusRanges(statuses) =
        health.parsed("status").expect("has a default: a test reads every one");
    let check = match (health.text("http"), health.text("grpc")) {
        (Some(path), _) => HealthCheck::Http(HttpCheck {
            http2,
            method: chosen(health, "method", &tables::CHECK_METHOD),
            path: path.into(),
            host: health.text("host").map(Into::into),
            statuses: statuses.into(),
            body: health.text("body").map(Into::into),
        }),
        (None, Some(service)) => HealthCheck::Grpc { service: service.into() },
        (None, None) => HealthCheck::Tcp,
    };
    ActiveHealth {
        check,
        port: health.given("port").then(|| health.amount("port")),
        interval: health.duration("interval"),
        timeout: health.duration("timeout"),
        rise: health.amount("rise"),
        fall: health.amount("fall"),
        tls: None,
        preamble: &[],
        every_family: false,
        closes: health.flag("close-connections"),
    }
}

/// Reads `[pool.passive]`.
pub(super) fn passive(passive: &Values) -> PassiveHealth {
    PassiveHealth {
        failures: passive.amount("failures"),
        statuses: statuses(passive),
        ejection: passive.duration("ejection"),
        ejection_max: passive.duration("ejection-max"),
        panic_threshold: passive.share("panic-threshold"),
    }
}

fn statuses(passive: &Values) -> Arc<[(u16, u16)]> {
    let texts = passive.texts("statuses").unwrap_or_default();
    let ranges = texts.iter().filter_map(|text| text.parse().ok());
    ranges.map(|StatusRange(first, last)| (first, last)).collect()
}

/// Checks the relations between the options of both kinds of checks.
pub(super) fn check(pool: &Values, findings: &mut Findings<'_>) {
    if let Some(passive) = pool.table("passive") {
        let (first, longest) = (passive.duration("ejection"), passive.duration("ejection-max"));
        if longest < first {
            let option = if passive.given("ejection-max") { "ejection-max" } else { "ejection" };
            let text = format!(
                "`ejection-max` ({}) is below `ejection` ({}); accepted: as long or longer",
                show_duration(longest),
                show_duration(first)
            );
            findings.error(passive.at(option), &passive.path_of(option), text);
        }
    }
    let Some(health) = pool.table("health") else { return };
    // `tcp = false` beside `http` is allowed; it means the same as leaving `tcp` out.
    let (tcp, http, grpc) = (health.flag("tcp"), health.given("http"), health.given("grpc"));
    if tcp && http {
        let text =
            "true, together with `http`; accepted: one of the two (http opens a connection too)";
        findings.error(health.at("tcp"), &health.path_of("tcp"), text.into());
    } else if grpc && (tcp || http) {
        let other = if tcp { "tcp" } else { "http" };
        let text = format!("set, together with `{other}`; accepted: one of the two");
        findings.error(health.at("grpc"), &health.path_of("grpc"), text);
    } else if !tcp && !http && !grpc && !findings.has_error_below(&health.path) {
        let text = "none of `tcp`, `http` and `grpc` is set; accepted: tcp = true, http = \"/PATH\" \
                    or grpc = \"SERVICE\"";
        findings.error(health.at, &health.path, text.into());
    }
    for option in ["method", "host", "status", "body"] {
        if (tcp || grpc) && !http && health.given(option) {
            let kind = if tcp { "tcp" } else { "grpc" };
            let text = format!("has no effect on a {kind} check; accepted: with `http` beside it");
            findings.error(health.at(option), &health.path_of(option), text);
        }
    }
    if health.given("body")
        && health.choice("method", &tables::CHECK_METHOD) == Some(CheckMethod::Head)
    {
        let text = "a response to HEAD has no body; accepted: `method` GET, OPTIONS or POST, or no \
                    `body`";
        findings.error(health.at("body"), &health.path_of("body"), text.into());
    }
    if health.given("port") && pool.tables("backends").iter().any(is_unix_socket) {
        let text = "has no effect on a unix socket, which this pool has as a backend; accepted: \
                    without `port`, or with backends at IP:PORT alone";
        findings.error(health.at("port"), &health.path_of("port"), text.into());
    }
    let (interval, timeout) = (health.duration("interval"), health.duration("timeout"));
    if timeout > interval {
        let option = if health.given("timeout") { "timeout" } else { "interval" };
        let text = format!(
            "`timeout` ({}) is longer than `interval` ({}), so a backend that hangs is checked less often",
            show_duration(timeout),
            show_duration(interval)
        );
        findings.warning(health.at(option), &health.path_of(option), text);
    }
}

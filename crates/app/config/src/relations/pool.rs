//! Relations between the options of one pool.

use equipoise_core::SchedulerKind;
use equipoise_session::config::{CheckMethod, Upstream};

use super::{is_unix_socket, unique};
use crate::problem::Findings;
use crate::tables;
use crate::text::show_duration;
use crate::values::Values;

pub(super) fn backends(pool: &Values, findings: &mut Findings<'_>) {
    let (backends, path) = (pool.tables("backends"), pool.path_of("backends"));
    unique(backends, "name", findings);
    if findings.has_error_below(&path) {
        return;
    }
    let wrong = if backends.is_empty() && (pool.given("elastic") || pool.given("discover")) {
        return;
    } else if backends.is_empty() {
        "no backends, so clients of this pool are refused"
    } else if backends.iter().all(|backend| backend.number("weight") == Some(0)) {
        "every backend has weight 0, so clients of this pool are refused"
    } else {
        return;
    };
    findings.warning(pool.at("backends"), &path, wrong.to_string());
}

pub(super) fn scheduling(pool: &Values, findings: &mut Findings<'_>) {
    let scheduler = pool.choice("scheduler", &tables::SCHEDULER);
    let weighted = match scheduler {
        Some(SchedulerKind::RoundRobin) => Some("weighted-round-robin"),
        Some(SchedulerKind::LeastConnection) => Some("weighted-least-connection"),
        _ => None,
    };
    if let (Some(weighted), Some(name)) = (weighted, pool.text("scheduler")) {
        let text = format!("has no effect: {name} ignores weights; use {weighted}");
        if pool.choice("weights", &tables::WEIGHTS) == Some(true) {
            findings.warning(pool.at("weights"), &pool.path_of("weights"), text.clone());
        }
        if pool.given("slow-start") {
            findings.warning(pool.at("slow-start"), &pool.path_of("slow-start"), text.clone());
        }
        for backend in pool.tables("backends") {
            // Weight 0 disables a backend under every scheduler, and 1 is the default.
            if backend.number("weight").is_some_and(|weight| weight > 1) {
                findings.warning(backend.at("weight"), &backend.path_of("weight"), text.clone());
            }
        }
    }
    if pool.given("hash-by") && scheduler != Some(SchedulerKind::SourceHash) {
        let text = "has no effect: the scheduler does not hash requests; use source-hash";
        findings.warning(pool.at("hash-by"), &pool.path_of("hash-by"), text.to_string());
    }
    if pool.given("hedge")
        && pool.choice("upstream", &tables::UPSTREAM) == Some(Upstream::Multiplexed)
    {
        let text = "a request on a shared session cannot be hedged; accepted: `upstream = \"exclusive\"` or `\"http2\"`";
        findings.error(pool.at("hedge"), &pool.path_of("hedge"), text.to_string());
    }
    let Some(upstream) = pool.choice("upstream", &tables::UPSTREAM) else { return };
    let health = pool.table("health").filter(|health| health.given("grpc"));
    if let Some(health) = health.filter(|_| pool.given("tls") && upstream != Upstream::Http2) {
        let text = "over TLS this check needs HTTP/2 of the pool's backends; accepted: `upstream = \"http2\"`, or no `tls`";
        findings.error(health.at("grpc"), &health.path_of("grpc"), text.into());
    }
    let name = pool.text("upstream").unwrap_or_default();
    let (multiplexed, http2) = (upstream == Upstream::Multiplexed, upstream == Upstream::Http2);
    let options = [
        ("multiplex-sessions", multiplexed),
        ("multiplex-depth", multiplexed),
        ("multiplex-slow", multiplexed),
        ("streams-max", http2),
        ("idle-sessions-max", !http2),
    ];
    for (option, _) in options.iter().filter(|(option, used)| !used && pool.given(option)) {
        let text = format!("has no effect: `upstream` is \"{name}\"");
        findings.warning(pool.at(option), &pool.path_of(option), text);
    }
}

pub(super) fn health(pool: &Values, findings: &mut Findings<'_>) {
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

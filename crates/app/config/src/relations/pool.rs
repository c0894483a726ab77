//! Relations between the options of one pool.

use equipoise_core::SchedulerKind;
use equipoise_session::config::Upstream;

use super::unique;
use crate::problem::Findings;
use crate::tables;
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

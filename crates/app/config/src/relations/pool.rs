//! Relations between the options of one pool.

use equipoise_core::SchedulerKind;
use equipoise_session::config::Upstream;

use super::unique;
use crate::option::Word as _;
use crate::problem::Findings;
use crate::tables::{Backend, Health, Pool, WeightsBy};
use crate::view::View;

pub(super) fn backends(pool: View<'_, Pool>, findings: &mut Findings<'_>) {
    let (backends, path) = (pool.get(Pool::BACKENDS), pool.path_of(Pool::BACKENDS));
    unique(backends, Backend::NAME, findings);
    if findings.has_error_below(&path) {
        return;
    }
    let wrong = if backends.is_empty() && (pool.given(Pool::ELASTIC) || pool.given(Pool::DISCOVER))
    {
        return;
    } else if backends.is_empty() {
        "no backends, so clients of this pool are refused"
    } else if backends.iter().all(|backend| backend.get(Backend::WEIGHT) == 0) {
        "every backend has weight 0, so clients of this pool are refused"
    } else {
        return;
    };
    findings.warning(pool.at(Pool::BACKENDS), &path, wrong.to_string());
}

pub(super) fn scheduling(pool: View<'_, Pool>, findings: &mut Findings<'_>) {
    let scheduler = pool.get(Pool::SCHEDULER);
    let weighted = match scheduler {
        SchedulerKind::RoundRobin => Some("weighted-round-robin"),
        SchedulerKind::LeastConnection => Some("weighted-least-connection"),
        _ => None,
    };
    if let Some(weighted) = weighted {
        let name = scheduler.word();
        let text = format!("has no effect: {name} ignores weights; use {weighted}");
        if pool.get(Pool::WEIGHTS) == WeightsBy::Load {
            findings.warning(pool.at(Pool::WEIGHTS), &pool.path_of(Pool::WEIGHTS), text.clone());
        }
        if pool.given(Pool::SLOW_START) {
            findings.warning(
                pool.at(Pool::SLOW_START),
                &pool.path_of(Pool::SLOW_START),
                text.clone(),
            );
        }
        for backend in pool.get(Pool::BACKENDS) {
            // Weight 0 disables a backend under every scheduler, and 1 is the default.
            if backend.get(Backend::WEIGHT) > 1 {
                findings.warning(
                    backend.at(Backend::WEIGHT),
                    &backend.path_of(Backend::WEIGHT),
                    text.clone(),
                );
            }
        }
    }
    if pool.given(Pool::HASH_BY) && scheduler != SchedulerKind::SourceHash {
        let text = "has no effect: the scheduler does not hash requests; use source-hash";
        findings.warning(pool.at(Pool::HASH_BY), &pool.path_of(Pool::HASH_BY), text.to_string());
    }
    if pool.given(Pool::HEDGE) && pool.get(Pool::UPSTREAM) == Upstream::Multiplexed {
        let text = "a request on a shared session cannot be hedged; accepted: `upstream = \"exclusive\"`, `\"http2\"` or `\"auto\"`";
        findings.error(pool.at(Pool::HEDGE), &pool.path_of(Pool::HEDGE), text.to_string());
    }
    let upstream = pool.get(Pool::UPSTREAM);
    let health = pool.get(Pool::HEALTH).filter(|health| health.given(Health::GRPC));
    if let Some(health) = health.filter(|_| pool.given(Pool::TLS) && upstream != Upstream::Http2) {
        let text = "over TLS this check needs HTTP/2 of the pool's backends; accepted: `upstream = \"http2\"`, or no `tls`";
        findings.error(health.at(Health::GRPC), &health.path_of(Health::GRPC), text.into());
    }
    let name = upstream.word();
    if upstream == Upstream::Auto && !pool.given(Pool::TLS) {
        let text = "HTTP/2 is agreed on by ALPN, which is a part of TLS; accepted: `tls` of the pool, or another `upstream`";
        findings.error(pool.at(Pool::UPSTREAM), &pool.path_of(Pool::UPSTREAM), text.to_string());
    }
    let multiplexed = upstream == Upstream::Multiplexed;
    let may_be_http2 = matches!(upstream, Upstream::Http2 | Upstream::Auto);
    let options = [
        (Pool::MULTIPLEX_SESSIONS.any(), multiplexed),
        (Pool::MULTIPLEX_DEPTH.any(), multiplexed),
        (Pool::MULTIPLEX_SLOW.any(), multiplexed),
        (Pool::STREAMS_MAX.any(), may_be_http2),
        (Pool::IDLE_SESSIONS_MAX.any(), upstream != Upstream::Http2),
    ];
    for (option, _) in options.into_iter().filter(|(option, used)| !used && pool.given(*option)) {
        let text = format!("has no effect: `upstream` is \"{name}\"");
        findings.warning(pool.at(option), &pool.path_of(option), text);
    }
}

//! Relations between the options of a pool and the levels and front doors that use it.

use equipoise_session::config::{Concurrency, Protocol, Upstream};

use super::{LEVELS, is_unix_socket, without_http};
use crate::pools;
use crate::problem::Findings;
use crate::tables::PlanMode;
use crate::users::{PoolUsers, protocol_of};
use crate::values::Values;

/// Refuses learnt limits with udp: datagrams do not queue, and a limit is learnt only while
/// requests wait.
pub(super) fn learnt_limits(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    if !users.doors.iter().any(|door| protocol_of(door) == Some(Protocol::Udp)) {
        return;
    }
    for values in std::iter::once(pool).chain(pool.tables("backends")) {
        if pools::concurrency(values) == Some(Concurrency::Learnt) {
            let text = "\"learnt\", and a front door that speaks udp uses this pool, from which no limit can be \
                        learned; accepted: a number or \"none\"";
            findings.error(values.at("concurrency"), &values.path_of("concurrency"), text.into());
        }
    }
    let is_paused = |elastic: &Values| elastic.choice("mode") == Some(PlanMode::Paused);
    // A pool that is not paused has another error.
    if !pool.given("concurrency")
        && pool.table("elastic").is_some_and(is_paused)
        && pools::concurrency_of_pool(pool, false) == Concurrency::Learnt
    {
        let text = "not stated, and this elastic pool would learn it, but a front door that speaks udp uses the pool, \
                    from which no limit can be learned; accepted: a number or \"none\"";
        findings.error(pool.at("concurrency"), &pool.path_of("concurrency"), text.into());
    }
}

/// Warns of a pool that learns no limits because of one of its front doors.
pub(super) fn unlimited(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let speaks = |protocol| users.doors.iter().any(|door| protocol_of(door) == Some(protocol));
    let others = [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")];
    let other = others.into_iter().find(|(protocol, _)| speaks(*protocol));
    let is_unlimited = pools::concurrency_of_pool(pool, false) == Concurrency::None;
    if let Some((_, word)) = other.filter(|_| speaks(Protocol::Http))
        && !pool.given("concurrency")
        && is_unlimited
    {
        let text = format!(
            "not stated, and because a front door that speaks {word} uses this pool, too, its http requests have no \
             limit and no queue; state a number, \"learnt\" or \"none\", or give each protocol its own pool"
        );
        findings.warning(pool.at("concurrency"), &pool.path_of("concurrency"), text);
    }
}

/// Refuses unix sockets for levels that cannot use them: only tcp and http front doors on this
/// machine can.
pub(super) fn unix_sockets(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let is_udp = |door: &&Values| protocol_of(door) == Some(Protocol::Udp);
    let user = if users.packet {
        "a [[packet]] table"
    } else if users.dns {
        "a [[dns]] table"
    } else if users.doors.iter().any(is_udp) {
        "a front door that speaks udp"
    } else {
        return;
    };
    for backend in pool.tables("backends") {
        if is_unix_socket(backend.typed()) {
            let text =
                format!("a unix socket, and {user} uses this pool; accepted: IP:PORT or HOST:PORT");
            findings.error(backend.at("address"), &backend.path_of("address"), text);
        }
    }
}

/// Warns if names use the pool, which ignore `backup`.
pub(super) fn backups(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    if !users.dns {
        return;
    }
    for backend in pool.tables("backends").iter().filter(|backend| backend.flag("backup")) {
        let text = "has no effect on the [[dns]] tables that use this pool: they send to a backup as to any other backend";
        findings.warning(backend.at("backup"), &backend.path_of("backup"), text.to_string());
    }
}

/// Warns of options that only front doors use, in a pool without front doors.
pub(super) fn without_sessions(pool: &Values, findings: &mut Findings<'_>) {
    let others = ["scheduler", "connect-timeout", "retries", "send-proxy", "passive", "slow-start"];
    for option in pool.spec.options {
        if (option.http_only || others.contains(&option.name)) && pool.given(option.name) {
            let text = match option.name {
                "scheduler" => {
                    "has no effect: only [[packet]] tables use this pool, and each has its own `scheduler`"
                }
                _ => "has no effect: only [[packet]] tables use this pool",
            };
            findings.warning(pool.at(option.name), &pool.path_of(option.name), text.into());
        }
    }
    if let Some(health) = pool.table("health").filter(|it| it.given("close-connections")) {
        let option = "close-connections";
        let text = "has no effect: only [[packet]] tables use this pool";
        findings.warning(health.at(option), &health.path_of(option), text.into());
    }
}

/// Warns of pool options that the protocols of the pool's front doors do not use.
pub(super) fn front_doors_of(pool: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let protocols: Option<Vec<Protocol>> =
        users.doors.iter().map(|door| protocol_of(door)).collect();
    // A front door that could not be read may have any protocol.
    let Some(protocols) = protocols else { return };
    if protocols.is_empty() {
        let unread = LEVELS.iter().any(|it| findings.has_error_below(it));
        if !unread {
            findings.warning(pool.at, &pool.path, "no front door uses this pool".to_string());
        }
        return;
    }
    if !protocols.contains(&Protocol::Http) {
        let why = "no front door of this pool speaks HTTP";
        for values in [Some(pool), pool.table("passive")].into_iter().flatten() {
            without_http(values, why, findings);
        }
    }
    send_proxy(pool, users, &protocols, findings);
    if !users.packet
        && protocols.iter().all(|protocol| *protocol == Protocol::Udp)
        && let Some(health) = pool.table("health")
        && health.given("http")
    {
        let text =
            "every front door of this pool is udp, whose backends do not answer HTTP there; \
                        accepted: tcp = true where they accept TCP too, or no `health`"
                .to_string();
        findings.error(health.at("http"), &health.path_of("http"), text);
    }
}

/// Checks `send-proxy`: a session with such a header is for one client.
fn send_proxy(
    pool: &Values,
    users: &PoolUsers<'_>,
    protocols: &[Protocol],
    findings: &mut Findings<'_>,
) {
    if !pool.given("send-proxy") {
        return;
    }
    let (at, option) = (pool.at("send-proxy"), pool.path_of("send-proxy"));
    if protocols.iter().all(|protocol| *protocol == Protocol::Udp) {
        let text = "has no effect: no front door of this pool is tcp or http".to_string();
        findings.warning(at, &option, text);
    }
    let shared = pool.choice("upstream") != Some(Upstream::Exclusive);
    if shared && protocols.contains(&Protocol::Http) {
        let text = "the header names one client, and clients share sessions by `upstream`; accepted: `upstream = \
                    \"exclusive\"`, or no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
    if users.doors.iter().any(|door| door.spec.title == "[[dispatch]]") {
        let text = "a [[dispatch]] front door uses this pool, and a peer's connection carries requests of many clients; \
                    accepted: no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
}

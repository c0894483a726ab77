//! Relations between the options of a pool and the levels and front doors that use it.

use equipoise_session::config::{Concurrency, Protocol, Upstream};

use super::{LEVELS, is_unix_socket, without_http};
use crate::key::{CountOr, Key};
use crate::pools;
use crate::problem::Findings;
use crate::tables::{Backend, Elastic, Health, PlanMode, Pool};
use crate::users::{DoorTable, PoolUsers};
use crate::view::View;

/// Refuses learnt limits with udp: datagrams do not queue, and a limit is learnt only while
/// requests wait.
pub(super) fn learnt_limits(
    pool: View<'_, Pool>,
    users: &PoolUsers<'_>,
    findings: &mut Findings<'_>,
) {
    if !users.speak(Protocol::Udp) {
        return;
    }
    learnt(pool, Pool::CONCURRENCY, findings);
    for backend in pool.get(Pool::BACKENDS) {
        learnt(backend, Backend::CONCURRENCY, findings);
    }
    let is_paused = |elastic: View<'_, Elastic>| elastic.get(Elastic::MODE) == PlanMode::Paused;
    // A pool that is not paused has another error.
    if !pool.given(Pool::CONCURRENCY)
        && pool.get(Pool::ELASTIC).is_some_and(is_paused)
        && pools::concurrency_of_pool(pool, false) == Concurrency::Learnt
    {
        let text = "not stated, and this elastic pool would learn it, but a front door that speaks udp uses the pool, \
                    from which no limit can be learned; accepted: a number or \"none\"";
        findings.error(pool.at(Pool::CONCURRENCY), &pool.path_of(Pool::CONCURRENCY), text.into());
    }
}

fn learnt<T>(
    values: View<'_, T>,
    option: Key<T, Option<CountOr<Concurrency>>>,
    findings: &mut Findings<'_>,
) {
    if values.get(option) == Some(Concurrency::Learnt) {
        let text = "\"learnt\", and a front door that speaks udp uses this pool, from which no limit can be \
                    learned; accepted: a number or \"none\"";
        findings.error(values.at(option), &values.path_of(option), text.into());
    }
}

/// Warns of a pool that learns no limits because of one of its front doors.
pub(super) fn unlimited(pool: View<'_, Pool>, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let others = [(Protocol::Tcp, "tcp"), (Protocol::Udp, "udp")];
    let other = others.into_iter().find(|(protocol, _)| users.speak(*protocol));
    let is_unlimited = pools::concurrency_of_pool(pool, false) == Concurrency::None;
    if let Some((_, word)) = other.filter(|_| users.speak(Protocol::Http))
        && !pool.given(Pool::CONCURRENCY)
        && is_unlimited
    {
        let text = format!(
            "not stated, and because a front door that speaks {word} uses this pool, too, its http requests have no \
             limit and no queue; state a number, \"learnt\" or \"none\", or give each protocol its own pool"
        );
        findings.warning(pool.at(Pool::CONCURRENCY), &pool.path_of(Pool::CONCURRENCY), text);
    }
}

/// Refuses unix sockets for levels that cannot use them: only tcp and http front doors on this
/// machine can.
pub(super) fn unix_sockets(
    pool: View<'_, Pool>,
    users: &PoolUsers<'_>,
    findings: &mut Findings<'_>,
) {
    let user = if users.packet {
        "a [[packet]] table"
    } else if users.dns {
        "a [[dns]] table"
    } else if users.speak(Protocol::Udp) {
        "a front door that speaks udp"
    } else {
        return;
    };
    for backend in pool.get(Pool::BACKENDS) {
        if is_unix_socket(backend) {
            let text =
                format!("a unix socket, and {user} uses this pool; accepted: IP:PORT or HOST:PORT");
            findings.error(backend.at(Backend::ADDRESS), &backend.path_of(Backend::ADDRESS), text);
        }
    }
}

/// Warns if names use the pool, which ignore `backup`.
pub(super) fn backups(pool: View<'_, Pool>, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    if !users.dns {
        return;
    }
    for backend in pool.get(Pool::BACKENDS).iter().filter(|backend| backend.get(Backend::BACKUP)) {
        let text = "has no effect on the [[dns]] tables that use this pool: they send to a backup as to any other backend";
        findings.warning(
            backend.at(Backend::BACKUP),
            &backend.path_of(Backend::BACKUP),
            text.to_string(),
        );
    }
}

/// Warns of options that only front doors use, in a pool without front doors.
pub(super) fn without_sessions(pool: View<'_, Pool>, findings: &mut Findings<'_>) {
    let others = [
        Pool::SCHEDULER.name(),
        Pool::CONNECT_TIMEOUT.name(),
        Pool::RETRIES.name(),
        Pool::SEND_PROXY.name(),
        Pool::PASSIVE.name(),
        Pool::SLOW_START.name(),
    ];
    let is_other = |option: &Key<_, _>| option.opt.http_only || others.contains(&option.name());
    for option in pool.stated().filter(is_other) {
        let text = match option.name() == Pool::SCHEDULER.name() {
            true => {
                "has no effect: only [[packet]] tables use this pool, and each has its own `scheduler`"
            }
            false => "has no effect: only [[packet]] tables use this pool",
        };
        findings.warning(pool.at(option), &pool.path_of(option), text.into());
    }
    if let Some(health) = pool.get(Pool::HEALTH).filter(|it| it.given(Health::CLOSE_CONNECTIONS)) {
        let option = Health::CLOSE_CONNECTIONS;
        let text = "has no effect: only [[packet]] tables use this pool";
        findings.warning(health.at(option), &health.path_of(option), text.into());
    }
}

/// Warns of pool options that the protocols of the pool's front doors do not use.
pub(super) fn front_doors_of(
    pool: View<'_, Pool>,
    users: &PoolUsers<'_>,
    findings: &mut Findings<'_>,
) {
    let protocols: Option<Vec<Protocol>> = users.doors.iter().map(|door| door.protocol()).collect();
    // A front door that could not be read may have any protocol.
    let Some(protocols) = protocols else { return };
    if protocols.is_empty() {
        let unread = LEVELS.iter().any(|it| findings.has_error_below(it.name()));
        if !unread {
            findings.warning(pool.start(), pool.path(), "no front door uses this pool".to_string());
        }
        return;
    }
    if !protocols.contains(&Protocol::Http) {
        let why = "no front door of this pool speaks HTTP";
        without_http(pool, why, findings);
        without_http(pool.get(Pool::PASSIVE), why, findings);
    }
    send_proxy(pool, users, &protocols, findings);
    if !users.packet
        && protocols.iter().all(|protocol| *protocol == Protocol::Udp)
        && let Some(health) = pool.get(Pool::HEALTH)
        && health.given(Health::HTTP)
    {
        let text =
            "every front door of this pool is udp, whose backends do not answer HTTP there; \
                        accepted: tcp = true where they accept TCP too, or no `health`"
                .to_string();
        findings.error(health.at(Health::HTTP), &health.path_of(Health::HTTP), text);
    }
}

/// Checks `send-proxy`: a session with such a header is for one client.
fn send_proxy(
    pool: View<'_, Pool>,
    users: &PoolUsers<'_>,
    protocols: &[Protocol],
    findings: &mut Findings<'_>,
) {
    if !pool.given(Pool::SEND_PROXY) {
        return;
    }
    let (at, option) = (pool.at(Pool::SEND_PROXY), pool.path_of(Pool::SEND_PROXY));
    if protocols.iter().all(|protocol| *protocol == Protocol::Udp) {
        let text = "has no effect: no front door of this pool is tcp or http".to_string();
        findings.warning(at, &option, text);
    }
    let shared = pool.get(Pool::UPSTREAM) != Upstream::Exclusive;
    if shared && protocols.contains(&Protocol::Http) {
        let text = "the header names one client, and clients share sessions by `upstream`; accepted: `upstream = \
                    \"exclusive\"`, or no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
    if users.doors.iter().any(|door| matches!(door, DoorTable::Dispatch(_))) {
        let text = "a [[dispatch]] front door uses this pool, and a peer's connection carries requests of many clients; \
                    accepted: no `send-proxy`: http front doors send the client's address in headers";
        findings.error(at, &option, text.to_string());
    }
}

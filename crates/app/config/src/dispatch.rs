//! Builds the dispatch level's configuration: front doors in node mode, and the pool of their
//! peers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use equipoise_core::load::{ClassRule, ClassRules, PerClass};
use equipoise_core::{SchedulerKind, Weight};
use equipoise_dispatch::{DelegationKeys, NodeDoor};
use equipoise_session::config::checks::AttendedCheck;
use equipoise_session::config::{
    ActiveHealth, BackendConfig, Concurrency, FrontDoor, HealthCheck, NodeMode, PassiveHealth,
    PoolConfig, PoolOptions, Protocol, UpstreamTls,
};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Dispatch, DispatchClass, File, Peer, Pool, Session};
use super::view::View;
use super::{FileKind, Surroundings, doors, peer_tls, place};

/// Interval between health checks of a peer. It is short, because peers are close to each other.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of peer checks per second of one node, so that the cost of checks on a small node
/// does not grow with the cluster. In a large cluster, requests discover a lost peer before the
/// checks do, and this node then serves them.
const CHECKS_A_SECOND_MAX: u32 = 4;
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);
/// After the connection opens, the peer's process has this long to close it. This shows that the
/// process runs, and not its kernel alone. A busy process may be late once. After two late checks
/// (`fall`), this node serves the requests itself.
const CHECK_ATTENDED: Duration = Duration::from_secs(2);
/// Silence of a peer after which a delegated request is given up. Probes go out each second, so two
/// may be lost.
const LOST_AFTER: Duration = Duration::from_secs(3);
/// Failures in a row that eject a peer. This node serves the requests that failed.
const FAILURES: u32 = 3;

/// Builds the front door and the pool of peers. In a cluster the node learns peers and secret that
/// the file does not state; the pool is then empty, and no key exists yet.
pub(super) fn config(
    file: View<'_, File>,
    instance: &Arc<str>,
    pools: &[PoolConfig],
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<(FrontDoor, PoolConfig)> {
    let values = file.get(File::DISPATCH).first()?;
    let listen = values.get(Dispatch::LISTEN)?;
    let pool = values.get(Dispatch::POOL)?;
    let peers: Arc<str> = peers_of(pool).into();
    let served = &pools.iter().find(|it| &*it.name == pool)?.options;
    let unnamed = FrontDoor::new(listen, Protocol::Http, pool);
    let name = values.get(Dispatch::NAME).map_or_else(|| format!("dispatch:{listen}"), Into::into);
    let is_clustered = file.given(File::CLUSTER);
    let transport = peer_tls::transport(values, instance, is_clustered, around, findings);
    let door = FrontDoor {
        name: name.into(),
        dispatch: Some(node_mode(NodeDoor {
            peers: Arc::clone(&peers),
            node: Arc::clone(instance),
            keys: keys(values, is_clustered, around, findings),
            transport: transport.clone(),
            classes: classes(values),
            keep: PerClass { light: 1.0, ..PerClass::from_fn(|_| values.get(Dispatch::KEEP)) },
        })),
        ..doors::http_door(values.part(), unnamed)
    };
    let members = members(values, instance, findings);
    let mut pool = peers_pool(&peers, values, served, members);
    pool.options.tls = transport.outgoing().cloned().map(UpstreamTls::Peer);
    Some((door, pool))
}

/// The session level's form of node mode with these rules.
pub fn node_mode(node: NodeDoor) -> NodeMode {
    NodeMode {
        peers: Arc::clone(&node.peers),
        peers_tls: node.transport.incoming().cloned(),
        delegation: Arc::new(node),
    }
}

/// Interval between health checks of one peer, by the number of peers.
pub fn peer_check_interval(peers: usize) -> Duration {
    let peers = u32::try_from(peers).unwrap_or(u32::MAX);
    CHECK_INTERVAL.max((Duration::from_secs(1) / CHECKS_A_SECOND_MAX).saturating_mul(peers))
}

/// Name of the pool of peers, by the name of the local application's pool.
pub fn peers_of(pool: &str) -> String {
    format!("{pool}.peers")
}

/// Checks the dispatch table against the other tables.
pub(super) fn check(file: View<'_, File>, findings: &mut Findings<'_>) {
    let tables = file.get(File::DISPATCH);
    if let Some(second) = tables.get(1) {
        let text = "a second table; accepted: one table, because a node has one share of requests";
        findings.error(second.start(), second.path(), text.to_string());
    }
    let Some(values) = tables.first() else { return };
    let names = file.get(File::SESSION).iter().filter_map(|door| door.get(Session::NAME));
    if let Some(name) =
        values.get(Dispatch::NAME).filter(|name| names.clone().any(|it| it == *name))
    {
        let text =
            format!("\"{name}\" is the name of a [[session]] table; accepted: a unique name");
        findings.error(values.at(Dispatch::NAME), &values.path_of(Dispatch::NAME), text);
    }
    let peers = values.get(Dispatch::POOL).map(peers_of);
    for pool in file.get(File::POOL).iter().filter(|pool| pool.get(Pool::NAME) == peers.as_deref())
    {
        let text = format!(
            "is the name of the pool of the peers of {}; accepted: another name",
            values.path()
        );
        findings.error(pool.at(Pool::NAME), &pool.path_of(Pool::NAME), text);
    }
    if !values.given(Dispatch::PEERS) && !file.given(File::CLUSTER) {
        let text =
            "no peers are configured, and there is no cluster, so every request is served here";
        findings.warning(values.start(), &values.path_of(Dispatch::PEERS), text.to_string());
    }
}

/// Builds the pool of peers. Checks are frequent and ejection is quick, because this node can serve
/// the requests itself.
fn peers_pool(
    name: &Arc<str>,
    values: View<'_, Dispatch>,
    served: &PoolOptions,
    backends: Vec<BackendConfig>,
) -> PoolConfig {
    let interval = peer_check_interval(backends.len());
    PoolConfig {
        name: Arc::clone(name),
        // Only for requests that this node cannot serve; otherwise instructions choose the peer.
        scheduler: SchedulerKind::WeightedRandom,
        backends,
        concurrency: Concurrency::None,
        options: PoolOptions {
            connect_timeout: values.get(Dispatch::PEER_CONNECT_TIMEOUT),
            response_timeout: served.response_timeout,
            retry_after: served.retry_after,
            lost_after: Some(LOST_AFTER),
            ..PoolOptions::default()
        },
        health: Some(ActiveHealth {
            check: HealthCheck::Attended(AttendedCheck { within: CHECK_ATTENDED }),
            port: None,
            interval,
            timeout: CHECK_TIMEOUT,
            rise: 1,
            fall: 2,
            tls: None,
            preamble: &[],
            every_family: false,
            closes: false,
        }),
        passive: PassiveHealth {
            failures: FAILURES,
            panic_threshold: 0.0,
            ..PassiveHealth::default()
        },
        slow_start: None,
        weights_by_load: false,
        starts_within: None,
    }
}

fn members(
    values: View<'_, Dispatch>,
    instance: &Arc<str>,
    findings: &mut Findings<'_>,
) -> Vec<BackendConfig> {
    let mut made: Vec<BackendConfig> = Vec::new();
    for peer in values.get(Dispatch::PEERS) {
        let (Some(node), Some((address, place))) =
            (peer.get(Peer::NODE), peer.get(Peer::ADDRESS).and_then(place::place))
        else {
            continue;
        };
        if *node == **instance {
            continue;
        }
        if let Some(other) = made.iter().find(|it| it.address == address) {
            let text =
                format!("node `{}` has this address; accepted: each address once", other.name);
            findings.error(peer.at(Peer::ADDRESS), &peer.path_of(Peer::ADDRESS), text);
            continue;
        }
        let weight = Weight::new(peer.get(Peer::WEIGHT));
        let weight = weight.expect("the option's maximum is Weight::MAX");
        made.push(BackendConfig {
            name: node.into(),
            address,
            place,
            weight,
            backup: false,
            concurrency: None,
        });
    }
    made
}

fn classes(values: View<'_, Dispatch>) -> ClassRules {
    let rule = |rule: View<'_, DispatchClass>| {
        Some(ClassRule {
            class: rule.get(DispatchClass::CLASS)?,
            methods: rule.get(DispatchClass::METHODS).to_vec(),
            paths: rule.get(DispatchClass::PATHS).to_vec(),
            body_bytes_min: rule.get(DispatchClass::BODY_MIN),
        })
    };
    ClassRules::new(values.get(Dispatch::CLASS).iter().filter_map(rule).collect())
}

fn keys(
    values: View<'_, Dispatch>,
    is_clustered: bool,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> DelegationKeys {
    let (at, option) = (values.at(Dispatch::SECRET), values.path_of(Dispatch::SECRET));
    let Some(path) = values.get(Dispatch::SECRET) else {
        if values.given(Dispatch::PEERS)
            && !is_clustered
            && !findings.has_error_below(values.path())
        {
            let text = "missing, so nothing can be delegated; accepted: a file with a secret that all nodes share \
                        (openssl rand -hex 32 creates one)";
            findings.error(at, &option, text.to_string());
        }
        return DelegationKeys::default();
    };
    let file = Path::new(path);
    let wrong = match (around.read)(file, FileKind::Secret) {
        Err(error) => format!("\"{path}\" cannot be read: {error}; accepted: a file of text"),
        Ok(text) => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let secrets: Vec<_> = lines.map(|line| line.as_bytes().to_vec()).collect();
            match DelegationKeys::new(secrets) {
                Ok(keys) if keys.is_empty() => {
                    format!("\"{path}\" is empty; accepted: a secret on each line")
                }
                Ok(keys) => {
                    let secret = "the secret, with which requests can evade delegation";
                    let option = Dispatch::SECRET;
                    secret_file::warn(values, option, Readers::Owner, secret, around, findings);
                    return keys;
                }
                Err(refused) => format!("\"{path}\" has {refused}"),
            }
        }
    };
    findings.error(at, &option, wrong);
    DelegationKeys::default()
}

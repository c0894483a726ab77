//! Names over elastic pools, and over pools with a source. Clients reach the backends directly,
//! which limits how these may be configured.

use std::collections::HashMap;
use std::time::Duration;

use equipoise_dns::Mode;
use equipoise_dns::config::ElasticNodes;
use equipoise_session::config::PoolConfig;

use super::zone::Reading;
use crate::problem::Findings;
use crate::tables::{Discover, Dns, DnsName, Elastic, File, Pool, Process};
use crate::text::{PortRange, show_duration};
use crate::view::{Location, View};

impl Reading<'_, '_> {
    /// The elastic or discovered backends of a name over a whole pool, in addition to the listed
    /// ones. `None` if the pool has only listed ones.
    pub(super) fn elastic(
        &mut self,
        named: Option<View<'_, DnsName>>,
        pool: &PoolConfig,
        mode: Mode,
    ) -> Option<ElasticNodes> {
        if let Some(discover) = self.by_name.discover(&pool.name) {
            return Some(self.discovered(named, discover, pool, mode));
        }
        let elastic = self.by_name.elastic(&pool.name)?;
        let at = self.mode_or_pool(named);
        let (name, word) = (&pool.name, mode.word());
        // The zone's own name has no `backends` option.
        let is_own = named.is_none();
        let or_list = if is_own || pool.backends.is_empty() { "" } else { ", or list `backends`" };
        if !matches!(mode, Mode::Srv)
            && let Some(process) = elastic.get(Elastic::PROCESS)
            && !has_one_port(process)
        {
            let text = format!(
                "mode \"{word}\" gives clients no ports, and each process of pool \"{name}\" has its own; accepted: \
                 mode \"srv\", or `ports` of one port, such as \"8080-8080\", in {}{or_list}",
                process.path()
            );
            self.findings.error(at.at, &at.path, text);
        }
        if mode.has_hosts() && !makes_host_names(name) {
            let text = format!(
                "mode \"{word}\" gives clients host names, and backends that pool \"{name}\" makes, such as `{name}-e1`, have \
                 none; accepted: a pool whose name is at most 40 letters, digits and hyphens{or_list}"
            );
            self.findings.error(at.at, &at.path, text);
        }
        let most = elastic.get(Elastic::MAX).and_then(|most| usize::try_from(most).ok());
        let nodes_max = most.unwrap_or(1).max(pool.backends.len());
        Some(ElasticNodes { pool: name.clone(), nodes_max })
    }
}

impl Reading<'_, '_> {
    /// The place of the name's `mode`, or else of its `pool`. `None`: the zone's own name.
    fn mode_or_pool(&self, named: Option<View<'_, DnsName>>) -> Location {
        match named {
            Some(named) if named.given(DnsName::MODE) => named.location(DnsName::MODE),
            Some(named) => named.location(DnsName::POOL),
            None if self.values.given(Dns::MODE) => self.values.location(Dns::MODE),
            None => self.values.location(Dns::POOL),
        }
    }

    fn discovered(
        &mut self,
        named: Option<View<'_, DnsName>>,
        discover: View<'_, Discover>,
        pool: &PoolConfig,
        mode: Mode,
    ) -> ElasticNodes {
        if mode.has_hosts() {
            let (name, word) = (&pool.name, mode.word());
            let at = self.mode_or_pool(named);
            let text = format!(
                "mode \"{word}\" gives clients host names, and backends that the source of pool \"{name}\" reports have none; \
                 accepted: a mode of addresses"
            );
            self.findings.error(at.at, &at.path, text);
        }
        let nodes_max: usize = discover.get(Discover::BACKENDS_MAX);
        ElasticNodes { pool: pool.name.clone(), nodes_max: nodes_max.max(pool.backends.len()) }
    }
}

fn has_one_port(process: View<'_, Process>) -> bool {
    matches!(process.get(Process::PORTS), PortRange(Some((first, last))) if first == last)
}

/// Whether POOL-eNUMBER can be a label of a host name (RFC 1123, 2.1).
fn makes_host_names(pool: &str) -> bool {
    pool.len() <= 40
        && !pool.starts_with('-')
        && pool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Checks elastic pools against the names that are spread over them.
pub(super) fn check(file: View<'_, File>, findings: &mut Findings<'_>) {
    let longest = longest_ttls(file);
    for pool in file.get(File::POOL) {
        let (Some(name), Some(elastic)) = (pool.get(Pool::NAME), pool.get(Pool::ELASTIC)) else {
            continue;
        };
        let Some(ttl) = longest.get(name).copied() else { continue };
        let drain = elastic.get(Elastic::DRAIN_TIMEOUT);
        if drain < ttl {
            let text = format!(
                "{}, and for {} after a backend has left the answers, clients may still use it, by the `ttl` of a name \
                 over this pool; accepted: at least that",
                show_duration(drain),
                show_duration(ttl)
            );
            findings.warning(
                elastic.at(Elastic::DRAIN_TIMEOUT),
                &elastic.path_of(Elastic::DRAIN_TIMEOUT),
                text,
            );
        }
        let Some(process) = elastic.get(Elastic::PROCESS).filter(|_| !file.given(File::CLUSTER))
        else {
            continue;
        };
        if process.get(Process::ADDRESS).is_loopback() {
            let text = "a loopback address, which answers give to clients that cannot reach it; accepted: this machine's \
                        address";
            findings.warning(
                process.at(Process::ADDRESS),
                &process.path_of(Process::ADDRESS),
                text.to_string(),
            );
        }
    }
}

/// The longest TTL of names over a whole pool, by pool.
fn longest_ttls(file: View<'_, File>) -> HashMap<&str, Duration> {
    let mut longest = HashMap::<&str, Duration>::new();
    for zone in file.get(File::DNS) {
        let (own, ttl) = (zone.get(Dns::POOL), zone.get(Dns::TTL));
        let picks =
            |name: View<'_, DnsName>| name.given(DnsName::BACKENDS) || name.given(DnsName::LABELS);
        let names = zone.get(Dns::NAMES).iter().filter(|name| !picks(*name));
        let of_names = names
            .map(|name| (name.get(DnsName::POOL).or(own), name.get(DnsName::TTL).unwrap_or(ttl)));
        for (pool, ttl) in of_names.chain([(own, ttl)]) {
            let Some(pool) = pool else { continue };
            let known = longest.entry(pool).or_default();
            *known = ttl.max(*known);
        }
    }
    longest
}

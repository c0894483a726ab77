//! `[[dns]] shares`: zones with shares by plan, and the cluster member of each backend.

use std::collections::{BTreeMap, HashMap};

use equipoise_cluster::Name as Member;
use equipoise_dns::Name;
use equipoise_dns::config::{DnsConfig, ZoneConfig};
use equipoise_planning::NamesByLoad;

use super::problem::Findings;
use super::tables::{Dns, File, Shares};
use super::view::View;

/// The zones with `shares = "load"`.
pub(super) fn by_load(
    file: View<'_, File>,
    dns: &DnsConfig,
    machines: &BTreeMap<(String, String), String>,
    findings: &mut Findings<'_>,
) -> NamesByLoad {
    let mut names = NamesByLoad::new();
    let zones: HashMap<&Name, &ZoneConfig> =
        dns.zones.iter().map(|zone| (&zone.origin, &**zone)).collect();
    for values in file.get(File::DNS) {
        if values.get(Dns::SHARES) == Shares::Weights {
            continue;
        }
        let (at, path) = (values.at(Dns::SHARES), values.path_of(Dns::SHARES));
        if !file.given(File::CLUSTER) {
            let text = "has no effect: without a [cluster] table no member reports its load, so the weights apply";
            findings.warning(at, &path, text.to_string());
            continue;
        }
        let origin = values.get(Dns::ZONE).and_then(|text| Name::vec_from_str(text).ok());
        let origin = origin.map(|mut origin| {
            origin.make_canonical();
            origin
        });
        let Some(zone) = origin.and_then(|origin| zones.get(&origin)) else { continue };
        let elastic = zone.names.iter().find_map(|name| Some((name, name.elastic.as_ref()?)));
        if let Some((name, elastic)) = elastic {
            // The zone's own name has no `backends` option.
            let is_own = name.name == zone.origin;
            let or_list = match is_own || name.nodes.is_empty() {
                true => String::new(),
                false => format!(", or list `backends` of `{}`", name.name.fmt_with_dot()),
            };
            let text = format!(
                "\"load\" needs backends that are members of the cluster, and those of pool \"{}\" are not; accepted: \
                 \"weights\", which may follow the load themselves (`weights = \"load\"` of the pool){or_list}",
                elastic.pool
            );
            findings.error(at, &path, text);
            continue;
        }
        let mut members = BTreeMap::new();
        for node in &zone.nodes {
            let backend = (node.pool.to_string(), node.name.to_string());
            let member = machines.get(&backend).unwrap_or(&backend.1).clone();
            if member.parse::<Member>().is_err() {
                let text = format!(
                    "\"load\" needs to know which member of the cluster backend {}/{} is; accepted: backends whose \
                     `node`, or else `name`, is their member's `instance.name`",
                    node.pool, node.name
                );
                findings.error(at, &path, text);
                continue;
            }
            members.insert(backend, member);
        }
        names.insert(zone.origin.fmt_with_dot().to_string(), members);
    }
    names
}

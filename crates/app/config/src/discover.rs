//! `[pool.discover]`: the sources of pools' backends.

use equipoise_discovery::{Discover, NameOptions, Records, SourceOptions};

use super::problem::Findings;
use super::tables::{RECORDS, RecordType};
use super::values::{Values, chosen};

/// The tables that state a source.
const SOURCES: [&str; 2] = ["file", "dns"];

/// The sources of all pools. A pool with an error in its table is left out.
pub(super) fn config(file: &Values, findings: &mut Findings<'_>) -> Vec<Discover> {
    let pools = file.tables("pool").iter();
    pools.filter_map(|pool| discover(pool, pool.table("discover")?, findings)).collect()
}

fn discover(pool: &Values, values: &Values, findings: &mut Findings<'_>) -> Option<Discover> {
    if pool.given("elastic") {
        let text = "the pool is elastic too; accepted: one of `discover` and `elastic`";
        findings.error(values.at, &values.path, text.into());
    }
    let stated: Vec<_> = SOURCES.into_iter().filter(|source| values.given(source)).collect();
    let source = match stated[..] {
        ["file"] => SourceOptions::File(values.table("file")?.text("path")?.into()),
        ["dns"] => SourceOptions::Dns(dns(values.table("dns")?, findings)?),
        [] => {
            let text = format!("states no source; accepted: one of `{}`", SOURCES.join("`, `"));
            findings.error(values.at, &values.path, text);
            return None;
        }
        [first, second, ..] => {
            let text = format!("`{first}` is stated too; accepted: one source");
            findings.error(values.at(second), &values.path_of(second), text);
            return None;
        }
        _ => return None,
    };
    Some(Discover {
        pool: pool.text("name")?.into(),
        source,
        labels: values.texts("labels").unwrap_or_default().to_vec(),
        backends_max: values.amount("backends-max"),
        empty_after: values.duration_if_any("empty-after"),
    })
}

fn dns(values: &Values, findings: &mut Findings<'_>) -> Option<NameOptions> {
    let kind = chosen(values, "type", &RECORDS);
    let port = values.number("port").and_then(|port| u16::try_from(port).ok());
    let records = match (kind, port) {
        (RecordType::Srv, port) => {
            if port.is_some() {
                let text = "has no effect: SRV records have the port";
                findings.warning(values.at("port"), &values.path_of("port"), text.into());
            }
            Records::Srv
        }
        (_, None) => {
            if !findings.has_error_on(&values.path_of("port")) {
                let text = "missing; accepted: the port of the backends, or `type = \"srv\"`";
                findings.error(values.at, &values.path_of("port"), text.into());
            }
            return None;
        }
        (RecordType::Addresses, Some(port)) => Records::Addresses(port),
        (RecordType::V4, Some(port)) => Records::V4(port),
        (RecordType::V6, Some(port)) => Records::V6(port),
    };
    let (min, max) = (values.duration("ttl-min"), values.duration("ttl-max"));
    if min > max {
        let text = "larger than `ttl-max`; accepted: at most that";
        findings.error(values.at("ttl-min"), &values.path_of("ttl-min"), text.into());
        return None;
    }
    let servers = values.texts("servers").unwrap_or_default();
    if values.given("servers") && servers.is_empty() {
        let text = "an empty list; accepted: at least one server";
        findings.error(values.at("servers"), &values.path_of("servers"), text.into());
    }
    Some(NameOptions {
        name: values.text("name")?.into(),
        records,
        servers: servers.iter().filter_map(|it| it.parse().ok()).collect(),
        ttl: min..=max,
    })
}

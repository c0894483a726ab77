//! `[pool.discover]`: the sources of pools' backends.

use equipoise_discovery::{
    Access, ConsulOptions, Discover, HttpOptions, KubernetesOptions, NameOptions, Records,
    SourceOptions,
};

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{RECORDS, RecordType};
use super::values::{Values, chosen};
use super::{Surroundings, etcd};

/// The tables that state a source.
const SOURCES: [&str; 6] = ["file", "dns", "http", "etcd", "consul", "kubernetes"];

/// The sources of all pools. A pool with an error in its table is left out.
pub(super) fn config(
    file: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<Discover> {
    let pools = file.tables("pool").iter();
    pools.filter_map(|pool| discover(pool, pool.table("discover")?, around, findings)).collect()
}

fn discover(
    pool: &Values,
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Discover> {
    if pool.given("elastic") {
        let text = "the pool is elastic too; accepted: one of `discover` and `elastic`";
        findings.error(values.at, &values.path, text.into());
    }
    let stated: Vec<_> = SOURCES.into_iter().filter(|source| values.given(source)).collect();
    let source = match stated[..] {
        ["file"] => SourceOptions::File(values.table("file")?.text("path")?.into()),
        ["dns"] => SourceOptions::Dns(dns(values.table("dns")?, findings)?),
        ["http"] => SourceOptions::Http(http(values.table("http")?, around, findings)?),
        ["etcd"] => {
            let place = etcd::place(values.table("etcd")?, "members", "prefix", around, findings);
            SourceOptions::Etcd(place?)
        }
        ["consul"] => SourceOptions::Consul(consul(values.table("consul")?, around, findings)?),
        ["kubernetes"] => {
            let values = values.table("kubernetes")?;
            SourceOptions::Kubernetes(kubernetes(values, around, findings)?)
        }
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

fn http(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<HttpOptions> {
    let access = access(values, around, findings)?;
    Some(HttpOptions { access, interval: values.duration("interval") })
}

fn consul(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ConsulOptions> {
    Some(ConsulOptions {
        access: access(values, around, findings)?,
        service: values.text("service")?.into(),
        tag: values.text("tag").map(Into::into),
        datacenter: values.text("datacenter").map(Into::into),
    })
}

fn kubernetes(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<KubernetesOptions> {
    Some(KubernetesOptions {
        access: access(values, around, findings)?,
        namespace: values.text("namespace")?.into(),
        service: values.text("service")?.into(),
        port: values.text("port").map(Into::into),
    })
}

/// The files are read when they are used, because tokens change. A missing one is an error of the
/// source.
fn access(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Access> {
    if values.given("token-file") {
        let secret = "the token";
        secret_file::warn(values, "token-file", Readers::OwnerAndGroup, secret, around, findings);
    }
    Some(Access {
        url: values.text("url")?.into(),
        token_file: values.text("token-file").map(Into::into),
        ca: values.text("ca").map(Into::into),
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

//! `[pool.discover]`: the sources of pools' backends.

use equipoise_discovery::{
    Access, ConsulOptions, Discover, HttpOptions, KubernetesOptions, NameOptions, Records,
    SourceOptions,
};

use super::key::{Any, Key};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{
    ConsulSource, DnsSource, EtcdSource, File, FileSource, HttpSource, HttpTrust, KubernetesSource,
    Pool, RecordType,
};
use super::view::{Typed, View};
use super::{Surroundings, etcd, tables};

/// The tables that state a source.
const SOURCES: [Key<tables::Discover, Any>; 6] = [
    tables::Discover::FILE.any(),
    tables::Discover::DNS.any(),
    tables::Discover::HTTP.any(),
    tables::Discover::ETCD.any(),
    tables::Discover::CONSUL.any(),
    tables::Discover::KUBERNETES.any(),
];

/// The sources of all pools. A pool with an error in its table is left out.
pub(super) fn config(
    file: View<'_, File>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Vec<Discover> {
    let pools = file.get(File::POOL).iter();
    pools.filter_map(|pool| discover(pool, pool.get(Pool::DISCOVER)?, around, findings)).collect()
}

fn discover(
    pool: View<'_, Pool>,
    values: View<'_, tables::Discover>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Discover> {
    if pool.given(Pool::ELASTIC) {
        let text = "the pool is elastic too; accepted: one of `discover` and `elastic`";
        findings.error(values.start(), values.path(), text.into());
    }
    let stated: Vec<_> = SOURCES.into_iter().filter(|source| values.given(*source)).collect();
    match stated[..] {
        [_] => {}
        [] => {
            let text = format!(
                "states no source; accepted: one of `{}`",
                SOURCES.map(Key::name).join("`, `")
            );
            findings.error(values.start(), values.path(), text);
            return None;
        }
        [first, second, ..] => {
            let text = format!("`{}` is stated too; accepted: one source", first.name());
            findings.error(values.at(second), &values.path_of(second), text);
            return None;
        }
    }
    let source = if let Some(file) = values.get(tables::Discover::FILE) {
        SourceOptions::File(file.get(FileSource::PATH)?.into())
    } else if let Some(name) = values.get(tables::Discover::DNS) {
        SourceOptions::Dns(dns(name, findings)?)
    } else if let Some(url) = values.get(tables::Discover::HTTP) {
        SourceOptions::Http(http(url, around, findings)?)
    } else if let Some(etcd) = values.get(tables::Discover::ETCD) {
        let (members, prefix) = (EtcdSource::MEMBERS, etcd.get(EtcdSource::PREFIX));
        let place = etcd::place(etcd, etcd.part(), members, prefix, around, findings);
        SourceOptions::Etcd(place?)
    } else if let Some(service) = values.get(tables::Discover::CONSUL) {
        SourceOptions::Consul(consul(service, around, findings)?)
    } else {
        let service = values.get(tables::Discover::KUBERNETES)?;
        SourceOptions::Kubernetes(kubernetes(service, around, findings)?)
    };
    Some(Discover {
        pool: pool.get(Pool::NAME)?.into(),
        source,
        labels: values.get(tables::Discover::LABELS).to_vec(),
        backends_max: values.get(tables::Discover::BACKENDS_MAX),
        empty_after: values.get(tables::Discover::EMPTY_AFTER),
    })
}

fn http(
    values: View<'_, HttpSource>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<HttpOptions> {
    let (url, ca) = (values.get(HttpSource::URL), values.get(HttpTrust::CA));
    let access = access(values, HttpSource::TOKEN_FILE, (url, ca), around, findings)?;
    Some(HttpOptions { access, interval: values.get(HttpSource::INTERVAL) })
}

fn consul(
    values: View<'_, ConsulSource>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<ConsulOptions> {
    let (url, ca) = (Some(values.get(ConsulSource::URL)), values.get(HttpTrust::CA));
    Some(ConsulOptions {
        access: access(values, ConsulSource::TOKEN_FILE, (url, ca), around, findings)?,
        service: values.get(ConsulSource::SERVICE)?.into(),
        tag: values.get(ConsulSource::TAG).map(Into::into),
        datacenter: values.get(ConsulSource::DATACENTER).map(Into::into),
    })
}

fn kubernetes(
    values: View<'_, KubernetesSource>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<KubernetesOptions> {
    let (url, ca) = (values.get(KubernetesSource::URL), values.get(KubernetesSource::CA));
    let url_and_ca = (Some(url), Some(ca));
    Some(KubernetesOptions {
        access: access(values, KubernetesSource::TOKEN_FILE, url_and_ca, around, findings)?,
        namespace: values.get(KubernetesSource::NAMESPACE).into(),
        service: values.get(KubernetesSource::SERVICE)?.into(),
        port: values.get(KubernetesSource::PORT).map(Into::into),
    })
}

/// The files are read when they are used, because tokens change. A missing one is an error of the
/// source.
fn access<'v, T, V>(
    values: View<'v, T>,
    token_file: Key<T, V>,
    (url, ca): (Option<&str>, Option<&str>),
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Access>
where
    V: Typed,
    V::Read<'v>: Into<Option<&'v str>>,
{
    if values.given(token_file) {
        let secret = "the token";
        secret_file::warn(values, token_file, Readers::OwnerAndGroup, secret, around, findings);
    }
    let token_file: Option<&str> = values.get(token_file).into();
    Some(Access {
        url: url?.into(),
        token_file: token_file.map(Into::into),
        ca: ca.map(Into::into),
    })
}

fn dns(values: View<'_, DnsSource>, findings: &mut Findings<'_>) -> Option<NameOptions> {
    let kind = values.get(DnsSource::TYPE);
    let port = values.get(DnsSource::PORT);
    let records = match (kind, port) {
        (RecordType::Srv, port) => {
            if port.is_some() {
                let text = "has no effect: SRV records have the port";
                findings.warning(
                    values.at(DnsSource::PORT),
                    &values.path_of(DnsSource::PORT),
                    text.into(),
                );
            }
            Records::Srv
        }
        (_, None) => {
            if !findings.has_error_on(&values.path_of(DnsSource::PORT)) {
                let text = "missing; accepted: the port of the backends, or `type = \"srv\"`";
                findings.error(values.start(), &values.path_of(DnsSource::PORT), text.into());
            }
            return None;
        }
        (RecordType::Addresses, Some(port)) => Records::Addresses(port),
        (RecordType::V4, Some(port)) => Records::V4(port),
        (RecordType::V6, Some(port)) => Records::V6(port),
    };
    let (min, max) = (values.get(DnsSource::TTL_MIN), values.get(DnsSource::TTL_MAX));
    if min > max {
        let text = "larger than `ttl-max`; accepted: at most that";
        findings.error(
            values.at(DnsSource::TTL_MIN),
            &values.path_of(DnsSource::TTL_MIN),
            text.into(),
        );
        return None;
    }
    let servers = values.get(DnsSource::SERVERS).unwrap_or_default();
    if values.given(DnsSource::SERVERS) && servers.is_empty() {
        let text = "an empty list; accepted: at least one server";
        findings.error(
            values.at(DnsSource::SERVERS),
            &values.path_of(DnsSource::SERVERS),
            text.into(),
        );
    }
    Some(NameOptions {
        name: values.get(DnsSource::NAME)?.into(),
        records,
        servers,
        ttl: min..=max,
    })
}

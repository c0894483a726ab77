//! The options of a pool's source.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use equipoise_store::EtcdPlace;

/// The source of a pool's backends.
#[derive(Clone, Debug, PartialEq)]
pub struct Discover {
    /// The pool's name.
    pub pool: Arc<str>,
    /// The source.
    pub source: SourceOptions,
    /// Labels, `KEY=VALUE`, that a backend must have.
    pub labels: Vec<String>,
    /// Largest number of backends. A larger set is refused as a whole.
    pub backends_max: usize,
    /// Time for which a source must report no backend before the last one is removed; `None`: no
    /// source can remove the last one.
    pub empty_after: Option<Duration>,
}

/// A kind of source, with its own options.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceOptions {
    /// A file of JSON or TOML.
    File(PathBuf),
    /// Records of a name.
    Dns(NameOptions),
    /// A list at a URL.
    Http(HttpOptions),
    /// The keys below a prefix, which is the place's namespace.
    Etcd(EtcdPlace),
    /// The healthy instances of a service.
    Consul(ConsulOptions),
    /// The ready endpoints of a service.
    Kubernetes(KubernetesOptions),
}

/// A server that speaks HTTP, and the files that a client of it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The server's URL; of a list, the whole URL.
    pub url: String,
    /// File of a token; `None`: none is sent.
    pub token_file: Option<PathBuf>,
    /// File of trusted certificates in PEM; `None`: those of the system.
    pub ca: Option<PathBuf>,
}

/// The options of a list at a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// The URL, and its files.
    pub access: Access,
    /// Time between requests.
    pub interval: Duration,
}

/// The options of a service in Consul.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsulOptions {
    /// The agent.
    pub access: Access,
    /// The service's name.
    pub service: String,
    /// A tag that an instance must have.
    pub tag: Option<String>,
    /// The datacenter; `None`: the agent's.
    pub datacenter: Option<String>,
}

/// The options of a service in Kubernetes.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesOptions {
    /// The API server.
    pub access: Access,
    /// The service's namespace.
    pub namespace: String,
    /// The service's name.
    pub service: String,
    /// Name or number of the port; `None`: the only one.
    pub port: Option<String>,
}

/// The options of a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NameOptions {
    /// The name.
    pub name: String,
    /// The records to look up, with the port if they have none.
    pub records: Records,
    /// Servers to ask; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// Bounds of the time between lookups, which is the answer's TTL.
    pub ttl: RangeInclusive<Duration>,
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// A and AAAA: each address is a backend at this port.
    Addresses(u16),
    /// A alone.
    V4(u16),
    /// AAAA alone.
    V6(u16),
    /// SRV: each address of each target is a backend, with the record's port and weight.
    Srv,
}

/// The source in a line, for status and log.
impl fmt::Display for SourceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceOptions::File(path) => write!(f, "file {}", path.display()),
            SourceOptions::Dns(dns) => {
                let kind = match dns.records {
                    Records::Addresses(_) => "A, AAAA",
                    Records::V4(_) => "A",
                    Records::V6(_) => "AAAA",
                    Records::Srv => "SRV",
                };
                write!(f, "dns {} ({kind})", dns.name)
            }
            SourceOptions::Http(http) => write!(f, "http {}", http.access.url),
            SourceOptions::Etcd(etcd) => {
                write!(f, "etcd {} at {}", etcd.namespace, etcd.endpoints.join(", "))
            }
            SourceOptions::Consul(consul) => {
                write!(f, "consul {} at {}", consul.service, consul.access.url)
            }
            SourceOptions::Kubernetes(it) => {
                write!(f, "kubernetes {}/{} at {}", it.namespace, it.service, it.access.url)
            }
        }
    }
}

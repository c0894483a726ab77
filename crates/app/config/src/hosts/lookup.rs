//! One attempt to resolve a host name: `/etc/hosts`, then the servers of `/etc/resolv.conf`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, Resolver, TokioResolver};
use tokio::time::timeout;

/// The addresses of a name.
pub struct Found {
    /// The addresses, with the port of the name.
    pub addresses: Vec<SocketAddr>,
    /// Whether an address of the last answer stays valid, because its family could not be looked
    /// up.
    pub keeps: fn(&SocketAddr) -> bool,
    /// Time until the next lookup.
    pub ttl: Duration,
}

/// Reasons why a name could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No server answered.
    #[error("no answer from the servers of /etc/resolv.conf within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A server denied the name, or the name has no address.
    #[error("the name does not exist, or has no address")]
    NoAddress,
    /// The text is not a host name.
    #[error("not a host name")]
    Name,
    /// Any other failure.
    #[error("{0}")]
    Resolver(Box<NetError>),
}

/// Resolves `HOST:PORT` in both families. The resolver's files are read each time, so that their
/// changes take effect. Answers are not cached.
pub(super) async fn look_up(name: &str, within: Duration) -> Result<Found, LookupError> {
    let (host, port) = name.rsplit_once(':').ok_or(LookupError::Name)?;
    let port: u16 = port.parse().map_err(|_| LookupError::Name)?;
    let host = Name::from_str_relaxed(host).map_err(|_| LookupError::Name)?;
    // A name in that file is not looked up at servers, in either family (as `getaddrinfo` does).
    let listed = listed(&host);
    if !listed.is_empty() {
        return Ok(found(listed.into_iter(), port, Duration::MAX));
    }
    let resolver = resolver().map_err(|error| LookupError::Resolver(Box::new(error)))?;
    let both = async {
        tokio::join!(
            resolver.lookup(host.clone(), RecordType::AAAA),
            resolver.lookup(host.clone(), RecordType::A)
        )
    };
    let Ok((v6, v4)) = timeout(within, both).await else {
        return Err(LookupError::Timeout(within));
    };
    let (v6, v4) = (of_family(v6, within), of_family(v4, within));
    let keeps: fn(&SocketAddr) -> bool = match (&v6, &v4) {
        (Ok(_), Ok(_)) => |_| false,
        (Err(_), _) => SocketAddr::is_ipv6,
        (_, Err(_)) => SocketAddr::is_ipv4,
    };
    let lookups = match (v6, v4) {
        (Err(error), Err(_)) => return Err(error),
        (Ok(None), Err(error)) | (Err(error), Ok(None)) => return Err(error),
        (v6, v4) => [v6, v4].into_iter().flatten().flatten().collect::<Vec<_>>(),
    };
    let records = || lookups.iter().flat_map(|lookup| lookup.answers());
    let ttl = records().map(|record| record.ttl).min().unwrap_or_default();
    let addresses = records().filter_map(|record| RData::ip_addr(&record.data));
    let found = Found { keeps, ..found(addresses, port, Duration::from_secs(ttl.into())) };
    if found.addresses.is_empty() { Err(LookupError::NoAddress) } else { Ok(found) }
}

/// The records of one family; `None` if the name has none.
fn of_family(
    answer: Result<Lookup, NetError>,
    within: Duration,
) -> Result<Option<Lookup>, LookupError> {
    match answer {
        Ok(lookup) => Ok(Some(lookup)),
        Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Ok(None),
        Err(NetError::Timeout) => Err(LookupError::Timeout(within)),
        Err(error) => Err(LookupError::Resolver(Box::new(error))),
    }
}

fn found(addresses: impl Iterator<Item = IpAddr>, port: u16, ttl: Duration) -> Found {
    let addresses = addresses.map(|address| (address, port).into()).collect();
    Found { addresses, keeps: |_| false, ttl }
}

/// The addresses of a name in `/etc/hosts`.
fn listed(host: &Name) -> Vec<IpAddr> {
    let hosts = Hosts::from_system().unwrap_or_default();
    let of = |kind| hosts.lookup_static_host(&Query::query(host.clone(), kind));
    let lookups = [RecordType::AAAA, RecordType::A].into_iter().filter_map(of);
    let addresses = |lookup: Lookup| -> Vec<_> {
        lookup.answers().iter().filter_map(|record| RData::ip_addr(&record.data)).collect()
    };
    lookups.flat_map(addresses).collect()
}

/// A resolver as configured in `/etc/resolv.conf`. Without that file, or without a server in it, it
/// uses a server on this machine (resolv.conf(5)).
fn resolver() -> Result<TokioResolver, NetError> {
    let mut builder = TokioResolver::builder_tokio().unwrap_or_else(|_| {
        let server = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_name_servers(vec![server]);
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    });
    builder.options_mut().cache_size = 0;
    builder.build()
}

//! One attempt to look up the records of a name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
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
    #[error("no answer from the servers of {of} within {} s", .within.as_secs())]
    Timeout {
        /// The source of the servers' addresses.
        of: &'static str,
        /// The time.
        within: Duration,
    },
    /// A server denied the name, or the name has no address.
    #[error("the name does not exist, or has no address")]
    NoAddress,
    /// A server denied the name, or the name has no SRV record.
    #[error("the name does not exist, or has no SRV record")]
    NoService,
    /// The text is not a host name.
    #[error("not a host name")]
    Name,
    /// Any other failure.
    #[error("{0}")]
    Resolver(Box<NetError>),
}

/// Families of addresses to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Families {
    Both,
    V4,
    V6,
}

/// The servers to ask. Answers are not cached.
#[derive(Clone)]
pub(super) struct Servers {
    resolver: TokioResolver,
    /// Names of `/etc/hosts` are not looked up at servers (as `getaddrinfo` does).
    is_system: bool,
}

impl Servers {
    /// These servers; the system's if there are none. The system's files are read each time, so
    /// that their changes take effect.
    ///
    /// # Errors
    /// [`LookupError::Resolver`].
    pub(super) fn of(addresses: &[SocketAddr]) -> Result<Servers, LookupError> {
        let is_system = addresses.is_empty();
        let resolver = if is_system { system() } else { stated(addresses) };
        let resolver = resolver.map_err(|error| LookupError::Resolver(Box::new(error)))?;
        Ok(Servers { resolver, is_system })
    }

    /// The addresses of a host.
    pub(super) async fn addresses(
        &self,
        host: &Name,
        port: u16,
        families: Families,
        within: Duration,
    ) -> Result<Found, LookupError> {
        let has = |address: &IpAddr| match families {
            Families::Both => true,
            Families::V4 => address.is_ipv4(),
            Families::V6 => address.is_ipv6(),
        };
        if self.is_system {
            let listed: Vec<_> = listed(host).into_iter().filter(has).collect();
            if !listed.is_empty() {
                return Ok(found(listed.into_iter(), port, Duration::MAX));
            }
        }
        let ask = async |without: Families, kind| match families == without {
            true => Ok(None),
            false => self.of_family(self.resolver.lookup(host.clone(), kind).await, within),
        };
        let both = async {
            tokio::join!(ask(Families::V4, RecordType::AAAA), ask(Families::V6, RecordType::A))
        };
        let Ok((v6, v4)) = timeout(within, both).await else { return Err(self.timed_out(within)) };
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

    /// The SRV records of a name, and their TTL.
    pub(super) async fn services(
        &self,
        name: &Name,
        within: Duration,
    ) -> Result<(Vec<SRV>, Duration), LookupError> {
        let lookup = timeout(within, self.resolver.lookup(name.clone(), RecordType::SRV)).await;
        let Ok(lookup) = lookup else { return Err(self.timed_out(within)) };
        let lookup = self.of_family(lookup, within)?.ok_or(LookupError::NoService)?;
        let ttl = lookup.answers().iter().map(|record| record.ttl).min().unwrap_or_default();
        let services = lookup.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(service) => Some(service.clone()),
            _ => None,
        });
        Ok((services.collect(), Duration::from_secs(ttl.into())))
    }

    /// The records of one type; `None` if the name has none.
    fn of_family(
        &self,
        answer: Result<Lookup, NetError>,
        within: Duration,
    ) -> Result<Option<Lookup>, LookupError> {
        match answer {
            Ok(lookup) => Ok(Some(lookup)),
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => Ok(None),
            Err(NetError::Timeout) => Err(self.timed_out(within)),
            Err(error) => Err(LookupError::Resolver(Box::new(error))),
        }
    }

    fn timed_out(&self, within: Duration) -> LookupError {
        let of = if self.is_system { "/etc/resolv.conf" } else { "`servers`" };
        LookupError::Timeout { of, within }
    }
}

/// Resolves `HOST:PORT` in both families, by the system's resolver.
pub(super) async fn look_up(name: &str, within: Duration) -> Result<Found, LookupError> {
    let (host, port) = name.rsplit_once(':').ok_or(LookupError::Name)?;
    let port: u16 = port.parse().map_err(|_| LookupError::Name)?;
    let host = Name::from_str_relaxed(host).map_err(|_| LookupError::Name)?;
    Servers::of(&[])?.addresses(&host, port, Families::Both, within).await
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
fn system() -> Result<TokioResolver, NetError> {
    let mut builder = TokioResolver::builder_tokio().unwrap_or_else(|_| {
        let server = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_name_servers(vec![server]);
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    });
    builder.options_mut().cache_size = 0;
    builder.build()
}

/// A resolver that asks these servers. Names are complete: no search list applies.
fn stated(addresses: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let server = |address: &SocketAddr| {
        let at = |mut connection: ConnectionConfig| {
            connection.port = address.port();
            connection
        };
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(at);
        NameServerConfig::new(address.ip(), true, connections.into())
    };
    let config = ResolverConfig::from_name_servers(addresses.iter().map(server).collect());
    let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.options_mut().cache_size = 0;
    builder.build()
}

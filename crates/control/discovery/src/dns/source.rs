//! The records of a name as a source of backends: A, AAAA, or SRV.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::rr::rdata::SRV;
use tokio::time::sleep;

use super::lookup::{Families, LookupError, Servers};
use super::weights::scaled;
use crate::backend::{Found, HostPort};
use crate::options::{NameOptions, Records};
use crate::source::{Read, Source, SourceError};

/// Longest time for the lookups of one type of records.
const WITHIN: Duration = Duration::from_secs(5);

/// Time until a denied name is looked up again, within the bounds of the option `ttl`.
const DENIED_TTL: Duration = Duration::from_secs(5);

/// The records of a name.
pub(crate) struct DnsSource {
    options: NameOptions,
    /// Time until the next lookup.
    ttl: Duration,
    /// The last addresses of the name or, with SRV, of each target. They stay where a lookup fails.
    known: BTreeMap<Name, Vec<SocketAddr>>,
}

impl DnsSource {
    pub(crate) fn new(options: NameOptions) -> DnsSource {
        let ttl = *options.ttl.start();
        DnsSource { options, ttl, known: BTreeMap::new() }
    }

    async fn of_addresses(
        &mut self,
        name: Name,
        port: u16,
        families: Families,
    ) -> Result<Read, LookupError> {
        let servers = Servers::of(&self.options.servers)?;
        let found = servers.addresses(&name, port, families, WITHIN).await?;
        self.ttl = found.ttl;
        let before = self.known.remove(&name).unwrap_or_default();
        let mut addresses = found.addresses;
        let missing = before.iter().copied().filter(found.keeps).collect::<Vec<_>>();
        let lacks = (!missing.is_empty()).then(|| {
            let family = if missing[0].is_ipv6() { "AAAA" } else { "A" };
            format!("no answer about its {family} records; their last addresses are kept")
        });
        addresses.extend(missing);
        let backends = addresses.iter().map(|it| Found::at(HostPort::Ip(*it))).collect();
        self.known.insert(name, addresses);
        Ok(Read { backends, missing: lacks })
    }

    async fn of_services(&mut self, name: Name) -> Result<Read, LookupError> {
        let servers = Servers::of(&self.options.servers)?;
        let (mut services, ttl) = servers.services(&name, WITHIN).await?;
        self.ttl = ttl;
        // The target "." says that the service does not exist at this domain (RFC 2782).
        services.retain(|service| !service.target.is_root());
        let mut targets: Vec<_> = services.iter().map(|it| it.target.clone()).collect();
        targets.sort();
        targets.dedup();
        let (mut known, mut missing) = (BTreeMap::new(), Vec::new());
        let servers = &servers;
        let look_up = |target: Name| async move {
            let found = servers.addresses(&target, 0, Families::Both, WITHIN).await;
            (target, found)
        };
        let mut failure = None;
        let mut left = targets.into_iter();
        let mut running: FuturesUnordered<_> = left.by_ref().take(AT_ONCE).map(look_up).collect();
        while let Some((target, found)) = running.next().await {
            running.extend(left.next().map(look_up));
            match found {
                Ok(found) => {
                    self.ttl = self.ttl.min(found.ttl);
                    known.insert(target, one_family(found.addresses));
                }
                Err(LookupError::NoAddress) => missing.push(format!("{target} has no address")),
                Err(error) => {
                    missing.push(format!("{target}: {error}"));
                    match self.known.get(&target) {
                        Some(before) => drop(known.insert(target, before.clone())),
                        None => failure = Some(error),
                    }
                }
            }
        }
        match failure {
            Some(error) if known.is_empty() => return Err(error),
            _ => self.known = known,
        }
        let missing = missing.first().map(|first| match missing.len() {
            1 => first.clone(),
            count => format!("{first}, and {} other targets likewise", count - 1),
        });
        Ok(Read { backends: backends(&services, &self.known), missing })
    }
}

/// Targets that are looked up at the same time.
const AT_ONCE: usize = 16;

/// The IPv4 addresses, or else all: a target with addresses of both families is one server.
fn one_family(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses
}

/// A backend for each address of each target. The targets of the best priority serve, and all
/// others are backups. A record's weight is divided over the addresses of its target.
fn backends(services: &[SRV], known: &BTreeMap<Name, Vec<SocketAddr>>) -> Vec<Found> {
    let reached = |service: &&SRV| known.get(&service.target).is_some_and(|it| !it.is_empty());
    let best = services.iter().filter(reached).map(|it| it.priority).min();
    let (mut found, mut shares) = (Vec::new(), Vec::new());
    for service in services {
        let addresses = known.get(&service.target).map(Vec::as_slice).unwrap_or_default();
        for address in addresses {
            let backup = Some(service.priority) != best;
            let address = HostPort::Ip((address.ip(), service.port).into());
            found.push(Found { backup, ..Found::at(address) });
            shares.push(f64::from(service.weight) / addresses.len() as f64);
        }
    }
    let weights = scaled(&shares);
    found.iter_mut().zip(weights).for_each(|(backend, weight)| backend.weight = weight);
    found
}

#[async_trait]
impl Source for DnsSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        let name = Name::from_str_relaxed(&self.options.name).map_err(|_| LookupError::Name)?;
        let read = match self.options.records {
            Records::Addresses(port) => self.of_addresses(name, port, Families::Both).await,
            Records::V4(port) => self.of_addresses(name, port, Families::V4).await,
            Records::V6(port) => self.of_addresses(name, port, Families::V6).await,
            Records::Srv => self.of_services(name).await,
        };
        match read {
            Ok(read) => Ok(read),
            Err(denied @ (LookupError::NoAddress | LookupError::NoService)) => {
                self.ttl = DENIED_TTL;
                Ok(Read { backends: Vec::new(), missing: Some(denied.to_string()) })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn changed(&mut self) -> Result<(), SourceError> {
        let (min, max) = (*self.options.ttl.start(), *self.options.ttl.end());
        sleep(self.ttl.clamp(min, max)).await;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn service(priority: u16, weight: u16, target: &str) -> SRV {
        SRV::new(priority, weight, 80, Name::from_ascii(target).unwrap())
    }

    fn known(all: &[(&str, &[&str])]) -> BTreeMap<Name, Vec<SocketAddr>> {
        let at = |ip: &&str| SocketAddr::new(ip.parse().unwrap(), 0);
        let one = |(target, ips): &(&str, &[&str])| {
            (Name::from_ascii(target).unwrap(), ips.iter().map(at).collect())
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn the_best_priority_serves_and_the_others_are_backups() {
        let services = [service(1, 10, "a."), service(2, 10, "b."), service(0, 10, "gone.")];
        let found = backends(&services, &known(&[("a.", &["192.0.2.1"]), ("b.", &["192.0.2.2"])]));
        let seen: Vec<_> = found.iter().map(|it| (it.address.to_string(), it.backup)).collect();
        assert_eq!(seen, [("192.0.2.1:80".into(), false), ("192.0.2.2:80".into(), true)]);
    }

    #[test]
    fn a_weight_is_divided_over_the_addresses_of_a_target() {
        let services = [service(0, 10, "a."), service(0, 10, "b.")];
        let found = backends(
            &services,
            &known(&[("a.", &["192.0.2.1", "192.0.2.3"]), ("b.", &["192.0.2.2"])]),
        );
        let weights: Vec<_> = found.iter().map(|it| it.weight.get()).collect();
        assert_eq!(weights, [5, 5, 10]);
    }

    #[test]
    fn a_target_in_both_families_is_one_server() {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
        let (v4, v6) = (at("192.0.2.1"), at("2001:db8::1"));
        assert_eq!(one_family(vec![v6, v4]), [v4]);
        assert_eq!(one_family(vec![v6]), [v6]);
    }
}

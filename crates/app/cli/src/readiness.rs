//! Whether a machine serves its addresses, for programs that lead traffic to it.
//!
//! In: the status of a process. Out: its addresses, each with its services. An address is served
//! while one of its services has a backend that may receive work: if the backends of the others
//! have failed, other machines have lost them, too.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use equipoise_api::wire::packet::VipStatus;
use equipoise_api::wire::{FrontDoorStatus, Health, Phase, Status};

/// An address, and what the process serves there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) address: IpAddr,
    services: Vec<Service>,
    is_stopping: bool,
}

/// A VIP, a front door or the DNS level at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    name: String,
    problem: Option<&'static str>,
}

impl Address {
    /// The reason why no traffic should come here; `None` if it should.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.is_stopping {
            return Some("equipoise is stopping".into());
        }
        if self.services.is_empty() {
            return Some("no VIP, front door or DNS listener has this address".into());
        }
        let problems = self.services.iter().map(|it| Some((&it.name, it.problem?)));
        let problems: Option<Vec<_>> = problems.collect();
        let problems = problems?.into_iter().map(|(name, problem)| format!("{name}: {problem}"));
        Some(problems.collect::<Vec<_>>().join("; "))
    }
}

/// The `asked` addresses, or, if it is empty, all that the configuration names. Listeners on all
/// addresses of a family count for each of them. Loopback addresses are not announced.
pub(crate) fn of(status: &Status, asked: &[IpAddr]) -> Vec<Address> {
    let mut at: BTreeMap<IpAddr, Vec<Service>> = BTreeMap::new();
    let mut everywhere = Vec::new();
    for (address, service) in services(status) {
        match address {
            _ if address.is_unspecified() => everywhere.push((address.is_ipv4(), service)),
            _ if address.is_loopback() && !asked.contains(&address) => {}
            _ => at.entry(address).or_default().push(service),
        }
    }
    let addresses = match asked {
        [] => at.keys().copied().collect(),
        _ => asked.to_vec(),
    };
    let is_stopping = status.phase == Phase::Stopping;
    let of_one = |address: IpAddr| {
        let mut services = at.get(&address).cloned().unwrap_or_default();
        let of_family = everywhere.iter().filter(|(is_ipv4, _)| *is_ipv4 == address.is_ipv4());
        services.extend(of_family.map(|(_, service)| service.clone()));
        Address { address, services, is_stopping }
    };
    addresses.into_iter().map(of_one).collect()
}

fn services(status: &Status) -> Vec<(IpAddr, Service)> {
    let packet = status.packet.iter();
    let vips = packet.flat_map(|packet| {
        let is_attached = packet
            .interfaces
            .iter()
            .any(|it| it.role == "clients" && matches!(it.state.as_str(), "native" | "generic"));
        packet
            .vips
            .iter()
            .filter_map(move |vip| Some((address_of(&vip.vip)?, of_vip(vip, is_attached))))
    });
    let doors = status.front_doors.iter().filter_map(|door| {
        let problem =
            (!is_served(door, status)).then_some("no backend of its pools may receive work");
        Some((address_of(&door.listen)?, Service { name: door.name.clone(), problem }))
    });
    let dns = status.dns.iter().flat_map(|dns| &dns.listen).filter_map(|listen| {
        Some((address_of(listen)?, Service { name: format!("dns {listen}"), problem: None }))
    });
    vips.chain(doors).chain(dns).collect()
}

fn of_vip(vip: &VipStatus, is_attached: bool) -> Service {
    let receives = vip.backends.iter().any(|it| {
        it.state == "up" && it.reachable && it.tunnel.is_none_or(|it| it != Health::Unhealthy)
    });
    // An address that left the configuration is for known flows alone.
    let mut sources = vip.source_addresses.iter().filter(|it| it.state != "draining").peekable();
    let lacks_source = sources.peek().is_some() && sources.all(|it| it.state == "absent");
    let problem = match (is_attached, receives) {
        (false, _) => Some("the packet program is on no interface"),
        (true, _) if lacks_source => Some("this machine has none of its source addresses"),
        (true, false) => Some("no backend may receive new flows"),
        (true, true) => None,
    };
    Service { name: vip.vip.clone(), problem }
}

/// Whether a pool behind the front door has a backend for new work, or other nodes may.
fn is_served(door: &FrontDoorStatus, status: &Status) -> bool {
    let mut pools = status.pools.iter().filter(|pool| pool.backends_eligible > 0);
    door.dispatch.is_some() || pools.any(|pool| door.pools.contains(&pool.name))
}

/// The IP address of `192.0.2.10:443`, `[2001:db8::1]:443/tcp` or `192.0.2.10:*/udp`.
fn address_of(listen: &str) -> Option<IpAddr> {
    if let Ok(address) = listen.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let bare = match listen.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => listen.rsplit_once(':').map_or(listen, |(address, _)| address),
    };
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_extracted_from_vip_and_listener_notations() {
        for (listen, address) in [
            ("192.0.2.10:443", "192.0.2.10"),
            ("192.0.2.10:443/tcp", "192.0.2.10"),
            ("192.0.2.10:8000-8100/udp", "192.0.2.10"),
            ("192.0.2.10:*/any", "192.0.2.10"),
            ("[2001:db8::1]:443/tcp", "2001:db8::1"),
            ("[2001:db8::1]:53", "2001:db8::1"),
            ("0.0.0.0:80", "0.0.0.0"),
        ] {
            assert_eq!(address_of(listen), Some(address.parse().unwrap()), "{listen}");
        }
        assert_eq!(address_of("unix:/run/a.sock"), None);
    }
}

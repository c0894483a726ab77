//! Host names of backends with addresses that a VIP cannot use.
//!
//! A resolver's answer is not an error of the configuration. Such a backend has an empty place at
//! its VIP: it gets no packets, `status` and the log show the reason, and everything else
//! continues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use equipoise_packet::abi::Forward;
use equipoise_packet::config::VipConfig;
use equipoise_packet::{BackendId, Ports, Protocol, VipId};
use equipoise_session::config::{BackendConfig, Place, PoolConfig};

use super::{destination, id};
use equipoise_basics::LogLimit;

/// Empty places by VIP and by the address that identifies the backend.
pub type EmptyPlaces = BTreeMap<(VipId, SocketAddr), EmptyPlace>;

/// A backend that gets no packets of a VIP because of the address of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyPlace {
    /// Name of the backend in its pool.
    pub name: Arc<str>,
    /// Address that the VIP cannot use.
    pub at: BackendId,
    /// Description of the problem, for `status` and the log.
    pub detail: String,
}

/// The empty places of all VIPs. Addresses in the file claim their sources first, then host names
/// in the order of the file.
pub(super) fn find(vips: &[VipConfig], pools: &[PoolConfig]) -> EmptyPlaces {
    let is_named = |backend: &&BackendConfig| matches!(backend.place, Place::Host { .. });
    if !pools.iter().flat_map(|pool| &pool.backends).any(|backend| is_named(&backend)) {
        return EmptyPlaces::new();
    }
    let pools: HashMap<&str, &PoolConfig> = pools.iter().map(|pool| (&*pool.name, pool)).collect();
    let backends =
        |vip: &VipConfig| pools.get(&*vip.pool).into_iter().flat_map(|pool| &pool.backends);
    let addresses: HashMap<IpAddr, VipId> =
        vips.iter().rev().map(|vip| (vip.vip.address, vip.vip)).collect();
    let mut sources = ReplySources::default();
    for vip in vips {
        for backend in backends(vip).filter(|backend| !is_named(backend)) {
            sources.claim(vip, backend.address);
        }
    }
    let mut empty = EmptyPlaces::new();
    for vip in vips {
        for backend in backends(vip).filter(is_named) {
            let Some(to) = destination(vip, backend) else { continue };
            let at = id(vip, backend);
            let problem = if let Some(other) = addresses.get(&to.ip()) {
                format!(
                    "{at}, which is the address of VIP {other}: packets would return to the balancer"
                )
            } else if let Some(other) = sources.claim(vip, to) {
                format!(
                    "{at}, where VIP {other} also sends packets by nat: the balancer could not assign replies to a VIP"
                )
            } else {
                continue;
            };
            let detail = format!("no packets go to it: its name resolves to {problem}");
            let place = EmptyPlace { name: Arc::clone(&backend.name), at, detail };
            empty.insert((vip.vip, backend.address), place);
        }
    }
    empty
}

/// The VIP of a reply with nat, by the source of the reply.
#[derive(Default)]
struct ReplySources(HashMap<(IpAddr, Protocol), Vec<PortsOf>>);

/// First and last port, and the VIP that they belong to.
type PortsOf = (u16, u16, VipId);

impl ReplySources {
    /// Claims replies from `to` for `vip`. Returns another VIP that has claimed them already.
    fn claim(&mut self, vip: &VipConfig, to: SocketAddr) -> Option<VipId> {
        if vip.forward != Forward::Nat {
            return None;
        }
        let (first, last) = match vip.vip.ports {
            Ports::One(_) => (to.port(), to.port()),
            _ => vip.vip.ports.bounds(),
        };
        let claimed = self.0.entry((to.ip(), vip.vip.protocol)).or_default();
        let overlaps = |from: u16, until: u16| from <= last && first <= until;
        let other = claimed.iter().find(|(a, z, of)| *of != vip.vip && overlaps(*a, *z));
        if let Some((.., other)) = other {
            return Some(*other);
        }
        claimed.push((first, last, vip.vip));
        None
    }
}

/// Log lines about empty places, limited to a few each minute for each place. A line that is left
/// out is written later, if it is still true then.
#[derive(Default)]
pub(super) struct EmptyPlacesLog {
    /// The places as the log has them.
    written: EmptyPlaces,
    limits: BTreeMap<(VipId, SocketAddr), LogLimit>,
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Empty(String),
    Filled(String),
}

impl EmptyPlacesLog {
    /// Logs places that became empty or are no longer empty.
    pub(super) fn note(&mut self, now: &EmptyPlaces) {
        for line in self.lines(now, Instant::now()) {
            match line {
                Line::Empty(text) => tracing::warn!("{text}"),
                Line::Filled(text) => tracing::info!("{text}"),
            }
        }
    }

    /// The differences to the log that may be written at this time.
    fn lines(&mut self, now: &EmptyPlaces, at: Instant) -> Vec<Line> {
        let keys: BTreeSet<_> = self.written.keys().chain(now.keys()).copied().collect();
        let mut lines = Vec::new();
        for key in keys {
            let (before, place) = (self.written.get(&key), now.get(&key));
            if before == place || !self.limits.entry(key).or_default().may_write(at) {
                continue;
            }
            lines.extend(match (before, place) {
                (_, Some(place)) => Some(Line::Empty(format!(
                    "backend {}: {}: {}",
                    place.name, key.0, place.detail
                ))),
                (Some(place), None) => Some(Line::Filled(format!(
                    "backend {}: {}: it gets packets again",
                    place.name, key.0
                ))),
                (None, None) => None,
            });
            match place {
                Some(place) => drop(self.written.insert(key, place.clone())),
                None => drop(self.written.remove(&key)),
            }
        }
        lines
    }

    /// Forgets VIPs that the configuration does not have.
    pub(super) fn forget_others(&mut self, vips: &[VipConfig]) {
        let is_there = |key: &(VipId, SocketAddr)| vips.iter().any(|it| it.vip == key.0);
        self.written.retain(|key, _| is_there(key));
        self.limits.retain(|key, _| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_log_has_the_last_state_of_a_place_in_the_end() {
        let at: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let vip = VipId {
            address: "192.0.2.20".parse().unwrap(),
            ports: Ports::One(80),
            protocol: Protocol::Tcp,
        };
        let place = EmptyPlace {
            name: "b".into(),
            at: BackendId { address: at.ip(), port: Some(80) },
            detail: "no".into(),
        };
        let (empty, filled) = (EmptyPlaces::from([((vip, at), place)]), EmptyPlaces::new());
        let (mut log, begin) = (EmptyPlacesLog::default(), Instant::now());
        let changes = [&empty, &filled].repeat(5);
        let lines: Vec<_> = changes.iter().flat_map(|now| log.lines(now, begin)).collect();
        let last = lines.last().unwrap();
        assert!(lines.len() < changes.len() && matches!(last, Line::Empty(_)), "{lines:?}");
        assert_eq!(log.lines(&filled, begin), []);
        let text = format!("backend b: {vip}: it gets packets again");
        let later = begin + Duration::from_secs(61);
        assert_eq!(log.lines(&filled, later), [Line::Filled(text)]);
        assert_eq!(log.lines(&filled, later), []);
    }
}

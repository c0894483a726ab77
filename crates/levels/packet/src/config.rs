//! Validated configuration of the packet level.
//!
//! The option table (names, defaults, bounds, help) is in the binary; it shows the defaults given
//! here.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_pog::{KeyHash, Seed, SipHash13};

use crate::abi::{FlowKey, Forward};
use crate::access::Access;
use crate::control::{Settings, Timeouts};
use crate::limits::{Capacity, FlowTags};
use crate::quic::{QuicConfig, ServerId};
use crate::scheduler::FlowScheduler;
use crate::snapshot::{BackendId, OnDown, OwnTimeouts, Ports, Protocol, Sources, VipId};

/// The whole configuration of the packet level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketConfig {
    /// VIPs; no two overlap.
    pub vips: Vec<VipConfig>,
    /// Flows, and settings of all VIPs.
    pub flows: FlowsConfig,
    /// Balancers that share their flows.
    pub fleet: Option<FleetConfig>,
}

/// One VIP.
#[derive(Clone, Debug, PartialEq)]
pub struct VipConfig {
    /// Address, port and protocol that clients use.
    pub vip: VipId,
    /// Interfaces that receive its packets; at least one.
    pub interfaces: Vec<Arc<str>>,
    /// Additional destination MAC addresses that are accepted on all these interfaces.
    pub accepted_macs: Vec<MacAddress>,
    /// nat: additional interfaces that receive replies only.
    pub reply_interfaces: Vec<Arc<str>>,
    /// Forwarding method.
    pub forward: Forward,
    /// Name of its pool.
    pub pool: Arc<str>,
    /// FlowScheduler of new flows.
    pub scheduler: FlowScheduler,
    /// Fields that identify a flow.
    pub key: FlowKey,
    /// Sources of accepted packets.
    pub access: Access,
    /// Its own times until idle flows are forgotten.
    pub timeouts: OwnTimeouts,
    /// UDP: connection ids of QUIC that have the server; no two of one config rotation id.
    pub quic: Vec<QuicIds>,
    /// full-nat: sources of its packets to backends.
    pub sources: Sources,
    /// Treatment of flows of a backend with failing health checks.
    pub when_down: OnDown,
    /// tunnel and gue: whether each health check is followed by a check through the tunnel.
    pub check_tunnel: bool,
    /// gue: whether packets carry the backend that had their flow before a change.
    pub second_chance: bool,
}

impl VipConfig {
    /// Returns the packet level's id of a backend at an address. Only nat changes ports, and only
    /// for VIPs with one port.
    pub fn backend_id(&self, address: SocketAddr) -> BackendId {
        let translated = self.forward.translates() && matches!(self.vip.ports, Ports::One(_));
        BackendId { address: address.ip(), port: translated.then(|| address.port()) }
    }
}

/// A configuration of connection ids, with the server ids that the file gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicIds {
    /// How servers make connection ids.
    pub config: QuicConfig,
    /// Server ids by the backend's name; others are derived.
    pub named: BTreeMap<Arc<str>, ServerId>,
}

impl QuicIds {
    /// Returns the server ids of backends, by name and id. Of two with the same server id, the
    /// second has none; the names of the first such pair are returned, too.
    pub fn server_ids<'n>(
        &self,
        backends: impl IntoIterator<Item = (&'n str, BackendId)>,
    ) -> (BTreeMap<BackendId, ServerId>, Option<[String; 2]>) {
        let mut owners = BTreeMap::<ServerId, (&str, BackendId)>::new();
        let mut pair = None;
        let mut all: Vec<_> = backends.into_iter().collect();
        // Given ids come first: a derived one gives way.
        all.sort_by_key(|(name, _)| !self.named.contains_key(*name));
        for (name, backend) in all {
            let given = self.named.get(name).copied();
            let id = given.unwrap_or_else(|| self.config.derived_id(&backend));
            let (owner, _) = owners.entry(id).or_insert((name, backend));
            if *owner != name {
                pair.get_or_insert_with(|| [(*owner).to_owned(), name.to_owned()]);
            }
        }
        (owners.into_iter().map(|(id, (_, backend))| (backend, id)).collect(), pair)
    }
}

/// The text is not a [`VipId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a VIP is IP:PORT/PROTOCOL, such as 192.0.2.10:443/tcp or [2001:db8::1]:53/udp; PORT may be a range (8000-8999) or `*`"
)]
pub struct NotAVip;

impl FromStr for VipId {
    type Err = NotAVip;

    fn from_str(text: &str) -> Result<VipId, NotAVip> {
        let (place, protocol) = text.rsplit_once('/').ok_or(NotAVip)?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(NotAVip),
        };
        let (address, ports) = place.rsplit_once(':').ok_or(NotAVip)?;
        let address = match address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => IpAddr::V6(address.parse::<Ipv6Addr>().map_err(|_| NotAVip)?),
            None => IpAddr::V4(address.parse::<Ipv4Addr>().map_err(|_| NotAVip)?),
        };
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            return Err(NotAVip);
        }
        Ok(VipId { address, ports: read_ports(ports)?, protocol })
    }
}

fn read_ports(text: &str) -> Result<Ports, NotAVip> {
    let port = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let port = text.parse::<u16>().ok().filter(|port| digits && *port > 0);
        port.ok_or(NotAVip)
    };
    match text.split_once('-') {
        _ if text == "*" => Ok(Ports::Any),
        None => port(text).map(Ports::One),
        Some((first, last)) => match (port(first)?, port(last)?) {
            (first, last) if first < last => Ok(Ports::Range(first, last)),
            _ => Err(NotAVip),
        },
    }
}

/// The ports of source addresses, as in the configuration: `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first port, not 0.
    pub first: u16,
    /// The last port, not below the first.
    pub last: u16,
}

/// The text is not a [`PortRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a range of ports is FIRST-LAST, from 1 to 65535, such as 1024-65535")]
pub struct NotAPortRange;

impl FromStr for PortRange {
    type Err = NotAPortRange;

    fn from_str(text: &str) -> Result<PortRange, NotAPortRange> {
        match read_ports(text) {
            Ok(Ports::Range(first, last)) => Ok(PortRange { first, last }),
            Ok(Ports::One(port)) => Ok(PortRange { first: port, last: port }),
            _ => Err(NotAPortRange),
        }
    }
}

/// A MAC address, written like `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Whether it is a unicast address and not all zero.
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// The text is not a [`MacAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a MAC address is six bytes in hexadecimal digits, such as 02:00:00:00:00:01")]
pub struct NotAMac;

impl FromStr for MacAddress {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<MacAddress, NotAMac> {
        let byte = |byte: &str| {
            let is_hex = byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit());
            u8::from_str_radix(byte, 16).ok().filter(|_| is_hex)
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(MacAddress).ok_or(NotAMac)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The balancers that share their flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Address that peers connect to.
    pub listen: SocketAddr,
    /// Addresses of all peers; the balancer's own may be among them.
    pub peers: Vec<SocketAddr>,
}

impl FleetConfig {
    /// Largest number of peers.
    pub const PEERS_MAX: usize = 32;
}

/// Flows, and settings of all VIPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// Maximum number of flows in the registry.
    pub flows_max: u32,
    /// Form of the tags of flows that were seen in an interval.
    pub tags: FlowTags,
    /// Maximum number of pinned flows: flows with another backend than their VIP's table.
    pub pins_max: u32,
    /// Maximum number of flows recorded while they open or while a pool changes.
    pub pending_max: u32,
    /// Maximum number of VIPs.
    pub vips_max: u32,
    /// Maximum number of backends over all VIPs, including draining ones.
    pub backends_max: u32,
    /// Maximum number of prefixes in the lists of accepted and refused sources of all VIPs.
    pub prefixes_max: u32,
    /// Maximum number of flows of full-nat.
    pub full_nat_max: u32,
    /// Time until idle flows are forgotten.
    pub timeouts: Timeouts,
    /// Time until a flow is forgotten of which only the SYN was seen.
    pub opening_timeout: Duration,
    /// Minimum duration of a pool's change: an opening handshake.
    pub transition: Duration,
    /// Secret of the fleet; `None`: a secret of this machine.
    pub seed: Option<FleetSecret>,
    /// Outer source of IPv4 tunnels; the flow sets the remaining bits.
    pub tunnel_source: Prefix<Ipv4Addr>,
    /// Outer source of IPv6 tunnels: the first 64 bits.
    pub tunnel_source6: Prefix<Ipv6Addr>,
    /// UDP destination port of GUE.
    pub gue_port: u16,
    /// Echo replies per second and CPU.
    pub echo_per_second: u32,
    /// "Too big" messages per second and CPU.
    pub too_big_per_second: u32,
    /// Whether to switch off offloads that would show the program other packets than those on the
    /// wire.
    pub adjust_offloads: bool,
    /// Whether to estimate the bytes of flows.
    pub elephants: bool,
}

impl Default for FlowsConfig {
    fn default() -> FlowsConfig {
        FlowsConfig {
            flows_max: 1 << 20,
            tags: FlowTags::default(),
            pins_max: 1 << 18,
            pending_max: 1 << 16,
            vips_max: 16,
            backends_max: 1024,
            prefixes_max: 4096,
            full_nat_max: 1 << 18,
            timeouts: Timeouts::default(),
            opening_timeout: Duration::from_secs(5),
            transition: Duration::from_secs(1),
            seed: None,
            tunnel_source: Prefix { address: Ipv4Addr::new(172, 16, 0, 0), len: 16 },
            tunnel_source6: Prefix { address: Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), len: 64 },
            gue_port: 6080,
            echo_per_second: 1000,
            too_big_per_second: 1000,
            adjust_offloads: true,
            elephants: true,
        }
    }
}

/// Number of rings of a VIP: the current one, the next one during a change, and the order of turns
/// or the replaced one.
const RINGS_PER_VIP: u32 = 3;

/// Packets for each one that is added to the sketches of flows' bytes.
const SAMPLE_EVERY: u32 = 64;

/// Events in each CPU's log: with many CPUs as many as two CPUs' share of a full registry, since
/// the kernel spreads flows over its CPUs. The rest is logged with a later packet.
fn log_events(flows_max: u32, cpus: u32) -> u32 {
    let share = flows_max.div_ceil(cpus.max(1));
    (2 * share).next_power_of_two().clamp(1 << 14, Capacity::default().log_events)
}

impl FlowsConfig {
    /// Returns the capacity of a program that runs on `cpus` CPUs. Without `full_nat` it has no
    /// memory for its flows.
    pub fn capacity(&self, cpus: u32, full_nat: bool) -> Capacity {
        Capacity {
            flows: self.flows_max,
            tags: self.tags,
            pins: self.pins_max,
            pending: self.pending_max.next_power_of_two(),
            services: self.vips_max,
            backends: self.backends_max,
            prefixes: self.prefixes_max,
            rings: self.vips_max * RINGS_PER_VIP,
            full_nat_flows: if full_nat { self.full_nat_max } else { 0 },
            cpus,
            log_events: log_events(self.flows_max, cpus),
            sample_every: if self.elephants { SAMPLE_EVERY } else { 0 },
            ..Capacity::default()
        }
    }

    /// Returns the settings of the control side, with `fleet_seed`.
    pub fn settings(&self, fleet_seed: Seed) -> Settings {
        let free = u32::MAX.checked_shr(self.tunnel_source.len.into()).unwrap_or(0);
        Settings {
            fleet_seed,
            transition: self.transition,
            opening_timeout: self.opening_timeout,
            timeouts: self.timeouts,
            tunnel_source4: (self.tunnel_source.address, Ipv4Addr::from_bits(free)),
            tunnel_source6: self.tunnel_source6.address,
            gue_port: self.gue_port,
            echo_per_second: self.echo_per_second,
            too_big_per_second: self.too_big_per_second,
            ..Settings::default()
        }
    }
}

/// An address prefix; the bits after it are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<A> {
    /// The address.
    pub address: A,
    /// Length of the prefix, bits.
    pub len: u8,
}

/// The text is not a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a prefix is ADDRESS/LENGTH with zero bits behind the length")]
pub struct NotAPrefix;

impl FromStr for Prefix<Ipv4Addr> {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let (address, len) = split_prefix::<Ipv4Addr>(text, 32)?;
        let free = u32::MAX.checked_shr(len.into()).unwrap_or(0);
        if address.to_bits() & free == 0 { Ok(Prefix { address, len }) } else { Err(NotAPrefix) }
    }
}

impl FromStr for Prefix<Ipv6Addr> {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Self, NotAPrefix> {
        let (address, len) = split_prefix::<Ipv6Addr>(text, 128)?;
        let free = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        if address.to_bits() & free == 0 { Ok(Prefix { address, len }) } else { Err(NotAPrefix) }
    }
}

fn split_prefix<A: FromStr>(text: &str, len_max: u8) -> Result<(A, u8), NotAPrefix> {
    let (address, len) = text.split_once('/').ok_or(NotAPrefix)?;
    let address = address.parse().map_err(|_| NotAPrefix)?;
    let len = len.parse().ok().filter(|len| *len <= len_max).ok_or(NotAPrefix)?;
    Ok((address, len))
}

/// Secret that the balancers of a fleet share and clients must not know. Its text is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetSecret(Arc<[u8]>);

impl FleetSecret {
    /// Minimum length of a secret, bytes.
    pub const BYTES_MIN: usize = 16;

    /// Makes a secret from a trimmed text. `None` if it is shorter than [`FleetSecret::BYTES_MIN`].
    pub fn new(text: &str) -> Option<FleetSecret> {
        let text = text.trim();
        (text.len() >= FleetSecret::BYTES_MIN).then(|| FleetSecret(text.as_bytes().into()))
    }

    /// Returns its text.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the seed derived from the secret, the same on every machine.
    pub fn seed(&self) -> Seed {
        let word =
            |number| SipHash13::with_seed(Seed { k0: SECRET_KEY, k1: number }).hash(&*self.0);
        Seed { k0: word(0), k1: word(1) }
    }
}

/// "eqpSeed1": separates this use of SipHash from others.
const SECRET_KEY: u64 = u64::from_le_bytes(*b"eqpSeed1");

impl fmt::Debug for FleetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vip_parses_and_displays_as_the_same_text() {
        for text in [
            "192.0.2.10:443/tcp",
            "[2001:db8::1]:53/udp",
            "192.0.2.10:*/tcp",
            "[2001:db8::1]:8000-8999/tcp",
        ] {
            assert_eq!(text.parse::<VipId>().map(|vip| vip.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn a_mac_address_is_parsed_and_an_invalid_one_refused() {
        let mac: MacAddress = "00:00:5E:00:01:0a".parse().unwrap();
        assert_eq!(mac, MacAddress([0, 0, 0x5e, 0, 1, 0x0a]));
        assert_eq!(mac.to_string(), "00:00:5e:00:01:0a");
        assert!(mac.is_station());
        for text in ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
            assert!(!text.parse::<MacAddress>().unwrap().is_station(), "{text}");
        }
        for text in
            ["", "02", "2:0:0:0:0:1", "02:00:00:00:00", "02:00:00:00:00:00:01", "+2:00:00:00:00:01"]
        {
            assert_eq!(text.parse::<MacAddress>(), Err(NotAMac), "{text}");
        }
    }

    #[test]
    fn an_invalid_vip_is_refused() {
        for text in [
            "",
            "192.0.2.10",
            "192.0.2.10:443",
            "192.0.2.10/tcp",
            "192.0.2.10:443/sctp",
            "192.0.2.10:443/TCP",
            "192.0.2.10:0/tcp",
            "192.0.2.10:+1/tcp",
            "192.0.2.10:65536/tcp",
            "192.0.2.10:9-8/tcp",
            "192.0.2.10:8-8/tcp",
            "192.0.2.10:8-/tcp",
            "2001:db8::1:53/udp",
            "[192.0.2.10]:53/udp",
            "web:80/tcp",
            "0.0.0.0:80/tcp",
            "127.0.0.1:80/tcp",
            "224.0.0.1:80/udp",
            "[::1]:80/tcp",
        ] {
            assert_eq!(text.parse::<VipId>(), Err(NotAVip), "{text}");
        }
    }

    #[test]
    fn vips_overlap_when_a_packet_could_be_for_both() {
        let vip = |text: &str| text.parse::<VipId>().unwrap();
        for (one, other, overlap) in [
            ("192.0.2.1:80/tcp", "192.0.2.1:80/tcp", true),
            ("192.0.2.1:80/tcp", "192.0.2.1:80/udp", false),
            ("192.0.2.1:80/tcp", "192.0.2.2:80/tcp", false),
            ("192.0.2.1:80/tcp", "192.0.2.1:*/tcp", false),
            ("192.0.2.1:*/tcp", "192.0.2.1:*/tcp", true),
            ("192.0.2.1:80-90/tcp", "192.0.2.1:90-99/tcp", true),
            ("192.0.2.1:80-90/tcp", "192.0.2.1:91-99/tcp", false),
        ] {
            assert_eq!(vip(one).overlaps(&vip(other)), overlap, "{one} {other}");
            assert_eq!(vip(other).overlaps(&vip(one)), overlap, "{other} {one}");
        }
    }

    #[test]
    fn all_cpus_together_log_at_least_twice_a_full_registry() {
        for (cpus, each) in
            [(1, 1 << 16), (32, 1 << 16), (33, 1 << 16), (64, 1 << 15), (1024, 1 << 14)]
        {
            assert_eq!(
                FlowsConfig::default().capacity(cpus, false).log_events,
                each,
                "{cpus} CPUs"
            );
        }
        let small = FlowsConfig { flows_max: 1024, ..FlowsConfig::default() };
        assert_eq!(small.capacity(2, false).log_events, 1 << 14);
    }

    #[test]
    fn a_prefix_with_bits_beyond_its_length_is_refused() {
        assert_eq!("172.16.0.0/16".parse(), Ok(FlowsConfig::default().tunnel_source));
        assert_eq!("100::/64".parse(), Ok(FlowsConfig::default().tunnel_source6));
        for text in ["10.0.0.1/32", "0.0.0.0/0"] {
            assert!(text.parse::<Prefix<Ipv4Addr>>().is_ok(), "{text}");
        }
        for text in ["", "10.0.0.0", "10.0.0.1/24", "10.0.0.0/33", "10.0.0.0/-1", "x/8"] {
            assert_eq!(text.parse::<Prefix<Ipv4Addr>>(), Err(NotAPrefix), "{text}");
        }
    }

    #[test]
    fn a_fleet_secret_gives_equal_seeds_and_is_not_displayed() {
        let secret = FleetSecret::new("correct horse battery staple\n").unwrap();
        assert_eq!(FleetSecret::new("correct horse battery staple").unwrap(), secret);
        assert_ne!(secret.seed().k0, secret.seed().k1);
        let other = FleetSecret::new("correct horse battery stapler").unwrap();
        assert_ne!(secret.seed().k0, other.seed().k0);
        assert_eq!(format!("{secret:?}"), "FleetSecret");
        assert_eq!(FleetSecret::new("fifteen letters"), None);
    }
}

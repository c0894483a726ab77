//! What may be chosen about the control side.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use equipoise_pog::Seed;

/// Times, seeds and what goes into the directory. Times are those of LVS where it has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Secret; the same on every balancer of a fleet, and after a restart. All that a fleet must agree on comes from
    /// this and from the VIPs' text.
    pub fleet_seed: Seed,
    /// Seeds of the pins' cells; `None`: from the system. For tests.
    pub random_seed: Option<u64>,
    /// Between two ticks.
    pub tick: Duration,
    /// How long a copy that went out of use is left alone: longer than the program takes for a packet.
    pub grace: Duration,
    /// How long a change of a pool is announced before it counts: longer than a handshake.
    pub transition: Duration,
    /// Between two batches of pins of newly learnt flows; more if there are many flows to check.
    pub batch: Duration,
    /// A flow is logged once in this time.
    pub interval: Duration,
    /// How long a flow that only sent a SYN is remembered.
    pub opening_timeout: Duration,
    /// When flows are forgotten that are not seen.
    pub timeouts: Timeouts,
    /// Outer source of IPv4 tunnels, and its host bits, which vary with the flow.
    pub tunnel_source4: (Ipv4Addr, Ipv4Addr),
    /// Outer source of IPv6 tunnels; the lower 32 bits vary with the flow.
    pub tunnel_source6: Ipv6Addr,
    /// Destination port of generic UDP encapsulation.
    pub gue_port: u16,
    /// Echo requests that a CPU answers in a second.
    pub echo_per_second: u32,
    /// Frag-needed and packet-too-big messages that a CPU sends in a second.
    pub too_big_per_second: u32,
}

/// When a flow is forgotten that is not seen, by its state. Exact to one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, open.
    pub open: Duration,
    /// TCP after a FIN.
    pub closing: Duration,
    /// TCP after a RST.
    pub reset: Duration,
    /// UDP.
    pub udp: Duration,
}

impl Timeouts {
    /// After this long, a flow has sent or is forgotten.
    pub(super) fn longest(&self) -> Duration {
        self.open.max(self.closing).max(self.reset).max(self.udp)
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            open: Duration::from_secs(900),
            closing: Duration::from_secs(120),
            reset: Duration::from_secs(10),
            udp: Duration::from_secs(300),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            fleet_seed: Seed::default(),
            random_seed: None,
            tick: Duration::from_millis(100),
            grace: Duration::from_millis(10),
            transition: Duration::from_secs(1),
            batch: Duration::from_millis(100),
            interval: Duration::from_secs(10),
            opening_timeout: Duration::from_secs(5),
            timeouts: Timeouts::default(),
            tunnel_source4: (Ipv4Addr::new(172, 16, 0, 0), Ipv4Addr::new(0, 0, 255, 255)),
            tunnel_source6: Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0),
            gue_port: 6080,
            echo_per_second: 100,
            too_big_per_second: 100,
        }
    }
}

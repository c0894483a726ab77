//! Settings of the control side.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use equipoise_pog::Seed;

use crate::snapshot::OwnTimeouts;

/// Times, seeds, and values of the directory. Times are those of LVS where it has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Secret; the same on every balancer of a fleet, and after a restart. Everything that a fleet
    /// must agree on derives from it and from the VIPs' texts.
    pub fleet_seed: Seed,
    /// Seed of the pins' cells; `None`: from the system. For tests.
    pub random_seed: Option<u64>,
    /// Interval between ticks.
    pub tick: Duration,
    /// Time before a replaced copy is overwritten; longer than the program needs for a packet.
    pub grace: Duration,
    /// Time between the announcement of a pool's change and the change; longer than a handshake.
    pub transition: Duration,
    /// Minimum interval between two batches of pins of newly learned flows; longer if there are
    /// many flows to check.
    pub batch: Duration,
    /// Interval in which a flow is logged once.
    pub interval: Duration,
    /// Time until a flow is forgotten that only sent a SYN.
    pub opening_timeout: Duration,
    /// Times until idle flows are forgotten.
    pub timeouts: Timeouts,
    /// Outer source of IPv4 tunnels, and its host bits, which depend on the flow.
    pub tunnel_source4: (Ipv4Addr, Ipv4Addr),
    /// Outer source of IPv6 tunnels; the lower 32 bits depend on the flow.
    pub tunnel_source6: Ipv6Addr,
    /// Destination port of generic UDP encapsulation.
    pub gue_port: u16,
    /// Echo replies per second and CPU.
    pub echo_per_second: u32,
    /// Frag-needed and packet-too-big messages per second and CPU.
    pub too_big_per_second: u32,
}

/// Times until an idle flow is forgotten, by its state. Accurate to one interval.
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
    /// Returns the times of a VIP.
    pub(super) fn with(&self, own: &OwnTimeouts) -> Timeouts {
        Timeouts {
            open: own.open.unwrap_or(self.open),
            closing: own.closing.unwrap_or(self.closing),
            reset: self.reset,
            udp: own.udp.unwrap_or(self.udp),
        }
    }

    /// Returns the time after which any flow has sent a packet or is forgotten.
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

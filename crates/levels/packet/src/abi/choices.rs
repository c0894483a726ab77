//! The enumerations of `abi.h` as types, with their names in the configuration.

/// Declares an enumeration with the numbers of `abi.h`.
macro_rules! numbered {
    (
        $(#[$of_all:meta])*
        pub enum $name:ident { $($(#[$meta:meta])* $value:ident = $number:literal,)* }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$meta])* $value = $number,)* }

        impl $name {
            /// All values.
            pub const ALL: &[$name] = &[$($name::$value),*];

            /// The value with this number.
            pub fn from_number(number: u8) -> Option<$name> {
                $name::ALL.iter().copied().find(|it| *it as u8 == number)
            }
        }
    };
}

/// Forwarding method, as in LVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Forward {
    /// Rewrites the destination; replies return through the balancer.
    Nat = 1,
    /// IP in IP: IPIP, IP6IP6, 6in4, 4in6 by the addresses' families.
    Tunnel = 2,
    /// Generic UDP encapsulation (variant 1: the IP packet follows the UDP header).
    Gue = 3,
    /// Rewrites the destination's MAC address; the backend owns the VIP and answers the client
    /// directly.
    DirectRouting = 4,
    /// Rewrites destination and source; replies return to source addresses of the balancer.
    FullNat = 5,
}

impl Forward {
    /// Name in the configuration, method and meaning of each.
    pub const CHOICES: [(&str, Forward, &str); 5] = [
        (
            "nat",
            Forward::Nat,
            "the destination is rewritten; replies must return through this machine",
        ),
        (
            "full-nat",
            Forward::FullNat,
            "the destination is rewritten, and the source to one of `source-addresses`, so that replies return on any \
             network; backends do not see the client's address",
        ),
        (
            "tunnel",
            Forward::Tunnel,
            "IP in IP (IPIP, IP6IP6, 6in4, 4in6); the backend has the VIP and answers clients itself",
        ),
        ("gue", Forward::Gue, "the same in UDP (Generic UDP Encapsulation)"),
        (
            "direct-routing",
            Forward::DirectRouting,
            "only the MAC address is rewritten: for backends on the same link that have the VIP and answer clients \
             themselves",
        ),
    ];

    /// The method with this number.
    pub fn from_number(number: u8) -> Option<Forward> {
        Forward::CHOICES.iter().map(|(_, forward, _)| *forward).find(|it| *it as u8 == number)
    }

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        let mut all = Forward::CHOICES.iter();
        all.find(|(_, forward, _)| *forward == self).map_or("", |(name, ..)| *name)
    }

    /// Whether the destination becomes the backend's address and port.
    pub const fn translates(self) -> bool {
        matches!(self, Forward::Nat | Forward::FullNat)
    }

    /// Size of the headers before a packet that travels within another one, by the family of the
    /// backend's address; 0 for the other methods.
    pub const fn header_bytes(self, backend_family: u8) -> usize {
        const UDP_BYTES: usize = 8;
        let ip_bytes = if backend_family == 4 { 20 } else { 40 };
        match self {
            Forward::Tunnel => ip_bytes,
            Forward::Gue => ip_bytes + UDP_BYTES,
            Forward::Nat | Forward::DirectRouting | Forward::FullNat => 0,
        }
    }

    /// Whether a packet travels to its backend within another one.
    pub const fn is_tunnel(self) -> bool {
        self.header_bytes(4) > 0
    }
}

/// Fields that identify a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowKey {
    /// Addresses, ports, protocol.
    #[default]
    FiveTuple,
    /// The client's address.
    SourceAddress,
    /// The sender's MAC address.
    SourceMac,
    /// This number of first bits of the client's address.
    SourcePrefix(u8),
}

impl FlowKey {
    /// `eqp_service.key`
    pub const fn number(self) -> u8 {
        match self {
            FlowKey::FiveTuple => 0,
            FlowKey::SourceAddress => 1,
            FlowKey::SourceMac => 2,
            FlowKey::SourcePrefix(_) => 3,
        }
    }

    /// `eqp_service.key_bits`
    pub const fn bits(self) -> u8 {
        match self {
            FlowKey::SourcePrefix(bits) => bits,
            _ => 0,
        }
    }

    /// The key with these two fields.
    pub fn from_numbers(number: u8, bits: u8) -> Option<FlowKey> {
        Some(match number {
            0 => FlowKey::FiveTuple,
            1 => FlowKey::SourceAddress,
            2 => FlowKey::SourceMac,
            3 => FlowKey::SourcePrefix(bits),
            _ => return None,
        })
    }
}

numbered! {
    /// Method to pick the backend of a new flow.
    #[derive(Default)]
    pub enum Pick {
        /// By the ring: `maglev`, `weighted-random`.
        #[default]
        Ring = 0,
        /// By turns: `round-robin`, `weighted-round-robin`.
        Sequence = 1,
        /// `least-connection`
        Least = 2,
        /// `weighted-least-connection`
        LeastWeighted = 3,
        /// `sed`
        ExpectedDelay = 4,
        /// `nq`
        NeverQueue = 5,
        /// `sh`
        SourceBucket = 6,
    }
}

impl Pick {
    /// Whether it compares the numbers of connections of backends.
    pub const fn reads_loads(self) -> bool {
        matches!(self, Pick::Least | Pick::LeastWeighted | Pick::ExpectedDelay | Pick::NeverQueue)
    }

    /// Whether it picks from a list beside the ring.
    pub const fn has_sequence(self) -> bool {
        matches!(self, Pick::Sequence | Pick::SourceBucket)
    }
}

numbered! {
    /// Reason why a packet goes to its backend.
    pub enum How {
        /// The ring selected it.
        Ring = 1,
        /// The flow is pinned in the POG.
        Pin = 2,
        /// The flow is recorded in pending.
        Pending = 3,
        /// A scheduler's turn: the first packet of a flow.
        Turn = 4,
        /// The ring's first slot was not live; a later one was.
        Fallback = 5,
        /// Same backend as the datagram's first fragment.
        Fragment = 6,
        /// QUIC: the connection id has its server id.
        ConnectionId = 7,
    }
}

/// Event of a flow in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// First packet in this interval.
    Touch = 1,
    /// TCP FIN.
    Fin = 2,
    /// TCP RST.
    Rst = 3,
}

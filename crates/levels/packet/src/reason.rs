//! Why packets are dropped, and what else is counted: `enum eqp_reason`, by the names that
//! operators see.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a packet was dropped, or what was noted of one that went on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name = $number,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The one with this number.
            pub fn from_number(number: u32) -> Option<Reason> {
                Reason::ALL.iter().copied().find(|reason| *reason as u32 == number)
            }

            /// The name in metrics, status and documentation.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

/// The first number that is a note and not a drop.
pub(crate) const NOTES_FIRST: u8 = 16;

reasons! {
    /// The packet ends before its headers do.
    HeaderShort = 0, "header_short";
    /// Lengths in its headers contradict each other.
    HeaderInvalid = 1, "header_invalid";
    /// More IPv6 extension headers than are walked.
    ExtensionHeaders = 2, "extension_headers";
    /// A later fragment without its first.
    FragmentUnknown = 3, "fragment_unknown";
    /// The pool has no backend that takes flows.
    NoBackend = 4, "no_backend";
    /// The MAC address of the next hop is not known (yet).
    NeighbourUnresolved = 5, "neighbour_unresolved";
    /// The packet exceeds the tunnel's MTU. Its sender gets an ICMP error, unless that is
    /// rate-limited.
    TooBig = 6, "too_big";
    /// nat: it would leave with a hop limit of 0.
    TtlExpired = 7, "ttl_expired";
    /// No room to grow the packet.
    Headroom = 8, "headroom";
    /// nat or direct routing between IPv4 and IPv6.
    Family = 9, "family";
    /// nat: the kernel has no route for a reply.
    NoRoute = 10, "no_route";
    /// The tables are not set up, or not as they must be.
    Tables = 11, "tables";
    /// An echo request above the rate limit.
    IcmpRate = 12, "icmp_rate";
    /// To a VIP's address and of no service; the kernel would send it on, and it would come back.
    NoService = 13, "no_service";
    /// The lists of the VIP refuse its source.
    SourceDenied = 14, "source_denied";
    /// full-nat: no source port is free for the backend.
    PortsExhausted = 15, "ports_exhausted";
    /// The log is full: the flow is logged with a later packet.
    LogFull = 16, "log_full";
    /// Too many flows open at once: placed by the ring, unrecorded.
    PendingFull = 17, "pending_full";
    /// An echo request answered.
    EchoAnswered = 18, "echo_answered";
    /// An ICMP error reported to a sender that its packet is too big.
    TooBigSent = 19, "too_big_sent";
    /// An ICMP error sent on to the flow's backend.
    IcmpSteered = 20, "icmp_steered";
    /// A later fragment sent after its first.
    Fragment = 21, "fragment";
    /// nat, full-nat: a reply translated back.
    Reply = 22, "reply";
    /// nat, full-nat: left to the kernel's routing after translation.
    ToKernel = 23, "to_kernel";
    /// Sent to another station's MAC address: left to the kernel as it came.
    ForeignMac = 24, "foreign_mac";
    /// nat: there is no room to record the flow, so that its replies are not translated.
    RepliesFull = 25, "replies_full";
    /// QUIC: a long header with an id that the client made: by five-tuple.
    QuicClientId = 26, "quic_client_id";
    /// QUIC: the datagram ends before its connection id, or the id is too short.
    QuicIdShort = 27, "quic_id_short";
    /// QUIC: no configuration has the first bits of the connection id: by five-tuple.
    QuicConfigUnknown = 28, "quic_config_unknown";
    /// QUIC: no backend has the server id of the connection id: by five-tuple.
    QuicServerUnknown = 29, "quic_server_unknown";
    /// Sent with the address of another backend that may have the flow.
    SecondChance = 30, "second_chance";
}

impl Reason {
    /// Whether the packet was dropped.
    pub fn is_drop(self) -> bool {
        (self as u8) < NOTES_FIRST
    }
}

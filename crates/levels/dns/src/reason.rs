//! Reasons why a query gets no answer.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// Reason why a message, datagram or connection was dropped. Each has a counter of this
        /// name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $variant),* }

        impl Reason {
            /// Every reason, in the order of its discriminant.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The name in metrics and status.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name),* }
            }
        }
    };
}

reasons! {
    /// Shorter than a header, so that no response is possible.
    TooShort = "too_short";
    /// A response, not a query. An answer could cause an endless loop.
    NotAQuery = "not_a_query";
    /// Longer than any valid query.
    TooLong = "too_long";
    /// From source port 0, which no client uses.
    SourcePort = "source_port";
    /// The client prefix exceeded the `rate-limit` for this kind of response.
    RateLimited = "rate_limited";
    /// The kernel rejected the response.
    SendFailed = "send_failed";
    /// `tcp-connections-max` connections were open, and a new connection replaced the longest idle
    /// one.
    ConnectionsMax = "connections_max";
    /// The connection had an incomplete query until the idle timeout.
    ConnectionIdle = "connection_idle";
    /// The client did not read its responses.
    ClientStalled = "client_stalled";
    /// The connection broke with a query or an answer outstanding.
    ConnectionBroken = "connection_broken";
    /// Answering panicked, which is a defect. Counts the datagrams of the batch, or the connection.
    Panicked = "panicked";
}

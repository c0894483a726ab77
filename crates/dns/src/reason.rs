//! Why a query got no answer.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// Why a message, datagram or connection was dropped. Each is counted under its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $variant),* }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant),*];

            /// The name in metrics and status.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name),* }
            }
        }
    };
}

reasons! {
    /// Shorter than a header: there is nothing to answer to.
    TooShort = "too_short";
    /// A response, not a query: answering could go round for ever.
    NotAQuery = "not_a_query";
    /// Longer than any query has to be.
    TooLong = "too_long";
    /// From port 0, where no client is.
    SourcePort = "source_port";
    /// More responses of one kind to one prefix than `rate-limit` allows.
    RateLimited = "rate_limited";
    /// The kernel did not take the response.
    SendFailed = "send_failed";
    /// `tcp-connections-max` connections are open, and the longest idle one made room for another.
    ConnectionsMax = "connections_max";
    /// The connection was idle, or a message on it incomplete, for too long.
    ConnectionIdle = "connection_idle";
    /// The client did not read its responses.
    ClientStalled = "client_stalled";
    /// The connection broke while something was under way.
    ConnectionBroken = "connection_broken";
    /// Answering panicked: a defect of ours. Datagrams of the batch under way, or a connection.
    Panicked = "panicked";
}

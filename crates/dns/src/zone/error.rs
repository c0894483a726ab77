//! What a zone cannot be.

use crate::Mode;
use crate::config::{LISTED_NODES_MAX, NODES_MAX};

/// Why a zone cannot be served. Names are in full, with their final dot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// A name of the zone that is not in it.
    #[error("`{name}` is not in zone `{zone}`; accepted: names that end with the zone's")]
    OutOfZone {
        /// The name.
        name: String,
        /// The zone.
        zone: String,
    },
    /// Nobody is named as the zone's server.
    #[error(
        "zone `{0}` has no name server; accepted: `ns`, or NS records of the zone's own name in its zone file"
    )]
    NoServers(String),
    /// A server of the zone that nobody could reach.
    #[error(
        "name server `{0}` is in the zone and has no address there; accepted: `addresses` beside it, or A or AAAA \
         records of that name in the zone file"
    )]
    ServerWithoutAddress(String),
    /// An alias beside something else.
    #[error(
        "`{0}` is an alias (CNAME) and has other records; accepted: a CNAME alone, which the zone's own name cannot have (RFC 1034, 3.6.2)"
    )]
    AliasBeside(String),
    /// Several aliases at a name.
    #[error("`{0}` has several CNAME records; accepted: one (RFC 2181, 10.1)")]
    Aliases(String),
    /// A record that the file has of a name that is balanced.
    #[error(
        "`{name}` is balanced over nodes and has {rtype} records in the zone file; accepted: one of the two"
    )]
    Balanced {
        /// The name.
        name: String,
        /// The records' type.
        rtype: String,
    },
    /// A name that is balanced twice.
    #[error("`{0}` is there twice; accepted: each name once")]
    Twice(String),
    /// A balanced name where another server answers.
    #[error(
        "`{name}` is below `{cut}`, which NS records delegate to other servers; accepted: names that are not delegated"
    )]
    Delegated {
        /// The name.
        name: String,
        /// The delegation's.
        cut: String,
    },
    /// A name of the configuration that a zone below answers for.
    #[error(
        "`{name}` is in zone `{zone}`, which is served, too, and answers for it; accepted: the name in that zone's table"
    )]
    Elsewhere {
        /// The name.
        name: String,
        /// The zone below.
        zone: String,
    },
    /// A wildcard that is balanced.
    #[error("`{0}` is a wildcard; accepted: each balanced name by itself")]
    Wildcard(String),
    /// A delegation of names that are not named.
    #[error(
        "`{0}` is a wildcard and has NS records, which no two servers take alike (RFC 4592, 4.2); accepted: NS records of each name by itself"
    )]
    WildcardServers(String),
    /// A type that is not served.
    #[error("`{name}` has a record of type {rtype}, which is not served; {hint}")]
    NotServed {
        /// Whose record it is.
        name: String,
        /// Its type.
        rtype: String,
        /// What to do in its stead.
        hint: &'static str,
    },
    /// A name of nobody.
    #[error("`{0}` has no nodes; accepted: at least one backend of its pool")]
    NoNodes(String),
    /// More nodes than an answer has room for.
    #[error(
        "`{name}` has {nodes} nodes, and mode \"{}\" gives all of them; accepted: at most {LISTED_NODES_MAX}, or mode \
         \"pair\" or \"single\" (at most {NODES_MAX})",
        .mode.word()
    )]
    TooManyNodes {
        /// The name.
        name: String,
        /// How many nodes it has.
        nodes: usize,
        /// How it is answered.
        mode: Mode,
    },
    /// A node that needs a host name and has none that is one.
    #[error(
        "mode \"{}\" of `{name}` gives clients host names, and backend `{node}` has none; accepted: a backend with a \
         `name` of letters, digits and hyphens, which becomes NAME.ZONE",
        .mode.word()
    )]
    NodeName {
        /// The name.
        name: String,
        /// The node.
        node: String,
        /// How the name is answered.
        mode: Mode,
    },
    /// Two nodes whose host names are the same.
    #[error(
        "backends of two pools have the name `{0}`, and other addresses, and names of mode \"srv\" or \"https\" give both; accepted: different names"
    )]
    NodeNames(String),
    /// More records than a message can have.
    #[error(
        "the {rtype} records of `{name}` have {bytes} bytes; accepted: as many as fit into a message (60,000)"
    )]
    TooLarge {
        /// Whose they are.
        name: String,
        /// Their type.
        rtype: String,
        /// All together.
        bytes: usize,
    },
    /// No start of authority.
    #[error("`{0}` has an SOA record and is not the zone's own name; accepted: none there")]
    SoaElsewhere(String),
}

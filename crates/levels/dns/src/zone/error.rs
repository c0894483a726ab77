//! Errors of zones.

use crate::Mode;
use crate::config::{LISTED_NODES_MAX, NODES_MAX};

/// Reason why a zone cannot be served. Names are fully qualified, with a final dot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// A name is outside the zone.
    #[error("`{name}` is not in zone `{zone}`; accepted: names that end with the zone's")]
    OutOfZone {
        /// The name.
        name: String,
        /// The zone.
        zone: String,
    },
    /// The zone has no name server.
    #[error(
        "zone `{0}` has no name server; accepted: `ns`, or NS records of the zone's own name in its zone file"
    )]
    NoServers(String),
    /// A name server inside the zone has no address.
    #[error(
        "name server `{0}` is in the zone and has no address there; accepted: `addresses` beside it, or A or AAAA \
         records of that name in the zone file"
    )]
    ServerWithoutAddress(String),
    /// An alias (CNAME) has other records, too.
    #[error(
        "`{0}` is an alias (CNAME) and has other records; accepted: a CNAME alone, which the zone's own name cannot have (RFC 1034, 3.6.2)"
    )]
    AliasBeside(String),
    /// A name has several aliases.
    #[error("`{0}` has several CNAME records; accepted: one (RFC 2181, 10.1)")]
    Aliases(String),
    /// A balanced name has records in the zone file.
    #[error(
        "`{name}` is balanced over nodes and has {rtype} records in the zone file; accepted: one of the two"
    )]
    Balanced {
        /// The name.
        name: String,
        /// The records' type.
        rtype: String,
    },
    /// A name is balanced twice.
    #[error("`{0}` is listed twice; accepted: each name once")]
    Twice(String),
    /// A balanced name is delegated to other servers.
    #[error(
        "`{name}` is below `{cut}`, which NS records delegate to other servers; accepted: names that are not delegated"
    )]
    Delegated {
        /// The name.
        name: String,
        /// The name of the delegation.
        cut: String,
    },
    /// A served zone below this one is responsible for the name.
    #[error(
        "`{name}` is in zone `{zone}`, which is served, too, and answers for it; accepted: the name in that zone's table"
    )]
    Elsewhere {
        /// The name.
        name: String,
        /// The zone below.
        zone: String,
    },
    /// A wildcard is balanced.
    #[error("`{0}` is a wildcard; accepted: each balanced name by itself")]
    Wildcard(String),
    /// A wildcard is delegated.
    #[error(
        "`{0}` is a wildcard and has NS records, which no two servers take alike (RFC 4592, 4.2); accepted: NS records of each name by itself"
    )]
    WildcardServers(String),
    /// A record has a type that is not served.
    #[error("`{name}` has a record of type {rtype}, which is not served; {hint}")]
    NotServed {
        /// Owner of the record.
        name: String,
        /// Its type.
        rtype: String,
        /// The recommended alternative.
        hint: &'static str,
    },
    /// A balanced name has no nodes.
    #[error("`{0}` has no nodes; accepted: at least one backend of its pool")]
    NoNodes(String),
    /// A balanced name has more nodes than fit into an answer.
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
        /// Mode of the name.
        mode: Mode,
    },
    /// A node needs a host name, and its name cannot be one.
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
        /// Mode of the name.
        mode: Mode,
    },
    /// Two nodes with different addresses have the same host name.
    #[error(
        "backends of two pools have the name `{0}`, and other addresses, and names of mode \"srv\" or \"https\" give both; accepted: different names"
    )]
    NodeNames(String),
    /// A set of records is larger than a message.
    #[error(
        "the {rtype} records of `{name}` have {bytes} bytes; accepted: as many as fit into a message (60,000)"
    )]
    TooLarge {
        /// Owner of the records.
        name: String,
        /// Their type.
        rtype: String,
        /// Their size in total, bytes.
        bytes: usize,
    },
    /// A name below the zone's own has an SOA record.
    #[error("`{0}` has an SOA record and is not the zone's own name; accepted: none there")]
    SoaElsewhere(String),
}

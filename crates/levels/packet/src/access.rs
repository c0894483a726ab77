//! Sources that a VIP accepts.

use std::net::IpAddr;
use std::sync::Arc;

use crate::packet::address_bytes;

/// Sorted addresses at which the answer changes, as the program searches them. Sources before the
/// first are accepted, so that without any, all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Addresses as in packets, the first byte highest; IPv4 in the upper 32 bits.
    changes: Arc<[u128]>,
}

impl Access {
    /// From addresses of the VIP's family at which the answer changes, as numbers, in order.
    pub fn new(is_v4: bool, changes: impl IntoIterator<Item = u128>) -> Access {
        let placed = changes.into_iter().map(|bits| if is_v4 { bits << 96 } else { bits });
        Access { changes: placed.collect() }
    }

    /// As published.
    pub(crate) fn published(changes: Vec<u128>) -> Access {
        Access { changes: changes.into() }
    }

    pub(crate) fn changes(&self) -> &[u128] {
        &self.changes
    }

    /// Whether packets of `source` are accepted.
    pub fn accepts(&self, source: IpAddr) -> bool {
        let bits = u128::from_be_bytes(address_bytes(source));
        self.changes.partition_point(|change| *change <= bits).is_multiple_of(2)
    }
}

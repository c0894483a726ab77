//! The backends that may have a flow if the chosen one does not: the program's `second_chance.h`.

use super::tables::Tables;
use crate::abi::{Backend, Forward, SERVICE_SECOND_CHANCE, SERVICE_TRANSITION, Service};
use crate::digest::Digest;
use crate::packet::{Parsed, Place};

/// Size of a GUE header with two addresses, by the family of the backend.
const GUE_IPV4_BYTES: usize = 16;
const GUE_IPV6_BYTES: usize = 40;

/// Bytes that packets of the service reserve for other backends.
pub(super) fn spare_bytes(service: &Service, backend_family: u8) -> usize {
    if service.forward != Forward::Gue as u8 || service.flags & SERVICE_SECOND_CHANCE == 0 {
        return 0;
    }
    if backend_family == 4 { GUE_IPV4_BYTES } else { GUE_IPV6_BYTES }
}

/// Returns the first other backend of a packet that goes to `slot` with `backend`.
pub(super) fn find(
    tables: &Tables<'_>,
    service: &Service,
    digest: Digest,
    (slot, backend): (u16, &Backend),
    parsed: &Parsed,
) -> Option<Backend> {
    let has_none = parsed.is_opening() || parsed.place != Place::Whole;
    if spare_bytes(service, backend.family) == 0 || has_none {
        return None;
    }
    let is_changing = service.flags & SERVICE_TRANSITION != 0;
    let next_len = if is_changing { service.ring_next_len } else { 0 };
    let rings = [
        (service.ring, service.ring_len),
        (service.ring_next, next_len),
        (service.sequence, service.sequence_len),
    ];
    let answer = |(ring, len): (u32, u32)| {
        let at = ((digest.0 >> 32) * u64::from(len)) >> 32;
        let other = (len > 0).then(|| tables.ring(ring, at as u32))??;
        let is_other = other != slot && tables.is_live(service, other);
        let (_, other) = is_other.then(|| tables.backend(service, other)).flatten()?;
        (other.family == backend.family).then_some(other)
    };
    rings.into_iter().find_map(answer)
}

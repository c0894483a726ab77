//! Whether a packet can take its forwarding method to its backend: the checks of `direct.h`,
//! `tunnel.h` and `nat.h`.

use super::second_chance::spare_bytes;
use super::state::{Limited, State};
use super::{Surroundings, Verdict};
use crate::abi::{BACKEND_REACHABLE, Backend, Directory, Forward, Service};
use crate::packet::{Parsed, Place};
use crate::reason::Reason;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// Bytes that a forwarding method puts before the packet.
pub fn overhead_bytes(forward: u8, backend_family: u8) -> usize {
    const TUNNEL: u8 = Forward::Tunnel as u8;
    const GUE: u8 = Forward::Gue as u8;
    let outer = if backend_family == 4 { IPV4_BYTES } else { IPV6_BYTES };
    match forward {
        TUNNEL => outer,
        GUE => outer + UDP_BYTES,
        _ => 0,
    }
}

pub(super) fn forward(
    parsed: &Parsed,
    service: &Service,
    backend: &Backend,
    directory: &Directory,
    around: &Surroundings,
    state: &State<'_>,
) -> Verdict {
    if backend.flags & BACKEND_REACHABLE == 0 {
        return Verdict::Drop(Reason::NeighbourUnresolved);
    }
    if Forward::from_number(service.forward).is_none() {
        return Verdict::Drop(Reason::Tables);
    }
    let overhead_bytes = overhead_bytes(service.forward, backend.family);
    if overhead_bytes == 0 && backend.family != parsed.tuple.family {
        return Verdict::Drop(Reason::Family);
    }
    let spare_bytes = spare_bytes(service, backend.family);
    if parsed.ip_bytes + overhead_bytes + spare_bytes > usize::from(backend.mtu) {
        return too_big(parsed, service, directory, around, state);
    }
    let translates = Forward::from_number(service.forward).is_some_and(Forward::translates);
    if translates && parsed.ttl <= 1 {
        return Verdict::Drop(Reason::TtlExpired);
    }
    Verdict::out_of(backend.ifindex, around)
}

/// The sender gets an ICMP error, except for errors and later fragments (RFC 1122, 3.2.2), and
/// within the rate limit.
fn too_big(
    parsed: &Parsed,
    service: &Service,
    directory: &Directory,
    around: &Surroundings,
    state: &State<'_>,
) -> Verdict {
    let may_answer = parsed.icmp.is_none() && parsed.place != Place::Later;
    if !may_answer || !state.admits(Limited::TooBig, directory.too_big_per_second, around.now_ns) {
        return Verdict::Drop(Reason::TooBig);
    }
    state.count(Some(service.number), Reason::TooBig);
    state.count(Some(service.number), Reason::TooBigSent);
    Verdict::Answer
}

//! Whether a packet can take its forwarding method to its backend: the checks of `direct.h`,
//! `tunnel.h` and `nat.h`.

use super::second_chance::spare_bytes;
use super::state::{Limited, State};
use super::{Surroundings, Verdict};
use crate::abi::{BACKEND_REACHABLE, Backend, Directory, Forward, Service};
use crate::packet::{Parsed, Place};
use crate::reason::Reason;

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
    let Some(forward) = Forward::from_number(service.forward) else {
        return Verdict::Drop(Reason::Tables);
    };
    if !forward.is_tunnel() && backend.family != parsed.tuple.family {
        return Verdict::Drop(Reason::Family);
    }
    let added_bytes = forward.header_bytes(backend.family) + spare_bytes(service, backend.family);
    if parsed.ip_bytes + added_bytes > usize::from(backend.mtu) {
        return too_big(parsed, service, directory, around, state);
    }
    if forward.translates() && parsed.ttl <= 1 {
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

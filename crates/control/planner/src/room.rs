//! The part of its room for requests that a node uses.

use equipoise_core::load::{Coefficients, NodeLoad, RequestClass};

/// Smallest room, per cent, so that a node filled by other load has a finite use.
const ROOM_MIN: f64 = 1.0;

/// Per cent of the room for requests that clients ask of a node; `None` if nothing measures it, and
/// of a node that dispatches before it is known what its requests cost: it would seem idle.
///
/// Only what leaves with requests may move a share. Memory is left out. CPU that requests do not
/// explain is an offset: it makes the room smaller, `use = requests / (100 - offset)`. A node
/// without requests uses none of its room, whatever other programs do there, so that shares stand
/// still at rest. Of a node that counts no requests (an agent), all CPU and network count.
pub(crate) fn in_use(weigh: &Coefficients, load: &NodeLoad, dispatches: bool) -> Option<f64> {
    let coming = load.coming();
    let cpu = if dispatches { load.offered_cpu() } else { coming.cpu };
    let requests: f64 = {
        let used = load.class_use();
        RequestClass::ALL.iter().map(|class| used[*class].cpu).sum()
    };
    let counts_requests = dispatches || load.costs().is_known();
    let is_asked = !counts_requests || requests > 0.0;
    let cpu = if counts_requests { of_room(requests, cpu) } else { cpu };
    let net = coming.net.filter(|_| weigh.net > 0.0);
    let of_net = net.map_or(0.0, |_| weigh.net);
    let net = net.filter(|_| is_asked).unwrap_or(0.0);
    let all = of_net + weigh.cpu;
    (all > 0.0).then(|| ((of_net * net + weigh.cpu * cpu) / all).clamp(0.0, 100.0))
}

/// Both per cent of the machine.
fn of_room(requests: f64, cpu: f64) -> f64 {
    let requests = requests.clamp(0.0, cpu.max(0.0));
    100.0 * requests / (100.0 - (cpu - requests)).max(ROOM_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_load_makes_the_room_smaller() {
        for (requests, cpu, expected) in [
            (0.0, 90.0, 0.0),
            (50.0, 50.0, 50.0),
            (25.0, 75.0, 50.0),
            (60.0, 50.0, 50.0),
            (10.0, 300.0, 1000.0),
        ] {
            assert_eq!(of_room(requests, cpu), expected, "{requests} of {cpu}");
        }
    }
}

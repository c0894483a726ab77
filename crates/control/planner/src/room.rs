//! The utilisation of the part of a node that requests can use.

use equipoise_core::load::{Coefficients, NodeLoad, RequestClass};

/// Smallest room in per cent, so that the utilisation of a node filled by other load is finite.
const ROOM_MIN: f64 = 1.0;

/// Utilisation of a node's room by its clients' requests, in per cent. `None` if there are no
/// measurements, or if a dispatching node's costs of requests are not known yet, because it would
/// seem idle.
///
/// Only load that moves with requests may change a share. Memory is left out. CPU that requests do
/// not explain reduces the room: `use = requests / (100 - offset)`. A node without requests uses
/// none of its room, whatever other programs do there, so shares do not move at rest. For a node
/// that counts no requests (an agent), all CPU and network count.
///
/// An application may be full while its CPU idles, because it waits for a database. So if requests
/// in flight and queued use more of its concurrency limit than of its CPU, they count instead.
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
    let cpu = cpu.max(load.offered_occupancy().unwrap_or(0.0));
    let net = coming.net.filter(|_| weigh.net > 0.0);
    let of_net = net.map_or(0.0, |_| weigh.net);
    let net = net.filter(|_| is_asked).unwrap_or(0.0);
    let all = of_net + weigh.cpu;
    (all > 0.0).then(|| ((of_net * net + weigh.cpu * cpu) / all).clamp(0.0, 100.0))
}

/// Both are per cent of the machine.
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

//! New flows of full-nat that found no free source port, as events for operators.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::notice::Notice;
use crate::snapshot::VipId;

/// Minimum time between two events of a VIP.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The packets that were dropped, by VIP.
#[derive(Debug, Default)]
pub(super) struct PortsExhausted {
    vips: HashMap<VipId, Logged>,
}

/// The last event of a VIP.
#[derive(Clone, Copy, Debug)]
struct Logged {
    /// Dropped packets at that time, or when the VIP was first seen.
    packets: u64,
    at: Option<Instant>,
}

impl PortsExhausted {
    /// Takes the number of packets that were dropped so far, by VIP. Returns the events that are
    /// due. Packets of an earlier process are no event.
    pub(super) fn look(&mut self, dropped: Vec<(VipId, u64)>, now: Instant) -> Vec<Notice> {
        let mut vips = HashMap::new();
        let mut notices = Vec::new();
        for (vip, packets) in dropped {
            let known = self.vips.get(&vip).copied();
            // A VIP that was removed and came back counts from 0.
            let mut logged = known.unwrap_or(Logged { packets, at: None });
            logged.packets = logged.packets.min(packets);
            let is_due = logged.at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY);
            if packets > logged.packets && is_due {
                notices.push(Notice::PortsExhausted { vip, packets: packets - logged.packets });
                logged = Logged { packets, at: Some(now) };
            }
            vips.insert(vip, logged);
        }
        self.vips = vips;
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_a_minute_has_the_packets_since_the_last_one() {
        let vip: VipId = "192.0.2.1:80/tcp".parse().unwrap();
        let (begin, mut exhausted) = (Instant::now(), PortsExhausted::default());
        let seconds = |seconds| begin + Duration::from_secs(seconds);
        let event = |packets| vec![Notice::PortsExhausted { vip, packets }];
        for (at, dropped, expected) in [
            // Those of an earlier process.
            (0, 5, vec![]),
            (1, 5, vec![]),
            (2, 8, event(3)),
            (3, 20, vec![]),
            (61, 21, vec![]),
            (62, 21, event(13)),
            (200, 21, vec![]),
            (300, 22, event(1)),
        ] {
            assert_eq!(exhausted.look(vec![(vip, dropped)], seconds(at)), expected, "{at}");
        }
        assert_eq!(exhausted.look(Vec::new(), seconds(400)), []);
        assert_eq!(exhausted.look(vec![(vip, 0)], seconds(401)), []);
        assert_eq!(exhausted.look(vec![(vip, 2)], seconds(402)), event(2));
    }
}

//! Priorities of responses (RFC 9218): the more urgent ones of a connection get most of it.
//!
//! `h2` sends a frame of each stream that has one, in turn, and gives out a client's window in the
//! order in which streams ask. While a more urgent response is under way, the others ask for one
//! small frame at a time, behind other tasks. So the urgent one has most of the connection, and
//! none is starved. A response that has sent nothing for a while, because its client grants it no
//! window or its backend is silent, holds up no other.
//!
//! # Deviations
//! Responses of equal urgency share the connection, whether incremental or not. `h2` ignores
//! PRIORITY_UPDATE frames: a client's header field and the backend's decide. Bytes that `h2` holds
//! when a more urgent response begins are sent as they are.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderMap;

/// Bytes of a frame of a response while a more urgent one is under way.
const YIELDING_BYTES: usize = 1 << 10;

/// Time without a byte after which others no longer yield to a response. Longer than most round
/// trips, because a response also waits for the window of the connection.
const PATIENCE: Duration = Duration::from_millis(250);

const PRIORITY: &str = "priority";

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priority {
    /// 0 (most urgent) to 7.
    urgency: u8,
    /// The client can use parts of it.
    is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, is_incremental: false }
    }
}

impl Priority {
    /// As `Priority` fields change it. Unknown and malformed members are ignored.
    pub(super) fn changed_by(mut self, fields: &HeaderMap) -> Priority {
        let values = fields.get_all(PRIORITY).iter().filter_map(|value| value.to_str().ok());
        for member in values.flat_map(|value| value.split(',')) {
            match member.split(';').next().unwrap_or_default().trim().as_bytes() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.is_incremental = true,
                b"i=?0" => self.is_incremental = false,
                _ => {}
            }
        }
        self
    }
}

/// Responses of a connection that are under way, by urgency.
#[derive(Default)]
pub(super) struct Urgencies([Urgency; 8]);

impl Urgencies {
    /// Whether a more urgent response is under way.
    pub(super) fn has_before(&self, priority: Priority) -> bool {
        self.0[..usize::from(priority.urgency)].iter().any(|it| it.count.get() > 0)
    }
}

/// Those of one urgency.
#[derive(Default)]
struct Urgency {
    count: Cell<u32>,
    /// When one of them began or sent bytes last.
    moved_at: Cell<Option<Instant>>,
}

impl Urgency {
    fn is_moving(&self, now: Instant) -> bool {
        let is_late = |at: Instant| now.saturating_duration_since(at) > PATIENCE;
        self.count.get() > 0 && !self.moved_at.get().is_none_or(is_late)
    }
}

/// A response with a body that is under way.
pub(super) struct UnderWay {
    of: Rc<Urgencies>,
    urgency: usize,
    /// Less urgent responses yield.
    is_counted: bool,
}

impl UnderWay {
    /// Begins a response. An incremental one without a known length may last for as long as its
    /// connection (events), so no other yields to it.
    pub(super) fn begin(
        of: &Rc<Urgencies>,
        priority: Priority,
        has_length: bool,
        now: Instant,
    ) -> UnderWay {
        let (of, urgency) = (Rc::clone(of), usize::from(priority.urgency));
        let is_counted = has_length || !priority.is_incremental;
        let begun = UnderWay { of, urgency, is_counted };
        if is_counted {
            let count = &begun.own().count;
            count.set(count.get() + 1);
        }
        begun.moved(now);
        begun
    }

    fn own(&self) -> &Urgency {
        &self.of.0[self.urgency]
    }

    /// Notes that it has sent bytes.
    pub(super) fn moved(&self, now: Instant) {
        if self.is_counted {
            self.own().moved_at.set(Some(now));
        }
    }

    /// Bytes of its next frame; `None`: any number.
    pub(super) fn frame_bytes(&self, now: Instant) -> Option<usize> {
        let yields = self.of.0[..self.urgency].iter().any(|urgency| urgency.is_moving(now));
        yields.then_some(YIELDING_BYTES)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.is_counted {
            let count = &self.own().count;
            count.set(count.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_urgency_and_incremental_members_set_a_priority() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1;x=2,u=5;y", 5, true),
            ("u=1,u=2", 2, false),
            ("u=8, i=2, u=-1, ui, w=1", 3, false),
            ("i, i=?0", 3, false),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(PRIORITY, value.parse().expect("a value"));
            let priority = Priority::default().changed_by(&fields);
            assert_eq!(priority, Priority { urgency, is_incremental }, "{value}");
        }
    }

    #[test]
    fn a_response_yields_only_to_more_urgent_finite_responses() {
        let all = Rc::new(Urgencies::default());
        let now = Instant::now();
        let begin = |urgency, is_incremental, has_length| {
            UnderWay::begin(&all, Priority { urgency, is_incremental }, has_length, now)
        };
        let usual = begin(3, false, true);
        assert_eq!(usual.frame_bytes(now), None);
        let others = [begin(3, true, true), begin(5, false, false), begin(0, true, false)];
        assert_eq!(usual.frame_bytes(now), None);
        assert_eq!(others.map(|it| it.frame_bytes(now)), [None, Some(YIELDING_BYTES), None]);
        let urgent = begin(2, true, true);
        assert_eq!(usual.frame_bytes(now), Some(YIELDING_BYTES));
        drop(urgent);
        assert_eq!(usual.frame_bytes(now), None);
    }

    #[test]
    fn a_response_yields_to_an_urgent_response_only_while_it_sends() {
        let all = Rc::new(Urgencies::default());
        let began = Instant::now();
        let begin = |urgency| {
            UnderWay::begin(&all, Priority { urgency, is_incremental: false }, true, began)
        };
        let (usual, urgent) = (begin(3), begin(2));
        let after = |millis| began + Duration::from_millis(millis);
        assert_eq!(usual.frame_bytes(after(250)), Some(YIELDING_BYTES));
        assert_eq!(usual.frame_bytes(after(251)), None);
        urgent.moved(after(300));
        assert_eq!(usual.frame_bytes(after(550)), Some(YIELDING_BYTES));
        assert_eq!(usual.frame_bytes(after(551)), None);
        // Those of its own urgency and above do not matter.
        usual.moved(after(551));
        assert_eq!(urgent.frame_bytes(after(551)), None);
        assert_eq!(usual.frame_bytes(after(551)), None);
    }
}

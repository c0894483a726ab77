//! The places where a request may be served next: this node, its peers, or unhealthy backends.

/// The most peers that are asked to do one request.
const PEERS_ASKED: u32 = 2;

/// The places where a request may be served next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// This node's healthy backends alone, because a peer delegated the request or checks the node.
    /// Without such a backend the request is handed back.
    Bound,
    /// A client's request.
    Free {
        stage: Stage,
        /// Remaining attempts to ask a peer while this node has no room.
        asks_left: u32,
    },
}

/// The progress of a client's request. It never returns to an earlier stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The instructions choose this node or a peer for each attempt.
    Planned,
    /// A peer was asked, so this node serves it, whatever the instructions are.
    Home,
    /// This node has no healthy backend for it: peers may make it wait for room, and then this
    /// node's unhealthy backends serve it.
    LastResort,
}

/// The next step of a request that no healthy backend here can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Homeless {
    /// The peer that delegated it may have it served elsewhere.
    HandBack,
    /// Ask at most this many peers, and then unhealthy backends.
    Ask(u32),
    /// No place is left.
    Nowhere,
}

impl Course {
    /// The course of a client's request. `may_ask`: peers may be asked while this node has no room.
    pub(super) fn free(may_ask: bool) -> Course {
        let asks_left = if may_ask { PEERS_ASKED } else { 0 };
        Course::Free { stage: Stage::Planned, asks_left }
    }

    /// Whether the instructions choose the place of the next attempt.
    pub(super) fn is_planned(self) -> bool {
        matches!(self, Course::Free { stage: Stage::Planned, .. })
    }

    /// Whether unhealthy backends of this node may serve the request.
    pub(super) fn is_last_resort(self) -> bool {
        matches!(self, Course::Free { stage: Stage::LastResort, .. })
    }

    /// Whether a peer may be asked while this node has no room.
    pub(super) fn may_ask(self) -> bool {
        matches!(self, Course::Free { asks_left: 1.., .. })
    }

    /// Notes that a peer is asked.
    pub(super) fn asks(&mut self) {
        if let Course::Free { stage, asks_left } = self {
            *asks_left = asks_left.saturating_sub(1);
            if *stage == Stage::Planned {
                *stage = Stage::Home;
            }
        }
    }

    /// Notes that the asked peer failed: no other is asked for its room.
    pub(super) fn peer_failed(&mut self) {
        if let Course::Free { asks_left, .. } = self {
            *asks_left = 0;
        }
    }

    /// Goes on without a healthy backend of this node.
    pub(super) fn without_backend(&mut self) -> Homeless {
        let Course::Free { stage, .. } = self else { return Homeless::HandBack };
        match std::mem::replace(stage, Stage::LastResort) {
            Stage::Planned => Homeless::Ask(PEERS_ASKED),
            Stage::Home => Homeless::Ask(0),
            Stage::LastResort => Homeless::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn free(stage: Stage, asks_left: u32) -> Course {
        Course::Free { stage, asks_left }
    }

    #[test]
    fn request_stages_advance_from_planned_to_home_to_last_resort() {
        use Stage::{Home, LastResort, Planned};
        // Course; after a peer is asked; after that peer failed; without a healthy backend.
        let rows = [
            (Course::Bound, Course::Bound, Course::Bound, (Homeless::HandBack, Course::Bound)),
            (
                free(Planned, 2),
                free(Home, 1),
                free(Home, 0),
                (Homeless::Ask(2), free(LastResort, 2)),
            ),
            (
                free(Planned, 0),
                free(Home, 0),
                free(Home, 0),
                (Homeless::Ask(2), free(LastResort, 0)),
            ),
            (free(Home, 1), free(Home, 0), free(Home, 0), (Homeless::Ask(0), free(LastResort, 1))),
            (
                free(LastResort, 1),
                free(LastResort, 0),
                free(LastResort, 0),
                (Homeless::Nowhere, free(LastResort, 1)),
            ),
        ];
        for (course, asked, failed, without) in rows {
            let mut next = course;
            next.asks();
            assert_eq!(next, asked, "{course:?}");
            next.peer_failed();
            assert_eq!(next, failed, "{course:?}");
            let mut next = course;
            assert_eq!((next.without_backend(), next), without, "{course:?}");
        }
    }
}

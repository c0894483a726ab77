//! The source's side of one handover, as a state table. The code calls the source *source* and the
//! target *target*.

/// The state of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceState {
    /// It knows nothing of the handover.
    Unknown,
    /// It owns the slices, and waits until it has passed P.
    Waiting,
    /// It has cut, and has no answer from the target.
    Cut,
    /// The target is active; the source finishes the items that it admitted.
    Draining,
    /// Over.
    Closed,
    /// It promised never to cut.
    Aborted,
}

/// An event at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceEvent {
    /// RELEASE of slices that it owns.
    Release,
    /// RELEASE of slices of which it does not own every one.
    ReleaseForeign,
    /// P is passed.
    Passed,
    /// The target reports that it is active.
    Active,
    /// All is drained, and the target lacks nothing.
    Finished,
    /// ABORT.
    Abort,
    /// The target was lost.
    Forget,
}

/// An action of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceAction {
    /// Store P and wait for it.
    Wait,
    /// Drop P.
    StopWaiting,
    /// Stop admitting, set C, and ask for the items that are not started. CUT follows when they are
    /// known.
    MakeCut,
    /// Send CUT.
    SendCut,
    /// Drop the items kept in case the target is lost.
    DropReleased,
    /// Drop the tail, as the target is gone.
    DropTail,
    /// Send CLOSED.
    SendClosed,
    /// Send ABORTED.
    SendAborted,
}

impl SourceState {
    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Aborted | Self::Unknown)
    }

    /// The next state after `event`, and the actions, in order.
    pub fn on(self, event: SourceEvent) -> (Self, &'static [SourceAction]) {
        use SourceAction as Do;
        use SourceEvent as E;
        match (self, event) {
            (Self::Unknown, E::Release) => (Self::Waiting, &[Do::Wait]),
            // It cannot cut slices that it does not own, so this promise is true.
            (Self::Unknown, E::ReleaseForeign | E::Abort) => (Self::Aborted, &[Do::SendAborted]),
            // This incarnation owned nothing, so there is nothing to wait for.
            (Self::Unknown, E::Forget) => (Self::Closed, &[Do::SendClosed]),
            (Self::Unknown, E::Passed | E::Active | E::Finished) => (self, &[]),

            (Self::Waiting, E::Passed) => (Self::Cut, &[Do::MakeCut]),
            (Self::Waiting, E::ReleaseForeign | E::Abort | E::Forget) => {
                (Self::Aborted, &[Do::StopWaiting, Do::SendAborted])
            }
            (Self::Waiting, E::Release | E::Active | E::Finished) => (self, &[]),

            // The cut cannot be undone, so every request is answered with it.
            (Self::Cut | Self::Draining, E::Release | E::ReleaseForeign | E::Abort) => {
                (self, &[Do::SendCut])
            }
            (Self::Cut, E::Active) => (Self::Draining, &[Do::DropReleased]),
            (Self::Cut | Self::Draining, E::Forget) => {
                (Self::Draining, &[Do::DropReleased, Do::DropTail])
            }
            (Self::Cut, E::Passed | E::Finished) => (self, &[]),

            (Self::Draining, E::Finished) => (Self::Closed, &[Do::SendClosed]),
            (Self::Draining, E::Passed | E::Active) => (self, &[]),

            (Self::Closed, E::Release | E::ReleaseForeign | E::Abort | E::Forget) => {
                (self, &[Do::SendClosed])
            }
            (Self::Closed, E::Passed | E::Active | E::Finished) => (self, &[]),

            (Self::Aborted, E::Release | E::ReleaseForeign | E::Abort | E::Forget) => {
                (self, &[Do::SendAborted])
            }
            (Self::Aborted, E::Passed | E::Active | E::Finished) => (self, &[]),
        }
    }
}

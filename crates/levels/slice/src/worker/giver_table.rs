//! The giver's side of one handover, as a table.

/// How far the giver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GiverState {
    /// Heard nothing of it.
    Unknown,
    /// Owns the slices, and waits until it has passed P.
    Waiting,
    /// Has cut, and has not heard from the taker.
    Cut,
    /// The taker is active; what was admitted is being finished.
    Draining,
    /// Over.
    Closed,
    /// Promised never to cut.
    Aborted,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GiverEvent {
    /// RELEASE of slices that it owns.
    Release,
    /// RELEASE of slices of which it does not own every one.
    ReleaseForeign,
    /// P is passed.
    Passed,
    /// The taker says that it is active.
    Active,
    /// All is drained, and the taker lacks nothing.
    Finished,
    /// ABORT.
    Abort,
    /// The taker was lost.
    Forget,
}

/// What it then does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GiverAction {
    /// Remember P and watch for it.
    Wait,
    /// Forget P again.
    StopWaiting,
    /// Stop admitting, note C, and ask for the items that are not started. CUT follows when they are there.
    MakeCut,
    /// Say CUT.
    SendCut,
    /// Let go of what was kept in case that the taker is lost.
    DropReleased,
    /// The taker is gone: it lacks nothing.
    DropTail,
    /// Say CLOSED.
    SendClosed,
    /// Say ABORTED.
    SendAborted,
}

impl GiverState {
    /// Whether nothing is left to be done of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Aborted | Self::Unknown)
    }

    /// What `event` makes of it, and what is to be done, in order.
    pub fn on(self, event: GiverEvent) -> (Self, &'static [GiverAction]) {
        use GiverAction as Do;
        use GiverEvent as E;
        match (self, event) {
            (Self::Unknown, E::Release) => (Self::Waiting, &[Do::Wait]),
            // It cannot cut what it does not own, so this is a promise like the others.
            (Self::Unknown, E::ReleaseForeign | E::Abort) => (Self::Aborted, &[Do::SendAborted]),
            // It owned nothing in this life, so there is nothing to wait for.
            (Self::Unknown, E::Forget) => (Self::Closed, &[Do::SendClosed]),
            (Self::Unknown, E::Passed | E::Active | E::Finished) => (self, &[]),

            (Self::Waiting, E::Passed) => (Self::Cut, &[Do::MakeCut]),
            (Self::Waiting, E::ReleaseForeign | E::Abort | E::Forget) => {
                (Self::Aborted, &[Do::StopWaiting, Do::SendAborted])
            }
            (Self::Waiting, E::Release | E::Active | E::Finished) => (self, &[]),

            // The cut cannot be undone: whoever asks is told of it.
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

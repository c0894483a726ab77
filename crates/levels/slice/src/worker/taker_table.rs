//! The taker's side of one handover, or of an assignment, as a table.

/// How far the taker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakerState {
    /// Heard nothing of it.
    Unknown,
    /// Waits until its readers have matched.
    Subscribing,
    /// Buffers what comes for the slices.
    Shadowing,
    /// Owns the slices.
    Active,
    /// Over.
    Ended,
    /// Promised to heed no cut.
    Aborted,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakerEvent {
    /// PREPARE.
    Prepare,
    /// PREPARE of slices of which it owns, shadows or releases one already.
    PrepareForeign,
    /// Its readers have matched.
    Subscribed,
    /// The shadow has more than it may.
    Overflow,
    /// CUT.
    Cut,
    /// ASSIGN.
    Assign,
    /// The giver was lost before it had drained.
    Recover,
    /// ABORT.
    Abort,
    /// END.
    End,
}

/// What it then does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TakerAction {
    /// Open readers for the slices' groups.
    Subscribe,
    /// Buffer what comes from now on.
    StartShadow,
    /// Say READY, with P.
    SendReady,
    /// Drop the buffer.
    DropShadow,
    /// Own the slices from C.
    TakeOver,
    /// Own the slices, of which nobody hands anything over.
    Assume,
    /// Take what the lost giver left undone.
    StartRecovery,
    /// Say ACTIVE, with the progress.
    SendActive,
    /// Say ABORTED.
    SendAborted,
}

impl TakerState {
    /// Whether nothing is left to be done of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Aborted)
    }

    /// What `event` makes of it, and what is to be done, in order.
    pub fn on(self, event: TakerEvent) -> (Self, &'static [TakerAction]) {
        use TakerAction as Do;
        use TakerEvent as E;
        match (self, event) {
            (Self::Unknown, E::Prepare) => (Self::Subscribing, &[Do::Subscribe]),
            (Self::Unknown, E::PrepareForeign | E::Abort) => (Self::Aborted, &[Do::SendAborted]),
            (Self::Unknown, E::Assign) => (Self::Active, &[Do::Assume, Do::SendActive]),
            // A cut without a shadow is one of an earlier life, or one that was ended long ago.
            (Self::Unknown, E::Subscribed | E::Overflow | E::Cut | E::Recover | E::End) => {
                (self, &[])
            }

            (Self::Subscribing, E::Subscribed) => {
                (Self::Shadowing, &[Do::StartShadow, Do::SendReady])
            }
            (Self::Subscribing, E::Abort | E::End) => (Self::Aborted, &[Do::SendAborted]),
            (Self::Subscribing, _) => (self, &[]),

            (Self::Shadowing, E::Prepare | E::PrepareForeign) => (self, &[Do::SendReady]),
            (Self::Shadowing, E::Cut) => (Self::Active, &[Do::TakeOver, Do::SendActive]),
            (Self::Shadowing, E::Overflow | E::Abort | E::End) => {
                (Self::Aborted, &[Do::DropShadow, Do::SendAborted])
            }
            (Self::Shadowing, E::Subscribed | E::Assign | E::Recover) => (self, &[]),

            (Self::Active, E::Recover) => (self, &[Do::StartRecovery, Do::SendActive]),
            (Self::Active, E::Prepare | E::PrepareForeign | E::Cut | E::Assign | E::Abort) => {
                (self, &[Do::SendActive])
            }
            (Self::Active, E::End) => (Self::Ended, &[]),
            (Self::Active, E::Subscribed | E::Overflow) => (self, &[]),

            (Self::Ended, _) => (self, &[]),

            (Self::Aborted, E::Prepare | E::PrepareForeign | E::Cut | E::Abort) => {
                (self, &[Do::SendAborted])
            }
            (Self::Aborted, _) => (self, &[]),
        }
    }
}

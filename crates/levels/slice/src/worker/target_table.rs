//! The target's side of one handover, or of an assignment, as a state table.

/// The state of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetState {
    /// It knows nothing of the handover.
    Unknown,
    /// It waits until its readers have matched.
    Subscribing,
    /// It keeps the items of the slices.
    Shadowing,
    /// Owns the slices.
    Active,
    /// Over.
    Ended,
    /// It promised to ignore any cut.
    Aborted,
}

/// An event at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetEvent {
    /// PREPARE.
    Prepare,
    /// PREPARE of slices of which it already owns, shadows or releases one.
    PrepareForeign,
    /// Its readers have matched.
    Subscribed,
    /// The shadow exceeds its limit.
    Overflow,
    /// CUT.
    Cut,
    /// ASSIGN.
    Assign,
    /// The source was lost before it had drained.
    Recover,
    /// ABORT.
    Abort,
    /// END.
    End,
}

/// An action of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetAction {
    /// Open readers for the slices' groups.
    Subscribe,
    /// Keep items from now on.
    StartShadow,
    /// Send READY, with P.
    SendReady,
    /// Drop the kept items.
    DropShadow,
    /// Own the slices from C.
    TakeOver,
    /// Own the slices, which have no source.
    Assume,
    /// Accept the unfinished items of the lost source.
    StartRecovery,
    /// Send ACTIVE, with the progress.
    SendActive,
    /// Send ABORTED.
    SendAborted,
}

impl TargetState {
    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Aborted)
    }

    /// The next state after `event`, and the actions, in order.
    pub fn on(self, event: TargetEvent) -> (Self, &'static [TargetAction]) {
        use TargetAction as Do;
        use TargetEvent as E;
        match (self, event) {
            (Self::Unknown, E::Prepare) => (Self::Subscribing, &[Do::Subscribe]),
            (Self::Unknown, E::PrepareForeign | E::Abort) => (Self::Aborted, &[Do::SendAborted]),
            (Self::Unknown, E::Assign) => (Self::Active, &[Do::Assume, Do::SendActive]),
            // A cut without a shadow is for an earlier incarnation, or for a handover that ended
            // long ago.
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

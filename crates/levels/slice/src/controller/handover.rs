//! The controller's side of one handover, as a table.

/// How far the handover is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverState {
    /// The taker is told to shadow.
    Preparing,
    /// The giver is told to cut.
    Releasing,
    /// Called off: the giver has to promise that it does not cut.
    AbortingGiver {
        /// The taker is not there to heed a cut.
        taker_lost: bool,
    },
    /// Called off: the taker has to promise that it heeds no cut.
    AbortingTaker {
        /// The giver is lost. It may have cut.
        giver_lost: bool,
    },
    /// There is a cut; the taker has not answered it.
    Activating {
        /// The giver is lost.
        giver_lost: bool,
    },
    /// The taker owns the slices; the giver drains.
    Settling {
        /// The giver is lost; the taker recovers what it left undone.
        giver_lost: bool,
    },
    /// Over: the taker owns the slices, and the giver has nothing left of them.
    Moved,
    /// Over: there was no cut. The giver owns the slices, if it lives.
    Kept,
    /// Over: cut, but the taker never had them, or was lost with them before the giver was done. They are the giver's again.
    Returned,
    /// Over: giver and taker are lost, and so may be what the giver had admitted.
    Lost,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverEvent {
    /// READY.
    Ready,
    /// CUT.
    Cut,
    /// ACTIVE.
    Active,
    /// ACTIVE, and what a lost giver left is being recovered.
    Recovered,
    /// CLOSED.
    Closed,
    /// ABORTED by the giver.
    GiverAborted,
    /// ABORTED by the taker.
    TakerAborted,
    /// The giver was given up.
    GiverLost,
    /// The taker was given up.
    TakerLost,
    /// No cut in time.
    TimedOut,
}

/// What the controller then does. In each state it also says again what it said last, until there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverAction {
    /// Note in the store that the taker owns the slices.
    Own,
}

impl HandoverState {
    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Moved | Self::Kept | Self::Returned | Self::Lost)
    }

    /// What `event` makes of it, and what is to be done.
    pub fn on(self, event: HandoverEvent) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        match self {
            Self::Preparing => (self.preparing(event), &[]),
            Self::Releasing => self.releasing(event),
            Self::AbortingGiver { taker_lost } => Self::aborting_giver(taker_lost, event),
            Self::AbortingTaker { giver_lost } => Self::aborting_taker(giver_lost, event),
            Self::Activating { giver_lost } => match event {
                HandoverEvent::Active | HandoverEvent::Recovered => {
                    (Self::Settling { giver_lost }, OWN)
                }
                HandoverEvent::Closed => (Self::Moved, OWN),
                HandoverEvent::GiverLost => (Self::Activating { giver_lost: true }, &[]),
                // It never took the cut, so the giver's copy is the only one.
                HandoverEvent::TakerAborted | HandoverEvent::TakerLost => {
                    (if giver_lost { Self::Lost } else { Self::Returned }, &[])
                }
                _ => (self, &[]),
            },
            Self::Settling { giver_lost } => match event {
                HandoverEvent::Closed => (Self::Moved, &[]),
                HandoverEvent::Recovered if giver_lost => (Self::Moved, &[]),
                HandoverEvent::GiverLost => (Self::Settling { giver_lost: true }, &[]),
                HandoverEvent::TakerLost if giver_lost => (Self::Lost, &[]),
                // The giver answers for what it handed over until the taker's claims do.
                HandoverEvent::TakerLost => (Self::Returned, &[]),
                _ => (self, &[]),
            },
            Self::Moved | Self::Kept | Self::Returned | Self::Lost => (self, &[]),
        }
    }

    fn preparing(self, event: HandoverEvent) -> Self {
        match event {
            HandoverEvent::Ready => Self::Releasing,
            HandoverEvent::TakerAborted | HandoverEvent::TakerLost => Self::Kept,
            HandoverEvent::GiverLost => Self::AbortingTaker { giver_lost: true },
            // The giver was told nothing yet, so it cannot cut.
            HandoverEvent::TimedOut => Self::AbortingTaker { giver_lost: false },
            _ => self,
        }
    }

    fn releasing(self, event: HandoverEvent) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        match event {
            HandoverEvent::Cut => (Self::Activating { giver_lost: false }, &[]),
            HandoverEvent::Active | HandoverEvent::Recovered => {
                (Self::Settling { giver_lost: false }, OWN)
            }
            HandoverEvent::Closed => (Self::Moved, OWN),
            HandoverEvent::GiverAborted => (Self::AbortingTaker { giver_lost: false }, &[]),
            HandoverEvent::GiverLost => (Self::AbortingTaker { giver_lost: true }, &[]),
            HandoverEvent::TakerAborted | HandoverEvent::TakerLost => {
                (Self::AbortingGiver { taker_lost: true }, &[])
            }
            HandoverEvent::TimedOut => (Self::AbortingGiver { taker_lost: false }, &[]),
            HandoverEvent::Ready => (self, &[]),
        }
    }

    fn aborting_giver(taker_lost: bool, event: HandoverEvent) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        let state = Self::AbortingGiver { taker_lost };
        match event {
            // The cut came first, so it holds.
            HandoverEvent::Cut if taker_lost => (Self::Returned, &[]),
            HandoverEvent::Cut => (Self::Activating { giver_lost: false }, &[]),
            HandoverEvent::Active | HandoverEvent::Recovered if !taker_lost => {
                (Self::Settling { giver_lost: false }, OWN)
            }
            HandoverEvent::Closed => (Self::Moved, OWN),
            HandoverEvent::GiverAborted if taker_lost => (Self::Kept, &[]),
            HandoverEvent::GiverAborted => (Self::AbortingTaker { giver_lost: false }, &[]),
            HandoverEvent::GiverLost if taker_lost => (Self::Lost, &[]),
            HandoverEvent::GiverLost => (Self::AbortingTaker { giver_lost: true }, &[]),
            HandoverEvent::TakerAborted | HandoverEvent::TakerLost => {
                (Self::AbortingGiver { taker_lost: true }, &[])
            }
            _ => (state, &[]),
        }
    }

    fn aborting_taker(giver_lost: bool, event: HandoverEvent) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        match event {
            // Only the taker knows whether a cut reached it; it has one.
            HandoverEvent::Active | HandoverEvent::Recovered => {
                (Self::Settling { giver_lost }, OWN)
            }
            HandoverEvent::TakerAborted => (Self::Kept, &[]),
            HandoverEvent::TakerLost if giver_lost => (Self::Lost, &[]),
            HandoverEvent::TakerLost => (Self::Kept, &[]),
            HandoverEvent::GiverLost => (Self::AbortingTaker { giver_lost: true }, &[]),
            _ => (Self::AbortingTaker { giver_lost }, &[]),
        }
    }
}

impl HandoverState {
    /// What it is called to an operator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing: the taker shadows",
            Self::Releasing => "releasing: the giver passes the taker's positions",
            Self::AbortingGiver { .. } => "being called off at the giver",
            Self::AbortingTaker { .. } => "being called off at the taker",
            Self::Activating { .. } => "activating: the taker has not answered",
            Self::Settling { .. } => {
                "settling: the giver hands over what waits and finishes what it started"
            }
            Self::Moved => "moved",
            Self::Kept => "called off",
            Self::Returned => "returned to the giver",
            Self::Lost => "lost with giver and taker",
        }
    }
}

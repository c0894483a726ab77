//! The controller's side of one handover, as a state table. The code calls the source *giver* and
//! the target *taker*.

/// The state of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverState {
    /// The controller asks the target to shadow.
    Preparing,
    /// The controller asks the source to cut.
    Releasing,
    /// Called off: the source must promise not to cut.
    AbortingGiver {
        /// The target is lost, and cannot act on a cut.
        taker_lost: bool,
    },
    /// Called off: the target must promise to ignore any cut.
    AbortingTaker {
        /// The source is lost. It may have cut.
        giver_lost: bool,
    },
    /// The source has cut; the target has not answered yet.
    Activating {
        /// The source is lost.
        giver_lost: bool,
    },
    /// The target owns the slices; the source drains.
    Settling {
        /// The source is lost; the target recovers the items that the source left unfinished.
        giver_lost: bool,
    },
    /// Over: the target owns the slices, and the source has none of their items left.
    Moved,
    /// Over: there was no cut. The source owns the slices, if it lives.
    Kept,
    /// Over: the source has cut, but the target never owned the slices, or was lost with them
    /// before the source was done. The source owns them again.
    Returned,
    /// Over: source and target are lost, perhaps with items that the source had admitted.
    Lost,
}

/// An event of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverEvent {
    /// READY.
    Ready,
    /// CUT.
    Cut,
    /// ACTIVE.
    Active,
    /// ACTIVE, and the target is recovering the items of a lost source.
    Recovered,
    /// CLOSED.
    Closed,
    /// ABORTED by the source.
    GiverAborted,
    /// ABORTED by the target.
    TakerAborted,
    /// The controller gave the source up.
    GiverLost,
    /// The controller gave the target up.
    TakerLost,
    /// There was no cut in time.
    TimedOut,
}

/// The action of the controller on a transition. In each state it also repeats its last message
/// until there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverAction {
    /// Record in the store that the target owns the slices.
    Own,
}

impl HandoverState {
    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Moved | Self::Kept | Self::Returned | Self::Lost)
    }

    /// The next state after `event`, and the actions.
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
                // It never acted on the cut, so only the source has the slices.
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
                // The source answers for the items that it handed over until the target's claims
                // do.
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
            // The source has received no request yet, so it cannot cut.
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
            // Only the target knows whether a cut reached it. This event means that one did.
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
    /// The state in words, for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing: the target begins to receive the items",
            Self::Releasing => "releasing: the source reaches the target's positions",
            Self::AbortingGiver { .. } => "being called off at the source",
            Self::AbortingTaker { .. } => "being called off at the target",
            Self::Activating { .. } => "activating: the target has not answered",
            Self::Settling { .. } => {
                "settling: the source hands over waiting items and finishes those it started"
            }
            Self::Moved => "moved",
            Self::Kept => "called off",
            Self::Returned => "returned to the source",
            Self::Lost => "lost with source and target",
        }
    }
}

//! The controller's side of one handover, as a state table. The code calls the source *source* and
//! the target *target*.

/// The state of a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoverState {
    /// The controller asks the target to shadow.
    Preparing,
    /// The controller asks the source to cut.
    Releasing,
    /// Called off: the source must promise not to cut.
    AbortingSource {
        /// The target is lost, and cannot act on a cut.
        target_lost: bool,
    },
    /// Called off: the target must promise to ignore any cut.
    AbortingTarget {
        /// The source is lost. It may have cut.
        source_lost: bool,
    },
    /// The source has cut; the target has not answered yet.
    Activating {
        /// The source is lost.
        source_lost: bool,
    },
    /// The target owns the slices; the source drains.
    Settling {
        /// The source is lost; the target recovers the items that the source left unfinished.
        source_lost: bool,
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
    SourceAborted,
    /// ABORTED by the target.
    TargetAborted,
    /// The controller gave the source up.
    SourceLost,
    /// The controller gave the target up.
    TargetLost,
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
            Self::AbortingSource { target_lost } => Self::aborting_source(target_lost, event),
            Self::AbortingTarget { source_lost } => Self::aborting_target(source_lost, event),
            Self::Activating { source_lost } => match event {
                HandoverEvent::Active | HandoverEvent::Recovered => {
                    (Self::Settling { source_lost }, OWN)
                }
                HandoverEvent::Closed => (Self::Moved, OWN),
                HandoverEvent::SourceLost => (Self::Activating { source_lost: true }, &[]),
                // It never acted on the cut, so only the source has the slices.
                HandoverEvent::TargetAborted | HandoverEvent::TargetLost => {
                    (if source_lost { Self::Lost } else { Self::Returned }, &[])
                }
                _ => (self, &[]),
            },
            Self::Settling { source_lost } => match event {
                HandoverEvent::Closed => (Self::Moved, &[]),
                HandoverEvent::Recovered if source_lost => (Self::Moved, &[]),
                HandoverEvent::SourceLost => (Self::Settling { source_lost: true }, &[]),
                HandoverEvent::TargetLost if source_lost => (Self::Lost, &[]),
                // The source answers for the items that it handed over until the target's claims
                // do.
                HandoverEvent::TargetLost => (Self::Returned, &[]),
                _ => (self, &[]),
            },
            Self::Moved | Self::Kept | Self::Returned | Self::Lost => (self, &[]),
        }
    }

    fn preparing(self, event: HandoverEvent) -> Self {
        match event {
            HandoverEvent::Ready => Self::Releasing,
            HandoverEvent::TargetAborted | HandoverEvent::TargetLost => Self::Kept,
            HandoverEvent::SourceLost => Self::AbortingTarget { source_lost: true },
            // The source has received no request yet, so it cannot cut.
            HandoverEvent::TimedOut => Self::AbortingTarget { source_lost: false },
            _ => self,
        }
    }

    fn releasing(self, event: HandoverEvent) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        match event {
            HandoverEvent::Cut => (Self::Activating { source_lost: false }, &[]),
            HandoverEvent::Active | HandoverEvent::Recovered => {
                (Self::Settling { source_lost: false }, OWN)
            }
            HandoverEvent::Closed => (Self::Moved, OWN),
            HandoverEvent::SourceAborted => (Self::AbortingTarget { source_lost: false }, &[]),
            HandoverEvent::SourceLost => (Self::AbortingTarget { source_lost: true }, &[]),
            HandoverEvent::TargetAborted | HandoverEvent::TargetLost => {
                (Self::AbortingSource { target_lost: true }, &[])
            }
            HandoverEvent::TimedOut => (Self::AbortingSource { target_lost: false }, &[]),
            HandoverEvent::Ready => (self, &[]),
        }
    }

    fn aborting_source(
        target_lost: bool,
        event: HandoverEvent,
    ) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        let state = Self::AbortingSource { target_lost };
        match event {
            // The cut came first, so it holds.
            HandoverEvent::Cut if target_lost => (Self::Returned, &[]),
            HandoverEvent::Cut => (Self::Activating { source_lost: false }, &[]),
            HandoverEvent::Active | HandoverEvent::Recovered if !target_lost => {
                (Self::Settling { source_lost: false }, OWN)
            }
            HandoverEvent::Closed => (Self::Moved, OWN),
            HandoverEvent::SourceAborted if target_lost => (Self::Kept, &[]),
            HandoverEvent::SourceAborted => (Self::AbortingTarget { source_lost: false }, &[]),
            HandoverEvent::SourceLost if target_lost => (Self::Lost, &[]),
            HandoverEvent::SourceLost => (Self::AbortingTarget { source_lost: true }, &[]),
            HandoverEvent::TargetAborted | HandoverEvent::TargetLost => {
                (Self::AbortingSource { target_lost: true }, &[])
            }
            _ => (state, &[]),
        }
    }

    fn aborting_target(
        source_lost: bool,
        event: HandoverEvent,
    ) -> (Self, &'static [HandoverAction]) {
        const OWN: &[HandoverAction] = &[HandoverAction::Own];
        match event {
            // Only the target knows whether a cut reached it. This event means that one did.
            HandoverEvent::Active | HandoverEvent::Recovered => {
                (Self::Settling { source_lost }, OWN)
            }
            HandoverEvent::TargetAborted => (Self::Kept, &[]),
            HandoverEvent::TargetLost if source_lost => (Self::Lost, &[]),
            HandoverEvent::TargetLost => (Self::Kept, &[]),
            HandoverEvent::SourceLost => (Self::AbortingTarget { source_lost: true }, &[]),
            _ => (Self::AbortingTarget { source_lost }, &[]),
        }
    }
}

impl HandoverState {
    /// The state in words, for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing: the target begins to receive the items",
            Self::Releasing => "releasing: the source reaches the target's positions",
            Self::AbortingSource { .. } => "being called off at the source",
            Self::AbortingTarget { .. } => "being called off at the target",
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

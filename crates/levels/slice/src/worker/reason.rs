//! Why an item was not processed here, or was dropped.

/// A drop reason of the protocol. Most are no loss: another worker has the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Another worker owns the slice.
    NotOwned,
    /// The source had it: it was at or below the cut.
    Late,
    /// It had arrived before.
    Duplicate,
    /// The shadow was full; the handover is called off.
    ShadowFull,
    /// Too many items kept in case the target is lost: the oldest are dropped.
    ReleasedFull,
    /// The tail was full: the target does not receive the item.
    TailFull,
    /// Too many items kept as a standby: the oldest are dropped.
    StandbyFull,
    /// The controller gave this worker up before it finished the item: another worker has the
    /// slice.
    GivenUp,
    /// Not dropped: an item that was published again after the recovery of its slice. In strict
    /// order it is processed after newer items of its writer.
    OutOfOrder,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NotOwned,
        Self::Late,
        Self::Duplicate,
        Self::ShadowFull,
        Self::ReleasedFull,
        Self::TailFull,
        Self::StandbyFull,
        Self::GivenUp,
        Self::OutOfOrder,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotOwned => "not_owned",
            Self::Late => "late",
            Self::Duplicate => "duplicate",
            Self::ShadowFull => "shadow_full",
            Self::ReleasedFull => "released_full",
            Self::TailFull => "tail_full",
            Self::StandbyFull => "standby_full",
            Self::GivenUp => "given_up",
            Self::OutOfOrder => "out_of_order",
        }
    }
}

/// Numbers of dropped items, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops([u64; Reason::ALL.len()]);

impl Drops {
    /// Items dropped for `reason`.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    pub(super) fn add(&mut self, reason: Reason, count: u64) {
        self.0[reason as usize] += count;
    }

    pub(super) fn count(&mut self, reason: Reason) {
        self.add(reason, 1);
    }
}

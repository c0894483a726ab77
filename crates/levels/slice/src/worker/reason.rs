//! Why an item was not done here, or was let go.

/// A drop reason of the protocol. Most are no loss: the item is another worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The slice is another's.
    NotOwned,
    /// The giver had it: it was at or below the cut.
    Late,
    /// It was here before.
    Duplicate,
    /// The shadow was full; the handover is called off.
    ShadowFull,
    /// Kept for a taker that may be lost, and there were too many: the oldest go.
    ReleasedFull,
    /// The tail was full: the taker does not get it.
    TailFull,
    /// Kept as a standby, and there were too many: the oldest go.
    StandbyFull,
    /// The controller gave this worker up, and it had not finished the item: another worker has the slice.
    GivenUp,
    /// Not dropped: an item that came again when its slice was recovered already. In strict order it is done after newer
    /// items of its writer.
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

/// How many items were dropped, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops([u64; Reason::ALL.len()]);

impl Drops {
    /// Dropped for `reason`.
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

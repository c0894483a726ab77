//! Durations and bounds of the protocol, and the order that it keeps.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Durations and bounds of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The order that the protocol keeps.
    pub order: Order,
    /// A message without an answer is sent again after this, and then less and less often.
    pub resend: Duration,
    /// Interval between the claims of a worker with work or a handover in progress. At most a third
    /// of `lease`.
    pub claims: Duration,
    /// A worker stops by itself this long after it sent the last claims that the controller
    /// answered. A worker that is paused for less loses nothing. A worker that is cut off has a
    /// successor after this and `margin`.
    pub lease: Duration,
    /// The controller gives a worker up at least this much later. Covers clocks of different speed.
    pub margin: Duration,
    /// A worker whose connection closed without notice is lost unless it answers the controller
    /// within this: see [`crate::controller::Connection`].
    pub probe: Duration,
    /// A handover without a cut is called off after this.
    pub patience: Duration,
    /// For this long a successor accepts items of a lost worker that clients publish again.
    pub recovery: Duration,
    /// An item that clients publish again, and that no worker seems to have, is processed when it
    /// comes once more after this, or after a lease if that is longer: for a lease its last owner
    /// may be paused with it.
    pub orphan: Duration,
    /// Finished items are remembered for this long: when such an item is published again, its reply
    /// is sent again.
    pub remember: Duration,
    /// A reply is assumed to have reached its client after this. Until then its item does not count
    /// as committed, as the reply may be lost with the worker.
    pub reply: Duration,
    /// A reader that is no longer needed is closed after this. Until then slices of its group can
    /// return without waiting for readers, which takes most of the time of a handover. In exchange
    /// the worker receives items that it does not need.
    pub linger: Duration,
    /// A writer that is gone is forgotten after this.
    pub forget: Duration,
    /// A worker without an answer from any controller begins a new incarnation after this. The
    /// controller forgets a lost worker this long after it gave the worker up.
    pub retire: Duration,
    /// Largest number of items in the shadow of one handover; a target with more calls it off.
    pub shadow_max: usize,
    /// Workers stand by for each other's slices, so that the unfinished items of a lost worker are
    /// processed even if their publisher does not publish them again. Each item then goes to two
    /// workers.
    pub standby: bool,
    /// Largest number of items that a worker keeps as a standby. The oldest are dropped first.
    pub standby_max: usize,
    /// Largest number of items kept in case the target is lost, and of tail entries, of one
    /// handover. The oldest are dropped first.
    pub released_max: usize,
    /// Checkpoints of slices' state, in [`Order::Stateful`]; the controller has the same.
    pub checkpoint: Option<CheckpointConfig>,
}

/// When a worker takes a checkpoint of a slice: at whichever comes first, if any item was
/// processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointConfig {
    /// Interval between two checkpoints of a slice.
    pub every: Duration,
    /// Items of a slice since its last checkpoint.
    pub items: u64,
    /// Checkpoints are also stored in a folder ([`crate::worker::Output::Store`]). They count when
    /// they are there, or when the folder fails.
    pub folder: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), items: 1000, folder: false }
    }
}

/// Of [`Config::reply`]: a busy machine may take longer than is usual.
const SURE_REPLY: u32 = 10;

/// Claims per lease of a worker with nothing in progress.
const IDLE_CLAIMS: u32 = 5;

impl Config {
    /// How checkpoints are taken, if they are.
    pub fn checkpoints(&self) -> Option<CheckpointConfig> {
        self.checkpoint.filter(|_| self.order == Order::Stateful)
    }

    /// Whether checkpoints are stored in a folder, too.
    pub fn has_folder(&self) -> bool {
        self.checkpoints().is_some_and(|checkpoint| checkpoint.folder)
    }

    /// How long after its reply was sent an item counts as answered where its effect is in a
    /// state that cannot be had without it. An item that is answered before is only done again;
    /// here its client would have no reply.
    pub(crate) fn reply_is_sure(&self) -> Duration {
        match self.checkpoints() {
            Some(_) => SURE_REPLY * self.reply,
            None => self.reply,
        }
    }

    /// A worker that is silent for longer than this is suspected: it is paused, cut off, or dead.
    pub fn suspicion(&self) -> Duration {
        let idle = self.idle_claims();
        idle + (idle / 5).max(2 * self.claims)
    }

    /// Interval between the claims of a worker with nothing in progress: they only renew its lease.
    pub fn idle_claims(&self) -> Duration {
        self.claims.max(self.lease / IDLE_CLAIMS)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            order: Order::Free,
            resend: Duration::from_millis(20),
            claims: Duration::from_millis(50),
            lease: Duration::from_secs(5),
            margin: Duration::from_millis(100),
            probe: Duration::from_millis(50),
            patience: Duration::from_secs(5),
            recovery: Duration::from_secs(2),
            orphan: Duration::from_secs(1),
            remember: Duration::from_secs(30),
            reply: Duration::from_millis(50),
            linger: Duration::from_secs(10),
            forget: Duration::from_secs(60),
            retire: Duration::from_secs(600),
            shadow_max: 262_144,
            standby: false,
            standby_max: 65_536,
            released_max: 65_536,
            checkpoint: None,
        }
    }
}

/// The order of items of one writer in one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Order {
    /// The target starts at once, while the source may still process earlier items.
    #[default]
    Free,
    /// The target starts a slice when the source has drained it.
    Strict,
    /// Strict, and the state of a slice moves with it.
    Stateful,
}

impl Order {
    /// Whether the target waits for the source.
    pub fn is_strict(self) -> bool {
        self != Self::Free
    }
}

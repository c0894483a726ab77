//! Times and bounds of the protocol, and what order there is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Times and bounds of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What order there is.
    pub order: Order,
    /// Who has no answer asks again after this.
    pub resend: Duration,
    /// Interval between the claims of a worker that has something under way. At most a third of `lease`.
    pub claims: Duration,
    /// A worker stops by itself this long after it sent the last claims that were heard. A worker
    /// that is paused for less loses nothing; one that is cut off has a successor after this and
    /// `margin`.
    pub lease: Duration,
    /// The controller gives a worker up this much later, at the earliest. Covers clocks of different speed.
    pub margin: Duration,
    /// A worker whose connection closed without notice answers the controller within this, or is
    /// lost: see [`crate::controller::Connection`].
    pub probe: Duration,
    /// A handover is called off that has no cut after this.
    pub patience: Duration,
    /// Published again, items of a lost worker are taken for this long.
    pub recovery: Duration,
    /// An item that comes again after this once more, and that nobody has, is done: not before a lease is over, as long as which
    /// its last owner may stand still with it.
    pub orphan: Duration,
    /// What was finished is known for so long: if it comes again, its reply is sent again.
    pub remember: Duration,
    /// A reply that was sent has reached its client after this. Until then what it is for does not count as
    /// committed, as the reply may be lost with the worker.
    pub reply: Duration,
    /// A reader that nothing needs any more is closed after this. Until then its group's slices come back without waiting
    /// for readers, which are most of the time of a handover, and its items come here for nothing.
    pub linger: Duration,
    /// A writer that is gone is forgotten after this.
    pub forget: Duration,
    /// A worker that no controller has heard for this long begins a new life by itself; the controller forgets a lost one
    /// this long after it was given up.
    pub retire: Duration,
    /// Items in the shadow of one handover; a taker with more calls it off.
    pub shadow_max: usize,
    /// Workers stand by for each other's slices: what a lost one had in hand is done though its publisher does not publish it
    /// again. Each item then goes to two workers.
    pub standby: bool,
    /// Items that a worker keeps as a standby. Beyond it the oldest go.
    pub standby_max: usize,
    /// Items kept for a taker that may be lost, and tail entries, of one handover. Beyond it the oldest go.
    pub released_max: usize,
}

/// Claims of a worker that has nothing under way, in a lease.
const IDLE_CLAIMS: u32 = 5;

impl Config {
    /// A worker that was silent for longer than this is suspected: it is paused, cut off, or dead.
    pub fn suspicion(&self) -> Duration {
        let idle = self.idle_claims();
        idle + (idle / 5).max(2 * self.claims)
    }

    /// Interval between the claims of a worker that has nothing under way: they only renew its lease.
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
        }
    }
}

/// The order of items of one writer in one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Order {
    /// The taker starts at once, while the giver may still be at earlier items.
    #[default]
    Free,
    /// The taker starts a slice when the giver has drained it.
    Strict,
    /// Strict, and the state of a slice moves with it.
    Stateful,
}

impl Order {
    /// Whether a taker waits for the giver.
    pub fn is_strict(self) -> bool {
        self != Self::Free
    }
}

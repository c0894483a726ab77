//! A seeded simulation of clients, workers and the controller. It loses, duplicates, delays and
//! reorders messages, and checks the guarantees of the protocol after each run. For tests only.
//!
//! The network gives the guarantees of DDS: items of a writer arrive in order, and none is lost
//! between readers and writers that have matched; readers match writers late. Control messages have
//! no such guarantees.

mod checkpoints;
mod client;
mod control;
mod judge;
mod node;
mod world;

use std::time::Duration;

use crate::config::{CheckpointConfig, Config, Order};
use crate::worker::Sabotage;

pub(crate) use judge::{OrderKept, Verdict};
pub(crate) use world::World;

/// Longest delays: of an item, of a reply, and until a reader matches a writer.
const ITEM_DELAY_US_MAX: u64 = 3_000;
const REPLY_DELAY_US_MAX: u64 = 2_000;
const MATCH_DELAY_US_MAX: u64 = 8_000;
/// Longer than any run.
const NO_MOVES_US: u64 = 10_000_000;

/// A living worker answers within this: probes are not lost, but may take 6 ms each way, and the
/// controller ticks every 1.5 ms.
pub(super) const PROBE_US: u64 = 15_000;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub seed: u64,
    pub order: Order,
    pub slices: u32,
    pub workers: u64,
    pub clients: u64,
    /// Clients that begin during the run.
    pub joining: u64,
    /// Duration of publishing and moving.
    pub length_us: u64,
    pub item_gap_us: u64,
    /// Longest time of an item: long ones make queues.
    pub work_us_max: u64,
    pub move_gap_us: u64,
    /// Share of control messages, in a thousand.
    pub dropped_permille: u32,
    pub doubled_permille: u32,
    pub faults: Faults,
    /// Workers have connections to the controller, which close at a crash, and are reset while the
    /// workers live.
    pub connections: bool,
    /// Interval of checkpoints, if workers take any.
    pub checkpoint_us: Option<u64>,
    /// Checkpoints are also in a folder.
    pub folder: Folder,
    /// Workers stand by for each other.
    pub standby: bool,
    /// Unused readers are closed after this.
    pub linger_us: u64,
    /// Lost workers are forgotten after this.
    pub retire_us: u64,
    /// Workers forget slices that they gave away after this.
    pub forget_us: u64,
    /// Clients publish items without a reply again.
    pub again: bool,
    /// Slices are split and joined.
    pub resizes: bool,
    pub sabotage: Sabotage,
}

/// The folder of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folder {
    None,
    Works,
    /// A part of the writes and reads fail.
    Fails,
}

/// Faults besides those of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Nothing: planned moves only.
    None,
    /// The controller crashes, and the next one takes over.
    Controller,
    /// All parties crash, are cut off, or are paused.
    Everybody,
    /// Workers crash repeatedly.
    Kills,
    /// Workers and the controller crash repeatedly.
    KillsAndControllers,
    /// A client and a worker are disconnected, for longer than DDS waits, and reconnected.
    Paths,
    /// The controller is paused, for longer than workers may be silent.
    Pauses,
    /// Workers and the controller are paused, for less than a lease.
    ShortPauses,
    /// One worker crashes once, at this time.
    Worker { after_us: u64 },
    /// The party crashes when the nth message of this kind (see `node::step`) is sent.
    At { step: usize, nth: u32, party: Party },
}

/// The party that crashes at a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    SenderBefore,
    SenderAfter,
    Receiver,
    Controller,
}

impl Scenario {
    pub(crate) fn planned(seed: u64) -> Self {
        let order = [Order::Free, Order::Strict, Order::Stateful][seed as usize % 3];
        Self {
            seed,
            order,
            slices: 8,
            workers: 2 + seed / 3 % 3,
            clients: 2,
            joining: seed / 9 % 3,
            length_us: 240_000,
            item_gap_us: 1_500,
            work_us_max: [1_500, 1_500, 12_000][seed as usize / 11 % 3],
            move_gap_us: 1_000,
            dropped_permille: 50,
            doubled_permille: 50,
            faults: Faults::None,
            connections: false,
            checkpoint_us: None,
            folder: Folder::None,
            standby: seed / 27 % 2 == 1,
            linger_us: [0, 5_000, 40_000][seed as usize / 2 % 3],
            // Some are forgotten while they are paused or cut off.
            retire_us: [10_000, 10_000_000][seed as usize / 5 % 2],
            forget_us: [60_000, 10_000_000][seed as usize / 7 % 2],
            again: true,
            resizes: false,
            sabotage: Sabotage::None,
        }
    }

    pub(crate) fn crashing(seed: u64) -> Self {
        let faults = if seed.is_multiple_of(4) { Faults::Controller } else { Faults::Everybody };
        Self { faults, length_us: 150_000, ..Self::planned(seed) }
    }

    /// Workers are killed in strict order, without other faults.
    pub(crate) fn killing(seed: u64) -> Self {
        let order = [Order::Strict, Order::Stateful][seed as usize % 2];
        // Some without moves.
        let move_gap_us = [1_000, NO_MOVES_US][seed as usize / 2 % 2];
        let crashing = Self { faults: Faults::Kills, order, move_gap_us, ..Self::crashing(seed) };
        Self { length_us: 300_000, ..crashing }
    }

    /// Workers that take checkpoints are killed, except while a state would be lost with them: when
    /// an owner and its keeper are lost at once. In some runs controllers crash as well.
    pub(crate) fn checkpointing(seed: u64) -> Self {
        let checkpoint_us = Some([4_000, 12_000, 40_000][seed as usize / 3 % 3]);
        let killing = Self::killing(seed);
        Self {
            checkpoint_us,
            order: Order::Stateful,
            connections: seed % 4 < 3,
            workers: 2 + seed / 3 % 4,
            // A worker without any controller for so long drops its states.
            retire_us: 10_000_000,
            // Items that are in no checkpoint are processed again.
            item_gap_us: [1_500, 600][seed as usize / 5 % 2],
            faults: if seed % 5 == 4 { Faults::KillsAndControllers } else { Faults::Kills },
            ..killing
        }
    }

    /// With a folder of checkpoints: workers are killed at any moment, some of them all at once.
    pub(crate) fn with_folder(seed: u64) -> Self {
        let folder = Folder::Works;
        Self { folder, workers: 1 + seed / 3 % 4, ..Self::checkpointing(seed) }
    }

    /// With a folder that fails at times. Workers are killed as without a folder.
    pub(crate) fn with_failing_folder(seed: u64) -> Self {
        Self { folder: Folder::Fails, ..Self::with_folder(seed) }
    }

    /// The same, with connections: crashes are noticed at once, and connections are reset.
    pub(crate) fn connected(seed: u64) -> Self {
        Self { connections: true, faults: Faults::Everybody, ..Self::crashing(seed) }
    }

    /// Workers are paused for less than a lease, and their connections are reset.
    pub(crate) fn short_pauses(seed: u64) -> Self {
        Self { faults: Faults::ShortPauses, connections: true, ..Self::pausing(seed) }
    }

    /// All parties crash while slices have queues.
    pub(crate) fn queueing(seed: u64) -> Self {
        Self { work_us_max: 12_000, faults: Faults::Everybody, ..Self::crashing(seed) }
    }

    pub(crate) fn cut_off(seed: u64) -> Self {
        let crashing = Self::crashing(seed);
        Self { faults: Faults::Paths, standby: false, ..crashing }
    }

    pub(crate) fn pausing(seed: u64) -> Self {
        // No worker may seem lost because messages are.
        let crashing = Self::crashing(seed);
        Self { faults: Faults::Pauses, dropped_permille: 0, retire_us: 10_000_000, ..crashing }
    }

    /// A worker crashes once, between moves, and no client publishes anything again.
    pub(crate) fn succeeded(seed: u64) -> Self {
        let faults = Faults::Worker { after_us: 60_000 };
        let planned = Self::planned(seed);
        let quiet = Self { move_gap_us: NO_MOVES_US, joining: 0, ..planned };
        Self { faults, standby: true, again: false, order: Order::Free, ..quiet }
    }

    /// Slices are split and joined, besides moves, losses and crashes.
    pub(crate) fn resizing(seed: u64) -> Self {
        let base = match seed % 4 {
            0 => Self::planned(seed),
            1 | 2 => Self::crashing(seed),
            _ => Self::connected(seed),
        };
        // In strict order, two workers with two slices process 1,300 items a second.
        let (work_us_max, item_gap_us) = (1_500, 3_000);
        let base = Self { work_us_max, item_gap_us, ..base };
        let order = [Order::Free, Order::Strict][seed as usize / 4 % 2];
        // Some runs have few moves, so that slices are joined soon.
        let move_gap_us = [1_000, 20_000][seed as usize / 8 % 2];
        Self { resizes: true, order, move_gap_us, length_us: 500_000, ..base }
    }

    pub(crate) fn at(seed: u64, step: usize, nth: u32, party: Party) -> Self {
        let faults = Faults::At { step, nth, party };
        Self { faults, length_us: 60_000, ..Self::planned(seed) }
    }

    /// Whether workers may be lost.
    pub(crate) fn loses_workers(&self) -> bool {
        match self.faults {
            Faults::None | Faults::Controller | Faults::Pauses | Faults::ShortPauses => false,
            // `Paths` loses no workers, but items lost in transit are executed late.
            Faults::Paths
            | Faults::Everybody
            | Faults::Kills
            | Faults::KillsAndControllers
            | Faults::Worker { .. } => true,
            Faults::At { party, .. } => party != Party::Controller,
        }
    }

    /// The order of items that is required.
    pub(crate) fn keeps_order(&self) -> OrderKept {
        if !self.order.is_strict() || self.faults == Faults::Paths {
            // Some items are lost in transit.
            OrderKept::None
        } else if !self.loses_workers() {
            OrderKept::Once
        } else if self.checkpoint_us.is_some() {
            // A worker does again what it has done itself.
            OrderKept::First
        } else if self.faults == Faults::Kills && self.move_gap_us == NO_MOVES_US {
            OrderKept::Each
        } else {
            OrderKept::First
        }
    }

    pub(crate) fn config(&self) -> Config {
        let us = Duration::from_micros;
        // If no worker is lost, none may seem so because messages are.
        let pauses = matches!(self.faults, Faults::Pauses | Faults::ShortPauses);
        let is_short = self.loses_workers() || pauses;
        let lease = if is_short { us(30_000) } else { us(1_000_000_000) };
        // Else orphans would hide the faults that a scenario should find.
        let orphan = if self.faults == Faults::Paths { us(20_000) } else { us(1_000_000_000) };
        let remember = if (self.seed / 7).is_multiple_of(2) { us(5_000) } else { us(10_000_000) };
        Config {
            order: self.order,
            resend: us(3_000),
            claims: us(6_000),
            lease,
            margin: us(5_000),
            probe: us(PROBE_US),
            patience: us(40_000),
            recovery: us(60_000),
            orphan,
            remember,
            reply: us(REPLY_DELAY_US_MAX + 1),
            linger: us(self.linger_us),
            forget: us(self.forget_us),
            retire: us(self.retire_us),
            shadow_max: 10_000,
            standby: self.standby,
            standby_max: 10_000,
            released_max: 10_000,
            checkpoint: self.checkpoint_us.map(|every| CheckpointConfig {
                every: us(every),
                items: 20 + self.seed % 50,
                folder: self.folder != Folder::None,
            }),
        }
    }
}

#[cfg(test)]
mod tests;

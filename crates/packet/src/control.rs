//! The control side: learns flows, pins those that the rings would move, changes pools without moving a flow.
//!
//! No thread, no clock, no file: `now` is an argument. What it reads and writes is the memory shared with the program.

mod adopt;
mod advance;
mod apply;
mod check;
mod error;
mod flows;
mod learn;
mod loads;
mod openings;
mod output;
mod pending;
mod pins;
mod publish;
mod registered;
mod seating;
mod service;
mod settings;
mod shares;
mod status;
mod unpinned;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use equipoise_core::Generation;
use equipoise_pog::{KeyHash, Seed, SipHash13};

pub use error::{ApplyError, ControlError, PinError};
pub use registered::{FlowId, RegisteredPin};
pub use seating::Begun;
pub use settings::{Settings, Timeouts};
pub use status::{BackendStatus, Phase, Status, Tick, VipStatus};

use self::apply::Numbers;
use self::flows::Flows;
use self::loads::Opening;
use self::output::Output;
use self::pending::{Pending, Recorded};
use self::pins::PinSet;
use self::registered::Registrations;
use self::service::Service;
use crate::abi::Event;
use crate::digest::Digest;
use crate::ledger::Ledger;
use crate::limits::{Capacity, Limits};
use crate::memory::Memory;
use crate::registry::Registry;
use crate::snapshot::{NextHop, Station};

/// The control side of one balancer, or of a fleet that shares its tables.
#[derive(Debug)]
pub struct Control {
    memories: Vec<Memory>,
    capacity: Capacity,
    limits: Limits,
    settings: Settings,
    seeds: Seeds,
    generation: Generation,
    /// By number.
    services: Vec<Option<Service>>,
    numbers: Numbers,
    flows: Flows,
    pins: PinSet,
    /// Of each memory.
    pending: Vec<Pending>,
    output: Output,
    hops: HashMap<IpAddr, NextHop>,
    stations: BTreeSet<Station>,
    registrations: Registrations,
    /// As it was last written down.
    noted: Option<Ledger>,
    begun: Begun,
    opening: BTreeMap<(u16, u16), Opening>,
    clocks: Clocks,
    totals: Totals,
    /// Number of the interval in which flows are now logged.
    interval: u32,
    /// Where the next part of the registry begins that is looked through for flows that are over.
    sweep_at: usize,
    /// Something other than pins is to be published.
    is_dirty: bool,
    /// By service number: its rings or its slots have changed since the last publication, so that each of its flows
    /// must be looked at.
    rearranged: Vec<bool>,
    /// There are more slots than when false matches were last looked for.
    slots_grew: bool,
    /// No flow would be falsely taken for pinned, by the image as it is.
    is_mended: bool,
    /// Some backend found no slot.
    is_unseated: bool,
    /// Until then every reply of a backend's port is translated: what clients had opened is not in the tables.
    replies_all_until: Option<Instant>,
    /// To be logged again.
    unlogged: Vec<Digest>,
    events: Vec<Event>,
    recorded: Vec<Recorded>,
}

/// What all balancers of a fleet derive alike.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    digest: Seed,
    vip: u32,
    rings: SipHash13,
    salts: SipHash13,
}

impl Seeds {
    fn of(fleet: Seed) -> Seeds {
        let hash = SipHash13::with_seed(fleet);
        let seed =
            |what: &str| Seed { k0: hash.hash(what), k1: hash.hash(&format!("{what}, 2")[..]) };
        Seeds {
            digest: seed("flows"),
            vip: hash.hash("vips") as u32,
            rings: SipHash13::with_seed(seed("rings")),
            salts: SipHash13::with_seed(seed("salts")),
        }
    }
}

/// When things last happened.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    next_tick: Instant,
    interval_began: Instant,
    expired_at: Instant,
    published_at: Instant,
    /// When pins were last brought up to date.
    pinned_at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    publications: u64,
    moved: u64,
    registry_full: u64,
    pins_full: u64,
}

/// A log that is fuller than one part in this is drained sooner than the next tick would be.
const LOG_BUSY: usize = 8;

impl Control {
    /// Over memories that are set up (then it goes on with what is published there) or zeroed (then it publishes
    /// tables without VIPs). Of several memories, the tables of the first are taken over.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn new(
        memories: Vec<Memory>,
        capacity: Capacity,
        registry: Registry,
        settings: Settings,
        now: Instant,
    ) -> Result<Control, ControlError> {
        Control::adopt(memories, capacity, registry, None, settings, now)
    }

    /// As [`Self::new`], with what the control side before had [noted](Self::tick_noting). By it the flows of the registry
    /// keep their backends though the memories are zeroed, and registered pins are known by name.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn resume(
        memories: Vec<Memory>,
        capacity: Capacity,
        registry: Registry,
        ledger: Option<&Ledger>,
        settings: Settings,
        now: Instant,
    ) -> Result<Control, ControlError> {
        Control::adopt(memories, capacity, registry, ledger, settings, now)
    }

    /// Where packets to backends leave. Addresses that are not in `hops` have no next hop. Published with the next tick.
    pub fn next_hops(&mut self, hops: &HashMap<IpAddr, NextHop>) {
        if self.hops != *hops {
            self.hops.clone_from(hops);
            self.is_dirty = true;
        }
    }

    /// Which frames the program takes: those to the MAC addresses of `stations`, of which it has room for
    /// [`Station::MAX`]; it leaves others to the kernel. Published with the next tick. At first there are none.
    pub fn take_frames(&mut self, stations: &BTreeSet<Station>) {
        if self.stations != *stations {
            self.stations = stations.iter().copied().take(Station::MAX).collect();
            self.is_dirty = true;
        }
    }

    /// Takes what the program logged, forgets flows that are over, moves changes of pools on, publishes what changed.
    pub fn tick(&mut self, now: Instant) -> Tick {
        self.tick_noting(now, |_| true)
    }

    /// As [`Self::tick`]. What the next control side must know is given to `note` when it has changed, before a
    /// publication makes use of it; if that could not write it down (`false`), again with the next tick.
    pub fn tick_noting(&mut self, now: Instant, note: impl FnOnce(&Ledger) -> bool) -> Tick {
        let mut tick = Tick::default();
        self.drain(&mut tick);
        self.roll_interval(now);
        self.expire(now, &mut tick);
        self.end_replies_all(now);
        self.absorb(now, &mut tick);
        self.free_drained(now, &mut tick);
        if self.is_unseated {
            self.seat(now);
        }
        if now >= self.clocks.published_at + self.settings.grace {
            self.advance(now, &mut tick);
        }
        self.note_changes(note);
        self.publish_if_due(now, &mut tick);
        self.clear_tags();
        self.store_loads(now);
        self.clocks.next_tick = now + self.pause(&tick);
        tick
    }

    /// Until the next tick.
    fn pause(&self, tick: &Tick) -> Duration {
        let is_changing =
            self.is_dirty || self.services.iter().flatten().any(Service::is_absorbing);
        let is_busy = tick.events > self.limits.log_entries as usize / LOG_BUSY;
        if is_changing {
            self.settings.grace.min(self.settings.tick)
        } else if is_busy {
            self.settings.tick / 10
        } else {
            self.settings.tick
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Instant {
        self.clocks.next_tick
    }

    /// How long nothing may remind of a slot's holder before another gets it: longer than records of it live.
    fn quarantine(&self) -> Duration {
        2 * self.settings.interval + self.settings.opening_timeout + self.settings.transition
    }
}

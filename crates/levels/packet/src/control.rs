//! The control side: learns flows, pins those that the rings would move, and changes pools without
//! moving a flow.
//!
//! It has no thread, clock or file: `now` is an argument. It reads and writes the memory shared
//! with the program.

mod adopt;
mod advance;
mod apply;
mod check;
mod error;
mod fleet;
mod flows;
mod heavy;
mod learn;
mod loads;
mod openings;
mod output;
mod pending;
mod pins;
mod ports;
mod publish;
mod registered;
mod seating;
mod service;
mod settings;
mod shares;
mod sources;
mod status;
mod unpinned;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use equipoise_core::Generation;
use equipoise_pog::{KeyHash, Seed, SipHash13};

pub use error::{ApplyError, ControlError, PinError};
pub use fleet::{
    Ack, Collected, FleetMessage, FleetTotals, FlowPart, PinPart, Position, UnreadableMessage,
};
pub use heavy::{BackendBytes, Elephant, Elephants};
pub use ports::{FullNatFlow, PortsInUse, SourceInUse};
pub use registered::{FlowId, RegisteredPin};
pub use seating::Begun;
pub use settings::{Settings, Timeouts};
pub use status::{BackendStatus, Gone, Phase, Status, Tick, VipStatus};

use self::apply::Numbers;
use self::fleet::Fleet;
use self::flows::Flows;
use self::heavy::Weighing;
use self::loads::Opening;
use self::output::Output;
use self::pending::{Pending, Recorded};
use self::pins::PinSet;
use self::ports::PortsCounted;
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
    /// One per memory.
    pending: Vec<Pending>,
    output: Output,
    hops: HashMap<IpAddr, NextHop>,
    stations: BTreeSet<Station>,
    registrations: Registrations,
    /// As last written.
    noted: Option<Ledger>,
    begun: Begun,
    opening: BTreeMap<(u16, u16), Opening>,
    clocks: Clocks,
    totals: Totals,
    /// Number of the current interval of the logs.
    interval: u32,
    /// Start of the next part of the registry to sweep for expired flows.
    sweep_at: usize,
    /// Whether anything other than pins must be published.
    is_dirty: bool,
    /// By service number: whether its rings or slots have changed since the last publication, so
    /// that each of its flows must be checked.
    rearranged: Vec<bool>,
    /// Whether there are more slots than at the last check for false matches.
    slots_grew: bool,
    /// Whether the current image falsely matches no flow.
    is_mended: bool,
    /// Whether a backend has no slot.
    is_unseated: bool,
    /// Since this time, and until every earlier flow has sent a packet or been forgotten, every
    /// reply from a backend's port is translated, because the tables lack earlier flows.
    replies_all_since: Option<Instant>,
    /// Flows to be logged again.
    unlogged: Vec<Digest>,
    events: Vec<Event>,
    recorded: Vec<Recorded>,
    weighing: Weighing,
    /// Source addresses of full-nat that only known flows have, with the time of the kernel's
    /// monotonic clock from which no new flow has them, once it is known.
    leaving: BTreeMap<IpAddr, Option<u64>>,
    /// Ports of full-nat, as last counted.
    ports_counted: Option<PortsCounted>,
    /// Set while flows are shared with other balancers.
    fleet: Option<Fleet>,
}

/// Values that all balancers of a fleet derive identically.
#[derive(Clone, Copy, Debug)]
struct Seeds {
    digest: Seed,
    vip: u32,
    /// The same for all VIPs: those with equal pools have equal rings, and share one.
    rings: u64,
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
            rings: hash.hash("rings"),
            salts: SipHash13::with_seed(seed("salts")),
        }
    }
}

/// Times of the last events.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    next_tick: Instant,
    interval_began: Instant,
    expired_at: Instant,
    published_at: Instant,
    /// Time of the last update of the pins.
    pinned_at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    publications: u64,
    moved: u64,
    registry_full: u64,
    pins_full: u64,
}

/// A log that is filled to more than 1/N is drained before the next tick.
const LOG_BUSY: usize = 8;

impl Control {
    /// Starts with memories that are set up (continues with the published tables) or zeroed
    /// (publishes tables without VIPs). Of several memories, takes over the tables of the first.
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

    /// Like [`Self::new`], with the [noted](Self::tick_noting) ledger of an earlier control side.
    /// With it, the flows of the registry keep their backends even if the memories are zeroed, and
    /// registered pins are known by name.
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

    /// Sets the next hops of backends by address. Addresses that are not in `hops` have none. The
    /// next tick publishes them.
    pub fn next_hops(&mut self, hops: &HashMap<IpAddr, NextHop>) {
        if self.hops != *hops {
            self.hops.clone_from(hops);
            self.is_dirty = true;
        }
    }

    /// Sets the frames that the program accepts: those to the MAC addresses of `stations`, at most
    /// [`Station::MAX`]. The kernel gets all others. The next tick publishes them; initially there
    /// are none.
    pub fn take_frames(&mut self, stations: &BTreeSet<Station>) {
        if self.stations != *stations {
            self.stations = stations.iter().copied().take(Station::MAX).collect();
            self.is_dirty = true;
        }
    }

    /// Reads the program's logs, forgets expired flows, advances changes of pools, and publishes
    /// changes.
    pub fn tick(&mut self, now: Instant) -> Tick {
        self.tick_noting(now, |_| true)
    }

    /// Like [`Self::tick`]. Calls `note` with the state that the next control side needs when it
    /// has changed, before a publication uses it. If `note` returns `false`, it is called again
    /// with the next tick.
    pub fn tick_noting(&mut self, now: Instant, note: impl FnOnce(&Ledger) -> bool) -> Tick {
        let mut tick = Tick::default();
        self.drain(&mut tick);
        self.roll_interval(now);
        self.weigh(now);
        self.renew_share(now);
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

    /// Returns the time until the next tick.
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

    /// Returns the time of the next call of [`Self::tick`].
    pub fn next_tick(&self) -> Instant {
        self.clocks.next_tick
    }

    /// Returns the time for which a slot stays free before another backend gets it: longer than any
    /// record of the earlier backend lives.
    fn quarantine(&self) -> Duration {
        2 * self.settings.interval + self.settings.opening_timeout + self.settings.transition
    }
}

//! The control side: learns flows, pins those that the rings would move, changes pools without moving a flow.
//!
//! No thread, no clock, no file: `now` is an argument. What it reads and writes is the memory shared with the program.

mod error;
mod registered;
mod settings;
mod status;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

pub use error::{ApplyError, ControlError, PinError};
pub use registered::{FlowId, RegisteredPin};
pub use settings::{Settings, Timeouts};
pub use status::{BackendStatus, Phase, Status, Tick, VipStatus};

use crate::limits::Capacity;
use crate::memory::Memory;
use crate::registry::Registry;
use crate::snapshot::{BackendId, NextHop, Snapshot, VipId};

/// The control side of one balancer, or of a fleet that shares its tables.
#[derive(Debug)]
pub struct Control {
    next_tick: Instant,
}

#[expect(unused_variables, reason = "signatures first")]
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
        Ok(Control { next_tick: now })
    }

    /// What is wanted from now on. Nothing is published before the next tick, which is due at once.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing has changed.
    pub fn apply(&mut self, snapshot: &Snapshot, now: Instant) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Where packets to backends leave. Addresses that are not in `hops` have no next hop. Published with the next tick.
    pub fn next_hops(&mut self, hops: &HashMap<IpAddr, NextHop>) {}

    /// Takes what the program logged, forgets flows that are over, moves transitions on, publishes what changed.
    pub fn tick(&mut self, now: Instant) -> Tick {
        Tick::default()
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Pins a flow to a backend until it is unpinned, and replaces a pin of the flow.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn pin(&mut self, vip: &VipId, flow: &FlowId, backend: &BackendId) -> Result<(), PinError> {
        Ok(())
    }

    /// Pins a flow that is pinned to another backend.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn move_pin(
        &mut self,
        vip: &VipId,
        flow: &FlowId,
        backend: &BackendId,
    ) -> Result<(), PinError> {
        Ok(())
    }

    /// Takes a pin away: the flow goes on where it is, and is forgotten as any other.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn unpin(&mut self, vip: &VipId, flow: &FlowId) -> Result<(), PinError> {
        Ok(())
    }

    /// All pins that were registered, by VIP and flow.
    pub fn pins(&self) -> Vec<RegisteredPin> {
        Vec::new()
    }

    /// Everything that can be counted.
    pub fn status(&self) -> Status {
        unimplemented!("comes with the state machine")
    }
}

//! Clients' requests in flight at a node, by class and place: one of the two inputs of the choice.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use equipoise_core::load::RequestClass;

use crate::snapshot::FrontDoorView;

/// Clients' requests in flight, of all threads together; kept across snapshots. Without requests of
/// peers: with them, a node could not tell how long its own clients wait.
#[derive(Debug, Default)]
pub struct InFlight([CachePadded<Places>; RequestClass::ALL.len()]);

#[derive(Debug, Default)]
struct Places {
    here: AtomicU32,
    there: AtomicU32,
}

impl InFlight {
    /// Of a class, done by this node.
    pub fn here(&self, class: RequestClass) -> u32 {
        self.0[class as usize].here.load(Relaxed)
    }

    /// Of a class, done by peers.
    pub fn there(&self, class: RequestClass) -> u32 {
        self.0[class as usize].there.load(Relaxed)
    }
}

/// A client's request at a door in node mode, counted where it is being done until this is dropped.
pub(crate) struct Counted {
    door: Rc<Arc<FrontDoorView>>,
    class: RequestClass,
    is_here: bool,
}

impl Counted {
    pub(crate) fn new(door: Rc<Arc<FrontDoorView>>, class: RequestClass, is_here: bool) -> Counted {
        let counted = Counted { door, class, is_here };
        counted.place().fetch_add(1, Relaxed);
        counted
    }

    /// A peer failed it or had no room, so this node serves it.
    pub(crate) fn comes_back(&mut self) {
        self.moves(true);
    }

    /// There is no room here, and a peer does it.
    pub(crate) fn leaves(&mut self) {
        self.moves(false);
    }

    fn moves(&mut self, is_here: bool) {
        self.place().fetch_sub(1, Relaxed);
        self.is_here = is_here;
        self.place().fetch_add(1, Relaxed);
    }

    fn place(&self) -> &AtomicU32 {
        let places = &self.door.in_flight.0[self.class as usize];
        if self.is_here { &places.here } else { &places.there }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.place().fetch_sub(1, Relaxed);
    }
}

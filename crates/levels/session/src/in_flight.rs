//! Clients' requests in flight at a node, by class and place: one of the two inputs of the choice
//! which node serves a request.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crossbeam_utils::CachePadded;
use equipoise_core::load::RequestClass;

/// Clients' requests in flight, of all threads together; kept across snapshots. Without requests of
/// peers: with them, a node could not tell how long its own clients wait.
#[derive(Debug, Default)]
pub struct InFlight([CachePadded<Places>; RequestClass::ALL.len()]);

/// Where a client's request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// At this node.
    Here,
    /// At a peer.
    There,
}

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

    /// The count of a class at this node, or at peers.
    pub(crate) fn at(&self, site: Site, class: RequestClass) -> &AtomicU32 {
        let places = &self.0[class as usize];
        match site {
            Site::Here => &places.here,
            Site::There => &places.there,
        }
    }
}

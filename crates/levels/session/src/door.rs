//! A front door on a data-plane thread.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use equipoise_core::load::RequestClass;
use tokio::sync::Notify;

use crate::in_flight::Site;
use crate::reason::Reason;
use crate::snapshot::{FrontDoorView, Snapshot};
use crate::stats::FrontDoorStats;

/// A front door on this thread: its newest configuration, and whether it is being closed.
pub(crate) struct Door {
    view: RefCell<Rc<Arc<FrontDoorView>>>,
    /// The last snapshot that it was in, once a newer one has no such door: what its view's indices
    /// are about.
    kept: RefCell<Option<Rc<Arc<Snapshot>>>>,
    pub(crate) closing: Cell<bool>,
    pub(crate) open: Cell<usize>,
    pub(crate) room: Notify,
    closed: Notify,
    thread: usize,
}

impl Door {
    pub(crate) fn new(view: Arc<FrontDoorView>, thread: usize) -> Rc<Door> {
        Rc::new(Door {
            view: RefCell::new(Rc::new(view)),
            kept: RefCell::default(),
            closing: Cell::new(false),
            open: Cell::new(0),
            room: Notify::new(),
            closed: Notify::new(),
            thread,
        })
    }

    pub(crate) fn update(&self, view: Arc<FrontDoorView>) {
        *self.view.borrow_mut() = Rc::new(view);
    }

    pub(crate) fn view(&self) -> Rc<Arc<FrontDoorView>> {
        self.view.borrow().clone()
    }

    /// The snapshot that it was closed with, if a reload took it away.
    pub(crate) fn kept(&self) -> Option<Rc<Arc<Snapshot>>> {
        self.kept.borrow().clone()
    }

    /// Closes the door, which the snapshot after `last` does not have. Open connections are served
    /// with `last`.
    pub(crate) fn take_away(&self, last: Rc<Arc<Snapshot>>) {
        *self.kept.borrow_mut() = Some(last);
        self.close();
    }

    /// Takes nothing new from now on.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        self.closed.notify_one();
        self.room.notify_one();
    }

    /// Resolves when the door closes; one task waits for it.
    pub(crate) async fn closed(&self) {
        while !self.closing.get() {
            self.closed.notified().await;
        }
    }

    /// Counts one more connection (or UDP client) until the guard is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> DoorGuard {
        self.open.set(self.open.get() + 1);
        let view = self.view();
        view.stats.shard(self.thread).connections.add(1);
        view.stats.shard(self.thread).connections_open.add(1);
        DoorGuard(self.clone())
    }

    /// Runs `f` on this thread's counters.
    pub(crate) fn stats<T>(&self, f: impl FnOnce(&FrontDoorStats) -> T) -> T {
        f(self.view.borrow().stats.shard(self.thread))
    }

    /// Counts a refusal or loss.
    pub(crate) fn dropped(&self, reason: Reason) {
        self.stats(|stats| stats.drops[reason as usize].add(1));
    }
}

/// Keeps a connection counted at its door.
pub(crate) struct DoorGuard(Rc<Door>);

impl Drop for DoorGuard {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.stats(|stats| stats.connections_open.sub(1));
        self.0.room.notify_one();
    }
}

/// A client's request at a door in node mode, counted where it is being done until this is dropped.
pub(crate) struct Counted {
    door: Rc<Arc<FrontDoorView>>,
    class: RequestClass,
    site: Site,
}

impl Counted {
    pub(crate) fn new(door: Rc<Arc<FrontDoorView>>, class: RequestClass, site: Site) -> Counted {
        let counted = Counted { door, class, site };
        counted.place().fetch_add(1, Relaxed);
        counted
    }

    /// Counts it at this site from now on.
    pub(crate) fn moves(&mut self, site: Site) {
        self.place().fetch_sub(1, Relaxed);
        self.site = site;
        self.place().fetch_add(1, Relaxed);
    }

    fn place(&self) -> &AtomicU32 {
        self.door.in_flight.at(self.site, self.class)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.place().fetch_sub(1, Relaxed);
    }
}

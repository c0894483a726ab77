//! A front door on a data-plane thread.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_core::load::RequestClass;
use tokio::sync::{Notify, oneshot};

use crate::handover::GivenClients;
use crate::in_flight::Site;
use crate::reason::Reason;
use crate::snapshot::{FrontDoorView, Snapshot};
use crate::stats::FrontDoorStats;

/// Time in which idle connections of a closing door may send a last request. Its response announces
/// the close. Without this time, a request that is on its way would meet a closed connection.
pub(crate) const LAST_REQUEST: Duration = Duration::from_secs(1);

/// A front door on this thread: its newest configuration, and whether it is being closed.
pub(crate) struct Door {
    view: RefCell<Rc<Arc<FrontDoorView>>>,
    /// The last snapshot that it was in, once a newer one has no such door: what its view's indices
    /// are about.
    kept: RefCell<Option<Rc<Arc<Snapshot>>>>,
    pub(crate) closing: Cell<bool>,
    /// A successor has the listening sockets, and accepts what waits in their queues.
    handed_over: Cell<bool>,
    /// End of the time for last requests; `None` while idle connections have their usual time.
    idle_until: Cell<Option<Instant>>,
    /// UDP: tasks that serve a socket, and where they send their clients when a successor takes
    /// over.
    pub(crate) udp_tasks: Cell<usize>,
    pub(crate) giving: RefCell<Vec<oneshot::Sender<GivenClients>>>,
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
            handed_over: Cell::new(false),
            idle_until: Cell::new(None),
            udp_tasks: Cell::new(0),
            giving: RefCell::default(),
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
        self.close(LAST_REQUEST);
    }

    /// Takes nothing new from now on, except a last request of each idle connection for this long.
    pub(crate) fn close(&self, idle: Duration) {
        let until = Instant::now() + idle;
        self.idle_until.set(Some(self.idle_until.get().map_or(until, |set| set.min(until))));
        self.stop_accepting();
    }

    /// Leaves the listening sockets to a successor. Idle connections have their usual time. Returns
    /// where UDP tasks send their clients.
    pub(crate) fn hand_over(&self) -> Vec<oneshot::Receiver<GivenClients>> {
        self.handed_over.set(true);
        let (giving, given) = (0..self.udp_tasks.get()).map(|_| oneshot::channel()).unzip();
        *self.giving.borrow_mut() = giving;
        self.stop_accepting();
        given
    }

    fn stop_accepting(&self) {
        self.closing.set(true);
        self.closed.notify_waiters();
        self.room.notify_waiters();
    }

    /// Whether a successor has the listening sockets.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over.get()
    }

    /// Whether idle connections end.
    pub(crate) fn ends_idle(&self) -> bool {
        self.closing.get() && self.idle_until.get().is_some_and(|until| until <= Instant::now())
    }

    /// Resolves when the door closes.
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

//! The place of a request's next attempt: a backend of this node, a peer, or the queue.

use std::time::{Duration, Instant};

use equipoise_core::load::RequestClass;

use super::attempt::Outgoing;
use super::connection::ClientConnection;
use super::course::Course;
use super::request::RequestHead;
use super::tries::Tries;
use crate::door::Counted;
use crate::lease::Lease;
use crate::queue::{self, Full, Rank};
use crate::reason::Reason;
use crate::worker::Pick;

/// The place of the next attempt.
pub(super) enum Place {
    /// A backend of this node.
    Here(Lease),
    /// A peer.
    Peer(Lease),
    /// The pool has changed while the request waited: pick again.
    Changed,
    /// No backend of this node can.
    Nowhere,
}

impl ClientConnection {
    /// Where a request may be served. A light one is not worth asking peers for their room, and one
    /// with a body that is still arriving cannot come back.
    pub(super) fn course(&self, outgoing: &Outgoing) -> Course {
        match self.may_delegate(&outgoing.head) {
            true => Course::free(
                outgoing.head.class != RequestClass::Light && outgoing.upload.is_done(),
            ),
            false => Course::Bound,
        }
    }

    /// Chooses the place of the next attempt; `dispatched` counts the request there, in node mode.
    pub(super) async fn place(
        &mut self,
        outgoing: &Outgoing,
        begun: Instant,
        tries: &mut Tries,
        dispatched: &mut Option<Counted>,
    ) -> Result<Place, Reason> {
        let head = &outgoing.head;
        if tries.course.is_planned()
            && let Some((counted, peer)) =
                self.worker.dispatch(&self.door, head.class, outgoing.upload.is_done())
        {
            *dispatched = Some(counted);
            if let Some(peer) = peer {
                return Ok(Place::Peer(peer));
            }
        }
        let avoid = tries.failed.map(|(backend, _)| backend);
        let picked = match tries.course.is_last_resort() {
            true => self.worker.pick_open(head.class.into(), &self.door, &self.hashes, avoid),
            false => self.pick(head, avoid),
        };
        match picked {
            Pick::Free(lease) => Ok(Place::Here(lease)),
            Pick::Full(full) => Box::pin(self.find_room(full, head, begun, tries)).await,
            Pick::NoBackend => Ok(Place::Nowhere),
        }
    }

    /// Finds room for a request where no backend here has some: at a peer, or in the queue.
    async fn find_room(
        &mut self,
        full: Full,
        head: &RequestHead,
        begun: Instant,
        tries: &mut Tries,
    ) -> Result<Place, Reason> {
        if head.may_wait == Some(Duration::ZERO) {
            return Err(Reason::NoRoom);
        }
        if tries.course.may_ask()
            && let Some(peer) = self.worker.peer_with_room(&self.door)
        {
            return Ok(Place::Peer(peer));
        }
        // The front door may have another table when the wait is over.
        let own = full.pool().id;
        Ok(match self.wait_in_queue(full, head, begun, tries).await? {
            Some(lease) if lease.pool().id != own => Place::Peer(lease),
            Some(lease) => Place::Here(lease),
            None => Place::Changed,
        })
    }

    /// Picks a backend. A peer's check of this node does not wait for requests.
    pub(super) fn pick(&self, head: &RequestHead, avoid: Option<u32>) -> Pick {
        if head.is_check && self.is_from_peer() {
            return self.worker.pick_for_check(&self.door, &self.hashes, avoid);
        }
        let routed = self.routed.as_ref();
        self.worker.pick_for(head.class.into(), &self.door, routed, &self.hashes, avoid)
    }

    /// Waits for a backend with room. `None`: pick again, the pool has changed.
    async fn wait_in_queue(
        &mut self,
        full: Full,
        head: &RequestHead,
        begun: Instant,
        tries: &mut Tries,
    ) -> Result<Option<Lease>, Reason> {
        let longest = full.longest();
        let longest = head.may_wait.map_or(longest, |most| longest.min(most));
        let (now, left) = (Instant::now(), longest.saturating_sub(tries.queued));
        let due = self.request_end.map_or(now + left, |end| end.min(now + left));
        let rank = Rank::new(self.door.view().config.priority, head.class, begun, due);
        let rank = rank.in_turn(tries.turn).leaving(tries.course.may_ask());
        let avoid = tries.failed.map(|(backend, _)| backend);
        self.arm(now, left);
        let (worker, door, client) = (&self.worker, &self.door, &self.client);
        let waited = queue::wait(worker, door, client, &self.deadline, &full, rank, avoid).await;
        tries.queued += waited.took;
        tries.begun = Instant::now();
        self.log_queued(tries.queued);
        waited.lease.map_err(|reason| match reason {
            Reason::QueueTimeout => self.timed_out(reason),
            reason => reason,
        })
    }
}

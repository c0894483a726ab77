//! Delegation: a request that a peer does in this node's stead.

use std::time::{Duration, Instant};

use equipoise_core::delegation::{EachField, SignedHead, write_question};

use super::attempt::{Attempt, Outgoing};
use super::connection::ClientConnection;
use super::course::Homeless;
use super::exchange::{Reached, Unserved};
use super::head::origin_lines;
use super::request::{Marker, RequestHead};
use super::response::NodeFields;
use super::tries::Tries;
use crate::door::Counted;
use crate::in_flight::Site;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::stats::ClassStats;
use crate::worker::Phase;

impl ClientConnection {
    /// Counts a request where it comes to a door in node mode.
    pub(super) fn count_arrival(&self, head: &RequestHead) {
        self.count_class(head, |class| match head.marker {
            Marker::Believed => class.taken.add(1),
            Marker::None | Marker::Refused => class.arrived.add(1),
        });
        if head.marker == Marker::Refused {
            self.door.stats(|stats| stats.markers_refused.add(1));
        }
    }

    /// Counts a delegated request that goes back to its peer: it was no demand.
    pub(super) fn count_handed_back(&self, head: &RequestHead) {
        self.count_class(head, |class| class.handed_back.add(1));
    }

    /// Fields between nodes in the response to this request, with the most room that it announces.
    pub(super) fn node_fields(&self, head: &RequestHead) -> NodeFields {
        let view = self.door.view();
        match view.dispatch.as_ref().filter(|_| head.marker == Marker::Believed) {
            Some(dispatch) => NodeFields::Room(if dispatch.keeps_nothing { 0 } else { u32::MAX }),
            None if view.config.dispatch.is_some() => NodeFields::Removed,
            None => NodeFields::Passed,
        }
    }

    /// True if a request is admitted. A delegated request was admitted by the delegating node.
    pub(super) fn is_let_in(&self, head: &RequestHead) -> bool {
        let let_in = head.marker == Marker::Believed || self.worker.admits(&self.door, head.class);
        if !let_in {
            self.count_class(head, |class| class.refused.add(1));
        }
        let_in
    }

    /// Counts the bytes of a request that was served here.
    pub(super) fn count_bytes(&self, head: &RequestHead, bytes: u64) {
        self.count_class(head, |class| class.bytes.add(bytes));
    }

    fn count_class(&self, head: &RequestHead, count: impl FnOnce(&ClassStats)) {
        self.door.stats(|stats| count(&stats.classes[head.class as usize]));
    }

    /// Whether a peer may serve the request. An encrypted request of a peer is served here, and so
    /// is a health check: the answer of a peer's application would hide that this node's is dead.
    /// An invalid marker from a peer's address is a peer's with another key: two such nodes would
    /// send a request back and forth.
    pub(super) fn may_delegate(&self, head: &RequestHead) -> bool {
        match head.marker {
            _ if self.peer_identity.is_some() || head.is_check => false,
            Marker::None => true,
            Marker::Believed => false,
            Marker::Refused => self.door.view().dispatch.is_some() && !self.is_where_a_peer_is(),
        }
    }

    /// Whether the connection is a peer's, as far as this node can tell.
    pub(super) fn is_from_peer(&self) -> bool {
        self.peer_identity.is_some() || self.is_where_a_peer_is()
    }

    fn is_where_a_peer_is(&self) -> bool {
        self.door.view().is_of_peer(self.peer.ip())
    }

    /// Has a peer do a request for which there is no room here, and which is counted where it is
    /// done. As [`Self::try_peer`].
    pub(super) async fn leave(
        &mut self,
        peer: Lease,
        outgoing: &mut Outgoing,
        tries: &mut Tries,
        mut counted: Option<&mut Counted>,
    ) -> Result<Option<Reached>, Reason> {
        if let Some(counted) = &mut counted {
            counted.moves(Site::There);
        }
        let reached = self.try_peer(peer, outgoing, tries).await?;
        if let (None, Some(counted)) = (&reached, counted) {
            // The peer failed or had no room.
            counted.moves(Site::Here);
        }
        Ok(reached)
    }

    /// Has a peer serve the request. `None`: the peer failed or had no room, nothing was sent to
    /// the client, and this node must serve the request.
    ///
    /// # Errors
    /// The reason why it can be done nowhere any more.
    pub(super) async fn try_peer(
        &mut self,
        peer: Lease,
        outgoing: &mut Outgoing,
        tries: &mut Tries,
    ) -> Result<Option<Reached>, Reason> {
        let result = self.ask_peer(peer, outgoing, tries).await;
        // The peer's permit is free, and its response may have announced more.
        self.worker.look_for_room(&self.door);
        result
    }

    async fn ask_peer(
        &mut self,
        peer: Lease,
        outgoing: &mut Outgoing,
        tries: &mut Tries,
    ) -> Result<Option<Reached>, Reason> {
        tries.course.asks();
        let asked = Instant::now();
        // A request that this node cannot do itself waits at the peer, and one that is still coming
        // cannot come back.
        let waits = !outgoing.upload.is_done() || tries.course.is_last_resort();
        let may_wait = if waits { self.wait_left(tries) } else { Duration::ZERO };
        if !self.mark(&peer, may_wait, outgoing) {
            return Ok(None);
        }
        peer.stats().requests.add(1);
        self.count_class(&outgoing.head, |class| class.given.add(1));
        self.log_backend(&peer);
        self.trace_attempt(&peer, outgoing);
        let attempt = self.alone(&peer, tries, outgoing).await;
        self.trace_outcome(&attempt);
        let failure = match attempt {
            Attempt::Answered(answered) => {
                self.count_class(&outgoing.head, |class| class.delegated.add(1));
                return Ok(Some(self.concluded(&peer, answered)));
            }
            Attempt::Failed(failure) => failure,
            // No response of a peer is discarded.
            Attempt::Discarded => return Ok(None),
        };
        if failure.reason == Reason::NoRoom {
            outgoing.first.drain(std::mem::take(&mut outgoing.marker));
            self.count_class(&outgoing.head, |class| class.given.sub(1));
            tries.queued += asked.elapsed();
            tries.begun = Instant::now();
            return Ok(None);
        }
        tries.course.peer_failed();
        // A pooled session that the peer has closed is no failure of the peer.
        if !failure.stale {
            self.worker.backend_failed(&peer, failure.reason);
        }
        if !failure.may_retry || self.worker.phase.get() == Phase::Cutting {
            self.count_class(&outgoing.head, |class| class.delegated.add(1));
            return Err(failure.reason);
        }
        outgoing.first.drain(std::mem::take(&mut outgoing.marker));
        self.count_class(&outgoing.head, |class| class.given.sub(1));
        self.door.stats(|stats| stats.returned.add(1));
        self.retried();
        tries.begun = Instant::now();
        Ok(None)
    }

    /// The last resort of a request that this node cannot serve: any peers, unless one was tried,
    /// and then this node's unhealthy backends. `None`: these may be picked now. A request from a
    /// peer is handed back, and the peer may have it served elsewhere.
    ///
    /// # Errors
    /// As [`Self::try_peer`], and if no place is left.
    pub(super) async fn without_backend(
        &mut self,
        outgoing: &mut Outgoing,
        tries: &mut Tries,
    ) -> Result<Option<Reached>, Unserved> {
        let why = tries.failed.map_or(Reason::NoBackend, |(_, reason)| reason);
        let asks = match tries.course.without_backend() {
            Homeless::HandBack => return Err(Unserved::HandedBack(why)),
            Homeless::Nowhere => return Err(why.into()),
            Homeless::Ask(asks) => asks,
        };
        let mut asked = None;
        for _ in 0..asks {
            let Some(peer) = self.worker.any_peer(&self.door, &self.hashes, asked) else { break };
            asked = Some(peer.backend().id);
            if tries.failed.is_some() {
                self.retried();
                tries.begun = Instant::now();
            }
            if let Some(reached) = self.try_peer(peer, outgoing, tries).await? {
                return Ok(Some(reached));
            }
        }
        // An empty answer is no better, and checks may be wrong.
        if !self.worker.may_fail_open(&self.door) {
            return Err(why.into());
        }
        self.door.stats(|stats| stats.failed_open.add(1));
        Ok(None)
    }

    /// How long a request may still wait for room, within the bound on the whole of it.
    fn wait_left(&self, tries: &Tries) -> Duration {
        let left = self.worker.queue_wait(&self.door).saturating_sub(tries.queued);
        let end = self.request_end.map(|end| end.saturating_duration_since(Instant::now()));
        end.map_or(left, |end| left.min(end))
    }

    /// Inserts the marker for this peer after the first two lines, and how long the request may
    /// wait there. The marker signs the lines and the origin; false without a key.
    fn mark(&self, peer: &Lease, may_wait: Duration, outgoing: &mut Outgoing) -> bool {
        let view = self.door.view();
        let Some(node) = &view.config.dispatch else { return false };
        let mut lines = memchr::memchr_iter(b'\n', &outgoing.first);
        let Some(end) = lines.nth(1).map(|newline| newline + 1) else { return false };
        let mut line = self.worker.take_vec();
        let origin = |each: EachField<'_>| {
            origin_lines(&outgoing.first).for_each(|(field, value)| each(field, value));
        };
        let head = SignedHead { lines: &outgoing.first[..end], origin: &origin };
        let marked = node.delegation.sign(&head, &peer.backend().name, &mut line);
        if marked {
            write_question(may_wait, &mut line);
            outgoing.marker = end..end + line.len();
            outgoing.first.splice(end..end, line.iter().copied());
        }
        self.worker.give_vec(line);
        marked
    }
}

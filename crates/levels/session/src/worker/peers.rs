//! Picks of peers, in node mode.

use std::sync::Arc;
use std::time::Instant;

use equipoise_core::load::{Choice, RequestClass, Underway};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{ClientHashes, Pick, Worker};
use crate::door::{Counted, Door};
use crate::in_flight::Site;
use crate::lease::{Lease, PoolLoads};
use crate::snapshot::{DispatchView, FrontDoorView, Snapshot};
use crate::why::{DispatchStep, Explainer, TRIALS};

impl Worker {
    /// Whether the instructions let a client's request of this class in.
    pub(crate) fn admits(&self, door: &Door, class: RequestClass) -> bool {
        let view = door.view();
        let Some(dispatch) = &view.dispatch else { return true };
        dispatch.table.admits(class, &mut *self.rng.borrow_mut())
    }

    /// The peer that serves a client's request of this class, if it is a peer. Counted from now on,
    /// at a door in node mode. `is_whole`: the request has no body that still arrives.
    #[inline]
    pub(crate) fn dispatch(
        &self,
        door: &Door,
        class: RequestClass,
        is_whole: bool,
    ) -> Option<(Counted, Option<Lease>)> {
        let view = door.view();
        let dispatch = view.dispatch.as_ref()?;
        let peer = if dispatch.table.keep(class) < 1.0 {
            self.delegate(door, &view, dispatch, class, is_whole)
        } else {
            None
        };
        let site = if peer.is_some() { Site::There } else { Site::Here };
        Some((Counted::new(view, class, site), peer))
    }

    /// The peer that the instructions choose for a request of this class, if any.
    fn delegate(
        &self,
        door: &Door,
        view: &FrontDoorView,
        dispatch: &DispatchView,
        class: RequestClass,
        is_whole: bool,
    ) -> Option<Lease> {
        let kept = door.kept();
        // The table is of the slots that the pool had when the door closed, if it did.
        let of_table = kept.clone().unwrap_or_else(|| self.snapshot());
        let rng = &mut *self.rng.borrow_mut();
        let slot = chosen_peer(&of_table, view, dispatch, class, self.shared.epoch, rng)?;
        let (snapshot, at) = self.place_of(door, dispatch.peers);
        let slot = if kept.is_none() {
            slot
        } else {
            let id = of_table.pools.get(dispatch.peers)?.backends.get(slot)?.id;
            snapshot.pools.get(at)?.backends.iter().position(|backend| backend.id == id)?
        };
        Lease::of_peer(&snapshot, at, slot, self.index, is_whole)
    }

    /// A peer that is known to have room, of several the one with most; or one that may be asked
    /// whether it has some.
    pub(crate) fn peer_with_room(&self, door: &Door) -> Option<Lease> {
        let (snapshot, at) = self.place_of(door, door.view().peers()?);
        let slots = 0..snapshot.pools.get(at)?.backends.len();
        let free = |slot: &usize| snapshot.pools[at].backends[*slot].live.permits.free();
        let most = slots.clone().max_by_key(free).filter(|slot| free(slot) > Some(0));
        let with_room = most.and_then(|slot| Lease::acquire(&snapshot, at, slot, self.index));
        let mut may_ask = slots.filter(|slot| free(slot).is_none_or(|free| free == 0));
        with_room
            .or_else(|| may_ask.find_map(|slot| Lease::asking(&snapshot, at, slot, self.index)))
    }

    /// Hands requests that wait for the door's pool to peers, after a request ended at one.
    pub(crate) fn look_for_room(&self, door: &Door) {
        let (snapshot, pool) = self.place_of(door, door.view().pool);
        if let Some(pool) = snapshot.pools.get(pool) {
            pool.queue.look();
        }
    }

    /// Any peer of the door's but this one, whatever room it has, where no backend here can do a
    /// request.
    pub(crate) fn any_peer(
        &self,
        door: &Door,
        client: &ClientHashes,
        but: Option<u32>,
    ) -> Option<Lease> {
        let peers = door.view().dispatch.as_ref()?.peers;
        match self.pick_of(self.place_of(door, peers), client, but, None, false) {
            Pick::Free(lease) => Some(lease).filter(|lease| Some(lease.backend().id) != but),
            Pick::Full(_) | Pick::NoBackend => None,
        }
    }
}

/// The peer that the instructions choose for a request of this class, by its slot in the pool of
/// peers of `snapshot`; `None`: this node serves it.
fn chosen_peer(
    snapshot: &Snapshot,
    view: &FrontDoorView,
    dispatch: &DispatchView,
    class: RequestClass,
    epoch: Instant,
    rng: &mut dyn Rng,
) -> Option<usize> {
    let pool = |at: usize| snapshot.pools.get(at);
    let peers = pool(dispatch.peers).filter(|it| dispatch.table.peers() <= it.backends.len())?;
    let application = PoolLoads::new(pool(view.pool)?, epoch);
    let underway = Underway {
        here: view.in_flight.here(class),
        here_failures: application.recent_failures_of_all(),
        there: view.in_flight.there(class),
        peers: &PoolLoads::new(peers, epoch),
    };
    match dispatch.table.choose(class, &underway, rng) {
        Choice::Here => None,
        Choice::Peer(slot) => Some(slot),
    }
}

/// The shares of this node and of peers in requests of a class; `None`: the front door is not in
/// node mode.
pub(crate) fn explain_dispatch(
    explainer: &Explainer,
    snapshot: &Snapshot,
    view: &FrontDoorView,
    class: RequestClass,
) -> Option<DispatchStep> {
    let dispatch = view.dispatch.as_ref()?;
    let peers = snapshot.pools.get(dispatch.peers)?;
    let mut rng = SmallRng::from_rng(&mut rand::rng());
    let mut chosen = vec![0u32; peers.backends.len()];
    for _ in 0..TRIALS {
        let peer = chosen_peer(snapshot, view, dispatch, class, explainer.epoch, &mut rng);
        if let Some(count) = peer.and_then(|slot| chosen.get_mut(slot)) {
            *count += 1;
        }
    }
    let share = |count: &u32| f64::from(*count) / f64::from(TRIALS);
    let named = peers.backends.iter().map(|peer| Arc::clone(&peer.name));
    let of_peers: Vec<_> = named.zip(chosen.iter().map(share)).collect();
    Some(DispatchStep {
        class,
        refuse: dispatch.table.refuse(class),
        keep: dispatch.table.keep(class),
        here: 1.0 - share(&chosen.iter().sum()),
        peers: of_peers,
    })
}

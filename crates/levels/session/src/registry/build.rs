use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use equipoise_core::hash::identity;
use equipoise_core::scheduler::prepare;
use equipoise_core::{Candidate, SchedulerKind};

use super::inventory::{BackendEntry, FrontDoorEntry, Inventory, PoolEntry};
use crate::config::{PassiveHealth, Place, PoolOptions, ips};
use crate::{BackendView, DispatchView, FrontDoorView, PoolView, Snapshot};

/// The last snapshot that was published, and what its pools were made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<Snapshot>,
    made_of: HashMap<u32, Ingredients>,
}

/// All that a [`PoolView`] depends on; equal ingredients make equal views.
#[derive(Clone, Debug, PartialEq)]
struct Ingredients {
    name: Arc<str>,
    scheduler: SchedulerKind,
    options: PoolOptions,
    passive: PassiveHealth,
    awaits_backend: bool,
    fails_open: bool,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, PartialEq)]
struct Slot {
    id: u32,
    name: Arc<str>,
    address: SocketAddr,
    place: Place,
    weight: u32,
}

/// The snapshot of the inventory at `now`; `None` if it is equal to the last one.
///
/// Views that would not differ are taken over from the last snapshot, the very same `Arc`, so that
/// threads keep the schedulers that they made from them.
pub(crate) fn build(
    inventory: &Inventory,
    last: &Published,
    scheduler_seed: u64,
    now: Instant,
) -> Option<Published> {
    let mut next = Published::default();
    let views: HashMap<u32, _> = last.snapshot.pools.iter().map(|view| (view.id, view)).collect();
    let doors: HashMap<u32, _> =
        last.snapshot.front_doors.iter().map(|view| (view.id, view)).collect();
    let fail_open = inventory.fail_open();
    let mut pools = Vec::with_capacity(inventory.pools.len());
    for (at, pool) in inventory.pools.iter().enumerate() {
        let ingredients = ingredients(pool, fail_open.contains(&at), now);
        let before = views.get(&pool.id).copied();
        pools.push(match before {
            Some(view) if last.made_of.get(&pool.id) == Some(&ingredients) => Arc::clone(view),
            before => Arc::new(pool_view(pool, &ingredients, before, scheduler_seed)),
        });
        next.made_of.insert(pool.id, ingredients);
    }
    let door = |entry: &FrontDoorEntry| {
        front_door_view(entry, inventory, &next.made_of, doors.get(&entry.id).copied())
    };
    let front_doors: Vec<_> = inventory.front_doors.iter().map(door).collect();
    let same = same_arcs(&pools, &last.snapshot.pools)
        && same_arcs(&front_doors, &last.snapshot.front_doors);
    if same {
        return None;
    }
    let generation = last.snapshot.generation.next();
    next.snapshot = Arc::new(Snapshot { generation, pools, front_doors });
    Some(next)
}

fn same_arcs<T>(some: &[Arc<T>], others: &[Arc<T>]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The backends of the pool's view, in order.
fn given(pool: &PoolEntry, fails_open: bool) -> Vec<&BackendEntry> {
    if fails_open { pool.last_resort().collect() } else { pool.picked().collect() }
}

fn ingredients(pool: &PoolEntry, may_fail_open: bool, now: Instant) -> Ingredients {
    let fails_open = may_fail_open && pool.last_resort().next().is_some();
    let slots = given(pool, fails_open).into_iter().map(|b| Slot {
        id: b.id,
        name: b.config.name.clone(),
        address: b.config.address,
        place: b.config.place.clone(),
        weight: u32::from(b.weight().get()) * pool.ramp_permille(b, now),
    });
    Ingredients {
        name: pool.settings.name.clone(),
        scheduler: pool.settings.scheduler,
        options: pool.settings.options.clone(),
        passive: pool.settings.passive.clone(),
        awaits_backend: pool.awaits_backend(),
        fails_open,
        slots: slots.collect(),
    }
}

fn pool_view(
    pool: &PoolEntry,
    made_of: &Ingredients,
    before: Option<&Arc<PoolView>>,
    scheduler_seed: u64,
) -> PoolView {
    let backends = given(pool, made_of.fails_open).into_iter().map(|b| BackendView {
        id: b.id,
        name: b.config.name.clone(),
        address: b.config.address,
        place: b.config.place.clone(),
        live: Arc::clone(&b.live),
    });
    PoolView {
        id: pool.id,
        name: made_of.name.clone(),
        generation: before.map(|view| view.generation).unwrap_or_default().next(),
        scheduler: prepare(made_of.scheduler, &candidates(&made_of.slots), scheduler_seed),
        needs_response_time: made_of.scheduler.reads_response_time(),
        awaits_backend: made_of.awaits_backend,
        fails_open: made_of.fails_open,
        backends: backends.collect(),
        queue: Arc::clone(&pool.queue),
        retry_budget: Arc::clone(&pool.retry_budget),
        options: made_of.options.clone(),
        passive: made_of.passive.clone(),
    }
}

fn candidates(slots: &[Slot]) -> Vec<Candidate> {
    let candidate = |s: &Slot| Candidate { identity: identity(s.address), weight: s.weight };
    slots.iter().map(candidate).collect()
}

fn front_door_view(
    entry: &FrontDoorEntry,
    inventory: &Inventory,
    made_of: &HashMap<u32, Ingredients>,
    before: Option<&Arc<FrontDoorView>>,
) -> Arc<FrontDoorView> {
    let dispatch = dispatch_view(entry, inventory, made_of);
    let same = |view: &&Arc<FrontDoorView>| {
        view.pool == entry.pool
            && view.sni == entry.sni
            && view.routes == entry.routes
            && view.dispatch == dispatch
            && view.config == entry.config
    };
    match before.filter(same) {
        Some(view) => Arc::clone(view),
        None => Arc::new(FrontDoorView {
            id: entry.id,
            config: entry.config.clone(),
            pool: entry.pool,
            sni: Arc::clone(&entry.sni),
            routes: Arc::clone(&entry.routes),
            dispatch,
            limiter: Arc::clone(&entry.limiter),
            in_flight: Arc::clone(&entry.in_flight),
            stats: Arc::clone(&entry.stats),
        }),
    }
}

/// The dispatch table of a front door, over the slots of the pool view of the same snapshot.
fn dispatch_view(
    entry: &FrontDoorEntry,
    inventory: &Inventory,
    made_of: &HashMap<u32, Ingredients>,
) -> Option<DispatchView> {
    let (node, peers) = (entry.config.dispatch.as_ref()?, entry.peers?);
    let pool = inventory.pools.get(peers)?;
    let slots = &made_of.get(&pool.id)?.slots;
    let weights: Vec<_> = slots.iter().map(|slot| (&*slot.name, slot.weight)).collect();
    let table = node.delegation.table(entry.shares.as_deref(), &weights);
    let places = |backend: &'_ BackendEntry| -> Vec<_> {
        ips(&backend.config.place, &backend.config.address).collect()
    };
    Some(DispatchView {
        peers,
        table,
        keeps_nothing: entry.shares.as_ref().is_some_and(|shares| shares.keeps_nothing()),
        places: pool.backends.iter().flat_map(places).collect(),
    })
}

#[cfg(test)]
mod tests;

//! The backends of a pool: which of them serve a request, and why the others do not.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::affinity::HashBy;
use crate::lease::PoolLoads;
use crate::permits::Work;
use crate::snapshot::{BackendView, FrontDoorView, PoolView, Readiness, Snapshot};
use crate::why::{
    AffinityStep, BackendStep, DecisionStep, Explainer, Goes, PoolStep, Question, QueueStep, TRIALS,
};
use crate::worker::ClientHashes;

/// The backends that a request may get.
struct Picks {
    /// By slot, of all trials.
    shares: Vec<f64>,
    /// By slot, after the only backend of `shares` has failed.
    of_retries: Option<Vec<f64>>,
}

/// Adds the decisions about one of the pools of a request.
pub(super) fn explain_pool(
    explainer: &Explainer,
    snapshot: &Snapshot,
    door: &FrontDoorView,
    question: &Question,
    goes: &Goes,
    (at, share): (usize, f64),
    steps: &mut Vec<DecisionStep>,
) {
    let Some(view) = snapshot.pools.get(at) else { return };
    steps.push(DecisionStep::Pool(PoolStep {
        name: Arc::clone(&view.name),
        share,
        by: goes.by.clone(),
        fails_open: view.fails_open,
    }));
    let mut hashes = ClientHashes::new(question.client(), door.config.listen);
    hashes.read(Some(&view.options), &goes.head);
    if !goes.head.is_empty() {
        affinity(view, goes, &hashes, steps);
    }
    let readiness = view.readiness(true, false);
    let picks = match readiness {
        Readiness::Ready => Some(picks(explainer, view, door, question, goes, &hashes)),
        Readiness::Waits | Readiness::NoBackend => None,
    };
    let found = picks.as_ref().map_or(0.0, |picks| picks.shares.iter().sum());
    backends(view, goes.work, picks.as_ref(), steps);
    match readiness {
        Readiness::NoBackend => steps.push(DecisionStep::NoBackend),
        _ if has_limit(view) || readiness == Readiness::Waits => {
            let options = &view.options;
            let longest = options.start_wait.filter(|_| view.backends.is_empty());
            steps.push(DecisionStep::Queue(QueueStep {
                waits: found == 0.0,
                waiting: view.queue.len(),
                length: options.queue.length,
                wait: longest.unwrap_or(options.queue.wait),
                awaits_backend: view.backends.is_empty(),
            }));
        }
        _ => {}
    }
}

fn has_limit(view: &PoolView) -> bool {
    view.backends.iter().any(|backend| backend.live.limit().is_some())
}

fn affinity(view: &PoolView, goes: &Goes, hashes: &ClientHashes, steps: &mut Vec<DecisionStep>) {
    if let Some(cookie) = &view.options.sticky {
        let name = Arc::clone(&cookie.name);
        steps.push(DecisionStep::Affinity(match hashes.sticky {
            None => AffinityStep::NoCookie(name),
            Some(_) => {
                let backend = view.sticky_slot(hashes.sticky).map(|slot| &view.backends[slot]);
                AffinityStep::Cookie {
                    cookie: name,
                    backend: backend.map(|backend| Arc::clone(&backend.name)),
                    has_room: backend.is_some_and(|it| !it.live.permits.is_full_for(goes.work)),
                }
            }
        }));
    }
    if view.options.hash_by != HashBy::Source {
        let (by, is_found) = (view.options.hash_by.clone(), hashes.key.is_some());
        steps.push(DecisionStep::Affinity(AffinityStep::Hash { by, is_found }));
    }
}

/// The backends that trial picks get.
fn picks(
    explainer: &Explainer,
    view: &PoolView,
    door: &FrontDoorView,
    question: &Question,
    goes: &Goes,
    hashes: &ClientHashes,
) -> Picks {
    let by_cookie = view.sticky_slot(hashes.sticky);
    let by_cookie =
        by_cookie.filter(|slot| !view.backends[*slot].live.permits.is_full_for(goes.work));
    let trial = |avoid: Option<usize>| {
        let mut rng = SmallRng::from_rng(&mut rand::rng());
        let mut scheduler = view.scheduler.instance(&mut rng);
        let mut picked = vec![0u32; view.backends.len()];
        let trials = match view.backends.len() {
            0..=100 => TRIALS,
            _ => TRIALS / 10,
        };
        for _ in 0..trials {
            let loads = PoolLoads::new(view, explainer.epoch).of(Some(goes.work));
            let client = match question.client_port {
                Some(_) => *hashes,
                None => {
                    let mut client = question.client();
                    client.set_port(rng.random());
                    let mut client = ClientHashes::new(client, door.config.listen);
                    client.key = hashes.key;
                    client
                }
            };
            if let Some(slot) = scheduler.pick(&mut client.ask(avoid, &loads, &mut rng)) {
                picked[slot] += 1;
            }
        }
        picked.into_iter().map(|picked| f64::from(picked) / f64::from(trials)).collect::<Vec<_>>()
    };
    let shares = match by_cookie {
        Some(slot) => (0..view.backends.len()).map(|at| f64::from(u8::from(at == slot))).collect(),
        None => trial(None),
    };
    let only = shares.iter().position(|share| *share == 1.0);
    let only = only.filter(|_| view.options.retries > 0 && view.backends.len() > 1);
    Picks { of_retries: only.map(|slot| trial(Some(slot))), shares }
}

/// Adds the backends, those with the largest shares first.
fn backends(view: &PoolView, work: Work, picks: Option<&Picks>, steps: &mut Vec<DecisionStep>) {
    let step = |(slot, backend): (usize, &BackendView)| {
        let of_retries = picks.and_then(|picks| picks.of_retries.as_ref());
        BackendStep {
            name: Arc::clone(&backend.name),
            address: backend.address,
            share: picks.map_or(0.0, |picks| picks.shares[slot]),
            share_of_retries: of_retries.map(|shares| shares[slot]),
            is_full: backend.live.permits.is_full_for(work),
        }
    };
    let mut all: Vec<_> = view.backends.iter().enumerate().map(step).collect();
    all.sort_by(|a, b| {
        let later = |it: &BackendStep| it.share_of_retries.unwrap_or(0.0);
        b.share.total_cmp(&a.share).then(later(b).total_cmp(&later(a)))
    });
    steps.extend(all.into_iter().map(DecisionStep::Backend));
}

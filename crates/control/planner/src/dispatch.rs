//! The shares that overloaded nodes keep, and the nodes that take the rest.

use equipoise_core::load::OverloadRule;

use crate::policy::DispatchPolicy;

/// A node as delegation sees it. Loads are L2 in per cent of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) capacity: f64,
    /// Load that stays when requests leave: memory.
    pub(crate) fixed: f64,
    /// Load that its clients cause beyond that, wherever it is served.
    pub(crate) movable: f64,
    /// Load that neither its own requests nor those of peers explain.
    pub(crate) unexplained: f64,
    /// Part of what it may take that it should get, 0..=1; 0: it takes nothing.
    pub(crate) presence: f64,
    /// It gives as much as it can, because an operator drains it and stale caches still send it
    /// clients.
    pub(crate) drains: bool,
    /// Requests wait for a permit of its application.
    pub(crate) queues: bool,
    pub(crate) was_overloaded: bool,
    pub(crate) had_kept: f64,
    /// Its part of what was given in the last plan.
    pub(crate) had_weight: f64,
}

/// The plan of delegation, in the order of the peers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Delegation {
    pub(crate) is_overloaded: Vec<bool>,
    pub(crate) keep: Vec<f64>,
    /// Sum to 1, or are all zero.
    pub(crate) weights: Vec<f64>,
    /// The load at which sources and targets meet.
    pub(crate) level: Option<f64>,
}

impl Peer {
    fn offered(&self) -> f64 {
        self.fixed + self.movable
    }

    /// Load that must leave for the node to reach `level`, in per cent of the node.
    fn excess(&self, level: f64, keep_min: f64) -> f64 {
        if self.drains {
            return self.movable;
        }
        (self.offered() - level).clamp(0.0, self.movable * (1.0 - keep_min))
    }

    /// True if it can serve all its own requests by the end of the period. Otherwise it would
    /// receive the requests that it delegates.
    fn may_take(&self, policy: &DispatchPolicy) -> bool {
        !self.drains && !self.queues && self.had_kept + policy.step_max >= 1.0
    }

    /// The part of its last weight that it may keep while no node has room.
    fn held(&self, policy: &DispatchPolicy) -> f64 {
        if self.presence > 0.0 && self.may_take(policy) { self.had_weight } else { 0.0 }
    }

    /// Load that it can take until it reaches `level`, in units of capacity. Based on its clients'
    /// demand, so that work which it already took does not count against it, even if that fills it;
    /// work that its requests do not explain does.
    fn room(&self, level: f64) -> f64 {
        self.capacity * self.presence * (level - self.offered() - self.unexplained).max(0.0)
    }
}

/// Plans delegation: overloaded nodes give so much that they and the nodes below meet at one level.
///
/// The level is found like that of water between connected vessels: the load of sources above it is
/// the room of targets below it. 90/30/30/30 gives a level of 45 and a keep of one half. Because
/// loads are those that clients cause and not those that result, the plan does not react to itself.
///
/// # Source
/// TLLB's level 2: overloaded is `L2/L2_min > rho`; an overloaded node delegates by weighted random
/// choice. Deviates: a node whose requests wait for a permit is overloaded whatever its load, and
/// takes nothing. TLLB leaves the share open, and Onedata took weights of 1/L for all nodes,
/// including the node itself, which keeps a tenth at 90/30/30/30. Memory does not leave with a
/// request. The kept share moves in bounded steps, also while some nodes are overloaded and for a
/// period no node seems to have room: the former targets take requests until every node keeps all.
pub(crate) fn delegate(policy: &DispatchPolicy, rule: &OverloadRule, peers: &[Peer]) -> Delegation {
    let able = peers.iter().filter(|one| one.presence > 0.0);
    let lowest = able.map(Peer::offered).fold(f64::INFINITY, f64::min);
    let judge =
        |one: &Peer| lowest.is_finite() && rule.judge(one.was_overloaded, one.offered(), lowest);
    let judge = |one: &Peer| one.queues || judge(one);
    let is_overloaded: Vec<bool> = peers.iter().map(judge).collect();
    let level = level(policy, peers, &is_overloaded);
    let room = |one: &Peer| match level {
        Some(level) if one.may_take(policy) => one.room(level),
        _ => 0.0,
    };
    let mut weights: Vec<f64> = peers.iter().map(room).collect();
    let has_room = weights.iter().any(|weight| *weight > 0.0);
    if !has_room && level.is_some() {
        weights = peers.iter().map(|one| one.held(policy)).collect();
    }
    let total: f64 = weights.iter().sum();
    let keep = |(one, over): (&Peer, &bool)| {
        let gives = *over || one.drains;
        let target = match level {
            Some(level) if has_room && gives && one.movable > 0.0 => {
                1.0 - one.excess(level, policy.keep_min) / one.movable
            }
            _ if !has_room && !gives => return 1.0,
            _ => 1.0,
        };
        target.clamp(one.had_kept - policy.step_max, one.had_kept + policy.step_max).clamp(0.0, 1.0)
    };
    let keep: Vec<f64> = peers.iter().zip(&is_overloaded).map(keep).collect();
    if total <= 0.0 || !has_room && keep.iter().all(|keep| *keep >= 1.0) {
        let (keep, weights) = (vec![1.0; peers.len()], vec![0.0; peers.len()]);
        return Delegation { keep, weights, level: None, is_overloaded };
    }
    weights.iter_mut().for_each(|weight| *weight /= total);
    Delegation { keep, weights, level, is_overloaded }
}

/// The load at which sources and targets meet; `None` without sources.
///
/// An overloaded node below the level is a target: beside an idle node many nodes are overloaded,
/// and not all should delegate.
fn level(policy: &DispatchPolicy, peers: &[Peer], is_overloaded: &[bool]) -> Option<f64> {
    let gives = |(one, over): &(&Peer, &bool)| **over || one.drains;
    let givers: Vec<&Peer> =
        peers.iter().zip(is_overloaded).filter(gives).map(|(one, _)| one).collect();
    if givers.is_empty() {
        return None;
    }
    let takers: Vec<&Peer> = peers.iter().filter(|one| one.may_take(policy)).collect();
    let poured = |level| -> f64 {
        givers.iter().map(|one| one.capacity * one.excess(level, policy.keep_min)).sum()
    };
    let room = |level| -> f64 { takers.iter().map(|one| one.room(level)).sum() };
    let highest = peers.iter().map(Peer::offered).fold(100.0, f64::max);
    Some(crossing(highest, |level| poured(level) - room(level)))
}

/// Number of bisections of the interval that contains the level.
const HALVINGS: u32 = 50;

/// The zero of a decreasing function within `0..=highest`.
fn crossing(highest: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if of(middle) > 0.0 { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(load: f64) -> Peer {
        Peer {
            capacity: 1.0,
            fixed: 0.0,
            movable: load,
            unexplained: 0.0,
            presence: 1.0,
            drains: false,
            queues: false,
            was_overloaded: false,
            had_kept: 1.0,
            had_weight: 0.0,
        }
    }

    fn at_once() -> DispatchPolicy {
        DispatchPolicy { step_max: 1.0, ..DispatchPolicy::default() }
    }

    fn delegated(peers: &[Peer]) -> Delegation {
        delegate(&at_once(), &OverloadRule::default(), peers)
    }

    fn near(found: &[f64], expected: &[f64]) {
        let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
        assert!(found.iter().zip(expected).all(close), "{found:?} is not {expected:?}");
    }

    #[test]
    fn at_90_30_30_30_half_is_kept_and_not_a_tenth() {
        let plan = delegated(&[90.0, 30.0, 30.0, 30.0].map(peer));
        near(&plan.keep, &[0.5, 1.0, 1.0, 1.0]);
        near(&plan.weights, &[0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
        near(&[plan.level.unwrap()], &[45.0]);
    }

    #[test]
    fn a_node_that_is_not_overloaded_does_everything_itself() {
        let plan = delegated(&[49.0, 40.0, 45.0].map(peer));
        near(&plan.keep, &[1.0; 3]);
        assert_eq!((plan.level, plan.weights), (None, vec![0.0; 3]));
    }

    #[test]
    fn only_the_busiest_node_delegates_and_all_others_take() {
        let plan = delegated(&[90.0, 30.0, 30.0, 10.0].map(peer));
        near(&plan.keep, &[40.0 / 90.0, 1.0, 1.0, 1.0]);
        near(&plan.weights, &[0.0, 0.2, 0.2, 0.6]);
    }

    #[test]
    fn no_node_delegates_if_all_are_full() {
        near(&delegated(&[99.0, 95.0, 97.0].map(peer)).keep, &[1.0; 3]);
    }

    #[test]
    fn larger_nodes_take_more_of_the_same_headroom() {
        let large = Peer { capacity: 3.0, ..peer(30.0) };
        let plan = delegated(&[peer(90.0), large, peer(30.0)]);
        near(&plan.weights, &[0.0, 0.75, 0.25]);
        near(&[plan.level.unwrap()], &[42.0]);
    }

    #[test]
    fn fixed_load_is_not_relieved_by_delegating_requests() {
        let tight = Peer { fixed: 40.0, movable: 50.0, ..peer(90.0) };
        let plan = delegated(&[tight, peer(30.0), peer(30.0), peer(30.0)]);
        near(&plan.keep[..1], &[0.1]);
    }

    #[test]
    fn the_keep_share_changes_in_bounded_steps_both_ways() {
        let policy = DispatchPolicy { step_max: 0.25, ..at_once() };
        let rule = OverloadRule::default();
        let keep = |peers: &[Peer]| delegate(&policy, &rule, peers).keep[0];
        assert_eq!(keep(&[90.0, 30.0].map(peer)), 0.75);
        let was = Peer { had_kept: 0.5, was_overloaded: true, ..peer(40.0) };
        assert_eq!(keep(&[was, Peer { was_overloaded: true, ..peer(90.0) }, peer(40.0)]), 0.75);
    }

    #[test]
    fn a_node_with_unexplained_load_takes_less() {
        let plan = delegated(&[peer(90.0), peer(30.0), Peer { unexplained: 20.0, ..peer(30.0) }]);
        assert!(plan.weights[2] < 0.3 * plan.weights[1], "{plan:?}");
    }

    #[test]
    fn an_absent_node_takes_nothing_and_a_joining_node_little() {
        let out = Peer { presence: 0.0, ..peer(0.0) };
        let joiner = Peer { presence: 0.1, ..peer(30.0) };
        let plan = delegated(&[peer(90.0), out, joiner, peer(30.0)]);
        near(&plan.weights, &[0.0, 0.0, 1.0 / 11.0, 10.0 / 11.0]);
    }

    #[test]
    fn a_drained_node_delegates_all_its_requests() {
        let drained = Peer { drains: true, presence: 0.0, ..peer(30.0) };
        let plan = delegated(&[drained, peer(30.0), peer(30.0)]);
        near(&plan.keep, &[0.0, 1.0, 1.0]);
        near(&plan.weights, &[0.0, 0.5, 0.5]);
    }

    #[test]
    fn a_node_that_still_delegates_takes_nothing() {
        let policy = DispatchPolicy { step_max: 0.25, ..at_once() };
        let back = Peer { had_kept: 0.2, was_overloaded: true, ..peer(10.0) };
        let plan = delegate(&policy, &OverloadRule::default(), &[back, peer(90.0), peer(30.0)]);
        near(&plan.weights, &[0.0, 0.0, 1.0]);
        near(&plan.keep[..1], &[0.45]);
    }

    #[test]
    fn delegation_is_withdrawn_in_steps_when_no_taker_has_room() {
        let policy = DispatchPolicy { step_max: 0.25, ..at_once() };
        let giver = Peer { had_kept: 0.5, was_overloaded: true, ..peer(180.0) };
        let full = Peer { unexplained: 200.0, ..peer(3.0) };
        let [most, least] = [0.75, 0.25].map(|had_weight| Peer { had_weight, ..full });
        let gone = Peer { had_weight: 0.5, presence: 0.0, ..peer(0.0) };
        let plan = delegate(&policy, &OverloadRule::default(), &[giver, most, least, gone]);
        near(&plan.keep, &[0.75, 1.0, 1.0, 1.0]);
        near(&plan.weights, &[0.0, 0.75, 0.25, 0.0]);
        let back = Peer { had_kept: 0.75, ..giver };
        let plan = delegate(&policy, &OverloadRule::default(), &[back, most, least, gone]);
        near(&plan.keep, &[1.0; 4]);
        near(&plan.weights, &[0.0; 4]);
        let nobody = delegate(&policy, &OverloadRule::default(), &[giver, gone]);
        near(&nobody.keep, &[1.0; 2]);
    }

    #[test]
    fn a_node_with_a_queue_is_overloaded_at_any_load_and_takes_nothing() {
        let full = Peer { queues: true, ..peer(10.0) };
        let plan = delegated(&[full, peer(90.0), peer(30.0)]);
        assert_eq!(plan.is_overloaded, [true, true, true]);
        near(&plan.weights, &[0.0, 0.0, 1.0]);
        let plan = delegated(&[Peer { queues: true, ..peer(30.0) }, peer(30.0)]);
        assert_eq!(plan.is_overloaded, [true, false]);
        near(&plan.keep, &[1.0, 1.0]);
    }

    #[test]
    fn a_node_without_takers_keeps_everything_at_once() {
        let alone = Peer { had_kept: 0.3, was_overloaded: true, ..peer(90.0) };
        near(&delegated(&[alone]).keep, &[1.0]);
    }
}

//! The simulated nodes, request by request.

use std::collections::VecDeque;

use equipoise_core::Loads;
use equipoise_core::load::{
    Choice, ClassRate, ClassRates, DispatchTable, Reported, RequestClass, Underway,
};
use equipoise_planner::{Plan, Report};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::rules::name;

/// Clients of each fed node.
pub(super) const CLIENTS: usize = 16;
/// In milliseconds: a step of the simulation, the length of a turn, the CPU quota in a turn.
pub(super) const STEP: f64 = 0.25;
const TURN: f64 = 100.0;
const QUOTA: f64 = 10.0;
/// CPU time of a request at its application, and the time slice among its concurrent requests.
const WORK: f64 = 6.0;
const SLICE: f64 = 3.0;
/// CPU time of a proxy for each request or response that passes it.
const PASSING: f64 = 0.03;
/// CPU time of a cluster's node for itself in each turn.
const CONTROL: f64 = 0.2;
/// How long a failure counts, as in the session level.
const FAILURE_MS: f64 = 10_000.0;

/// The node that the request's client asked.
#[derive(Clone, Copy)]
struct Request {
    giver: usize,
    left: f64,
}

#[derive(Clone, Copy)]
enum Message {
    Asked,
    Taken(usize),
    Done(usize),
    /// A peer's answer, and whether it failed.
    Back(usize, bool),
}

struct Node {
    messages: VecDeque<Message>,
    working: VecDeque<Request>,
    in_slice: f64,
    budget: f64,
    quota: f64,
    phase: f64,
    used: f64,
    fails: bool,
    counts: ClassRate,
    table: DispatchTable,
    here: u32,
    there: Vec<u32>,
    failures: Vec<f64>,
}

/// A node's knowledge of its peers; none if it follows only the plan.
struct Known<'a>(Option<&'a Node>);

impl Loads for Known<'_> {
    fn in_flight(&self, slot: usize) -> u32 {
        self.0.map_or(0, |node| node.there[slot])
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        self.0.map_or(0, |node| node.failures[slot].round() as u32)
    }

    fn response_us(&self, _: usize) -> Option<f64> {
        None
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// No dispatcher.
    Alone,
    /// A random choice by the plan.
    ByPlan,
    /// The rule of equipoise.
    Ours,
}

/// Number of nodes, number of them with clients, and the fault of the last one.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) nodes: usize,
    pub(super) fed: usize,
    /// CPU quota of the last node, as a part of the others'.
    pub(super) last_may: f64,
    pub(super) last_fails: bool,
}

pub(super) struct Cluster {
    shape: Shape,
    rule: Rule,
    rng: StdRng,
    nodes: Vec<Node>,
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) given: u64,
    pub(super) to_last: u64,
    pub(super) queued: usize,
}

impl Cluster {
    pub(super) fn new(shape: Shape, rule: Rule) -> Cluster {
        let mut rng = StdRng::seed_from_u64(17);
        let node = |at: usize| Node {
            messages: (0..if at < shape.fed { CLIENTS } else { 0 })
                .map(|_| Message::Asked)
                .collect(),
            working: VecDeque::new(),
            in_slice: 0.0,
            budget: 0.0,
            quota: if at + 1 == shape.nodes { QUOTA * shape.last_may } else { QUOTA },
            phase: (rng.random_range(0.0..TURN) / STEP).floor() * STEP,
            used: 0.0,
            fails: shape.last_fails && at + 1 == shape.nodes,
            counts: ClassRate::default(),
            table: DispatchTable::keep_all(),
            here: 0,
            there: vec![0; shape.nodes],
            failures: vec![0.0; shape.nodes],
        };
        let nodes = (0..shape.nodes).map(node).collect();
        let (answered, refused, given, to_last, queued) = (0, 0, 0, 0, 0);
        Cluster { shape, rule, rng, nodes, answered, refused, given, to_last, queued }
    }

    /// One step of one node.
    pub(super) fn step(&mut self, at: usize, now: f64) {
        let control = if self.rule == Rule::Alone { 0.0 } else { CONTROL };
        let node = &mut self.nodes[at];
        if (now - node.phase).rem_euclid(TURN) < STEP / 2.0 {
            node.budget = node.budget.min(0.0) + node.quota - control;
            node.used += control;
        }
        let mut time = STEP;
        while time > 0.0 && self.nodes[at].budget > 0.0 {
            let node = &mut self.nodes[at];
            let took = if let Some(message) = node.messages.pop_front() {
                self.pass(at, message);
                PASSING
            } else if let Some(request) = node.working.front_mut() {
                let took = time.min(request.left);
                request.left -= took;
                node.in_slice += took;
                node.work_on();
                took
            } else {
                return;
            };
            time -= took;
            self.nodes[at].budget -= took;
            self.nodes[at].used += took;
        }
    }

    fn pass(&mut self, at: usize, message: Message) {
        match message {
            Message::Asked => self.ask(at),
            Message::Taken(giver) => {
                self.nodes[at].counts.taken += 1.0;
                self.queued = self.queued.max(self.nodes[at].working.len());
                if self.nodes[at].fails {
                    self.nodes[giver].messages.push_back(Message::Back(at, true));
                } else {
                    self.nodes[at].working.push_back(Request { giver, left: WORK });
                }
            }
            Message::Done(giver) if giver == at => {
                self.nodes[at].here -= 1;
                self.answer(at);
            }
            Message::Done(giver) => self.nodes[giver].messages.push_back(Message::Back(at, false)),
            Message::Back(peer, failed) => {
                self.nodes[at].there[peer] -= 1;
                if failed {
                    self.nodes[at].failures[peer] += 1.0;
                    self.nodes[at].counts.delegated -= 1.0;
                    self.keep(at);
                } else {
                    self.answer(at);
                }
            }
        }
    }

    fn answer(&mut self, at: usize) {
        self.answered += 1;
        self.nodes[at].messages.push_back(Message::Asked);
    }

    fn keep(&mut self, at: usize) {
        self.nodes[at].here += 1;
        self.nodes[at].working.push_back(Request { giver: at, left: WORK });
    }

    fn ask(&mut self, at: usize) {
        let (node, rng) = (&mut self.nodes[at], &mut self.rng);
        node.counts.arrived += 1.0;
        if !node.table.admits(RequestClass::Computing, rng) {
            node.counts.refused += 1.0;
            self.refused += 1;
            return node.messages.push_back(Message::Asked);
        }
        let known = Known((self.rule == Rule::Ours).then_some(&*node));
        let (here, there) = match known.0 {
            Some(node) => (node.here, node.there.iter().sum()),
            None => (0, 0),
        };
        let underway = Underway { here, here_failures: 0, there, peers: &known };
        match node.table.choose(RequestClass::Computing, &underway, rng) {
            Choice::Here => self.keep(at),
            Choice::Peer(peer) => {
                self.given += 1;
                self.to_last += u64::from(peer + 1 == self.shape.nodes);
                self.nodes[at].counts.delegated += 1.0;
                self.nodes[at].there[peer] += 1;
                self.nodes[peer].messages.push_back(Message::Taken(at));
            }
        }
    }

    /// Each node's report of the last second.
    pub(super) fn reports(&mut self) -> Vec<Report> {
        let turns = 1000.0 / TURN;
        let report = |node: &mut Node| {
            let used = std::mem::take(&mut node.used);
            let cpu = (100.0 * used / node.quota / turns).min(100.0);
            let computing = std::mem::take(&mut node.counts);
            node.failures.iter_mut().for_each(|it| *it *= (-1000.0 / FAILURE_MS).exp());
            let classes = ClassRates { computing, ..ClassRates::default() };
            Report { load: Reported { cpu, memory: 0.0, net: None }, classes, ..Report::default() }
        };
        self.nodes.iter_mut().map(report).collect()
    }

    pub(super) fn follow(&mut self, plan: &Plan) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let weight = |to: usize| plan.dispatch.weights.get(&name(to)).filter(|_| to != at);
            let weights = (0..self.shape.nodes).map(|to| weight(to).copied().unwrap_or(0.0));
            let keep = plan.nodes[&name(at)].keep_by_class;
            node.table = DispatchTable::new(keep, weights).refusing(plan.dispatch.refuse);
        }
    }
}

impl Node {
    /// Continues with the next request when this one is complete or has had its slice.
    fn work_on(&mut self) {
        let is_done = self.working.front().is_some_and(|it| it.left <= 1e-9);
        if !is_done && self.in_slice < SLICE {
            return;
        }
        self.in_slice = 0.0;
        let Some(request) = self.working.pop_front() else { return };
        if is_done {
            self.messages.push_back(Message::Done(request.giver));
        } else {
            self.working.push_back(request);
        }
    }
}

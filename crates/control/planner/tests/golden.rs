//! Scripts of load histories, and the resulting plans.
//!
//! `golden/NAME.toml` has the reports of nodes and the events; `golden/NAME.txt` has the plans, a
//! line for each period that changed something. After an intended change, run
//! `GOLDEN_WRITE=1 cargo test -p equipoise-planner --test golden` and read the difference.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use equipoise_core::load::{ClassRate, ClassRates, REFUSED_FIRST, Reported, RequestClass};
use equipoise_core::{AdminState, Health};
use equipoise_planner::{History, Inventory, NameSpec, NodeSpec, Plan, Policy, Report, Tick, plan};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Script {
    about: String,
    periods: u32,
    /// Capacity of each node.
    nodes: BTreeMap<String, f64>,
    /// CPU of a node in per cent that a request a second costs, by class. With it, delegated and
    /// taken requests show in the nodes' CPU.
    #[serde(default)]
    cost: BTreeMap<RequestClass, f64>,
    #[serde(default)]
    policy: Option<PolicyChanges>,
    #[serde(default)]
    event: Vec<Event>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct PolicyChanges {
    settle_periods: Option<f64>,
    warm_up_s: Option<u64>,
    keep_step_max: Option<f64>,
}

/// Changes of the conditions from a period on.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Event {
    at: u32,
    /// CPU in per cent by node, without that of requests with a cost.
    cpu: BTreeMap<String, f64>,
    memory: BTreeMap<String, f64>,
    net: BTreeMap<String, f64>,
    /// Requests per second that arrive, by node and class.
    arrive: BTreeMap<String, BTreeMap<RequestClass, f64>>,
    /// Nodes.
    silent: Vec<String>,
    heard: Vec<String>,
    unreachable: Vec<String>,
    reachable: Vec<String>,
    drain: Vec<String>,
    up: Vec<String>,
    unhealthy: Vec<String>,
    healthy: Vec<String>,
    /// Capacity of a new node.
    join: BTreeMap<String, f64>,
}

/// The conditions of one node.
#[derive(Clone, Default)]
struct Node {
    spec: NodeSpec,
    load: Reported,
    arrive: BTreeMap<RequestClass, f64>,
    is_silent: bool,
    is_unreachable: bool,
}

impl Node {
    fn with(capacity: f64) -> Node {
        Node { spec: NodeSpec { capacity, ..NodeSpec::default() }, ..Node::default() }
    }
}

fn happen(event: &Event, nodes: &mut BTreeMap<String, Node>) {
    for (name, capacity) in &event.join {
        nodes.insert(name.clone(), Node::with(*capacity));
    }
    for (name, node) in nodes {
        let is_in = |names: &[String]| names.contains(name);
        node.load.cpu = event.cpu.get(name).copied().unwrap_or(node.load.cpu);
        node.load.memory = event.memory.get(name).copied().unwrap_or(node.load.memory);
        node.load.net = event.net.get(name).copied().or(node.load.net);
        node.arrive = event.arrive.get(name).cloned().unwrap_or(node.arrive.clone());
        node.is_silent = (node.is_silent || is_in(&event.silent)) && !is_in(&event.heard);
        node.is_unreachable =
            (node.is_unreachable || is_in(&event.unreachable)) && !is_in(&event.reachable);
        if is_in(&event.drain) {
            node.spec.admin = AdminState::Drain;
        }
        if is_in(&event.up) {
            node.spec.admin = AdminState::Up;
        }
        if is_in(&event.unhealthy) {
            node.spec.health = Health::Unhealthy;
        }
        if is_in(&event.healthy) {
            node.spec.health = Health::Healthy;
        }
    }
}

/// The requests of a period at each node: those that arrive, of which the last plan delegates a
/// part.
fn rates(nodes: &BTreeMap<String, Node>, planned: Option<&Plan>) -> BTreeMap<String, ClassRates> {
    let mut rates = BTreeMap::new();
    let mut given: BTreeMap<RequestClass, f64> = BTreeMap::new();
    for (name, node) in nodes {
        let plan = planned.and_then(|plan| plan.nodes.get(name));
        let of = ClassRates::from_fn(|class| {
            let arrived = node.arrive.get(&class).copied().unwrap_or(0.0);
            let refused = arrived * planned.map_or(0.0, |plan| plan.dispatch.refuse[class]);
            let leaves = 1.0 - plan.map_or(1.0, |plan| plan.keep_by_class[class]);
            let delegated = (arrived - refused) * leaves;
            *given.entry(class).or_default() += delegated;
            ClassRate { arrived, delegated, refused, ..ClassRate::default() }
        });
        rates.insert(name.clone(), of);
    }
    for (name, weight) in planned.iter().flat_map(|plan| &plan.dispatch.weights) {
        for (class, given) in &given {
            rates.get_mut(name).unwrap()[*class].taken = given * weight;
        }
    }
    rates
}

fn inventory(nodes: &BTreeMap<String, Node>) -> Inventory {
    let specs = nodes.iter().map(|(name, node)| (name.clone(), node.spec)).collect();
    let www = NameSpec { nodes: nodes.keys().cloned().collect() };
    Inventory::new(specs, [("www".to_string(), www)].into(), BTreeMap::new()).unwrap()
}

fn play(script: &Script) -> String {
    let mut policy = Policy::default();
    policy.names.settle_periods = 3.0;
    if let Some(changes) = &script.policy {
        policy.names.settle_periods = changes.settle_periods.unwrap_or(3.0);
        policy.dispatch.step_max = changes.keep_step_max.unwrap_or(policy.dispatch.step_max);
        let warm_up = changes.warm_up_s.map(Duration::from_secs);
        policy.liveness.warm_up = warm_up.unwrap_or(policy.liveness.warm_up);
    }
    let policy = policy.checked().unwrap();
    let mut nodes: BTreeMap<String, Node> =
        script.nodes.iter().map(|(name, capacity)| (name.clone(), Node::with(*capacity))).collect();
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let (mut before, mut lines): (Option<Plan>, Vec<String>) = (None, Vec::new());
    for at in 1..=script.periods {
        script
            .event
            .iter()
            .filter(|event| event.at == at)
            .for_each(|event| happen(event, &mut nodes));
        let now = Duration::from_secs(u64::from(at));
        let rates = rates(&nodes, before.as_ref());
        for (name, node) in &nodes {
            if !node.is_silent {
                let (mut load, classes) = (node.load, rates[name]);
                let cost = |(class, cost): (&RequestClass, &f64)| cost * classes[*class].done();
                load.cpu += script.cost.iter().map(cost).sum::<f64>();
                if !script.cost.is_empty() {
                    load.cpu = load.cpu.min(100.0);
                }
                let _ = history.record(name, now, &Report { load, classes, ..Report::default() });
            }
            // The first node that reports checks the others.
            let observer = nodes.iter().find(|(other, it)| !it.is_silent && *other != name);
            if let Some((observer, _)) = observer {
                history.record_sighting(observer, name, now, !node.is_unreachable);
            }
        }
        let tick = Tick { now, passed: policy.period() };
        let next = plan(&policy, &inventory(&nodes), &history, before.as_ref(), tick);
        assert_dear_classes_are_refused_first(&next);
        lines.push(shown(&next));
        before = Some(next);
    }
    assemble(&script.about, &lines)
}

/// In every period: a class is refused only after those before it are refused completely.
fn assert_dear_classes_are_refused_first(plan: &Plan) {
    let parts = REFUSED_FIRST.map(|class| plan.dispatch.refuse[class]);
    let is_in_order = parts.windows(2).all(|pair| pair[1] <= 0.0 || pair[0] > 1.0 - 1e-9);
    assert!(is_in_order, "{:?}: {parts:?}", plan.generation);
}

fn shown(plan: &Plan) -> String {
    let mut line = String::new();
    let www = &plan.names["www"];
    for (name, share) in &www.shares {
        let node = &plan.nodes[name];
        let standing = format!("{:?}", node.standing).to_lowercase();
        let _ = write!(line, "{name} {:.3} {standing}", share.probability);
        if node.keep < 1.0 {
            let _ = write!(line, " keeps {:.2}", node.keep);
            for class in RequestClass::ALL.into_iter().filter(|it| node.keep_by_class[*it] < 0.9995)
            {
                let _ = write!(line, " {class} {:.2}", node.keep_by_class[class]);
            }
        }
        line += "; ";
    }
    if !plan.dispatch.weights.is_empty() {
        line += "delegated to";
        for (name, weight) in &plan.dispatch.weights {
            let _ = write!(line, " {name} {weight:.2}");
        }
        line += "; ";
    }
    for class in RequestClass::ALL.into_iter().filter(|it| plan.dispatch.refuse[*it] > 0.0005) {
        let _ = write!(line, "refused {class} {:.2}; ", plan.dispatch.refuse[class]);
    }
    if www.is_panicking {
        line += "panic; ";
    }
    if www.shorten_ttl {
        line += "short TTL; ";
    }
    line.trim_end_matches("; ").to_string()
}

/// Joins equal lines, with the periods for which they hold.
fn assemble(about: &str, lines: &[String]) -> String {
    let mut text = format!("# {about}\n\n");
    let mut at = 0;
    while at < lines.len() {
        let run = lines[at..].iter().take_while(|line| **line == lines[at]).count();
        let periods =
            if run == 1 { format!("{}", at + 1) } else { format!("{}-{}", at + 1, at + run) };
        let _ = writeln!(text, "{periods:>7}  {}", lines[at]);
        at += run;
    }
    text
}

#[test]
fn scripts_of_load_lead_to_the_plans_that_were_agreed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let is_writing = std::env::var_os("GOLDEN_WRITE").is_some();
    let mut differ = Vec::new();
    let mut played = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        played += 1;
        let script: Script = toml::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (found, agreed) = (play(&script), path.with_extension("txt"));
        if is_writing {
            std::fs::write(&agreed, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&agreed).unwrap_or_default();
        if found != expected {
            differ.push(format!("{}\nfound:\n{found}\nagreed:\n{expected}", agreed.display()));
        }
    }
    assert!(played > 5, "only {played} scripts");
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

//! The part of the instructions that a node receives: the part that concerns it and, after the
//! first time, only changes. Pure.
//!
//! Of other nodes a node needs their addresses and which of them are late or gone. Their loads and
//! the share of a joining node, which change each period, are the planner's own. The events of a
//! period are therefore small, however many nodes exist.

use std::time::Duration;

use equipoise_controller::{Edition, Enrolled, Instructions};
use equipoise_planner::{NodePlan, Plan, PoolPlan, Standing};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Instructions as sent to all nodes: without plans of present nodes, loads, and names unless
/// `with_names`.
pub(crate) fn shared(of: &Instructions, with_names: bool) -> serde_json::Result<Value> {
    let is_odd = |plan: &NodePlan| !matches!(plan.standing, Standing::Present | Standing::Joining);
    let odd = of.plan.nodes.iter().filter(|(_, plan)| is_odd(plan));
    let nodes = odd.map(|(name, plan)| (name.clone(), NodePlan { load: None, ..plan.clone() }));
    let plan = Plan {
        generation: of.plan.generation,
        nodes: nodes.collect(),
        names: if with_names { of.plan.names.clone() } else { Default::default() },
        dispatch: of.plan.dispatch.clone(),
        pools: of.plan.pools.iter().map(|(name, pool)| (name.clone(), followed(pool))).collect(),
    };
    // Only controllers use this field. A node of an older version would refuse it.
    let own = |member: &Enrolled| Enrolled { first_capacity: None, ..member.clone() };
    let members = of.members.iter().map(|(name, member)| (name.clone(), own(member)));
    serde_json::to_value(Instructions {
        term: of.term,
        generation: of.generation,
        leader: of.leader.clone(),
        period: of.period,
        members: members.collect(),
        rosters: of.rosters.clone(),
        pools: of.pools.clone(),
        sources: if with_names { of.sources.clone() } else { Default::default() },
        plan,
        dispatch_secret: of.dispatch_secret.clone(),
    })
}

/// The part of a pool's plan that a node follows, without the planner's own state and values that
/// change with every report.
fn followed(pool: &PoolPlan) -> PoolPlan {
    let mut pool = pool.clone();
    for backend in pool.weights.values_mut() {
        backend.learnt = 1.0;
    }
    if let Some(scaling) = &mut pool.scaling {
        scaling.in_use = None;
        (scaling.peak, scaling.limit) = (0.0, None);
        for time in [&mut scaling.since_out, &mut scaling.since_in, &mut scaling.low_for] {
            *time = Duration::ZERO;
        }
    }
    pool
}

/// The patch from `before` to `after`.
///
/// # Source
/// JSON Merge Patch, RFC 7396. It cannot set a value to null. In instructions null means absent, so
/// the value is removed.
pub(crate) fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(was), Value::Object(is)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for name in was.keys().filter(|name| !is.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in is {
        let change = match was.get(name) {
            Some(old) => difference(old, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Applies what [`difference`] found.
pub(crate) fn apply(to: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *to = patch;
        return;
    };
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    let Value::Object(to) = to else { return };
    for (name, change) in patch {
        match change {
            Value::Null => drop(to.remove(&name)),
            change => apply(to.entry(name).or_insert(Value::Null), change),
        }
    }
}

/// The data of both events: `whole` in the first, `from` and `patch` in the others; and the plan of
/// this node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    #[serde(default)]
    whole: Option<Value>,
    #[serde(default)]
    from: Option<Edition>,
    #[serde(default)]
    patch: Option<Value>,
    #[serde(default)]
    own: Option<NodePlan>,
}

/// A change does not apply to the received state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutOfStep {
    #[error("a change of instructions that this node does not have")]
    Other,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// A node's end of one stream.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    known: Option<(Edition, Value)>,
}

impl Listener {
    /// The instructions in an event, as node `own` sees them.
    ///
    /// [`OutOfStep::Other`]: the rest of this stream is useless. Other errors concern this event
    /// alone.
    /// event alone.
    pub(crate) fn hear(&mut self, data: &str, own: &str) -> Result<Instructions, OutOfStep> {
        let told: Told = serde_json::from_str(data)?;
        let value = match (told.whole, told.from, self.known.take()) {
            (Some(whole), ..) => whole,
            (None, Some(from), Some((edition, mut value))) if from == edition => {
                apply(&mut value, told.patch.unwrap_or(Value::Object(Map::new())));
                value
            }
            _ => return Err(OutOfStep::Other),
        };
        // Kept even if this version does not understand it, because the next event may omit the
        // unknown part.
        let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
        let edition = Edition { term: number("term"), generation: number("generation") };
        let (_, value) = self.known.insert((edition, value));
        let mut instructions = Instructions::deserialize(&*value)?;
        if let Some(plan) = told.own {
            instructions.plan.nodes.insert(own.to_string(), plan);
        }
        Ok(instructions)
    }
}

/// The part of one edition that all nodes receive, as JSON.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    value: Value,
    whole: String,
    /// The edition from which the patch leads to this one, and the patch.
    patch: Option<(Edition, String)>,
}

impl Telling {
    /// Encodes instructions, with the change from `before` (and its edition).
    pub(crate) fn new(
        now: &Instructions,
        with_names: bool,
        before: Option<(Edition, &Telling)>,
    ) -> serde_json::Result<Telling> {
        let value = shared(now, with_names)?;
        let patch = match before {
            Some((from, before)) => {
                let patch = difference(&before.value, &value).unwrap_or(Value::Object(Map::new()));
                Some((from, serde_json::to_string(&patch)?))
            }
            None => None,
        };
        Ok(Telling { whole: serde_json::to_string(&value)?, value, patch })
    }

    /// An event's data for a node which received `last` in this stream, with its own plan.
    pub(crate) fn data(
        &self,
        last: Option<Edition>,
        own: Option<&NodePlan>,
    ) -> serde_json::Result<String> {
        let own = serde_json::to_string(&own)?;
        match &self.patch {
            Some((from, patch)) if last == Some(*from) => {
                let from = serde_json::to_string(from)?;
                Ok(format!("{{\"from\":{from},\"patch\":{patch},\"own\":{own}}}"))
            }
            _ => Ok(format!("{{\"whole\":{},\"own\":{own}}}", self.whole)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use equipoise_controller::{Enrolled, NodeKind};
    use equipoise_core::Weight;
    use equipoise_planner::elastic::{Scaling, ScalingPlan};
    use equipoise_planner::{BackendPlan, NamePlan, PlannedLoad};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn node(standing: Standing, l1: f64) -> NodePlan {
        let load = Some(PlannedLoad { l1, l2: l1, l2_offered: l1 });
        NodePlan { load, ..NodePlan::new(standing, 1.0) }
    }

    fn instructions(generation: u64, count: usize) -> Instructions {
        let mut all = Instructions { term: 3, generation, ..Instructions::default() };
        all.plan.names.insert("z.".to_string(), NamePlan::default());
        for n in 0..count {
            let member = Enrolled {
                kind: NodeKind::Node,
                capacity: 2.0,
                first_capacity: None,
                dispatches: true,
                application_down: false,
                permits: None,
                endpoint: Some(([10, 0, 0, 1], 80).into()),
                addresses: vec![[10, 0, 0, 1].into()],
            };
            let standing = if n == 1 { Standing::Late } else { Standing::Present };
            all.members.insert(format!("n{n}"), member);
            all.plan.nodes.insert(format!("n{n}"), node(standing, generation as f64 + n as f64));
        }
        // The learnt capacity of backends changes continuously, their weights rarely.
        let backend = |n: u32| {
            let learnt = f64::from(n) / 1000.0 + generation as f64 / 1e4;
            (format!("b{n}"), BackendPlan { weight: Weight::DEFAULT, learnt })
        };
        let scaling = ScalingPlan {
            action: Scaling::Hold,
            reason: "it fits".to_string(),
            in_use: Some(generation as f64 / 100.0),
            since_out: Duration::from_secs(generation),
            since_in: Duration::from_secs(generation),
            low_for: Duration::from_secs(generation),
            peak: generation as f64,
            limit: Some(generation as f64),
            full: None,
        };
        let pool = PoolPlan { weights: (0..200).map(backend).collect(), scaling: Some(scaling) };
        all.plan.pools.insert("web".to_string(), pool);
        all
    }

    #[test]
    fn a_node_receives_its_own_plan_and_late_or_excluded_nodes_without_load() {
        let mut now = instructions(7, 9);
        let set =
            |(n, standing)| now.plan.nodes.get_mut(&format!("n{n}")).unwrap().standing = standing;
        let excluded = [Standing::Gone, Standing::Unhealthy, Standing::Draining, Standing::Down];
        (4..8).zip(excluded).for_each(set);
        now.plan.nodes.get_mut("n8").unwrap().standing = Standing::Joining;
        let telling = Telling::new(&now, false, None).unwrap();
        let data = telling.data(None, now.plan.nodes.get("n3")).unwrap();
        let heard = Listener::default().hear(&data, "n3").unwrap();
        let nodes: Vec<&str> = heard.plan.nodes.keys().map(String::as_str).collect();
        let expected = vec!["n1", "n3", "n4", "n5", "n6", "n7"];
        assert_eq!((heard.edition(), nodes), (now.edition(), expected));
        assert_eq!(heard.plan.nodes["n3"], now.plan.nodes["n3"]);
        for (name, plan) in heard.plan.nodes.iter().filter(|(name, _)| *name != "n3") {
            assert_eq!(*plan, NodePlan { load: None, ..now.plan.nodes[name].clone() }, "{name}");
        }
        assert_eq!((heard.members, heard.plan.names.len()), (now.members.clone(), 0));
        let telling = Telling::new(&now, true, None).unwrap();
        let heard = Listener::default().hear(&telling.data(None, None).unwrap(), "n3").unwrap();
        assert_eq!(heard.plan.names, now.plan.names);
    }

    #[test]
    fn changes_are_sent_and_accepted_only_after_their_base_edition() {
        let (first, second) = (instructions(7, 200), instructions(8, 200));
        let before = Telling::new(&first, false, None).unwrap();
        let telling = Telling::new(&second, false, Some((first.edition(), &before))).unwrap();
        let mut listener = Listener::default();
        let whole = before.data(None, None).unwrap();
        listener.hear(&whole, "n3").unwrap();
        let own = second.plan.nodes.get("n3");
        let change = telling.data(Some(first.edition()), own).unwrap();
        assert!(change.len() < 600 && whole.len() > 20_000, "{} {}", change.len(), whole.len());
        let heard = listener.hear(&change, "n3").unwrap();
        assert_eq!((heard.edition(), &heard.members), (second.edition(), &second.members));
        assert_eq!(heard.plan.nodes.get("n3"), own);
        // A repeated change, or one for another node, is refused and leaves no partial state.
        assert!(listener.hear(&change, "n3").is_err());
        assert!(Listener::default().hear(&change, "n3").is_err());
        let skipped = Edition { generation: 6, ..first.edition() };
        assert!(telling.data(Some(skipped), None).unwrap().starts_with("{\"whole\""));
    }

    #[test]
    fn a_difference_sets_removed_members_to_null() {
        let before = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]});
        let after = json!({"b": {"c": 2}, "e": [2], "f": {}});
        let patch = difference(&before, &after).unwrap();
        assert_eq!(patch, json!({"a": null, "b": {"d": null}, "e": [2], "f": {}}));
        let mut value = before.clone();
        apply(&mut value, patch);
        assert_eq!(value, after);
        assert_eq!(difference(&after, &after), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0u8..4).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let name = proptest::sample::select(vec!["a", "b", "c", "d"]);
            let map =
                proptest::collection::btree_map(name.prop_map(str::to_string), inner.clone(), 0..4);
            prop_oneof![
                proptest::collection::vec(inner, 0..3).prop_map(Value::from),
                map.prop_map(|map: BTreeMap<String, Value>| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_difference_applied_to_one_value_yields_the_other(before in value(), after in value()) {
            let mut patched = before.clone();
            if let Some(patch) = difference(&before, &after) {
                apply(&mut patched, patch);
            }
            prop_assert_eq!(patched, after);
        }
    }
}

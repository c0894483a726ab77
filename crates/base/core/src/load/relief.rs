use serde::{Deserialize, Serialize};

use super::{PerClass, RequestClass};

/// A resource that may be scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// The network. Moving requests never relieves it, because a peer's response passes it, too.
    /// Plans of other versions may name it.
    Net,
}

/// The resource use of one class at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassUse {
    /// Per cent of the node's CPU.
    pub cpu: f64,
    /// Bytes a second.
    pub bytes: f64,
}

/// The part of each class to keep, so that `part` (0..=1) of its CPU use leaves the node.
///
/// Classes leave in the order of the CPU that they free per byte between nodes: computing requests
/// leave a CPU-bound node, and its transfers stay. The opposite order has no use, because a peer's
/// response comes in through the node's network and goes out to the client as if it had been served
/// here. Light requests stay. At least `keep_min` (0..=1) of every class stays, so that its cost
/// remains visible. If the use of the classes is unknown, all but light leave in equal parts.
///
/// Light requests and the minima stay even if `part` asks for more.
///
/// # Source
/// TLLB's scenario of unbalanced resources, which states this goal, for the network too. The order
/// is the greedy one of the fractional knapsack (Dantzig, Operations Research 5 (1957), 266-277).
pub fn relieve(part: f64, used: &PerClass<ClassUse>, keep_min: f64) -> PerClass<f64> {
    let part = part.clamp(0.0, 1.0);
    let cpu_total: f64 = RequestClass::ALL.iter().map(|class| used[*class].cpu).sum();
    let bytes_total: f64 = RequestClass::ALL.iter().map(|class| used[*class].bytes).sum();
    let mut keep = PerClass::from_fn(|_| 1.0);
    let mut movable =
        [RequestClass::Computing, RequestClass::LargeTransfer, RequestClass::SmallTransfer];
    if cpu_total <= 0.0 {
        movable.iter().for_each(|class| keep[*class] = (1.0 - part).max(keep_min));
        return keep;
    }
    // CPU relative to bytes, each as a part of the node's total.
    let worth = |class: RequestClass| {
        let ClassUse { cpu, bytes } = used[class];
        if cpu > 0.0 { cpu * bytes_total / (bytes * cpu_total) } else { 0.0 }
    };
    movable.sort_by(|a, b| worth(*b).total_cmp(&worth(*a)));
    let mut needed = part * cpu_total;
    for class in movable {
        let uses = used[class].cpu;
        if uses > 0.0 {
            let leaves = needed.min((1.0 - keep_min) * uses);
            keep[class] = 1.0 - leaves / uses;
            needed -= leaves;
        }
    }
    keep
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that serves all four classes.
    fn mixed() -> PerClass<ClassUse> {
        PerClass {
            light: ClassUse { cpu: 10.0, bytes: 1e5 },
            small_transfer: ClassUse { cpu: 10.0, bytes: 4e6 },
            large_transfer: ClassUse { cpu: 20.0, bytes: 95e6 },
            computing: ClassUse { cpu: 60.0, bytes: 9e5 },
        }
    }

    #[test]
    fn computing_leaves_a_cpu_bound_node_and_transfers_stay() {
        let keep = relieve(0.3, &mixed(), 0.1);
        assert_eq!((keep.light, keep.small_transfer, keep.large_transfer), (1.0, 1.0, 1.0));
        assert!((keep.computing - 0.5).abs() < 1e-9, "{keep:?}");
    }

    #[test]
    fn at_full_relief_only_light_requests_stay_above_the_minimum() {
        let keep = relieve(1.0, &mixed(), 0.1);
        assert_eq!(keep.light, 1.0);
        for class in [keep.small_transfer, keep.large_transfer, keep.computing] {
            assert!((class - 0.1).abs() < 1e-9, "{keep:?}");
        }
    }

    #[test]
    fn exactly_the_requested_cpu_part_leaves_when_the_classes_allow_it() {
        for part in [0.0, 0.1, 0.4, 0.7] {
            let used = mixed();
            let keep = relieve(part, &used, 0.1);
            let leaves: f64 =
                RequestClass::ALL.iter().map(|c| (1.0 - keep[*c]) * used[*c].cpu).sum();
            assert!((leaves - 100.0 * part).abs() < 1e-9, "{part}: {leaves}");
        }
    }

    #[test]
    fn without_known_use_all_classes_but_light_leave_equally() {
        let keep = relieve(0.4, &PerClass::default(), 0.1);
        let alike =
            PerClass { light: 1.0, small_transfer: 0.6, large_transfer: 0.6, computing: 0.6 };
        assert_eq!(keep, alike);
    }
}

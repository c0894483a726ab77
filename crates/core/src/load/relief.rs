use serde::{Deserialize, Serialize};

use super::{PerClass, RequestClass};

/// A resource that moving requests can relieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// CPU time.
    Cpu,
    /// The network. Relieved only if the client is sent elsewhere: what is proxied passes twice.
    Net,
}

/// What the requests of one class use of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassUse {
    /// Per cent of the node's CPU.
    pub cpu: f64,
    /// Bytes a second.
    pub bytes: f64,
}

/// The part of each class to keep, so that `part` (0..=1) of the use of the scarce resource leaves the node.
///
/// The class that frees most of the scarce resource for what it takes along of the other leaves first:
/// computing requests leave a CPU-bound node while its transfers stay, and the other way round. Light requests
/// stay. Of every class at least `keep_min` (0..=1) stays, so that its cost goes on being seen. If nothing is known
/// of what the classes use, all but light leave alike.
///
/// What light requests and the minima use stays even if `part` asks for more.
///
/// # Source
/// TLLB's scenario of unbalanced resources, which names the wish; the order is the greedy one of
/// the fractional knapsack (Dantzig, Operations Research 5 (1957), 266-277).
pub fn relieve(
    scarce: Resource,
    part: f64,
    used: &PerClass<ClassUse>,
    keep_min: f64,
) -> PerClass<f64> {
    let part = part.clamp(0.0, 1.0);
    let of = |class: RequestClass, resource| match resource {
        Resource::Cpu => used[class].cpu,
        Resource::Net => used[class].bytes,
    };
    let other = match scarce {
        Resource::Cpu => Resource::Net,
        Resource::Net => Resource::Cpu,
    };
    let total = |resource| RequestClass::ALL.iter().map(|class| of(*class, resource)).sum::<f64>();
    let (scarce_total, other_total) = (total(scarce), total(other));
    let mut keep = PerClass::from_fn(|_| 1.0);
    let mut movable =
        [RequestClass::Computing, RequestClass::LargeTransfer, RequestClass::SmallTransfer];
    if scarce_total <= 0.0 {
        movable.iter().for_each(|class| keep[*class] = (1.0 - part).max(keep_min));
        return keep;
    }
    // Of the scarce resource against the other, each as a part of the node's total.
    let worth = |class| of(class, scarce) * other_total / (of(class, other) * scarce_total);
    let worth = |class| if of(class, scarce) > 0.0 { worth(class) } else { 0.0 };
    movable.sort_by(|a, b| worth(*b).total_cmp(&worth(*a)));
    let mut needed = part * scarce_total;
    for class in movable {
        let uses = of(class, scarce);
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
        let keep = relieve(Resource::Cpu, 0.3, &mixed(), 0.1);
        assert_eq!((keep.light, keep.small_transfer, keep.large_transfer), (1.0, 1.0, 1.0));
        assert!((keep.computing - 0.5).abs() < 1e-9, "{keep:?}");
    }

    #[test]
    fn large_transfers_leave_a_network_bound_node_and_computing_stays() {
        let keep = relieve(Resource::Net, 0.5, &mixed(), 0.1);
        assert_eq!((keep.light, keep.small_transfer, keep.computing), (1.0, 1.0, 1.0));
        assert!((keep.large_transfer - (1.0 - 50.0 / 95.0)).abs() < 1e-9, "{keep:?}");
    }

    #[test]
    fn what_one_class_cannot_free_the_next_does_and_light_never() {
        let keep = relieve(Resource::Cpu, 1.0, &mixed(), 0.1);
        assert_eq!(keep.light, 1.0);
        for class in [keep.small_transfer, keep.large_transfer, keep.computing] {
            assert!((class - 0.1).abs() < 1e-9, "{keep:?}");
        }
    }

    #[test]
    fn the_asked_part_leaves_whenever_the_classes_allow_it() {
        for part in [0.0, 0.1, 0.4, 0.7] {
            let used = mixed();
            let keep = relieve(Resource::Cpu, part, &used, 0.1);
            let leaves: f64 =
                RequestClass::ALL.iter().map(|c| (1.0 - keep[*c]) * used[*c].cpu).sum();
            assert!((leaves - 100.0 * part).abs() < 1e-9, "{part}: {leaves}");
        }
    }

    #[test]
    fn when_nothing_is_known_all_but_light_leave_alike() {
        let keep = relieve(Resource::Cpu, 0.4, &PerClass::default(), 0.1);
        let alike =
            PerClass { light: 1.0, small_transfer: 0.6, large_transfer: 0.6, computing: 0.6 };
        assert_eq!(keep, alike);
    }
}

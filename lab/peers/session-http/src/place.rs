//! Which CPUs the three sides of a measurement run on.

use std::fmt;

use serde::Serialize;

/// CPUs of the proxy, of the upstream and of the load; `None`: wherever the kernel puts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Placement {
    pub(crate) proxy: Option<Vec<usize>>,
    pub(crate) upstream: Option<Vec<usize>>,
    pub(crate) load: Option<Vec<usize>>,
}

impl Placement {
    /// The proxy has the first CPU for itself; from the third on, upstream and load are apart too.
    pub(crate) fn choose(pin: bool, cpus: &[usize]) -> Placement {
        let (upstream, load) = match cpus {
            _ if !pin => return Placement::default(),
            [] | [_] => return Placement::default(),
            [_, both] => (vec![*both], vec![*both]),
            [_, upstream, load @ ..] => (vec![*upstream], load.to_vec()),
        };
        Placement { proxy: Some(vec![cpus[0]]), upstream: Some(upstream), load: Some(load) }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement { proxy: Some(proxy), upstream: Some(upstream), load: Some(load) } => write!(
                formatter,
                "pinned: proxy on CPU {proxy:?}, upstream on {upstream:?}, load on {load:?}"
            ),
            _ => write!(
                formatter,
                "not pinned: proxy, upstream and load run wherever the kernel puts them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_two_cpus_the_proxy_has_one_alone() {
        let placement = Placement::choose(true, &[0, 1]);
        assert_eq!(placement.proxy, Some(vec![0]));
        assert_eq!((placement.upstream, placement.load), (Some(vec![1]), Some(vec![1])));
    }

    #[test]
    fn on_more_cpus_the_load_has_the_rest() {
        assert_eq!(Placement::choose(true, &[2, 3, 4, 5]).load, Some(vec![4, 5]));
    }

    #[test]
    fn one_cpu_or_no_wish_to_pin_pins_nothing() {
        assert_eq!(Placement::choose(true, &[0]), Placement::default());
        assert_eq!(Placement::choose(false, &[0, 1]), Placement::default());
    }
}

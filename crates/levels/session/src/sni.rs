//! The choice of a pool by the server name of a client's TLS, which passes unread.

use std::collections::HashMap;

use crate::config::SniRoute;

/// The pools of a front door by server name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SniTable {
    exact: HashMap<String, usize>,
    /// By the part of a wildcard behind `*.`.
    wildcard: HashMap<String, usize>,
}

impl SniTable {
    /// `pools[i]` is the index of the pool of `routes[i]`.
    pub fn new(routes: &[SniRoute], pools: &[usize]) -> SniTable {
        let mut table = SniTable::default();
        for (route, &pool) in routes.iter().zip(pools) {
            for name in &route.names {
                let name = name.to_ascii_lowercase();
                match name.strip_prefix("*.") {
                    Some(parent) => table.wildcard.insert(parent.to_string(), pool),
                    None => table.exact.insert(name, pool),
                };
            }
        }
        table
    }

    /// The pool for a name in lower case; `None`: the front door's own.
    pub(crate) fn pick(&self, name: &str) -> Option<usize> {
        let wildcard = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(wildcard).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty()
    }

    /// The index of every pool, some of them repeatedly.
    pub(crate) fn pools(&self) -> impl Iterator<Item = usize> {
        self.exact.values().chain(self.wildcard.values()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_go_before_wildcards_of_one_label() {
        let route = |names: &[&str]| SniRoute {
            names: names.iter().map(ToString::to_string).collect(),
            pool: "p".into(),
        };
        let routes = [route(&["a.example", "*.B.example"]), route(&["x.b.example"])];
        let table = SniTable::new(&routes, &[3, 5]);
        for (name, pool) in [
            ("a.example", Some(3)),
            ("y.b.example", Some(3)),
            ("x.b.example", Some(5)),
            ("b.example", None),
            ("z.y.b.example", None),
            ("c.example", None),
        ] {
            assert_eq!(table.pick(name), pool, "{name}");
        }
    }
}

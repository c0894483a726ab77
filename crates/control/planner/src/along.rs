use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Iter;
use std::iter::Peekable;

/// Finds keys that are requested in ascending order, in one walk over the map. Separate look-ups
/// would spend most of their time on comparing names with equal beginnings.
pub(crate) struct Along<'a, V> {
    left: Peekable<Iter<'a, String, V>>,
}

impl<'a, V> Along<'a, V> {
    pub(crate) fn new(map: &'a BTreeMap<String, V>) -> Along<'a, V> {
        Along { left: map.iter().peekable() }
    }

    /// The value of this key, which must not be less than the previous one.
    pub(crate) fn find(&mut self, key: &str) -> Option<&'a V> {
        loop {
            let (next, value) = *self.left.peek()?;
            match next.as_str().cmp(key) {
                Ordering::Less => self.left.next(),
                Ordering::Equal => return Some(value),
                Ordering::Greater => return None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_looked_up_in_order_are_found_if_present() {
        let map = ["b", "d", "e"].map(|key| (key.to_string(), key)).into();
        let mut along = Along::new(&map);
        let found = ["a", "b", "b", "c", "e", "f"].map(|key| along.find(key).copied());
        assert_eq!(found, [None, Some("b"), Some("b"), None, Some("e"), None]);
    }
}

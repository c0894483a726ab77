use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use equipoise_basics::{AddressRange, mapped};

/// Address prefixes that are allowed and denied. The longest prefix of an address decides.
///
/// An address without a prefix is denied if any prefix is allowed, else allowed: a list of allowed
/// prefixes alone lets in those, and a list of denied prefixes alone keeps out those. An
/// IPv4-mapped IPv6 address counts as IPv4, to which no IPv6 prefix applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessList(Ranges);

/// The first address of each range, and whether it is allowed; a range ends before the next.
type Ranges = Vec<(u128, bool)>;

impl Default for AccessList {
    /// Every address is allowed.
    fn default() -> AccessList {
        AccessList::new(&[], &[])
    }
}

impl AccessList {
    /// From the addresses and lengths of prefixes. If a prefix is both allowed and denied, it is
    /// denied.
    pub fn new(allowed: &[(IpAddr, u8)], denied: &[(IpAddr, u8)]) -> AccessList {
        let default = allowed.is_empty();
        let allow = allowed.iter().map(|prefix| (*prefix, true));
        let mut prefixes: Vec<_> =
            allow.chain(denied.iter().map(|prefix| (*prefix, false))).collect();
        // Longer prefixes are painted over shorter ones; the sort keeps denied after allowed.
        prefixes.sort_by_key(|((_, length), _)| *length);
        let (v4, v6): (Vec<_>, Vec<_>) =
            prefixes.into_iter().partition(|((address, _), _)| address.is_ipv4());
        let painting =
            |((address, length), is_allowed)| (AddressRange::new(address, length), is_allowed);
        // No IPv6 prefix applies to IPv4.
        let all_v4 = ((Ipv4Addr::UNSPECIFIED.into(), 0), default);
        let in_order = v6.into_iter().chain([all_v4]).chain(v4);
        AccessList(painted(default, in_order.map(painting)))
    }

    /// Whether every address is allowed.
    pub fn allows_all(&self) -> bool {
        self.0.iter().all(|(_, is_allowed)| *is_allowed)
    }

    /// Whether `client` is served. O(log n).
    pub fn allows(&self, client: IpAddr) -> bool {
        let bits = mapped(client);
        let after = self.0.partition_point(|(first, _)| *first <= bits);
        after.checked_sub(1).is_none_or(|at| self.0[at].1)
    }
}

impl AccessList {
    /// Addresses of IPv4 or IPv6 at which the answer changes, as bits, in order. Addresses before
    /// the first are allowed.
    pub fn changes(&self, of_v4: bool) -> impl Iterator<Item = u128> {
        let AddressRange { first, last } = AddressRange::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let begin = of_v4.then(|| (first, self.allows(Ipv4Addr::UNSPECIFIED.into())));
        let of_family =
            self.0.iter().copied().filter(move |(bits, _)| (first..=last).contains(bits) == of_v4);
        let mut before = true;
        begin.into_iter().chain(of_family).filter_map(move |(bits, is_allowed)| {
            let is_change = std::mem::replace(&mut before, is_allowed) != is_allowed;
            is_change.then_some(if of_v4 { bits - first } else { bits })
        })
    }
}

/// Ranges of all addresses, after each of `ranges` was painted over those before it.
fn painted(default: bool, ranges: impl Iterator<Item = (AddressRange, bool)>) -> Ranges {
    let mut begins = BTreeMap::from([(0_u128, default)]);
    for (AddressRange { first, last }, is_allowed) in ranges {
        let before = begins.range(..=last).next_back().map_or(default, |(_, before)| *before);
        let covered: Vec<u128> = begins.range(first..=last).map(|(begin, _)| *begin).collect();
        for begin in covered {
            begins.remove(&begin);
        }
        begins.insert(first, is_allowed);
        if let Some(next) = last.checked_add(1) {
            begins.entry(next).or_insert(before);
        }
    }
    begins.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(allowed: &[&str], denied: &[&str]) -> AccessList {
        let prefixes = |texts: &[&str]| -> Vec<(IpAddr, u8)> {
            let split = |text: &&str| {
                let (address, length) = text.split_once('/').unwrap();
                (address.parse().unwrap(), length.parse().unwrap())
            };
            texts.iter().map(split).collect()
        };
        AccessList::new(&prefixes(allowed), &prefixes(denied))
    }

    fn allowed(list: &AccessList, client: &str) -> bool {
        list.allows(client.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_decides_and_an_allow_list_denies_other_addresses() {
        let all = AccessList::default();
        assert!(all.allows_all() && allowed(&all, "192.0.2.1") && allowed(&all, "::1"));
        let some = list(&["10.0.0.0/8", "2001:db8::/32"], &["10.1.0.0/16"]);
        for (client, expected) in [
            ("10.0.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("10.1.0.0", false),
            ("10.1.255.255", false),
            ("10.2.0.0", true),
            ("11.0.0.0", false),
            ("2001:db8::7", true),
            ("2001:db9::7", false),
        ] {
            assert_eq!(allowed(&some, client), expected, "{client}");
        }
        let hole = list(&["192.0.2.7/32"], &["192.0.2.0/24", "::/0"]);
        assert!(allowed(&hole, "192.0.2.7"));
        for client in ["192.0.2.6", "192.0.2.8", "198.51.100.1", "::2"] {
            assert!(!allowed(&hole, client), "{client}");
        }
        let both = list(&["192.0.2.0/24"], &["192.0.2.0/24"]);
        assert!(!allowed(&both, "192.0.2.1"));
        let open = list(&[], &["0.0.0.0/0"]);
        assert!(!allowed(&open, "255.255.255.255") && allowed(&open, "ffff::"));
    }

    #[test]
    fn changes_lists_the_addresses_at_which_the_decision_changes() {
        let some = list(&["10.0.0.0/8", "10.1.2.0/24"], &["10.1.0.0/16"]);
        let expected =
            ["0.0.0.0", "10.0.0.0", "10.1.0.0", "10.1.2.0", "10.1.3.0", "10.2.0.0", "11.0.0.0"];
        let bits = |text: &&str| u128::from(text.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
        let expected: Vec<_> = expected.iter().map(bits).collect();
        assert_eq!(some.changes(true).collect::<Vec<_>>(), expected);
        assert_eq!(some.changes(false).collect::<Vec<_>>(), [0], "no IPv6 address is allowed");
        assert_eq!(AccessList::default().changes(true).count(), 0);
    }

    fn prefix() -> impl Strategy<Value = (IpAddr, u8)> {
        let v4 = (any::<u32>(), 0..=32_u8)
            .prop_map(|(bits, length)| (IpAddr::V4((bits & 0x0300_0003).into()), length));
        let v6 = (any::<u128>(), 0..=128_u8)
            .prop_map(|(bits, length)| (IpAddr::V6((bits & (3 << 126 | 3)).into()), length));
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn an_access_list_agrees_with_a_search_of_all_prefixes(
            allowed in prop::collection::vec(prefix(), 0..8),
            denied in prop::collection::vec(prefix(), 0..8),
            (client, _) in prefix(),
        ) {
            let covers = |(address, length): &&(IpAddr, u8)| {
                let range = AddressRange::new(*address, *length);
                address.is_ipv4() == client.is_ipv4() && range.contains(client)
            };
            let longest = |prefixes: &[(IpAddr, u8)]| {
                prefixes.iter().filter(covers).map(|(_, length)| i32::from(*length)).max()
            };
            let expected = match (longest(&allowed), longest(&denied)) {
                (None, None) => allowed.is_empty(),
                (allow, deny) => allow.unwrap_or(-1) > deny.unwrap_or(-1),
            };
            let is_allowed = AccessList::new(&allowed, &denied).allows(client);
            prop_assert_eq!(is_allowed, expected);
        }
    }
}

//! Rings: the slot of each flow without a pin.

use equipoise_core::Candidate;
use equipoise_core::scheduler::maglev_table;

use crate::abi::NO_SLOT;
use crate::digest::Digest;

/// Picks before a ring is given up: with all but one slot in `n` gone, one flow in `(1 - 1/n)^8`
/// finds none.
const PICKS: usize = 8;

/// Buckets of LVS's source hashing (`CONFIG_IP_VS_SH_TAB_BITS` is 8).
pub const SOURCE_BUCKETS: usize = 256;

/// Slots by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ring {
    entries: Box<[u16]>,
}

/// A slot that takes new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) slot: u16,
    /// Of the backend, on every balancer of a fleet.
    pub(crate) identity: u64,
    pub(crate) weight: u32,
}

impl Ring {
    pub(crate) fn of(entries: Vec<u16>) -> Ring {
        Ring { entries: entries.into() }
    }

    /// Maglev's table of at most `entries_max` entries: the same for the same backends, whatever
    /// their slots.
    pub(crate) fn maglev(seats: &[Seat], entries_max: usize, seed: u64) -> Ring {
        let candidates: Vec<Candidate> = seats
            .iter()
            .map(|seat| Candidate { identity: seat.identity, weight: seat.weight })
            .collect();
        let table = maglev_table(&candidates, prime_below(entries_max), seed);
        Ring { entries: table.iter().map(|&seat| seats[seat as usize].slot).collect() }
    }

    /// The buckets of LVS's source hashing, for seats in the order of the configuration.
    ///
    /// # Source
    /// Linux, net/netfilter/ipvs/ip_vs_sh.c, `ip_vs_sh_reassign`: each backend in turn has as many
    /// buckets in a row as its weight. LVS keeps a bucket of a backend without weight, and refuses
    /// its clients; here it has none, as after its removal from LVS.
    pub(crate) fn source_buckets(seats: &[Seat]) -> Ring {
        let shares = seats.iter().flat_map(|it| (0..it.weight).map(|_| it.slot));
        Ring::of(shares.cycle().take(SOURCE_BUCKETS).collect())
    }

    /// The answers that `new` replaced: those of `old` where it differs and its backend is live,
    /// elsewhere those of `earlier`, the rings that `old` replaced. Positions without an answer
    /// have [`NO_SLOT`]; a ring without any is empty.
    ///
    /// # Source
    /// Olteanu et al., Stateless Datacenter Load-balancing with Beamer, NSDI 2018, section 4.1: the
    /// previous server of each bucket.
    pub(crate) fn replaced(
        old: &Ring,
        new: &Ring,
        earlier: &Ring,
        live: impl Fn(u16) -> bool,
    ) -> Ring {
        let answer = |ring: &Ring, at: usize, now: u16| {
            let is_as_long = ring.entries.len() == new.entries.len();
            let slot = is_as_long.then(|| ring.entries[at])?;
            (slot != now && live(slot)).then_some(slot)
        };
        let before = |(at, &now): (usize, &u16)| {
            answer(old, at, now).or_else(|| answer(earlier, at, now)).unwrap_or(NO_SLOT)
        };
        let entries: Box<[u16]> = new.entries.iter().enumerate().map(before).collect();
        let is_empty = entries.iter().all(|slot| *slot == NO_SLOT);
        if is_empty { Ring::default() } else { Ring { entries } }
    }

    pub(crate) fn entries(&self) -> &[u16] {
        &self.entries
    }

    /// The slot of a flow: the ring's answer, or where that is not live another one, always the
    /// same. Bit for bit what the program does (lookup.h).
    #[inline(always)]
    pub(crate) fn pick(&self, digest: Digest, live: impl Fn(u16) -> bool) -> Option<u16> {
        let len = self.entries.len() as u64;
        if len == 0 {
            return None;
        }
        let mut x = digest.0;
        for _ in 0..PICKS {
            let slot = self.entries[(((x >> 32) * len) >> 32) as usize];
            if live(slot) {
                return Some(slot);
            }
            x = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        None
    }
}

/// The largest prime up to `most`: every backend's preferences then name every entry.
fn prime_below(most: usize) -> usize {
    let is_prime =
        |n: usize| n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    (2..=most).rev().find(|&n| is_prime(n)).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(weights: &[u32]) -> Vec<Seat> {
        weights
            .iter()
            .zip(0..)
            .map(|(&weight, slot)| Seat { slot, identity: u64::from(slot) * 77 + 5, weight })
            .collect()
    }

    fn digests() -> impl Iterator<Item = Digest> {
        (1..5000_u64).map(|number| Digest(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    #[test]
    fn a_ring_without_weighted_seats_returns_no_slot() {
        assert_eq!(Ring::maglev(&[], 251, 1).pick(Digest(5), |_| true), None);
        assert_eq!(Ring::maglev(&seats(&[0]), 251, 1).pick(Digest(5), |_| true), None);
    }

    #[test]
    fn balancers_with_different_slots_pick_the_same_backends() {
        let here = seats(&[1, 2, 3]);
        let there: Vec<_> = here.iter().rev().map(|it| Seat { slot: 9 - it.slot, ..*it }).collect();
        let (here, there) = (Ring::maglev(&here, 65_537, 3), Ring::maglev(&there, 65_537, 3));
        for digest in digests() {
            let (a, b) = (here.pick(digest, |_| true), there.pick(digest, |_| true));
            assert_eq!(a.map(|slot| 9 - slot), b);
        }
    }

    #[test]
    fn flows_of_a_dead_slot_fall_back_and_other_flows_stay() {
        let ring = Ring::maglev(&seats(&[1; 4]), 65_537, 3);
        let mut fallen = [0; 4];
        for digest in digests() {
            let slot = ring.pick(digest, |_| true).unwrap();
            let other = ring.pick(digest, |slot| slot != 2).unwrap();
            if slot == 2 {
                fallen[usize::from(other)] += 1;
            } else {
                assert_eq!(other, slot);
            }
        }
        assert!(fallen[2] == 0 && [0, 1, 3].iter().all(|&slot| fallen[slot] > 300), "{fallen:?}");
        let answered = digests().filter_map(|digest| ring.pick(digest, |slot| slot == 1)).count();
        assert!(answered > 4300, "with three of four gone, 1 - (3/4)^8: {answered}");
    }

    #[test]
    fn entries_are_in_proportion_to_weight() {
        let ring = Ring::maglev(&seats(&[1, 2, 5]), 65_537, 3);
        let entries = |slot: u16| ring.entries().iter().filter(|&&it| it == slot).count();
        let counts = [0, 1, 2].map(entries);
        let exact = [1, 2, 5].map(|weight| 65_537 * weight / 8);
        for (count, exact) in counts.into_iter().zip(exact) {
            assert!(count.abs_diff(exact) <= 5, "{counts:?} of {exact}");
        }
    }

    #[test]
    fn a_replaced_ring_holds_the_last_different_live_slot_per_entry() {
        let ring = |slots: &[u16]| Ring::of(slots.to_vec());
        let all = |_| true;
        let none = Ring::default();
        let first = Ring::replaced(&ring(&[0, 0, 1, 1]), &ring(&[0, 2, 1, 2]), &none, all);
        assert_eq!(first.entries(), [NO_SLOT, 0, NO_SLOT, 1]);
        let second = Ring::replaced(&ring(&[0, 2, 1, 2]), &ring(&[0, 2, 3, 3]), &first, all);
        assert_eq!(second.entries(), [NO_SLOT, 0, 1, 2]);
        let third =
            Ring::replaced(&ring(&[0, 2, 3, 3]), &ring(&[0, 1, 3, 1]), &second, |it| it != 2);
        assert_eq!(third.entries(), [NO_SLOT, 0, 1, 3], "2 is gone");
        let back = Ring::replaced(&ring(&[1, 1]), &ring(&[0, 1]), &ring(&[NO_SLOT, 0]), all);
        assert_eq!(back.entries(), [1, 0]);
        assert_eq!(Ring::replaced(&ring(&[0]), &ring(&[0]), &none, all), none);
        assert_eq!(Ring::replaced(&none, &ring(&[0]), &none, all), none);
    }

    #[test]
    fn source_buckets_are_assigned_as_in_lvs() {
        let slots = |weights: &[u32]| Ring::source_buckets(&seats(weights)).entries().to_vec();
        assert_eq!(slots(&[1, 2, 0, 3])[..8], [0, 1, 1, 3, 3, 3, 0, 1]);
        assert_eq!(slots(&[1, 2, 0, 3]).len(), 256);
        assert_eq!(slots(&[200, 200])[198..202], [0, 0, 1, 1]);
        assert_eq!(slots(&[300, 1]), [0; 256], "later backends have none");
        assert!(slots(&[]).is_empty() && slots(&[0]).is_empty());
    }

    #[test]
    fn the_size_of_a_ring_is_prime() {
        assert_eq!([2, 4, 256, 65_536, 65_537].map(prime_below), [2, 3, 251, 65_521, 65_537]);
    }
}

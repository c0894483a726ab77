//! A static function: a binary fuse structure that stores values.
//!
//! # Source
//! Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022, sizes of
//! section 3 for three accesses. Deviates: a slot holds a part of the key's value where theirs
//! holds a part of its fingerprint. Written here because the well-kept filter crate (`xorf`) stores
//! fingerprints only, and the crate that has static functions (`sux`) brings 85 others.

use equipoise_pog::{Key, KeyHash, LANES, Seed, SipHash13};

/// Seeds tried before giving up; nearly always the first serves.
const ATTEMPTS: u64 = 100;

/// `value(k) = slots[h0(k)] xor slots[h1(k)] xor slots[h2(k)]`, for the keys that it was built
/// from.
pub(crate) struct FuseMap {
    hash: SipHash13,
    segment_len: u32,
    /// Slots in which the first of the three may lie.
    first_len: u64,
    slots: Vec<u16>,
}

impl FuseMap {
    /// `None` if no seed serves, as with a key that stands twice.
    pub(crate) fn build<K: Key>(keys: &[K], values: &[u16], seed: u64) -> Option<FuseMap> {
        let count = keys.len().max(2) as f64;
        let segment_len = 1_u32 << ((count.ln() / 3.33_f64.ln() + 2.25) as u32).min(18);
        let factor = (0.875 + 0.25 * 1e6_f64.ln() / count.ln()).max(1.125);
        let segments = ((count * factor / f64::from(segment_len)).ceil() as u64).max(3);
        let first_len = (segments - 2) * u64::from(segment_len);
        let slots = vec![0; (segments * u64::from(segment_len)) as usize];
        let hash = SipHash13::with_seed(Seed::default());
        let mut map = FuseMap { hash, segment_len, first_len, slots };
        (0..ATTEMPTS)
            .any(|attempt| {
                map.hash = SipHash13::with_seed(Seed { k0: seed, k1: attempt });
                map.solve(keys, values)
            })
            .then_some(map)
    }

    /// Peels the hypergraph, key by key that is alone in a slot, and fills the slots in the
    /// opposite order.
    fn solve<K: Key>(&mut self, keys: &[K], values: &[u16]) -> bool {
        let mut degrees = vec![0_u8; self.slots.len()];
        // The xor of the keys of a slot; of a slot with one key: that key.
        let mut members = vec![0_u32; self.slots.len()];
        for (number, key) in keys.iter().enumerate() {
            for slot in self.slots_of(self.hash.hash(key)) {
                // A slot of more than 255 keys: another seed will do.
                let Some(degree) = degrees[slot].checked_add(1) else { return false };
                degrees[slot] = degree;
                members[slot] ^= number as u32;
            }
        }
        let mut alone: Vec<usize> = (0..degrees.len()).filter(|slot| degrees[*slot] == 1).collect();
        let mut peeled = Vec::with_capacity(keys.len());
        while let Some(slot) = alone.pop() {
            if degrees[slot] != 1 {
                continue;
            }
            let number = members[slot];
            peeled.push((slot, number));
            for other in self.slots_of(self.hash.hash(&keys[number as usize])) {
                degrees[other] -= 1;
                members[other] ^= number;
                if degrees[other] == 1 {
                    alone.push(other);
                }
            }
        }
        for (slot, number) in peeled.iter().rev() {
            let [a, b, c] = self.slots_of(self.hash.hash(&keys[*number as usize]));
            let others = self.slots[a] ^ self.slots[b] ^ self.slots[c] ^ self.slots[*slot];
            self.slots[*slot] = others ^ values[*number as usize];
        }
        peeled.len() == keys.len()
    }

    /// Three slots in segments that follow each other.
    #[inline(always)]
    fn slots_of(&self, hash: u64) -> [usize; 3] {
        let first = ((u128::from(hash) * u128::from(self.first_len)) >> 64) as u32;
        let mask = self.segment_len - 1;
        let second = (first + self.segment_len) ^ (((hash >> 18) as u32) & mask);
        let third = (first + 2 * self.segment_len) ^ ((hash as u32) & mask);
        [first as usize, second as usize, third as usize]
    }

    #[inline(always)]
    fn of_hash(&self, hash: u64) -> u16 {
        let [a, b, c] = self.slots_of(hash);
        self.slots[a] ^ self.slots[b] ^ self.slots[c]
    }

    #[inline(always)]
    pub(crate) fn value<K: Key>(&self, key: &K) -> u16 {
        self.of_hash(self.hash.hash(key))
    }

    /// With several keys hashed at once, as the POG's batches do.
    pub(crate) fn values<K: Key>(&self, keys: &[K], values: &mut [u16]) {
        let (lanes, rest) = keys.as_chunks::<LANES>();
        for (keys, values) in lanes.iter().zip(values.chunks_mut(LANES)) {
            let hashes = self.hash.hash_lanes(keys);
            values.iter_mut().zip(hashes).for_each(|(value, hash)| *value = self.of_hash(hash));
        }
        let done = lanes.len() * LANES;
        rest.iter().zip(&mut values[done..]).for_each(|(key, value)| *value = self.value(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_value() {
        for count in [1, 2, 10, 1000, 100_000_u64] {
            let keys: Vec<u64> = (0..count).map(|key| key * 3).collect();
            let values: Vec<u16> = keys.iter().map(|key| (key * 7) as u16).collect();
            let map = FuseMap::build(&keys, &values, 1).expect("distinct keys");
            let mut found = vec![0; keys.len()];
            map.values(&keys, &mut found);
            assert_eq!(found, values);
            assert!(keys.iter().zip(&values).all(|(key, value)| map.value(key) == *value));
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        assert!(FuseMap::build(&[5_u64, 6, 5], &[1, 2, 3], 1).is_none());
    }
}

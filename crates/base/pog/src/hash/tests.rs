use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::*;
use crate::key::{FiveTupleV4, FiveTupleV6, Key, OpenFlowMatch};

const SEED: Seed = Seed { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };

fn reference(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(SEED.k0, SEED.k1);
    hasher.write(bytes);
    hasher.finish()
}

#[test]
fn siphash_is_that_of_the_reference_at_every_length() {
    let bytes: Vec<u8> = (0..100).collect();
    let hash = SipHash13::with_seed(SEED);
    for len in 0..bytes.len() {
        assert_eq!(hash.hash(&bytes[..len]), reference(&bytes[..len]), "{len} bytes");
    }
}

fn fixed<const N: usize>() {
    let hash = SipHash13::with_seed(SEED);
    let keys: [[u8; N]; LANES] =
        std::array::from_fn(|lane| std::array::from_fn(|at| (lane * 31 + at) as u8));
    let expected = keys.map(|key| reference(&key));
    assert_eq!(keys.map(|key| hash.hash(&key)), expected, "{N} bytes, one by one");
    assert_eq!(hash.hash_lanes(&keys), expected, "{N} bytes, in lanes");
    assert_eq!(lanes::portable(SEED, &keys), expected, "{N} bytes, in portable lanes");
    assert_eq!(hash.hash_lanes(&keys.map(|key| key.to_vec())), expected, "{N} bytes, not fixed");
}

#[test]
fn keys_of_fixed_length_hash_as_their_bytes_alone_and_in_lanes() {
    fixed::<0>();
    fixed::<1>();
    fixed::<6>();
    fixed::<7>();
    fixed::<8>();
    fixed::<9>();
    fixed::<13>();
    fixed::<16>();
    fixed::<37>();
    fixed::<45>();
    fixed::<64>();
}

#[test]
fn keys_hash_as_their_bytes_on_the_wire() {
    let hash = SipHash13::with_seed(SEED);
    assert_eq!(hash.hash(&0x1122_3344_u32), reference(&[0x44, 0x33, 0x22, 0x11]));
    assert_eq!(hash.hash(&0x0102_u64), reference(&[2, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(hash.hash(&(1_u128 << 127)), reference(&(1_u128 << 127).to_le_bytes()));
    assert_eq!(hash.hash("host.example"), reference(b"host.example"));
    let source = ([192, 0, 2, 1].into(), 0x1234);
    let destination = ([198, 51, 100, 7].into(), 443);
    let tuple = FiveTupleV4::new(source, destination, 6);
    let wire = [192, 0, 2, 1, 198, 51, 100, 7, 0x12, 0x34, 1, 187, 6];
    assert_eq!(tuple.as_bytes(), &wire);
    assert_eq!(hash.hash(&tuple), reference(&wire));
    let tuple = FiveTupleV6::new((1_u128.into(), 80), (2_u128.into(), 443), 17);
    assert_eq!(tuple.as_bytes()[15..18], [1, 0, 0]);
    assert_eq!(hash.hash(&&tuple), reference(tuple.as_bytes()));
}

#[test]
fn a_match_has_356_bits() {
    let mut bits = [0xff; 45];
    assert_eq!(OpenFlowMatch::new(bits), None);
    bits[44] = 0x0f;
    assert_eq!(OpenFlowMatch::new(bits).map(|key| key.byte_len()), Some(45));
}

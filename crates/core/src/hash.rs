//! Hashes that every process of a fleet agrees on.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

/// SipHash-1-3 of both ends of a flow.
pub fn flow_hash(client: SocketAddr, local: SocketAddr, seed: u64) -> u64 {
    hash((client, local), seed)
}

/// SipHash-1-3 of a client's address alone.
pub fn source_hash(client: IpAddr, seed: u64) -> u64 {
    hash(client, seed)
}

/// What identifies a backend in every process alike.
pub fn identity(address: SocketAddr) -> u64 {
    hash(address, 0)
}

fn hash(value: impl Hash, seed: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, 0);
    value.hash(&mut hasher);
    hasher.finish()
}

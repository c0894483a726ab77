//! SipHash-1-3 of addresses with a seed: the same result in every process, thread and level.
//!
//! A secret seed prevents a client from choosing addresses that all map to one backend. One seed
//! for a fleet makes its members agree. Each function has its own hash domain, so a flow hash
//! reveals nothing about a source hash. Versions must agree on the hashed layout; a test fixes it.
//!
//! # Source
//! Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; the 1-3 rounds are those of
//! Rust's and Linux's hash tables (`hsiphash`).

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;

/// Second key words, one per function: they separate the hash domains.
mod domain {
    pub(super) const FLOW: u64 = u64::from_be_bytes(*b"eqp-flow");
    pub(super) const SOURCE: u64 = u64::from_be_bytes(*b"eqp-srce");
    pub(super) const IDENTITY: u64 = u64::from_be_bytes(*b"eqp-idty");
    pub(super) const OFFSET: u64 = u64::from_be_bytes(*b"eqp-ofst");
    pub(super) const KEY: u64 = u64::from_be_bytes(*b"eqp-keys");
    pub(super) const COOKIE: u64 = u64::from_be_bytes(*b"eqp-cook");
    pub(super) const SKIP: u64 = u64::from_be_bytes(*b"eqp-skip");
}

const IP_BYTES: usize = 16;
const ENDPOINT_BYTES: usize = IP_BYTES + 2;

/// Hashes a flow by both of its ends. The protocol is left out, because a front door has only one.
pub fn flow_hash(client: SocketAddr, local: SocketAddr, seed: u64) -> u64 {
    let mut bytes = [0; 2 * ENDPOINT_BYTES];
    bytes[..ENDPOINT_BYTES].copy_from_slice(&endpoint_bytes(client));
    bytes[ENDPOINT_BYTES..].copy_from_slice(&endpoint_bytes(local));
    keyed(seed, domain::FLOW, &bytes)
}

/// Hashes a client's address without its port, so that all its connections have one hash.
pub fn source_hash(client: IpAddr, seed: u64) -> u64 {
    keyed(seed, domain::SOURCE, &ip_bytes(client))
}

/// Identifies a backend by its address, independent of the seed: for
/// [`crate::Candidate::identity`].
pub fn identity(backend: SocketAddr) -> u64 {
    keyed(0, domain::IDENTITY, &endpoint_bytes(backend))
}

/// Hashes the key of an item of a stream. No seed, because clients may compute the same hash.
pub fn key_hash(key: &[u8]) -> u64 {
    keyed(0, domain::KEY, key)
}

/// The value of a cookie that names a backend.
pub fn cookie_hash(backend: SocketAddr, seed: u64) -> u64 {
    keyed(seed, domain::COOKIE, &endpoint_bytes(backend))
}

/// The two hashes that define a backend's permutation of a Maglev table: offset and skip.
pub(crate) fn offset_and_skip(identity: u64, seed: u64) -> (u64, u64) {
    let bytes = identity.to_le_bytes();
    (keyed(seed, domain::OFFSET, &bytes), keyed(seed, domain::SKIP, &bytes))
}

fn keyed(seed: u64, domain: u64, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(seed, domain);
    hasher.write(bytes);
    hasher.finish()
}

/// An address in network order, then its port. Scope and flow label do not identify the peer.
fn endpoint_bytes(address: SocketAddr) -> [u8; ENDPOINT_BYTES] {
    let mut bytes = [0; ENDPOINT_BYTES];
    bytes[..IP_BYTES].copy_from_slice(&ip_bytes(address.ip()));
    bytes[IP_BYTES..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// IPv4 as IPv4-mapped IPv6, which is how a dual-stack listener sees the same client.
fn ip_bytes(ip: IpAddr) -> [u8; IP_BYTES] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_layout_is_fixed_between_versions() {
        let (client, local) = (address("192.0.2.7:40000"), address("198.51.100.1:80"));
        assert_eq!(flow_hash(client, local, 1), FLOW_FIXED);
        assert_eq!(source_hash(client.ip(), 1), SOURCE_FIXED);
        assert_eq!(identity(client), IDENTITY_FIXED);
    }

    // Results of another implementation of SipHash-1-3, written from the paper.
    const FLOW_FIXED: u64 = 0x3028_8db8_4276_a93b;
    const SOURCE_FIXED: u64 = 0xb64c_2667_e7f6_b015;
    const IDENTITY_FIXED: u64 = 0x04cc_6f85_9411_9e29;

    #[test]
    fn a_dual_stack_listener_sees_the_same_client() {
        let (v4, mapped) = (address("192.0.2.7:40000"), address("[::ffff:192.0.2.7]:40000"));
        let local = address("198.51.100.1:80");
        assert_eq!(flow_hash(v4, local, 9), flow_hash(mapped, local, 9));
        assert_eq!(source_hash(v4.ip(), 9), source_hash(mapped.ip(), 9));
        assert_eq!(identity(v4), identity(mapped));
    }

    #[test]
    fn every_part_of_a_flow_counts() {
        let base = ["192.0.2.7:40000", "198.51.100.1:80"];
        let whole = flow_hash(address(base[0]), address(base[1]), 1);
        let others = [
            (["192.0.2.8:40000", base[1]], 1),
            (["192.0.2.7:40001", base[1]], 1),
            ([base[0], "198.51.100.2:80"], 1),
            ([base[0], "198.51.100.1:81"], 1),
            ([base[1], base[0]], 1),
            (base, 2),
        ];
        for ([client, local], seed) in others {
            assert_ne!(flow_hash(address(client), address(local), seed), whole, "{client} {local}");
        }
    }

    #[test]
    fn the_domains_differ() {
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        let hashes = [
            keyed(0, domain::FLOW, &ip_bytes(ip)),
            source_hash(ip, 0),
            keyed(0, domain::IDENTITY, &ip_bytes(ip)),
            keyed(0, domain::OFFSET, &ip_bytes(ip)),
            keyed(0, domain::SKIP, &ip_bytes(ip)),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[at + 1..].contains(hash));
        }
    }
}

//! A DNS client that shares no code with the DNS level.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_testkit::PATIENCE;

/// The record type of IPv4 addresses.
pub const A: u16 = 1;

/// A query with a new id. unbound rotates a record set by the id and the seconds of the clock, so
/// with a constant id it would not rotate in some seconds.
pub fn query(name: &str, rtype: u16) -> Vec<u8> {
    static ASKED: AtomicU32 = AtomicU32::new(1);
    let id = ASKED.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9) >> 16;
    let mut query = (id as u16).to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(rtype.to_be_bytes());
    query.extend([0, 1]);
    query
}

/// Time without an answer after which the client repeats its query, since datagrams may be lost.
const RESEND: Duration = Duration::from_secs(5);

/// The records of the answer to a query.
pub fn ask(server: SocketAddr, name: &str, rtype: u16) -> Vec<u8> {
    let query = query(name, rtype);
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback works");
    client.set_read_timeout(Some(RESEND)).expect("the time is not zero");
    let mut answer = vec![0; 1500];
    let end = Instant::now() + PATIENCE;
    let length = loop {
        client.send_to(&query, server).expect("loopback works");
        match client.recv(&mut answer) {
            Ok(length) => break length,
            Err(error) => assert!(Instant::now() < end, "{server} does not answer: {error}"),
        }
    };
    answer.truncate(length);
    assert_eq!(answer[..2], query[..2]);
    answer.drain(..query.len());
    answer
}

/// Reads the A records after the question that belong to the question's name.
pub fn addresses(mut records: &[u8]) -> (Vec<[u8; 4]>, u32) {
    let (mut all, mut ttl) = (Vec::new(), 0);
    while let [0xc0, 12, 0, 1, 0, 1, a, b, c, d, 0, 4, w, x, y, z, rest @ ..] = records {
        ttl = u32::from_be_bytes([*a, *b, *c, *d]);
        all.push([*w, *x, *y, *z]);
        records = rest;
    }
    all.sort();
    (all, ttl)
}

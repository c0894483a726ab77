//! The memory of an encrypted stream is bounded, whatever its size and however slowly the client
//! reads. The only test of its process, since it measures the process.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common_net;
mod common_tls;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use common_net::{Rig, backend, until};
use common_tls::{Site, finish};
use equipoise_session::config::Protocol;
use equipoise_testkit::{Pattern, rss_bytes};

#[test]
fn slow_readers_hold_their_sender_up_and_miss_nothing() {
    const BYTES: usize = 64 << 20;
    let site = Site::new();
    let backend = backend(|mut stream| {
        let mut pattern = Pattern::new(9);
        while pattern.offset() < BYTES as u64 {
            let left = BYTES - pattern.offset() as usize;
            if stream.write_all(pattern.next(left.min(50_000))).is_err() {
                return;
            }
        }
    });
    let rig = Rig::start(Protocol::Tcp, &[backend], |wishes| wishes.door.tls = site.tcp());
    let mut tls = site.connect(rig.address);
    tls.conn.complete_io(&mut tls.sock).unwrap();
    let before = rss_bytes();
    let moved = || rig.count(|stats| &stats.bytes_out);
    let last = std::cell::Cell::new(0);
    until("nothing moves any more", || {
        let now = moved();
        thread::sleep(Duration::from_millis(20));
        last.replace(now) == now && now > 0
    });
    assert!(moved() < BYTES as u64);
    let (mut pattern, mut most, mut piece) = (Pattern::new(9), 0, vec![0; 60_000]);
    loop {
        let read = tls.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        assert_eq!(pattern.check(&piece[..read]), Ok(()));
        most = most.max(rss_bytes().saturating_sub(before));
    }
    assert_eq!(pattern.offset(), BYTES as u64);
    assert!(most < 16 << 20, "{most} bytes");
    finish(&mut tls);
    rig.settle();
}
